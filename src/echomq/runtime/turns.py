"""A consumer's turns: what leaves in a flight, and what follows from its answers.

One flight carries everything that has finished and the claim that refills the slots. While it is under way a second
one may leave with what has finished since, so that the server and the handlers work at the same time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any, Final, cast

from echomq.identity.errors import EchoMQError
from echomq.protocol import jobs
from echomq.protocol.call import Call, Reply
from echomq.protocol.discover import clock
from echomq.protocol.keys import keys
from echomq.protocol.replies import Claimed, Claims, Idle, Sweep, as_list, unexpected
from echomq.runtime.budget import Budget
from echomq.runtime.flight import Flight
from echomq.runtime.hand import Held
from echomq.runtime.settle import Settler
from echomq.runtime.stalled import LIMIT, report, tell
from echomq.runtime.telemetry import LimitHit, Telemetry, hub
from echomq.runtime.timekeeper import Timekeeper
from echomq.wire import AsyncConnector

PIPELINE: Final = 16
"""The concurrency from which half of the slots are enough for a flight of their own."""

MOST: Final = 500
"""Jobs that one flight claims or settles at most: a script keeps the server busy for about 10 us each."""

_LAPSE_S: Final = 0.005

_NEVER_S: Final = 10 * 365 * 86_400.0

_HEADS: Final = ("schedule", "repeat", "cron")


class Turns:
    """The state between a consumer's flights. Instants are seconds on the event loop's clock."""

    def __init__(
        self,
        queue: str,
        settler: Settler,
        held: set[Held],
        *,
        concurrency: int,
        lease_ms: int,
        beat_ms: int,
        max_stalled: int,
        batch: int,
        watch: Telemetry = hub,
        budget: Budget | None = None,
        late: Collection[Held] = (),
        wake: Callable[[], None] | None = None,
        pooled: bool = False,
        worker: str = "",
    ) -> None:
        self._queue = queue
        self._settler = settler
        self._held = held
        self._late = late
        self._watch = watch
        self._budget = budget
        self._wake = wake
        self._concurrency = concurrency
        self._lease_ms = lease_ms
        self._pooled = pooled
        self._beat_s = _NEVER_S if pooled else beat_ms / 1_000
        self._sweep = jobs.sweep(queue, max_stalled=max_stalled, limit=LIMIT, worker=worker)
        self.unregistered = False
        """The registry of workers has lost this one."""
        self._promote = jobs.promote(queue, batch)
        self._heads = heads(queue)
        self._clock = clock(queue)
        self._share = concurrency if concurrency < PIPELINE else min((concurrency + 1) // 2, MOST)
        self.worth = (1, (self._share + 1) // 2)
        """How many finished jobs are worth a flight, and a second one beside it."""
        self._asked = 0
        self._puzzle_ms: int | None = None
        self.time = Timekeeper()
        self.time.yields = pooled  # a metronome keeps the time, and beats
        self.beat_at = _NEVER_S if pooled else 0.0
        self.hungry = True
        """There may be something to claim: the last claim was filled, or a token has come since."""
        self.tokens = 0
        self.unknown = False
        """The next run-at has moved, and has to be asked for."""
        self.worked = False
        """Something was claimed since it last parked."""
        self.away = False
        """It will not claim for a while, or never again."""
        self.lapsing = False
        """A lease was ended here, for a sweep that has not come back yet."""
        self.last: Claims | None = None
        self.flying: list[Flight] = []

    def heard(self) -> None:
        """A wake token has come."""
        self.tokens += 1
        self.hungry = True

    def free(self) -> int:
        """Slots to claim for: a job that is finished leaves its slot to the flight that settles it."""
        room = self._concurrency - self.used
        return room if self._budget is None else min(room, self._budget.room(self))

    @property
    def used(self) -> int:
        """Slots that are taken by jobs that run, by functions past their time, or kept for a claim under way."""
        settler = self._settler
        return len(self._held) - len(settler.waiting) - settler.leaving + self._asked + len(self._late)

    @property
    def wants(self) -> bool:
        """Whether it would claim if its budget had a slot for it."""
        return self.hungry and not self.away and self.used < self._concurrency

    @property
    def waits(self) -> bool:
        """Whether only its budget keeps it from listening: it has heard of nothing to claim yet."""
        return not self.hungry and self.used < self._concurrency

    def wake(self) -> None:
        """There may be a slot in the budget."""
        if self._wake is not None:
            self._wake()

    @property
    def asking(self) -> bool:
        """A claim is under way."""
        return self._asked > 0

    def ready(self, now: float) -> bool:
        """Whether there is a reason for a flight now."""
        waiting = len(self._settler.waiting)
        if self.flying:
            if len(self.flying) > 1 or waiting < self.worth[1] or self._share == self._concurrency:
                return False
            # A beat's work and a run-at's leave in a flight of their own: wait for the one under way.
            return now < self.beat_at and not self.time.due(now)
        if waiting or self.unknown or now >= self.beat_at:
            return True
        if self.free() > 0:
            return self.hungry or self.time.due(now)
        return self.time.keeps and self.time.due(now)

    def depart(
        self, conn: AsyncConnector, now: float, *, draining: bool = False, timeout_s: float | None = None
    ) -> Flight:
        """Send off what there is to settle, the beat's and the run-at's work, and a claim for the free slots."""
        time = self.time
        alone = not self.flying and not draining
        beat = alone and now >= self.beat_at
        if beat:
            time.stuck_ms = None
            time.yields = self._pooled
            if self._budget is not None and self.used < self._concurrency:
                self.hungry = True  # the budget may be spent: it is to get its turn
        due = alone and time.due(now)
        free = 0 if draining else min(self.free(), self._share)
        batch, calls = self._settler.take(self._share)
        flight = Flight(batch, now, self.tokens, timeout_s)
        for call in calls:
            flight.add(conn, call)
        if beat:
            flight.beat = True
            flight.add(conn, self._sweep)
        if due:
            flight.tried_ms = time.next_ms
            flight.add(conn, self._promote)
        looks = beat or due or (alone and self.unknown)
        if free > 0 and (self.hungry or looks):
            flight.asked = free
            self._asked += free
            if self._budget is not None:
                self._budget.asked(self, free)
            flight.add(conn, jobs.claim_many(self._queue, free, lease_ms=self._lease_ms))
        elif looks:
            flight.looked = True
            flight.add(conn, self._clock)
            for call in self._heads:
                flight.add(conn, call)
        if looks:
            self.unknown = False
        self.flying.append(flight)
        if self._budget is not None:
            self._budget.changed(self)
        return flight

    def land(self, flight: Flight, now: float, start: Callable[[tuple[Claimed, ...]], None]) -> bool:
        """Take the answers; `start` is given what was claimed. Raises the first error after all are used.

        True when a run-at has come that no promotion explains: a recurrence's, or one that nobody can serve.
        """
        try:
            return self._take_in(flight, now, start)
        finally:
            if self._budget is not None:
                self._budget.changed(self)

    def lapsed(self, now: float) -> None:
        """A lease was ended, by a millisecond of the server: sweep soon, so that it is counted."""
        self.lapsing = True
        self.beat_at = min(self.beat_at, now + _LAPSE_S)

    def _take_in(self, flight: Flight, now: float, start: Callable[[tuple[Claimed, ...]], None]) -> bool:
        self.flying.remove(flight)
        self._asked -= flight.asked
        time = self.time
        answers = iter(flight.answers())
        failure = self._settler.answered(flight.batch, answers)
        rest = list(answers)
        failure = failure or next((each for each in rest if isinstance(each, EchoMQError)), None)
        left = iter(rest)
        swept = next(left) if flight.beat else None
        promoted = next(left) if flight.tried_ms is not None else None
        if flight.asked:
            claims = next(left)
            if self._budget is not None:
                self._budget.landed(self, flight.asked, len(claims.jobs) if isinstance(claims, Claims) else 0)
            if isinstance(claims, Claims):
                time.learn(claims, flight.sent_at, now)
                self.last = claims
                self.hungry = claims.idle is None or self.tokens != flight.tokens
                if self._watch.observers and claims.idle in (Idle.CEILING, Idle.RATE):
                    self._watch.emit(LimitHit(self._queue, claims.idle))
                if claims.jobs:
                    self.worked = True
                    start(claims.jobs)
        elif flight.looked and failure is None:
            time.set_clock(cast("int", next(left)), flight.sent_at, now)
            time.next_ms = min((head for head in left if head is not None), default=None)
        if failure is not None:
            self.hungry = self.unknown = True
            raise failure
        if isinstance(swept, Sweep):
            report(self._queue, swept)
            self._settler.signalled |= bool(swept.dead)
            self.unregistered = swept.unknown
            tell(self._settler.bereaved, swept)
            self.lapsing = False
            more = len(swept.recovered) + len(swept.dead) >= LIMIT
            self.beat_at = now if more else now + self._beat_s
            if time.due(now):
                time.keeps = True  # overdue at a beat: whoever kept the time is gone
        return isinstance(promoted, int) and self._unexplained(flight, promoted, now)

    def _unexplained(self, flight: Flight, promoted: int, now: float) -> bool:
        time = self.time
        if promoted:
            time.keeps = True
        elif time.next_ms != flight.tried_ms:
            # Another one was first. What it made claimable may have come to us all the same.
            time.keeps = bool(flight.asked and self.last is not None and self.last.jobs)
        else:
            return time.due(now)
        return False

    def fired(self, moved: int) -> None:
        """What became of a run-at that no promotion explained."""
        time = self.time
        if moved:
            self.unknown = time.keeps = True
            time.next_ms = None
        elif time.next_ms == self._puzzle_ms:
            time.stuck_ms = time.next_ms
        else:
            # The promotion may have run a moment before its time, the claim behind it a moment after: try again.
            self._puzzle_ms = time.next_ms


def heads(queue: str) -> list[Call[int | None]]:
    """The earliest run-at of the schedule and of the recurrences, for a consumer that has no slot to claim for."""
    base = keys(queue).base
    return [
        Call("head", (base + name,), (0, 0, "WITHSCORES"), _head, command="ZRANGE", subject=queue) for name in _HEADS
    ]


def _head(reply: Reply) -> int | None:
    items = as_list(reply)
    while items and isinstance(items[0], list):
        items = items[0]  # RESP3 pairs a member with its score
    if len(items) < 2:
        return None
    try:
        score = float(cast("Any", items[1]))
    except (TypeError, ValueError):
        raise unexpected(reply, "a score") from None
    if math.isfinite(score):
        return int(score)
    return 0 if score < 0 else None  # due for ever, or never
