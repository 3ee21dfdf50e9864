"""A consumer's place in a pool: what it has instead of an ear of its own."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from echomq.runtime.hand import Held


class Pool(Protocol):
    """Who listens for the consumers of a pool."""

    def join(self, seat: Seat) -> None:
        """One more consumer."""

    def leave(self, seat: Seat) -> None:
        """One less."""

    def idle(self, seat: Seat) -> None:
        """It waits."""

    def answered(self, seat: Seat, *, found: bool, next_ms: int | None = None) -> None:
        """Its claim has come back, with the next instant worth trying where it knows of one."""


class Seat:
    """It has the shape of an `Ear`. `heard` answers whether a claim follows."""

    def __init__(
        self,
        pool: Pool,
        heard: Callable[[], bool],
        told: Callable[[bytes], None],
        held: Collection[Held],
        concurrency: int,
        lease_ms: int,
    ) -> None:
        self._pool = pool
        self.heard = heard
        self.told = told
        self.held = held
        self.concurrency = concurrency
        """How many jobs it runs at once."""
        self.lease_ms = lease_ms
        """The lease of what it claims."""
        self.in_vain = False
        """It was woken last, and found nothing."""

    async def open(self) -> None:
        """Join the pool."""
        self._pool.join(self)

    def arm(self) -> None:
        """Idle from now on."""
        self._pool.idle(self)

    def answered(self, *, found: bool, next_ms: int | None = None) -> None:
        """A claim has come back, or has failed. `next_ms`: the next instant worth trying, where it knows of one."""
        self._pool.answered(self, found=found, next_ms=next_ms)

    async def close(self) -> bool:
        """Leave the pool; a wake that was on its way here goes to another."""
        self._pool.leave(self)
        return False
