"""A consumer's legs: what it does beside its flights, so that no job waits for it.

The outbox is delivered, the morgue kept within its settings, observers hear of parents that have died with their
children, and the worker says that it lives. One task does what is due, one thing after the other; one that fails is due
again after a pause on the loops' curve.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from echomq.protocol.backoff import delay_ms
from echomq.runtime.bereaved import Bereaved
from echomq.runtime.loops import curve, say
from echomq.runtime.outbox import Outbox
from echomq.runtime.owing import Follower, Owing
from echomq.runtime.presence import PRESENCE_S, Presence
from echomq.runtime.retention import RETAIN_BEATS, Retention
from echomq.wire import AsyncConnector

OUTBOX_BEATS: Final = 2
"""Beats from one look into the outbox to the next, while nobody has seen a signal go in: it keeps an idle worker
below three commands a second."""

OWING_BEATS: Final = 10
"""Beats from one look for deaths to be followed to the next, while nobody has seen a job die."""

_OWED: Final = frozenset({"outbox", "owing"})


class Legs:
    """The legs of one consumer. Instants are seconds on the event loop's clock."""

    def __init__(
        self,
        queue: str,
        presence: Presence | None,
        *,
        beat_ms: int,
        paid: Callable[[], None] | None = None,
        follower: Follower | None = None,
        bereaved: Bereaved | None = None,
    ) -> None:
        self.bereaved = bereaved
        self.outbox = Outbox(queue, bereaved=bereaved)
        self.owing = None if follower is None else Owing(queue, follower)
        self.retention = Retention(queue)
        self._name = f"{queue}:legs"
        self._presence = presence
        self._curve = curve(beat_ms)
        self._paid = paid
        self._beats = 0
        self._says_at = 0.0
        self._due: dict[str, Callable[[AsyncConnector], Awaitable[Any]]] = {}
        self._streaks: dict[str, int] = {}
        self._rests_until: dict[str, float] = {}
        self._task: asyncio.Task[None] | None = None
        self.owes = False
        """A signal that this worker has put into the outbox is not delivered yet, or what is to follow a death that it
        has seen is not admitted; `paid` is called when it is."""
        self.looks = False
        """A beat's look for what others have left so is not over; `paid` is called when it is, or has failed."""

    def signalled(self) -> None:
        """A signal may have gone into the outbox, and a job have died whose death is to be followed."""
        self.owes = True
        if self.bereaved:
            self._due["bereaved"] = self.bereaved.tell
        self._due["outbox"] = self.outbox.deliver
        self.died()

    def died(self) -> None:
        """A job may have died whose death is to be followed."""
        if self.owing is not None:
            self._due["owing"] = self.owing.pay

    def changed(self) -> None:
        """What the worker says of itself is no longer so."""
        if self._presence is not None:
            self._due["presence"] = self._say

    def beat(self, now: float) -> None:
        """Note what a beat makes due."""
        count, self._beats = self._beats, self._beats + 1
        if count % OUTBOX_BEATS == 0:
            self._due["outbox"] = self.outbox.deliver
            self.looks = True
        if count % OWING_BEATS == 0:
            self.died()
        if count % RETAIN_BEATS == 0:
            self._due["retention"] = self.retention.apply
        if self._presence is not None and now >= self._says_at:
            self._says_at = now + PRESENCE_S
            self._due["presence"] = self._say

    def go(self, conn: AsyncConnector, now: float) -> None:
        """Do what is due, in the background."""
        if self._next(now) is not None and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._walk(conn), name=f"echomq {self._name}")

    async def rest(self) -> None:
        """Wait until all that is under way is done."""
        if self._task is not None:
            await asyncio.wait((self._task,))

    async def end(self) -> None:
        """Give up what is under way: it is safe to be done again by another."""
        if self._task is not None:
            self._task.cancel()
            await self.rest()

    async def farewell(self, conn: AsyncConnector) -> None:
        """Deliver what the last settlements have signalled, and take the worker out of the registry."""
        await self.rest()
        if self.bereaved is not None:
            await self.bereaved.tell(conn)
        if "outbox" in self._due:
            await self.outbox.deliver(conn)
        if self.owing is not None and "owing" in self._due:
            await self.owing.pay(conn)
        if self._presence is not None and self._beats:
            await conn.run(self._presence.farewell())

    async def _say(self, conn: AsyncConnector) -> None:
        assert self._presence is not None
        await conn.run(self._presence.said())

    def _next(self, now: float) -> str | None:
        return next((name for name in self._due if now >= self._rests_until.get(name, 0.0)), None)

    async def _walk(self, conn: AsyncConnector) -> None:
        loop = asyncio.get_running_loop()
        while (name := self._next(loop.time())) is not None:
            work = self._due.pop(name)
            try:
                await work(conn)
                self._streaks.pop(name, None)
                if (self.owes or self.looks) and not self._due.keys() & _OWED:
                    self.owes = False
                    self._looked()
            except Exception as error:  # noqa: BLE001  (`say` logs what is unexpected whole; the jobs go on)
                self._due.setdefault(name, work)
                streak = self._streaks[name] = self._streaks.get(name, 0) + 1
                pause_ms = delay_ms(self._curve, streak)
                self._rests_until[name] = loop.time() + pause_ms / 1_000
                say(self._name, error, streak, pause_ms)
                self._looked()
                return

    def _looked(self) -> None:
        self.looks = False
        if self._paid is not None:
            self._paid()
