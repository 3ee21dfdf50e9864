"""The consumer: claims, runs and settles the jobs of one queue, and parks when there is nothing to do.

A parked consumer costs the server one blocked connection and two commands a beat (protocol §12.2). What a flight
carries, and what follows from its answers, is in `turns`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from echomq.identity.errors import InvalidInputError
from echomq.protocol.backoff import Fixed, Policy, delay_ms
from echomq.protocol.call import Call
from echomq.protocol.checks import integer
from echomq.protocol.jobs import LEASE_MS
from echomq.protocol.keys import check_queue
from echomq.protocol.replies import Claimed
from echomq.runtime.budget import Budget
from echomq.runtime.cancel import wish_of
from echomq.runtime.dial import Dial
from echomq.runtime.drain import FAREWELL_S, Drain, Phase
from echomq.runtime.ear import Ear
from echomq.runtime.gear import Gear
from echomq.runtime.hand import Hand, Held
from echomq.runtime.leases import LeaseKeeper
from echomq.runtime.legs import Legs
from echomq.runtime.loops import BEAT_MS, Loop, say
from echomq.runtime.metronome import Metronome
from echomq.runtime.outcome import RELEASED, Bury
from echomq.runtime.presence import Identity, Presence, identity
from echomq.runtime.publishing import Publisher
from echomq.runtime.pump import PROMOTE_BATCH, Recurrences
from echomq.runtime.runner import Handler, Runner, check_handler
from echomq.runtime.seat import Seat
from echomq.runtime.settle import Settler, Tally
from echomq.runtime.signals import Signal
from echomq.runtime.telemetry import Started, Telemetry, WorkerStarted, WorkerStopped, hub
from echomq.runtime.turns import Turns

T = TypeVar("T")

GRACE_MS: Final = 10_000
"""How long a stop waits for running jobs, unless told otherwise."""


class Consumer(Loop):
    """Runs `handler` on the jobs of `queue`, `concurrency` at once.

    `handler(job)` returns, which completes the job, or an `Outcome` that says otherwise; a raise is a failed attempt
    with the exception's text and the delay of `retry_delay`. `max_attempts` failures bury the job, and so do
    `max_stalled` lapses. With `pump` the consumer also fires the queue's recurrences; due jobs it promotes anyway.
    `keeper` is shared by the consumers of a process; without one the consumer has its own. `stuck_ms` is how long the
    event loop may stand still before the leases are given up (ten leases unless given). `on_lost(job)` is called on
    the loop when the lease of a job in hand turns out to be lost, `on_cancel(job, reason)` when its cancel token is
    set; with `interrupt` its coroutine is cancelled too. `who`: its entry in the registry of workers.
    `budget` is shared with other consumers, so that all of them together run no more jobs at once than it has slots.
    `metronome` listens, sweeps and keeps the time for it, in a pool of consumers.
    `watch` is told every step; with `events` they are published on the queue's channel too (protocol §10).
    """

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
        metronome: Metronome | None = None,
    ) -> None:
        super().__init__(dial, beat_ms=beat_ms)
        self._queue = check_queue(queue)
        self._handler = check_handler(handler)
        self._concurrency = integer("concurrency", concurrency, least=1, most=100_000)
        self._lease_ms = integer("lease_ms", lease_ms, least=2)
        self._stuck_ms = None if stuck_ms is None else integer("stuck_ms", stuck_ms, least=1)
        if metronome is not None and metronome.queue != queue:
            raise InvalidInputError(f"the metronome beats for queue {metronome.queue!r}, not for {queue!r}")
        self._metronome = metronome
        self._seat: Seat | None = None
        self._keeper = keeper or (LeaseKeeper(dial) if metronome is None else metronome.keeper)
        self._owns_keeper = keeper is None and metronome is None
        self._on_lost = on_lost
        self._on_cancel = on_cancel
        self._interrupt = interrupt
        self._wishes: dict[str, str] = {}
        self._who = who or identity((queue,))
        self._recurrences = Recurrences(queue) if pump else None
        self._held: set[Held] = set()
        # Its own when it publishes, since its own connection does.
        self._watch = Telemetry(watch.emit, Publisher(self._publish)) if events else watch
        self._settler = Settler(
            queue, retry_delay=retry_delay, max_attempts=max_attempts, held=self._held, watch=self._watch
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
            wake=self._wake,
            pooled=metronome is not None,
        )
        self._budget = budget
        self._offered = self._passed = False
        self._listening = True
        self._drain: Drain | None = None
        self._nudge = asyncio.Event()
        self._gear: Gear | None = None
        self.parked = Signal()
        """Times that it went to wait with a slot free, listening for a token."""

    # What an owner may look at

    @property
    def name(self) -> str:
        """What it is."""
        return f"{self._queue}:consumer"

    @property
    def tally(self) -> Tally:
        """What it has done, by the server's answers."""
        return self._settler.tally

    @property
    def in_hand(self) -> int:
        """Jobs that are claimed and not yet settled."""
        return len(self._held)

    @property
    def idle(self) -> bool:
        """Nothing is in hand, the last claim found nothing, and no parent waits for a signal of its jobs."""
        last = self._turns.last
        found = last is None or bool(last.jobs) or self._turns.hungry
        return not self._held and not found and not (self._gear and self._gear.legs.owes)

    @property
    def next_run_ms(self) -> int | None:
        """The next run-at that it knows of, on the server's clock."""
        return self._turns.time.next_ms

    # Life

    async def start(self) -> None:
        """Begin to consume. Raises when the server cannot be reached at all; from then on it bears that."""
        if self._task is not None:
            raise InvalidInputError(f"{self.name} was started already; build another one")
        gear = await self._open()
        self._task = gear.loop.create_task(self._run(), name=f"echomq {self.name}")
        self._watch.emit(WorkerStarted(self._queue, self._who.name))

    async def stop(self, grace_ms: int = GRACE_MS) -> None:
        """Claim no more, wait up to `grace_ms` for the running jobs, then cancel them and hand them back.

        No failure is spent. A second call may shorten the first one's grace; with 0 it hands back at once. Plain
        functions cannot be interrupted: their jobs are handed back last, and their threads are left to themselves.
        """
        grace_s = integer("grace_ms", grace_ms, least=0) / 1_000
        gear = self._gear
        if gear is None:
            return
        self._end_within(grace_s)
        if self._task is None:
            self._task = gear.loop.create_task(self._run(), name=f"echomq {self.name}")
        await asyncio.shield(self._task)

    async def beat(self) -> None:
        """One flight with everything a beat does: recover, settle, promote, fire, claim and start what was claimed.

        While the consumer runs, its next beat is brought forward and awaited.
        """
        self._turns.beat_at = 0.0
        if self._task is not None:
            self._nudge.set()
            await self.beats.next()
        else:
            gear = await self._open()
            await asyncio.shield(gear.loop.create_task(self._beat_by_hand(gear)))

    async def _beat_by_hand(self, gear: Gear) -> None:
        if self._settler.doubtful:
            await self._settler.clear_doubts(gear.conn)
        self._turns.depart(gear.conn, gear.loop.time())
        while self._turns.flying:
            if not await self._land(gear):
                await self._sleep(gear, None)
        await gear.legs.rest()

    async def _open(self) -> Gear:
        if self._gear is None:
            loop = asyncio.get_running_loop()
            conn = self._connector = await self._dial.aconnect(self.name, lease_node=True)
            ear: Ear | Seat
            if self._metronome is not None:
                ear = self._seat = Seat(self._metronome, self._heard, self._told, self._held)
            else:
                ear = Ear(self._dial, self._queue, self._heard, beat_ms=self._beat_ms, told=self._told)
            try:
                await ear.open()
            except BaseException:
                await conn.close()
                raise
            hand = Hand(
                self._queue,
                self._held,
                self._lease_ms,
                stuck_ms=self._stuck_ms,
                on_lost=self._on_lost,
                on_cancel=self._to_end,
            )
            presence = Presence(self._queue, self._who, self._held, self._concurrency)
            legs = Legs(self._queue, presence, beat_ms=self._beat_ms, paid=self._nudge.set)
            runner = Runner(self._handler, queue=self._queue, threads=self._concurrency, ended=self._ended)
            await self._keeper.start()
            self._keeper.add(hand)
            if self._budget is not None:
                self._budget.join(self._turns)
            self._gear = Gear(conn, hand, runner, ear, legs, loop)
        return self._gear

    async def _close(self, gear: Gear, *, farewell: bool) -> None:
        if farewell:
            await gear.farewell()
        self._keeper.remove(gear.hand)
        if self._budget is not None:
            self._budget.leave(self._turns)
        if self._owns_keeper:
            await self._keeper.stop()
        await gear.close()
        self._watch.emit(WorkerStopped(self._queue, self._who.name))
        for flight in self._turns.flying:
            if flight.landed(self._nudge.set):
                flight.answers()  # looked at, so that asyncio does not complain of it

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

    def _cancelled(self) -> None:
        """Somebody cancels every task: end at once, but whole."""
        if self._gear is not None:
            self._gear.runner.draining = True
        self._end_within(0.0)

    def _start(self, jobs: tuple[Claimed, ...]) -> None:
        """Start what was claimed, or hand it back when nobody waits for it any more."""
        gear, time = self._gear, self._turns.time
        assert gear is not None
        self.tally.claimed += len(jobs)
        if not self._offered and time.keeps and time.waiting and self._turns.free() <= len(jobs):
            # About to be too busy to be on time: another one that parks may keep it too.
            self._offered = True
            gear.push_token()
        add, start, wishes = self._held.add, gear.runner.start, self._wishes
        observed = bool(self._watch.observers)
        for job in jobs:
            held = Held(job)
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

    # The loop

    async def _run(self) -> None:
        gear = self._gear
        assert gear is not None
        turns, streak = self._turns, 0
        while True:
            try:
                if self._drain is not None and await self._drained(gear, self._drain, degraded=streak > 0):
                    break
                if self._settler.doubtful:
                    await self._whole(gear, self._settler.clear_doubts(gear.conn))
                if await self._land(gear):
                    streak = 0
                else:
                    await self._depart_or_wait(gear)
            except Exception as error:  # noqa: BLE001  (`say` logs what is unexpected whole; a loop must survive)
                streak += 1
                pause_ms = delay_ms(self._curve, streak)
                say(self.name, error, streak, pause_ms)
                self.degraded.fire()
                turns.away = True
                if self._budget is not None:
                    self._budget.changed(turns)
                await self._rest(gear, pause_ms)
                turns.away = self._drain is not None
        await self._whole(gear, self._close(gear, farewell=not streak and not self._held))

    async def _drained(self, gear: Gear, drain: Drain, *, degraded: bool) -> bool:
        """Take the drain a step further; True when it is over."""
        if self._listening:
            self._listening = False
            if await self._whole(gear, gear.ear.close()):
                gear.push_token()
        drain.step(gear.loop.time(), flying=bool(self._turns.flying), degraded=degraded)
        return drain.phase is Phase.OVER

    async def _depart_or_wait(self, gear: Gear) -> None:
        turns, drain, now = self._turns, self._drain, gear.loop.time()
        if drain is not None:
            if self._settler.waiting and not turns.flying:
                turns.depart(gear.conn, now, draining=True, timeout_s=FAREWELL_S)
            else:
                await self._sleep(gear, drain.ends_at)
        elif turns.ready(now):
            turns.depart(gear.conn, now)
        elif turns.flying:
            await self._sleep(gear, None)
        else:
            await self._park(gear)

    async def _land(self, gear: Gear) -> bool:
        """Take in the first flight, if it is back; raises what went wrong with it."""
        turns = self._turns
        if not turns.flying or not turns.flying[0].landed(self._nudge.set):
            return False
        flight = turns.flying[0]
        found = True  # so that another one tries where this one fails
        try:
            overdue = turns.land(flight, gear.loop.time(), self._start)
            found = turns.last is not None and bool(turns.last.jobs)
        finally:
            if self._seat is not None and flight.asked:
                self._seat.answered(found=found)
        if overdue:
            now_ms = turns.time.server_ms(gear.loop.time())
            moved = 0
            if self._recurrences is not None:
                moved = await self._whole(gear, self._recurrences.fire(gear.conn, now_ms))
            turns.fired(moved)
        if not turns.asking:
            self._wishes.clear()  # whatever was on its way has come
        if self._settler.yielded:
            self._settler.yielded = False
            if not turns.time.yields:
                turns.time.yields, self._passed = True, False
                gear.push_token()  # to one that parks, which keeps the time from then on
        self._walk(gear, beat=flight.beat)
        if flight.beat:
            self.beats.fire()
        return True

    def _walk(self, gear: Gear, *, beat: bool) -> None:
        legs, now = gear.legs, gear.loop.time()
        if beat:
            legs.beat(now)
        if self._settler.signalled:
            self._settler.signalled = False
            legs.signalled()
        legs.go(gear.conn, now)

    async def _park(self, gear: Gear) -> None:
        turns, time = self._turns, self._turns.time
        if turns.free() > 0:
            self._offered = False
            if turns.worked:
                turns.worked = False
                time.keeps = True
            gear.ear.arm()
            self.parked.fire()
        elif turns.waits:
            gear.ear.arm()
            self.parked.fire()
        if self._seat is not None and turns.hungry and turns.free() > 0:
            return  # a wake was waiting for whoever is idle next
        rings_at = time.rings_at()
        await self._sleep(gear, turns.beat_at if rings_at is None else min(rings_at, turns.beat_at))

    async def _sleep(self, gear: Gear, until: float | None) -> None:
        """Wait for a nudge, at most until the instant `until`."""
        nudge = self._nudge
        nudge.clear()
        timer = None if until is None else gear.loop.call_at(until, nudge.set)
        try:
            await nudge.wait()
        except asyncio.CancelledError:
            self._cancelled()
        finally:
            if timer is not None:
                timer.cancel()

    async def _rest(self, gear: Gear, pause_ms: int) -> None:
        """Sleep off a degraded beat; a stop cuts it short."""
        until = gear.loop.time() + pause_ms / 1_000
        while gear.loop.time() < until and (self._drain is None or self._drain.ends_at > gear.loop.time()):
            await self._sleep(gear, until if self._drain is None else min(until, self._drain.ends_at))

    async def _whole(self, gear: Gear, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` to its end, whoever cancels the loop."""
        task = gear.loop.create_task(work)
        while not task.done():
            try:
                await asyncio.wait((task,))
            except asyncio.CancelledError:
                self._cancelled()
        return task.result()
