"""The consumer: claims, runs and settles the jobs of one queue, and parks when there is nothing to do.

One flight carries everything that has finished and the claim that refills the slots. A parked consumer costs the
server one blocked connection and two commands a beat (protocol §12.2).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from echomq.identity.errors import EchoMQError, InvalidInputError
from echomq.protocol import jobs
from echomq.protocol.backoff import Fixed, Policy, check_policy, delay_ms
from echomq.protocol.checks import integer
from echomq.protocol.jobs import LEASE_MS
from echomq.protocol.keys import check_queue
from echomq.protocol.replies import Claimed, Claims, Sweep
from echomq.runtime.dial import Dial
from echomq.runtime.drain import Drain, Phase
from echomq.runtime.ear import Ear, token_pushes
from echomq.runtime.flight import fly, heads, outlast
from echomq.runtime.hand import Hand, Held
from echomq.runtime.leases import LeaseKeeper
from echomq.runtime.loops import BEAT_MS, Loop, say
from echomq.runtime.outcome import RELEASED
from echomq.runtime.pump import PROMOTE_BATCH, Recurrences
from echomq.runtime.runner import Handler, Router, Runner
from echomq.runtime.settle import Settler, Tally
from echomq.runtime.signals import Signal
from echomq.runtime.stalled import LIMIT, report
from echomq.runtime.timekeeper import Timekeeper
from echomq.wire import AsyncConnector

T = TypeVar("T")

GRACE_MS: Final = 10_000
"""How long a stop waits for running jobs, unless told otherwise."""


@dataclass(frozen=True, slots=True)
class _Gear:
    """What a consumer has once it is open."""

    conn: AsyncConnector
    hand: Hand
    runner: Runner
    ear: Ear
    loop: asyncio.AbstractEventLoop


class Consumer(Loop):
    """Runs `handler` on the jobs of `queue`, `concurrency` at once.

    `handler(job)` returns, which completes the job, or an `Outcome` that says otherwise; a raise is a failed attempt
    with the exception's text and the delay of `retry_delay`. `max_attempts` failures bury the job, and so do
    `max_stalled` lapses. With `pump` the consumer also fires the queue's recurrences; due jobs it promotes anyway.
    `keeper` is shared by the consumers of a process; without one the consumer has its own. `stuck_ms` is how long the
    event loop may stand still before the leases are given up (ten leases unless given). `on_lost(job)` is called on
    the loop when the lease of a job in hand turns out to be lost.
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
    ) -> None:
        super().__init__(dial, beat_ms=beat_ms)
        if not isinstance(handler, Router) and not callable(handler):
            raise InvalidInputError(f"a handler must be callable, not {handler!r}")
        self._queue = check_queue(queue)
        self._handler = handler
        self._concurrency = integer("concurrency", concurrency, least=1, most=100_000)
        self._lease_ms = integer("lease_ms", lease_ms, least=2)
        self._stuck_ms = None if stuck_ms is None else integer("stuck_ms", stuck_ms, least=1)
        self._max_stalled = integer("max_stalled", max_stalled, least=1)
        self._batch = integer("promote_batch", promote_batch, least=1)
        self._recurrences = Recurrences(queue) if pump else None
        self._keeper = keeper or LeaseKeeper(dial)
        self._owns_keeper = keeper is None
        self._on_lost = on_lost
        self._settler = Settler(
            queue, retry_delay=check_policy(retry_delay), max_attempts=max_attempts, settled=self._settled
        )
        self._time = Timekeeper()
        self._heads = heads(queue)
        self._hungry = True
        self._worked = False
        self._offered = False
        self._beat_at = 0.0
        self._drain: Drain | None = None
        self._grace_s = 0.0
        self._nudge = asyncio.Event()
        self._last: Claims | None = None
        self._gear: _Gear | None = None
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
        return len(self._gear.hand.held) if self._gear is not None else 0

    @property
    def idle(self) -> bool:
        """Nothing is in hand and the last claim found nothing."""
        return not self.in_hand and not self._hungry and self._last is not None and not self._last.jobs

    @property
    def next_run_ms(self) -> int | None:
        """The next run-at that it knows of, on the server's clock."""
        return self._time.next_ms

    # Life

    async def start(self) -> None:
        """Begin to consume. Raises when the server cannot be reached at all; from then on it bears that."""
        if self._task is not None:
            raise InvalidInputError(f"{self.name} was started already; build another one")
        gear = await self._open()
        self._task = gear.loop.create_task(self._run(), name=f"echomq {self.name}")

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
        self._beat_at = 0.0
        if self._task is not None:
            self._nudge.set()
            await self.beats.next()
            return
        gear = await self._open()
        turn = gear.loop.create_task(self._turn(gear))
        await asyncio.shield(turn)

    async def _open(self) -> _Gear:
        if self._gear is None:
            loop = asyncio.get_running_loop()
            conn = self._connector = await self._dial.aconnect(self.name, lease_node=True)
            ear = Ear(self._dial, self._queue, self._heard, beat_ms=self._beat_ms)
            await ear.open()
            hand = Hand(self._queue, self._lease_ms, stuck_ms=self._stuck_ms, on_lost=self._on_lost)
            runner = Runner(self._handler, queue=self._queue, threads=self._concurrency, ended=self._ended)
            await self._keeper.start()
            self._keeper.add(hand)
            self._gear = _Gear(conn, hand, runner, ear, loop)
        return self._gear

    async def _close(self, gear: _Gear) -> None:
        self._keeper.remove(gear.hand)
        if self._owns_keeper:
            await self._keeper.stop()
        gear.runner.close()
        await gear.ear.close()
        await gear.conn.close()

    def _end_within(self, grace_s: float) -> None:
        gear = self._gear
        if gear is None:
            return
        now = gear.loop.time()
        if self._drain is None:
            self._stopping.set()
            self._drain = Drain(gear.hand, gear.runner, self._ended, now=now, grace_s=grace_s)
        else:
            self._drain.hurry(now, grace_s)
        self._nudge.set()

    # What others tell it

    def _heard(self) -> None:
        """A wake token, or the chance that one was lost."""
        if self._free() > 0 and self._drain is None:
            self._hungry = self._time.keeps = True
            self._nudge.set()
        elif self._gear is not None:
            # Taken without a slot to use it for: somebody else's.
            self._hungry = True
            self._push_token(self._gear)

    def _ended(self, held: Held) -> None:
        """A handler is done with its job."""
        self._settler.waiting.append(held)
        self._nudge.set()

    def _settled(self, held: Held) -> None:
        """The server has confirmed, or refused for good."""
        if self._gear is not None:
            self._gear.hand.held.discard(held)

    def _cancelled(self) -> None:
        """Somebody cancels every task: end at once, but whole."""
        if self._gear is not None:
            self._gear.runner.draining = True
        self._end_within(0.0)

    def _push_token(self, gear: _Gear) -> None:
        for call in token_pushes(self._queue):
            try:
                gear.conn.submit(call).add_done_callback(_forget)
            except EchoMQError:
                return  # a hint; the beats of the others stand in for it

    # The loop

    async def _run(self) -> None:
        gear = self._gear
        assert gear is not None
        streak = 0
        listening = True
        while True:
            now = gear.loop.time()
            if self._drain is not None:
                if listening:
                    listening = False
                    if await self._whole(gear, gear.ear.close()):
                        self._push_token(gear)
                until = self._drain.step(now, degraded=streak > 0)
                if self._drain.phase is Phase.OVER:
                    break
                if not self._settler.waiting:
                    await self._sleep(gear, until)
                    continue
            elif not self._ready(gear, now):
                await self._park(gear)
                continue
            try:
                await self._turn(gear)
                streak = 0
            except Exception as error:  # noqa: BLE001  (`say` logs what is unexpected whole; a loop must survive)
                streak += 1
                self._hungry = True
                pause_ms = delay_ms(self._curve, streak)
                say(self.name, error, streak, pause_ms)
                self.degraded.fire()
                await self._rest(gear, pause_ms)
        await self._whole(gear, self._close(gear))

    def _free(self) -> int:
        """Slots that the next flight may fill: those of jobs that it settles are free by then."""
        return self._concurrency - self.in_hand + len(self._settler.waiting)

    def _ready(self, gear: _Gear, now: float) -> bool:
        if self._settler.waiting or now >= self._beat_at:
            return True
        if self._free() > 0:
            return self._hungry or self._time.due(now)
        return self._time.keeps and self._time.due(now)

    async def _park(self, gear: _Gear) -> None:
        time = self._time
        if self._free() > 0:
            self._offered = False
            if self._worked:
                self._worked = False
                time.keeps = True
            gear.ear.arm()
            self.parked.fire()
        rings_at = time.rings_at()
        await self._sleep(gear, self._beat_at if rings_at is None else min(rings_at, self._beat_at))

    async def _sleep(self, gear: _Gear, until: float) -> None:
        nudge = self._nudge
        nudge.clear()
        timer = gear.loop.call_at(until, nudge.set)
        try:
            await nudge.wait()
        except asyncio.CancelledError:
            self._cancelled()
        finally:
            timer.cancel()

    async def _rest(self, gear: _Gear, pause_ms: int) -> None:
        """Sleep off a degraded beat; a stop cuts it short."""
        until = gear.loop.time() + pause_ms / 1_000
        while gear.loop.time() < until and (self._drain is None or self._drain.ends_at > gear.loop.time()):
            await self._sleep(gear, until if self._drain is None else min(until, self._drain.ends_at))

    async def _whole(self, gear: _Gear, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` to its end, whoever cancels the loop."""
        task = gear.loop.create_task(work)
        await outlast(task, self._cancelled)
        return task.result()

    async def _turn(self, gear: _Gear) -> None:
        """One flight, and what follows from its answers. Raises the first error after all answers are used."""
        time, settler, draining = self._time, self._settler, self._drain is not None
        for held in settler.doubts():
            (fields,) = await fly(gear.conn, (settler.look(held),), self._cancelled)
            if isinstance(fields, EchoMQError):
                raise fields
            settler.looked(held, fields)
        sent_at = gear.loop.time()
        beat = not draining and sent_at >= self._beat_at
        if beat:
            time.stuck_ms = None
        due = not draining and time.due(sent_at)
        free = 0 if draining else self._free()
        asks = free > 0 and (self._hungry or due or beat)

        calls = settler.take()
        settling = len(calls)
        if beat:
            calls.append(jobs.sweep(self._queue, max_stalled=self._max_stalled, limit=LIMIT))
        if due:
            calls.append(jobs.promote(self._queue, self._batch))
            time.tried_ms = time.next_ms
        if asks:
            self._hungry = False
            calls.append(jobs.claim_many(self._queue, free, lease_ms=self._lease_ms))
        elif beat or due:
            calls += self._heads
        answers = await fly(gear.conn, calls, self._cancelled)

        failure = settler.answered(answers[:settling])
        rest = answers[settling:]
        failure = failure or next((each for each in rest if isinstance(each, EchoMQError)), None)
        swept = rest.pop(0) if beat else None
        promoted = rest.pop(0) if due else None
        if asks and isinstance(claims := rest[0], Claims):
            time.learn(claims, sent_at, gear.loop.time())
            self._take(gear, claims)
        elif rest and failure is None:
            time.next_ms = min((head for head in rest if head is not None), default=None)
        if failure is not None:
            raise failure
        if isinstance(promoted, int):
            await self._after_promotion(gear, promoted)
        if isinstance(swept, Sweep):
            self._after_beat(gear, swept)

    def _take(self, gear: _Gear, claims: Claims) -> None:
        """Start what was claimed, or hand it back when nobody waits for it any more."""
        self._last = claims
        if claims.idle is None:
            self._hungry = True  # there may be more
        if not claims.jobs:
            return
        self._worked = True
        self.tally.claimed += len(claims.jobs)
        hand, start = gear.hand.held, gear.runner.start
        time = self._time
        if self._free() <= len(claims.jobs) and time.keeps and time.waiting and not self._offered:
            # About to be too busy to be on time: another one that parks may keep it too.
            self._offered = True
            self._push_token(gear)
        for job in claims.jobs:
            held = Held(job)
            hand.add(held)
            if self._drain is None:
                start(held)
            else:
                held.outcome = RELEASED
                self._ended(held)

    async def _after_promotion(self, gear: _Gear, promoted: int) -> None:
        """A run-at had come: was it ours, another's, or a recurrence's?"""
        time = self._time
        if promoted:
            time.keeps = True
        elif time.next_ms != time.tried_ms:
            # Another one was first. What it made claimable may have come to us all the same.
            time.keeps = self._last is not None and bool(self._last.jobs)
        elif time.due(gear.loop.time()):
            now_ms = time.server_ms(gear.loop.time())
            moved = 0
            if self._recurrences is not None:
                moved = await self._whole(gear, self._recurrences.fire(gear.conn, now_ms))
            if moved:
                self._hungry = time.keeps = True
            else:
                time.stuck_ms = time.next_ms

    def _after_beat(self, gear: _Gear, swept: Sweep) -> None:
        report(self._queue, swept)
        now = gear.loop.time()
        more = len(swept.recovered) + len(swept.dead) >= LIMIT
        self._beat_at = now if more else now + self._beat_ms / 1_000
        if self._time.due(now):
            self._time.keeps = True  # overdue at a beat: whoever kept the time is gone
        self.beats.fire()


def _forget(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()
