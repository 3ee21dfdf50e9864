"""The metronome: keeps time and listens for a pool of consumers on one queue, in one process and event loop.

However many consumers there are, the queue sees one blocked connection, one sweep and one promotion a beat. A wake goes
to the consumer that has been idle for longest; where its claim finds something the next one is woken, and so on, so
that a wake costs each idle consumer one claim at most.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Iterator
from typing import Final

from echomq.identity.errors import EchoMQError
from echomq.protocol.checks import integer
from echomq.protocol.discover import clock
from echomq.protocol.jobs import LEASE_MS
from echomq.protocol.keys import check_queue
from echomq.protocol.replies import Claims
from echomq.runtime.bereaved import Bereaved
from echomq.runtime.dial import Dial
from echomq.runtime.ear import Ear, push_token
from echomq.runtime.hand import Held
from echomq.runtime.leases import LeaseKeeper
from echomq.runtime.legs import Legs
from echomq.runtime.loops import BEAT_MS, Loop
from echomq.runtime.presence import Identity, Presence, identity
from echomq.runtime.publishing import published
from echomq.runtime.pump import PROMOTE_BATCH, promote_due
from echomq.runtime.recurrences import Recurrences
from echomq.runtime.seat import Seat
from echomq.runtime.stalled import sweep_all
from echomq.runtime.telemetry import Telemetry, hub
from echomq.runtime.timekeeper import Timekeeper
from echomq.runtime.turns import heads

_FOREVER: Final = float("inf")


class _InHand(Collection[Held]):
    """What all consumers of a pool have in hand."""

    def __init__(self, seats: list[Seat]) -> None:
        self._seats = seats

    def __len__(self) -> int:
        return sum(len(seat.held) for seat in self._seats)

    def __iter__(self) -> Iterator[Held]:
        for seat in self._seats:
            yield from seat.held

    def __contains__(self, held: object) -> bool:
        return any(held in seat.held for seat in self._seats)


class Metronome(Loop):
    """Start it, then the consumers that are given it: `Consumer(dial, queue, handler, metronome=metronome)`.

    The consumers are stopped first. They may come and go while it runs. `watch` is told of lapses and of occurrences;
    with `events` these are published on the queue's channel too (protocol §10).
    """

    def __init__(
        self,
        dial: Dial,
        queue: str,
        *,
        beat_ms: int = BEAT_MS,
        max_stalled: int = 3,
        batch: int = PROMOTE_BATCH,
        who: Identity | None = None,
        watch: Telemetry = hub,
        events: bool = False,
    ) -> None:
        super().__init__(dial, beat_ms=beat_ms)
        self.queue = check_queue(queue)
        self._max_stalled = integer("max_stalled", max_stalled, least=1)
        self._batch = integer("batch", batch, least=1)
        self._seats: list[Seat] = []
        self._idle: deque[Seat] = deque()
        self._woken: Seat | None = None
        self._pending = False
        self._watch = published(watch, self.submit) if events else watch
        self._recurrences = Recurrences(queue, watch=self._watch)
        self._heads = heads(queue)
        self._time = Timekeeper()
        self._hint_ms: int | None = None
        self._degraded = False
        self._beat_at = 0.0
        self._nudge = asyncio.Event()
        self._who = who or identity((queue,))
        presence = Presence(queue, self._who, _InHand(self._seats), self._slots, self._longest_ms)
        self._bereaved = Bereaved(queue, self._watch)
        self._legs = Legs(queue, presence, beat_ms=beat_ms, bereaved=self._bereaved)
        self._ear: Ear | None = None
        self.keeper = LeaseKeeper(dial)
        """The lease keeper of the pool."""

    @property
    def name(self) -> str:
        """What it is."""
        return f"{self.queue}:metronome"

    async def start(self) -> None:
        """Listen, and begin to beat."""
        if self._ear is None:
            self._ear = Ear(self._dial, self.queue, self._heard, beat_ms=self._beat_ms, told=self._told)
            await self._ear.open()
            await self.keeper.start()
        await super().start()

    async def stop(self) -> None:
        """End after the beat that is running."""
        self._nudge.set()
        self._stopping.set()
        if self._ear is not None and await self._ear.close():
            self._hand_on()
        await self.keeper.stop()
        if self._task is not None:
            await asyncio.shield(self._task)  # it is the last to say anything of this pool
        if self._connector is not None:
            try:
                async with asyncio.timeout(2):
                    await self._legs.farewell(self._connector)
            except (EchoMQError, TimeoutError):
                await self._legs.end()
        await super().stop()

    async def beat(self) -> None:
        """Recover, promote, fire, and look when to be back."""
        self._degraded = True
        conn = await self.conn()
        loop = asyncio.get_running_loop()
        if loop.time() >= self._beat_at:
            swept = await sweep_all(conn, self._bereaved, max_stalled=self._max_stalled, worker=self._who.name)
            if swept.dead:
                self._legs.signalled()
            self._legs.beat(loop.time())
            if swept.unknown:
                self._legs.changed()
            self._legs.go(conn, loop.time())
            self._beat_at = loop.time() + self._beat_ms / 1_000
        await promote_due(conn, self.queue, self._batch)
        await self._recurrences.fire(conn, await conn.run(clock(self.queue)))
        sent_at = loop.time()
        now_ms, *found = await conn.run_many([clock(self.queue), *self._heads])
        failure = next((each for each in (now_ms, *found) if isinstance(each, EchoMQError)), None)
        if failure is not None:
            raise failure
        next_ms = min((each for each in found if isinstance(each, int)), default=None)
        assert isinstance(now_ms, int)
        self._time.learn(Claims((), None, now_ms, next_ms), sent_at, loop.time())
        self._degraded = False
        if (hint := self._hint_ms) is None:
            return
        if next_ms is not None and next_ms <= hint:
            self._hint_ms = None  # a run-at: it is kept from now on
        elif hint <= now_ms:
            self._hint_ms = None
            self._wake()

    # The pool

    def join(self, seat: Seat) -> None:
        """One more consumer."""
        self._seats.append(seat)
        self._changed()

    def _changed(self) -> None:
        """The pool is another one: the registry is to say so."""
        self._legs.changed()
        if self._connector is not None:
            self._legs.go(self._connector, asyncio.get_running_loop().time())

    def _slots(self) -> int:
        """How many jobs the pool runs at once."""
        return sum(seat.concurrency for seat in self._seats)

    def _longest_ms(self) -> int:
        """The longest lease of its consumers: for so long a silence may mean nothing."""
        return max((seat.lease_ms for seat in self._seats), default=LEASE_MS)

    def leave(self, seat: Seat) -> None:
        """One less; what it was woken for goes to another."""
        if seat in self._seats:
            self._seats.remove(seat)
            self._changed()
        if seat in self._idle:
            self._idle.remove(seat)
        if self._woken is seat:
            self._woken = None
            self._wake()

    def idle(self, seat: Seat) -> None:
        """It waits, behind those that have waited for longer."""
        if seat not in self._idle and seat in self._seats:
            if seat.in_vain:
                self._idle.appendleft(seat)  # it has not worked, so it has still been idle for longest
            else:
                self._idle.append(seat)
        if self._pending and self._woken is None:
            self._wake()
        self._listen()

    def answered(self, seat: Seat, *, found: bool, next_ms: int | None = None) -> None:
        """What its claim has come to: the next one is woken while there is something.

        A claim that finds nothing takes the tokens away and gives the next instant instead (protocol §12.2), which the
        pool has to keep: a run-at that is news here, or the end of a rate window, which nothing else tells of.
        """
        if next_ms is not None and all(
            known is None or next_ms < known for known in (self._time.next_ms, self._hint_ms)
        ):
            self._hint_ms = next_ms
            self._beat_soon()
        seat.in_vain = self._woken is seat and not found
        if self._woken is seat:
            self._woken = None
            if found or self._pending:
                self._wake()
            self._listen()

    def _heard(self) -> None:
        """A token, or the chance that one was lost."""
        if self._woken is not None:
            self._pending = True
        else:
            self._wake()
            if self._woken is None:
                self._hand_on()  # nobody is idle: somebody else's, and ours as soon as one is
        self._time.keeps = True
        self._beat_soon()
        self._listen()

    def _wake(self) -> None:
        """Have the longest idle consumer claim; remembered while nobody is idle."""
        self._pending = False
        while self._idle:
            seat = self._woken = self._idle.popleft()
            if seat.heard():
                return
            self._woken = None
        self._pending = True

    def _listen(self) -> None:
        if self._ear is not None and self._idle and self._woken is None:
            self._ear.arm()

    def _told(self, data: bytes) -> None:
        for seat in tuple(self._seats):
            seat.told(data)

    def _hand_on(self) -> None:
        if self._connector is not None:
            push_token(self._connector, self.queue)

    def _beat_soon(self) -> None:
        """The next run-at may have moved."""
        self._nudge.set()

    # The loop

    async def _pause(self, pause_ms: int) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + pause_ms / 1_000
        if not self._degraded:
            until = min(until, self._time.rings_at() or _FOREVER)
            if (hint := self._hint_ms) is not None:
                until = min(until, loop.time() + (hint - self._time.server_ms(loop.time())) / 1_000)
        self._nudge.clear()
        if self._stopping.is_set():
            return  # it came during the beat
        timer = loop.call_at(until, self._nudge.set)
        try:
            await self._nudge.wait()
        finally:
            timer.cancel()
