"""The worker: one process that claims, runs, recurs and recovers the jobs of an app."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypedDict

from echomq.app.address import Address, address_of
from echomq.app.declared import sync_at_start
from echomq.app.dispatch import Dispatch
from echomq.app.echomq import EchoMQ
from echomq.app.flag import flag
from echomq.app.insisting import Insisting
from echomq.app.joblog import JobLog
from echomq.app.lifecycle import Lifecycle
from echomq.app.patience import PATIENCE_S, Patience
from echomq.app.pool import Cell, Pool
from echomq.app.process import LAST_WORDS_S, complete, end_process, new_runner
from echomq.app.recycle import check_room, had_enough
from echomq.app.shares import Order, Queues, shares_of
from echomq.app.times import first_ms, span_ms
from echomq.identity.errors import InvalidInputError
from echomq.protocol.checks import integer
from echomq.protocol.jobs import LEASE_MS
from echomq.runtime.budget import Budget
from echomq.runtime.consumer import Consumer
from echomq.runtime.leases import LeaseKeeper
from echomq.runtime.presence import Identity, identity
from echomq.runtime.runner import Router

log: Final = logging.getLogger("echomq.worker")

CONCURRENCY: Final = 10
MAX_CONCURRENCY: Final = 100_000
GRACE: Final = timedelta(seconds=30)
PATIENCE: Final = timedelta(seconds=PATIENCE_S)
_FOREVER_MS: Final = 10 * 365 * 86_400_000


class WorkerWords(TypedDict, total=False):
    """The options of a `Worker`, for those who make it elsewhere."""

    queues: Queues | None
    order: Order
    concurrency: int
    burst: bool
    grace: timedelta
    events: bool
    lease: timedelta
    unknown_patience: timedelta
    max_jobs: int | None
    max_rss: int | None
    pool: int | None
    log_payloads: bool
    prune_schedules: bool


class Worker:
    """Runs the jobs of `mq` until it is told to stop: coroutines on its event loop, plain functions in threads.

    `queues`: those of the app's jobs unless given. `concurrency`: how many jobs run at once, over all queues; while
    several queues have work, each gets its share, the same one or by weights, as in `queues={"mail": 3, "slow": 1}`;
    with `order="strict"` a queue is served only while those before it have nothing to claim. `burst`: end when nothing
    can be claimed in any queue and nothing is in hand; what is scheduled for later is not waited for. `grace`: how long
    running jobs may go on once it is told to stop; then they are handed back, with no attempt spent. `events`: publish
    what happens to each job, for `echomq.events`. `lease`: how long it may be silent about a job in hand, by the
    server's clock, before another worker runs that; it renews its leases while jobs run (protocol §4).
    `unknown_patience`: how long a job that this worker does not know waits for one that does.

    `max_jobs`, `max_rss` (bytes): after so many jobs, or when this process has so much memory, it claims no more, ends
    what it has in hand, however long that takes, and stops; `worn` then says why. A `Supervisor` replaces it. `pool`:
    how many processes there are for jobs with `process=True`, as many as processors unless given; and how many jobs
    whose lease has lapsed before run at once, each alone in a fresh process. `address`: where such a process finds
    the app; a global of a module is found by itself. `log_payloads`: the line in the log that each job gets has its
    arguments, too, which may be secrets. `prune_schedules`: end the schedules of its queues that code of this app has
    declared once and no longer does; those that it does declare are registered at its start anyway.

    A job that is cancelled while it runs is interrupted when it is a coroutine, and killed when it has a process; a
    plain function has to look (`current_job().raise_if_cancelled()`).
    """

    def __init__(
        self,
        mq: EchoMQ,
        *,
        queues: Queues | None = None,
        order: Order = "shares",
        concurrency: int = CONCURRENCY,
        burst: bool = False,
        grace: timedelta = GRACE,
        events: bool = False,
        lease: timedelta = timedelta(milliseconds=LEASE_MS),
        unknown_patience: timedelta = PATIENCE,
        max_jobs: int | None = None,
        max_rss: int | None = None,
        pool: int | None = None,
        log_payloads: bool = False,
        prune_schedules: bool = False,
        address: Address | None = None,
    ) -> None:
        if not isinstance(mq, EchoMQ):
            raise InvalidInputError(f"a worker takes the EchoMQ whose jobs it runs, not {mq!r:.200}")
        if address is not None and not isinstance(address, Address):
            raise InvalidInputError(f"address must be an Address, as in Address('tasks:mq'), not {address!r:.200}")
        self._mq = mq
        self._shares = shares_of(mq, queues, order)
        self._queues = tuple(self._shares)
        self._strict = order == "strict"
        self._concurrency = integer("concurrency", concurrency, least=1, most=MAX_CONCURRENCY)
        self._burst = flag("burst", burst)
        self._events = flag("events", events) or mq.events
        self._grace_ms = first_ms("grace", grace)
        self._lease_ms = span_ms("lease", lease)
        patience_s = first_ms("unknown_patience", unknown_patience) / 1_000
        self._life = Lifecycle()
        self._job_log = JobLog(arguments=flag("log_payloads", log_payloads))
        self._dispatch = Dispatch(mq.names, Patience(patience_s), self._life, mq.layers.around)
        self._max_jobs = None if max_jobs is None else integer("max_jobs", max_jobs, least=1)
        self._max_rss = None if max_rss is None else integer("max_rss", max_rss, least=1)
        slots = min(os.cpu_count() or 1, self._concurrency) if pool is None else pool
        self._prune = flag("prune_schedules", prune_schedules)
        self._pool_size = integer("pool", slots, least=1, most=MAX_CONCURRENCY)
        self._address = address
        self.supervised = False
        """A supervisor says when to stop, and when to stop at once; a signal, however often it comes, only stops."""
        self.tell: Callable[..., None] = _nothing
        """Tells the supervisor: `serving`, and `worn` with how many jobs it has claimed."""
        self.worn: str | None = None
        """Why it has stopped to be replaced by a fresh process; None while it has not."""
        self._owns_process = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._consumers: list[Consumer] = []
        self._ending: list[asyncio.Future[None]] = []
        self._cut_short = False
        self._free = True
        """No consumer of it claims, or holds what it has claimed: the process may end at any moment."""
        self._insisting: Insisting | None = None
        self._stopping: asyncio.Event | None = None
        self._at_once: asyncio.Event | None = None

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues that it serves."""
        return self._queues

    @property
    def consumers(self) -> tuple[Consumer, ...]:
        """One for each queue, while it serves: with their tallies and signals."""
        return tuple(self._consumers)

    def stop(self) -> None:
        """Claims no more and gives the running jobs their grace. A second call hands them back at once.

        To be called on the loop that it serves on; before that it does nothing.
        """
        if self._stopping is None or self._at_once is None:
            return
        if self._stopping.is_set():
            self._at_once.set()
        self._stopping.set()

    def stop_soon(self, *, at_once: bool = False) -> bool:
        """`stop`, once or twice, from any thread. False when it does not serve yet, or no longer."""
        loop = self._loop
        if loop is None:
            return False
        try:
            loop.call_soon_threadsafe(self._told, at_once)
        except RuntimeError:
            return False
        return True

    async def serve(self) -> None:
        """Serves until `stop`, or until a burst is over; told to stop while it still connects, it returns at once.

        Raises what stands in the way when the server cannot be reached to begin with (`ConnectError`,
        `EmbeddedServerError`, `FenceError`), `JobDefinitionError` for annotations that no job can be run by,
        `InvalidInputError` where the process has more than `max_rss` before its first job, and
        `StartupError` when one of the app's start-up hooks, lifespans or dependencies of scope `worker` has raised.
        """
        for job in self._mq.jobs.values():
            # Also refuses here what a job would otherwise fail with.
            self._life.needs(job.arguments.needs.values())
            job.defaults.follows.check(job.name, self._mq.names)
        self._stopping, self._at_once = asyncio.Event(), asyncio.Event()
        self._loop, self.worn = asyncio.get_running_loop(), None
        address = self._address or address_of(self._mq)
        self._check_processes(address)
        async with AsyncExitStack() as stack:
            self._cut_short = not await self._opened(stack, self._stopping, address)
            if self._cut_short:
                log.info("it was told to stop while it was connecting")
                return
            jobs = "1 job" if len(self._mq.jobs) == 1 else f"{len(self._mq.jobs)} jobs"
            log.info("serving %s: %s, %d at once", ", ".join(self._queues), jobs, self._concurrency)
            self.tell("serving")
            await self._until_told(self._stopping)

    def run(self) -> None:
        """Serves with an event loop of its own, on uvloop where that is installed, until SIGTERM or SIGINT.

        Either signal is a `stop`, and so is the SIGHUP of a terminal that is closed; in a thread that is not the main
        one there are none. A second one that the loop cannot hear, since a start-up hook blocks it, ends the process
        all the same, as long as no job is in hand. Where jobs had to be handed back the process ends here and now, with
        exit code 0: what they left behind, such as a function in its thread, would go on beside their next run. It does
        so, too, when it was told to stop while it still connected: the thread that waits for an embedded server would
        go on. Raises what `serve` raises.

        When a job cancels the tasks of the worker itself the process ends at once, with exit code 1, as under a job
        that kills it: the leases lapse, and whatever was in hand runs alone next.
        """
        self._owns_process = True
        # Not in `with`: leaving it waits for every thread.
        runner = new_runner()
        try:
            complete(runner, self._serve_with_signals(), lambda: self._stopping is not None)
        except BaseException:
            runner.close()
            raise
        handed_back = any(consumer.tally.released for consumer in self._consumers)
        if self._dispatch.in_threads or handed_back or self._cut_short or self._life.stuck:
            end_process()
        runner.close()

    async def _opened(self, stack: AsyncExitStack, stopping: asyncio.Event, address: Address | None) -> bool:
        """Opens everything, to be closed by `stack`; False when it was told to stop before that was done."""
        opening = asyncio.ensure_future(self._open(stack, address))
        told = asyncio.ensure_future(stopping.wait())
        try:
            done, _ = await asyncio.wait({opening, told}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            told.cancel()
            opening.cancel()
            # No longer: a thread that starts an embedded server cannot be told.
            await asyncio.wait({opening, told}, timeout=LAST_WORDS_S)
        if opening in done:
            opening.result()
        return opening in done

    async def _open(self, stack: AsyncExitStack, address: Address | None) -> None:
        keeper = LeaseKeeper(self._mq.dial())
        await keeper.start()
        stack.push_async_callback(keeper.stop)
        stack.callback(self._dispatch.aside.close)
        stack.push_async_callback(self._life.stop, self._at_once)
        await self._life.start(self._mq.life)
        if address is not None:
            pool = self._dispatch.pool = Pool(address, self._pool_size, self._is_worn)
            stack.push_async_callback(pool.close)
        self._budget = Budget(self._concurrency, most=self._max_jobs, strict=self._strict)
        # A queue that is alone has all the slots anyway.
        shared = self._budget if len(self._queues) > 1 or self._max_jobs is not None else None
        await self._sync()
        if self._max_rss is not None:
            check_room(self._max_rss)
        who = identity(self._queues)
        self._consumers = [self._consumer(queue, keeper, who, shared) for queue in self._queues]
        stack.push_async_callback(self._drain)
        self._free = False
        for consumer in self._consumers:
            await consumer.start()

    async def _sync(self) -> None:
        await sync_at_start(self._mq, self._queues, prune=self._prune)

    def _consumer(self, queue: str, keeper: LeaseKeeper, who: Identity, budget: Budget | None) -> Consumer:
        return Consumer(
            self._mq.dial(),
            queue,
            Router(partial(self._dispatch.route, queue)),
            concurrency=self._concurrency,
            lease_ms=self._lease_ms,
            keeper=keeper,
            who=who,
            budget=budget,
            weight=self._shares[queue],
            events=self._events,
            interrupt=True,
            follower=partial(self._dispatch.succession.death, queue),
            teller=self._job_log,
            ahead=self._mq.ahead_ms,
            on_break=self._broken,
        )

    async def _serve_with_signals(self) -> None:
        if threading.current_thread() is threading.main_thread():
            loop = asyncio.get_running_loop()
            # Without a terminal, as with `nohup`, it is ignored and stays so.
            hangup = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
            numbers = (signal.SIGTERM, signal.SIGINT, *hangup)
            for number in numbers:
                loop.add_signal_handler(number, self._signalled, number)
            if not self.supervised:
                self._insisting = Insisting(numbers, lambda: self._free)
        try:
            await self.serve()
        finally:
            if self._insisting is not None:
                self._insisting.close()

    def _check_processes(self, address: Address | None) -> None:
        if address is not None:
            return
        for job in self._mq.jobs.values():
            if job.defaults.process and job.queue in self._queues:
                raise InvalidInputError(
                    f"job {job.name!r} is to run in a process of its own, which finds an EchoMQ only as a global of "
                    "a module: give this one a name there, or leave process=True out"
                )

    def _is_stuck(self) -> bool:
        return self.supervised and sum(each.late for each in self._consumers) >= self._concurrency

    def _is_worn(self, cell: Cell) -> bool:
        jobs, rss = self._max_jobs, self._max_rss
        return (jobs is not None and cell.jobs >= jobs) or (rss is not None and cell.rss > rss)

    def _signalled(self, number: int) -> None:
        name = signal.Signals(number).name
        if self._insisting is not None:
            self._insisting.heard()
        told = self._stopping is not None and self._stopping.is_set()
        if told and self.supervised:
            return
        if told:
            log.warning("%s again: running jobs are handed back at once", name)
        else:
            log.info("%s: no more claims; running jobs have %g s to end", name, self._grace_ms / 1_000)
        self.stop()

    def _told(self, at_once: bool) -> None:
        if self._stopping is None or self._at_once is None:
            return
        self._stopping.set()
        if at_once:
            self._at_once.set()

    async def _until_told(self, stopping: asyncio.Event) -> None:
        watched: set[asyncio.Task[Any]] = {asyncio.ensure_future(stopping.wait())}
        if self._burst:
            watched.add(asyncio.ensure_future(self._until_empty()))
        if self.supervised or self._max_jobs is not None or self._max_rss is not None:
            watched.add(asyncio.ensure_future(self._until_worn()))
        try:
            done, _ = await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        except asyncio.CancelledError:
            self._broken()
            raise
        finally:
            for task in watched:
                task.cancel()
            await asyncio.wait(watched)

    def _broken(self) -> None:
        """Its own tasks are cancelled. Where nobody but a job can have done that, nothing is handed back."""
        if self._owns_process and self._stopping is not None and not self._stopping.is_set():
            log.error("a job has cancelled the worker's own tasks, or stopped its loop: it ends, and its leases lapse")
            end_process(1)

    async def _until_worn(self) -> None:
        self.worn = await had_enough(self._budget, self._max_rss, self._is_stuck)
        log.info("%s: it ends what it has in hand, to be replaced", self.worn)
        self.tell("worn", self._claimed())

    async def _until_empty(self) -> None:
        """A whole round of claims that brings nothing, begun when nothing was in hand that could add a job."""
        claimed = -1
        while claimed != self._claimed():
            await self._all_idle()
            claimed = self._claimed()
            await asyncio.gather(*(consumer.beat() for consumer in self._consumers))
            # A beat that found every slot taken has its claim still before it.
            await self._all_idle()
        run = self._dispatch.begun
        others = f", {claimed - run} were put off or buried as they are" if claimed > run else ""
        log.info("nothing is left to claim; %s run%s", "1 job was" if run == 1 else f"{run} jobs were", others)

    async def _all_idle(self) -> None:
        while busy := [consumer for consumer in self._consumers if not consumer.idle]:
            await busy[0].parked.next()

    def _claimed(self) -> int:
        return sum(consumer.tally.claimed for consumer in self._consumers)

    async def _drain(self) -> None:
        stopping, at_once = self._stopping, self._at_once
        assert stopping is not None
        assert at_once is not None
        grace_ms = self._grace_ms if self.worn is None or stopping.is_set() else _FOREVER_MS
        ending = [asyncio.ensure_future(each.stop(grace_ms)) for each in self._consumers]
        hurrying = asyncio.ensure_future(self._hurry(stopping, at_once))
        await asyncio.wait(ending)
        hurrying.cancel()
        await asyncio.wait([hurrying])
        for each in ending:
            each.result()
        self._free = True

    async def _hurry(self, stopping: asyncio.Event, at_once: asyncio.Event) -> None:
        if self.worn is not None:
            await stopping.wait()
            self._ending = [asyncio.ensure_future(each.stop(self._grace_ms)) for each in self._consumers]
        await at_once.wait()
        if self._dispatch.pool is not None:
            # Before they are handed back, so that none of them runs beside its next run.
            self._dispatch.pool.kill()
        await asyncio.gather(*(each.stop(0) for each in self._consumers))


def _nothing(*_: object) -> None:
    pass
