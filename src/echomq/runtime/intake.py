"""A consumer's desk: what it holds, and what others tell it: tokens, events, handlers that end, jobs that were claimed.

Its life and its loop are in `consumer`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic

from echomq.identity.errors import InvalidInputError
from echomq.protocol.backoff import Fixed, Policy
from echomq.protocol.call import Call
from echomq.protocol.checks import integer
from echomq.protocol.jobs import LEASE_MS
from echomq.protocol.keys import check_queue
from echomq.protocol.replies import Claimed
from echomq.runtime.budget import MAX_WEIGHT, Budget
from echomq.runtime.cancel import is_death, wish_of
from echomq.runtime.dial import Dial
from echomq.runtime.drain import Drain
from echomq.runtime.gear import Gear
from echomq.runtime.hand import Held
from echomq.runtime.leases import LeaseKeeper
from echomq.runtime.loops import BEAT_MS, Loop
from echomq.runtime.metronome import Metronome
from echomq.runtime.outcome import RELEASED, Bury
from echomq.runtime.owing import Follower
from echomq.runtime.presence import Identity, identity
from echomq.runtime.publishing import published
from echomq.runtime.pump import PROMOTE_BATCH
from echomq.runtime.recurrences import Recurrences, in_time
from echomq.runtime.runner import Handler, check_handler
from echomq.runtime.seat import Seat
from echomq.runtime.settle import Settler, Teller
from echomq.runtime.signals import Signal
from echomq.runtime.telemetry import Started, Telemetry, hub
from echomq.runtime.turns import Turns


class Intake(Loop):
    """The state of a consumer, and how others change it. Its arguments are those of `Consumer`."""

    def __init__(
        self,
        dial: Dial,
        queue: str,
        handler: Handler,
        *,
        concurrency: int = 1,
        lease_ms: int = LEASE_MS,
        beat_ms: int = BEAT_MS,
        retry_delay: Policy = Fixed(1_000),  # noqa: B008  (a frozen value)
        max_attempts: int = 3,
        max_stalled: int = 3,
        promote_batch: int = PROMOTE_BATCH,
        pump: bool = True,
        keeper: LeaseKeeper | None = None,
        stuck_ms: int | None = None,
        on_lost: Callable[[Claimed], None] | None = None,
        on_cancel: Callable[[Claimed, str], None] | None = None,
        interrupt: bool = False,
        who: Identity | None = None,
        watch: Telemetry = hub,
        events: bool = False,
        budget: Budget | None = None,
        weight: int = 1,
        metronome: Metronome | None = None,
        follower: Follower | None = None,
        teller: Teller | None = None,
        ahead: Callable[[], int | None] = in_time,
        on_break: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(dial, beat_ms=beat_ms)
        self._queue = check_queue(queue)
        self._handler = check_handler(handler)
        self._concurrency = integer("concurrency", concurrency, least=1, most=100_000)
        self._lease_ms = integer("lease_ms", lease_ms, least=2)
        self._stuck_ms = None if stuck_ms is None else integer("stuck_ms", stuck_ms, least=1)
        if metronome is not None and metronome.queue != queue:
            raise InvalidInputError(f"the metronome beats for queue {metronome.queue!r}, not for {queue!r}")
        self._max_stalled = integer("max_stalled", max_stalled, least=1)
        self._metronome = metronome
        self._follower = follower
        self._seat: Seat | None = None
        self._keeper = keeper or (LeaseKeeper(dial) if metronome is None else metronome.keeper)
        self._owns_keeper = keeper is None and metronome is None
        self._on_lost = on_lost
        self._on_cancel = on_cancel
        self._on_break = on_break
        self._interrupt = interrupt
        self._wishes: dict[str, str] = {}
        self._who = who or identity((queue,))
        self._held: set[Held] = set()
        self._late: set[Held] = set()
        # Its own when it publishes, since its own connection does.
        self._watch = published(watch, self._publish) if events else watch
        self._recurrences = Recurrences(queue, watch=self._watch, ahead=ahead) if pump else None
        self._settler = Settler(
            queue,
            retry_delay=retry_delay,
            max_attempts=max_attempts,
            held=self._held,
            watch=self._watch,
            teller=teller,
        )
        self._turns = Turns(
            queue,
            self._settler,
            self._held,
            concurrency=concurrency,
            lease_ms=lease_ms,
            beat_ms=beat_ms,
            max_stalled=max_stalled,
            batch=promote_batch,
            watch=self._watch,
            budget=budget,
            late=self._late,
            wake=self._wake,
            pooled=metronome is not None,
            worker=self._who.name,
        )
        self._budget = budget
        self._weight = integer("weight", weight, least=1, most=MAX_WEIGHT)
        self._offered = self._passed = False
        self._listening = True
        self._drain: Drain | None = None
        self._nudge = asyncio.Event()
        self._gear: Gear | None = None
        self.parked = Signal()
        """Times that it went to wait with a slot free, listening for a token."""

    # What others tell it

    def _heard(self) -> bool:
        """A wake token, or the chance that one was lost. Whether a claim follows."""
        turns = self._turns
        if turns.free() > 0 and self._drain is None:
            turns.time.keeps = True
            turns.heard()
            self._nudge.set()
            if turns.time.yields and not self._passed and self._gear is not None:
                # It was meant for one that keeps the time. Passed on once, so that two of a kind do not play ball.
                self._passed = True
                self._gear.push_token()
            return True
        if self._gear is not None and self._seat is None:
            # Taken without a slot to use it for: somebody else's.
            turns.heard()
            self._gear.push_token()
        return False

    def _told(self, data: bytes) -> None:
        """An event of the queue: somebody may wish to cancel a job in hand, or one whose claim is on its way here."""
        gear = self._gear
        if (
            gear is not None
            and (wish := wish_of(data)) is not None
            and not gear.hand.wish(*wish)
            and self._turns.asking
        ):
            self._wishes[wish[0]] = wish[1]
        if gear is not None and self._follower is not None and is_death(data):
            gear.legs.died()
            gear.legs.go(gear.conn, gear.loop.time())

    def _wake(self) -> None:
        """There may be a slot in the budget."""
        self._nudge.set()

    def _publish(self, call: Call[None]) -> asyncio.Future[None]:
        assert self._gear is not None
        return self._gear.conn.submit(call)

    def _to_end(self, held: Held) -> None:
        """The cancel token of a job in hand was set."""
        gear = self._gear
        if gear is not None and self._interrupt:
            gear.runner.interrupt(held)
        if self._on_cancel is not None:
            self._on_cancel(held.job, held.reason or "")

    def _ended(self, held: Held) -> None:
        """A handler is done with its job."""
        waiting = self._settler.waiting
        waiting.append(held)
        # The first one, for a flight; and as many as a second flight needs.
        if len(waiting) in self._turns.worth:
            self._nudge.set()

    def _freed(self) -> None:
        """A function that had outlasted its time has returned, and its slot is free."""
        self._nudge.set()
        if self._budget is not None:
            self._budget.changed(self._turns)

    def _cancelled(self) -> None:
        """Somebody cancels every task: end at once, but whole."""
        if self._on_break is not None:
            self._on_break()
        if self._gear is not None:
            self._gear.runner.draining = True
        self._end_within(0.0)

    def _start(self, jobs: tuple[Claimed, ...]) -> None:
        """Start what was claimed, or hand it back when nobody waits for it any more."""
        gear, time = self._gear, self._turns.time
        assert gear is not None
        self._settler.tally.claimed += len(jobs)
        if not self._offered and time.keeps and time.waiting and self._turns.free() <= len(jobs):
            # About to be too busy to be on time: another one that parks may keep it too.
            self._offered = True
            gear.push_token()
        add, start, wishes = self._held.add, gear.runner.start, self._wishes
        observed = bool(self._watch.observers)
        taken_at = monotonic()
        for job in jobs:
            held = Held(job, taken_at)
            add(held)
            if wishes and (reason := wishes.pop(job.id, None)) is not None:
                held.cancel(reason)
                held.outcome = Bury(reason)
                self._ended(held)
            elif self._drain is None:
                if observed:
                    self._watch.emit(Started(self._queue, job.id, job.failures + 1))
                try:
                    start(held)
                except Exception as error:  # noqa: BLE001  (whatever it is, the others of the claim are to start)
                    gear.runner.put_off(held, error)
            else:
                held.outcome = RELEASED
                self._ended(held)
        self._keeper.taken(gear.hand, taken_at)

    def _end_within(self, grace_s: float) -> None:
        gear = self._gear
        if gear is None:
            return
        now = gear.loop.time()
        if self._drain is None:
            self._stopping.set()
            self._turns.away = True
            self._drain = Drain(gear.hand, gear.runner, self._ended, now=now, grace_s=grace_s)
        else:
            self._drain.hurry(now, grace_s)
        self._nudge.set()
