"""Mints ids that never repeat and always rise, whatever clocks, threads and forks do (protocol §1)."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from itertools import islice
from time import time_ns
from typing import Final
from weakref import WeakSet

from echomq.identity import base62
from echomq.identity.base62 import PAIR, PAIRS
from echomq.identity.branded import JOB, check_namespace
from echomq.identity.errors import IdError
from echomq.identity.snowflake import (
    EPOCH_MS,
    MAX_NODE,
    MAX_SEQUENCE,
    SEQUENCE_BITS,
    TIME_SHIFT,
    check_node,
)

_TICK_LIMIT: Final = 1 << 53
"""41 bits of time and 12 of sequence."""


def wall_clock_ms() -> int:
    """The host's wall clock, Unix milliseconds."""
    return time_ns() // 1_000_000


def _random_node(other_than: int | None = None) -> int:
    # From the system, not `random`: a fork copies that one's state, and users seed it.
    node = int.from_bytes(os.urandom(2)) & MAX_NODE
    return (node + 1) & MAX_NODE if node == other_than else node


class Minter:
    """A source of strictly increasing ids for one process and all its threads.

    `node` tells processes apart: random until a connector injects the one that it leased. `clock_ms`
    gives Unix milliseconds; the minter bears that it stands still or steps back.
    """

    def __init__(self, node: int | None = None, clock_ms: Callable[[], int] = wall_clock_ms) -> None:
        self._node = _random_node() if node is None else check_node(node)
        self._clock_ms = clock_ms
        # Reentrant: a signal handler or a finalizer may mint while this thread is minting.
        self._lock = threading.RLock()
        # The texts of consecutive numbers of one millisecond, made as they are taken: a run. Ids are
        # taken from it while its millisecond lasts, and beyond when the clock stands or steps back.
        self._run: Iterator[str] = iter(())
        self._run_ms = EPOCH_MS - 1
        # The first tick that no run has: milliseconds since the epoch and sequence in one number, so
        # that counting on borrows from the next millisecond by itself.
        self._next_tick = 0
        _minters.add(self)

    @property
    def node(self) -> int:
        """The node that the next ids carry, 0 .. 1023; it may be set at any time."""
        return self._node

    @node.setter
    def node(self, node: int) -> None:
        check_node(node)
        with self._lock:
            if node != self._node:
                self._move_to(node)

    def mint(self, namespace: str = JOB) -> str:
        """One new id, above every id this minter has given."""
        if namespace != JOB:
            check_namespace(namespace)
        with self._lock:
            clock_ms = self._clock_ms
            now_ms = time_ns() // 1_000_000 if clock_ms is wall_clock_ms else clock_ms()
            if now_ms <= self._run_ms and (text := next(self._run, "")):
                return namespace + text
            return namespace + self._begin_run(now_ms)

    def mint_many(self, n: int, namespace: str = JOB) -> list[str]:
        """`n` new ids in rising order, as if minted one after another in one instant."""
        check_namespace(namespace)
        if not isinstance(n, int) or isinstance(n, bool) or n < 0:
            raise IdError(f"cannot mint {n!r} ids: an int of 0 or more is allowed")
        out: list[str] = []
        with self._lock:
            now_ms = self._clock_ms()
            if n and now_ms > self._run_ms:
                out.append(self._begin_run(now_ms))
            while len(out) < n:
                out += islice(self._run, n - len(out))
                if len(out) < n:
                    out.append(self._begin_run(now_ms))
        return [namespace + text for text in out]

    def _begin_run(self, now_ms: int) -> str:
        """Reserve the next run, at `now_ms` or right after the last one, and take its first text."""
        floor = (now_ms - EPOCH_MS) << SEQUENCE_BITS
        # Nothing is called between here and the store, so no signal handler can mint in between.
        tick = self._next_tick
        if floor > tick:
            tick = floor
        sequence = tick & MAX_SEQUENCE
        number = tick >> SEQUENCE_BITS << TIME_SHIFT | self._node << SEQUENCE_BITS | sequence
        # Texts that share all but their last pair, of one millisecond.
        low = number % PAIR
        size = MAX_SEQUENCE + 1 - sequence
        if size > PAIR - low:
            size = PAIR - low
        end = self._next_tick = tick + size
        if end > _TICK_LIMIT:
            raise IdError("no more ids: the clock is past the year 2093, beyond 41 bits of milliseconds")
        head = base62.encode(number)[:-2]
        run = map(head.__add__, map(PAIRS.__getitem__, range(low, low + size)))
        text = next(run)
        if self._next_tick == end:
            self._run = run
            self._run_ms = (tick >> SEQUENCE_BITS) + EPOCH_MS
        return text

    def _move_to(self, node: int) -> None:
        # A lower node in the same millisecond would sort before what is minted: begin the next one.
        self._next_tick = (self._next_tick + MAX_SEQUENCE) & ~MAX_SEQUENCE
        self._run = iter(())
        self._node = node

    def after_fork_in_child(self) -> None:
        """Take a node of this process's own; called by itself in every child of a fork."""
        # Another thread of the parent may have held the lock, or been halfway; it does not live here.
        # The parent goes on with its node, so this process takes another.
        self._lock = threading.RLock()
        self._move_to(_random_node(other_than=self._node))


_minters: WeakSet[Minter] = WeakSet()


def _after_fork_in_child() -> None:
    for each in list(_minters):
        each.after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)

minter: Final = Minter()
"""The process's own minter: connectors inject their leased node here."""

mint: Final = minter.mint
"""A new id from the process's own minter."""
