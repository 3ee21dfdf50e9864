"""The consumer: claims, runs and settles the jobs of one queue, and parks when there is nothing to do.

A parked consumer costs the server one blocked connection and two commands a beat (protocol §12.2). What a flight
carries, and what follows from its answers, is in `turns`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from echomq.identity.errors import InvalidInputError
from echomq.protocol.backoff import delay_ms
from echomq.protocol.checks import integer
from echomq.runtime.drain import FAREWELL_S, Drain, Phase
from echomq.runtime.ear import Ear
from echomq.runtime.gear import Gear
from echomq.runtime.hand import Hand
from echomq.runtime.intake import Intake
from echomq.runtime.legs import Legs
from echomq.runtime.loops import say
from echomq.runtime.presence import Presence
from echomq.runtime.runner import Runner
from echomq.runtime.seat import Seat
from echomq.runtime.settle import Tally
from echomq.runtime.telemetry import WorkerStarted, WorkerStopped

T = TypeVar("T")

GRACE_MS: Final = 10_000
"""How long a stop waits for running jobs, unless told otherwise."""


class Consumer(Intake):
    """Runs `handler` on the jobs of `queue`, `concurrency` at once.

    `handler(job)` returns, which completes the job, or an `Outcome` that says otherwise; a raise is a failed attempt
    with the exception's text and the delay of `retry_delay`. `max_attempts` failures bury the job, and so do
    `max_stalled` lapses. With `pump` the consumer also fires the queue's recurrences; due jobs it promotes anyway.
    `keeper` is shared by the consumers of a process; without one the consumer has its own. `stuck_ms` is how long the
    event loop may stand still before the leases are given up (ten leases unless given). `on_lost(job)` is called on
    the loop when the lease of a job in hand turns out to be lost, `on_cancel(job, reason)` when its cancel token is
    set; with `interrupt` its coroutine is cancelled too. `who`: its entry in the registry of workers.
    `budget` is shared with other consumers, so that all of them together run no more jobs at once than it has slots;
    `weight` is this one's share of them. `follower` says what follows a death in nobody's hands.
    `teller` tells people what becomes of jobs, in the place of the consumer's own lines in the log.
    `metronome` listens, sweeps and keeps the time for it, in a pool of consumers. `ahead`: see `Recurrences`.
    `on_break()` is called on the loop when the consumer's own task is cancelled, before anything is handed back.
    `watch` is told every step; with `events` they are published on the queue's channel too (protocol §10).
    """

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
    def late(self) -> int:
        """Functions that go on in their threads past their time, each with a slot."""
        return len(self._late)

    @property
    def idle(self) -> bool:
        """Nothing is in hand, the last claim left nothing behind, and no parent waits for a signal of its jobs."""
        # What a claim brought that was not filled is all there was: nobody wakes it for another one.
        busy = self._held or self._turns.lapsing or self._turns.hungry or self._turns.last is None
        legs = self._gear and self._gear.legs
        return not busy and not (legs and (legs.owes or legs.looks))

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
                ear = self._seat = Seat(
                    self._metronome, self._heard, self._told, self._held, self._concurrency, self._lease_ms
                )
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
            presence = Presence(self._queue, self._who, self._held, lambda: self._concurrency, lambda: self._lease_ms)
            legs = Legs(
                self._queue,
                presence,
                beat_ms=self._beat_ms,
                paid=self._nudge.set,
                follower=self._follower,
                bereaved=self._settler.bereaved,
            )
            runner = Runner(self._handler, queue=self._queue, threads=self._concurrency, ended=self._ended)
            runner.late, runner.freed = self._late, self._freed
            await self._keeper.start()
            self._keeper.add(hand)
            if self._budget is not None:
                self._budget.join(self._turns, self._weight)
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
        found, next_ms = True, None  # so that another one tries where this one fails
        try:
            overdue = turns.land(flight, gear.loop.time(), self._start)
            if (last := turns.last) is not None:
                found, next_ms = bool(last.jobs), last.next_at_ms
        finally:
            if self._seat is not None and flight.asked:
                self._seat.answered(found=found, next_ms=next_ms)
        if overdue:
            now_ms = turns.time.server_ms(gear.loop.time())
            moved = 0
            if self._recurrences is not None:
                moved = await self._whole(gear, self._recurrences.fire(gear.conn, now_ms))
            turns.fired(moved)
        if not turns.asking:
            self._wishes.clear()  # whatever was on its way has come
        if self._settler.lapsed:
            self._settler.lapsed = False
            turns.lapsed(gear.loop.time())
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
            if self._turns.unregistered:
                legs.changed()
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
