"""The worker: one process that claims, runs, recurs and recovers the jobs of an app."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from functools import partial
from importlib.util import find_spec
from typing import Final

from echomq.app.dispatch import Dispatch
from echomq.app.echomq import EchoMQ
from echomq.app.lifecycle import Lifecycle
from echomq.app.patience import PATIENCE_S, Patience, nearest
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
_LAST_WORDS_S: Final = 2.0


class Worker:
    """Runs the jobs of `mq` until it is told to stop: coroutines on its event loop, plain functions in threads.

    `queues`: those of the app's jobs unless given. `concurrency`: how many jobs run at once, over all queues; while
    several queues have work, each gets its share. `burst`: end when nothing can be claimed in any queue and nothing is
    in hand; what is scheduled for later is not waited for. `grace`: how long running jobs may go on once it is told to
    stop; then they are handed back, with no attempt spent. `events`: publish what happens to each job, for
    `echomq.events`. `unknown_patience`: how long a job that this worker does not know waits for one that does.

    A job that is cancelled while it runs is interrupted when it is a coroutine; a plain function has to look
    (`current_job().raise_if_cancelled()`).
    """

    def __init__(
        self,
        mq: EchoMQ,
        *,
        queues: Iterable[str] | None = None,
        concurrency: int = CONCURRENCY,
        burst: bool = False,
        grace: timedelta = GRACE,
        events: bool = False,
        lease: timedelta = timedelta(milliseconds=LEASE_MS),
        unknown_patience: timedelta = PATIENCE,
    ) -> None:
        self._mq = mq
        self._queues = _queues(mq, queues)
        self._concurrency = integer("concurrency", concurrency, least=1, most=MAX_CONCURRENCY)
        self._burst = burst
        self._events = events or mq.events
        self._grace_ms = first_ms("grace", grace)
        self._lease_ms = span_ms("lease", lease)
        patience_s = first_ms("unknown_patience", unknown_patience) / 1_000
        self._life = Lifecycle()
        self._dispatch = Dispatch(mq.names, Patience(patience_s), self._life, mq.layers.around)
        self._consumers: list[Consumer] = []
        self._cut_short = False
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

    async def serve(self) -> None:
        """Serves until `stop`, or until a burst is over; told to stop while it still connects, it returns at once.

        Raises what stands in the way when the server cannot be reached to begin with (`ConnectError`,
        `EmbeddedServerError`, `FenceError`), `JobDefinitionError` for annotations that no job can be run by, and
        `StartupError` when one of the app's start-up hooks, lifespans or dependencies of scope `worker` has raised.
        """
        for job in self._mq.jobs.values():
            # Also refuses here what a job would otherwise fail with.
            self._life.needs(job.arguments.needs.values())
        self._stopping, self._at_once = asyncio.Event(), asyncio.Event()
        async with AsyncExitStack() as stack:
            self._cut_short = not await self._opened(stack, self._stopping, self._at_once)
            if self._cut_short:
                log.info("it was told to stop while it was connecting")
                return
            log.info("serving %s: %d jobs, %d at once", ", ".join(self._queues), len(self._mq.jobs), self._concurrency)
            await self._until_told(self._stopping)

    def run(self) -> None:
        """Serves with an event loop of its own, on uvloop where that is installed, until SIGTERM or SIGINT.

        Either signal is a `stop`; in a thread that is not the main one there are none. Where jobs had to be handed
        back the process ends here and now, with exit code 0: what they left behind, such as a function in its
        thread, would go on beside their next run. It does so, too, when it was told to stop while it still connected:
        the thread that waits for an embedded server would go on. Raises what `serve` raises.
        """
        # Not in `with`: leaving it waits for every thread.
        runner = asyncio.Runner(loop_factory=_loop_factory())
        try:
            runner.run(self._serve_with_signals())
        except BaseException:
            runner.close()
            raise
        handed_back = any(consumer.tally.released for consumer in self._consumers)
        if self._dispatch.in_threads or handed_back or self._cut_short:
            _end_process()
        runner.close()

    async def _opened(self, stack: AsyncExitStack, stopping: asyncio.Event, at_once: asyncio.Event) -> bool:
        """Opens everything, to be closed by `stack`; False when it was told to stop before that was done."""
        opening = asyncio.ensure_future(self._open(stack, at_once))
        told = asyncio.ensure_future(stopping.wait())
        try:
            done, _ = await asyncio.wait({opening, told}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            told.cancel()
            opening.cancel()
            # No longer: a thread that starts an embedded server cannot be told.
            await asyncio.wait({opening, told}, timeout=_LAST_WORDS_S)
        if opening in done:
            opening.result()
        return opening in done

    async def _open(self, stack: AsyncExitStack, at_once: asyncio.Event) -> None:
        keeper = LeaseKeeper(self._mq.dial())
        await keeper.start()
        stack.push_async_callback(keeper.stop)
        stack.callback(self._dispatch.aside.close)
        stack.push_async_callback(self._life.stop)
        await self._life.start(self._mq.life)
        who, budget = identity(self._queues), Budget(self._concurrency)
        self._consumers = [self._consumer(queue, keeper, who, budget) for queue in self._queues]
        stack.push_async_callback(self._drain, at_once)
        for consumer in self._consumers:
            await consumer.start()

    def _consumer(self, queue: str, keeper: LeaseKeeper, who: Identity, budget: Budget) -> Consumer:
        return Consumer(
            self._mq.dial(),
            queue,
            Router(partial(self._dispatch.route, queue)),
            concurrency=self._concurrency,
            lease_ms=self._lease_ms,
            keeper=keeper,
            who=who,
            # A queue that is alone has all the slots anyway.
            budget=budget if len(self._queues) > 1 else None,
            events=self._events,
            interrupt=True,
        )

    async def _serve_with_signals(self) -> None:
        if threading.current_thread() is threading.main_thread():
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self._signalled, number)
        await self.serve()

    def _signalled(self, number: int) -> None:
        name = signal.Signals(number).name
        if self._stopping is not None and self._stopping.is_set():
            log.warning("%s again: running jobs are handed back at once", name)
        else:
            log.info("%s: no more claims; running jobs have %g s to end", name, self._grace_ms / 1_000)
        self.stop()

    async def _until_told(self, stopping: asyncio.Event) -> None:
        told = asyncio.ensure_future(stopping.wait())
        watched = {told} if not self._burst else {told, asyncio.ensure_future(self._until_empty())}
        try:
            done, _ = await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in watched:
                task.cancel()
            await asyncio.wait(watched)

    async def _until_empty(self) -> None:
        """A whole round of claims that brings nothing, begun when nothing was in hand that could add a job."""
        claimed = -1
        while claimed != self._claimed():
            await self._all_idle()
            claimed = self._claimed()
            await asyncio.gather(*(consumer.beat() for consumer in self._consumers))
            # A beat that found every slot taken has its claim still before it.
            await self._all_idle()
        log.info("nothing is left to claim; %d jobs were run", claimed)

    async def _all_idle(self) -> None:
        while busy := [consumer for consumer in self._consumers if not consumer.idle]:
            await busy[0].parked.next()

    def _claimed(self) -> int:
        return sum(consumer.tally.claimed for consumer in self._consumers)

    async def _drain(self, at_once: asyncio.Event) -> None:
        ending = [asyncio.ensure_future(each.stop(self._grace_ms)) for each in self._consumers]
        hurrying = asyncio.ensure_future(self._hurry(at_once))
        await asyncio.wait(ending)
        hurrying.cancel()
        await asyncio.wait([hurrying])
        for each in ending:
            each.result()

    async def _hurry(self, at_once: asyncio.Event) -> None:
        await at_once.wait()
        await asyncio.gather(*(each.stop(0) for each in self._consumers))


def _queues(mq: EchoMQ, wanted: Iterable[str] | None) -> tuple[str, ...]:
    known = mq.queues
    if not mq.jobs:
        raise InvalidInputError("this EchoMQ has no jobs yet: decorate a function with @mq.job")
    if wanted is None:
        return known
    if isinstance(wanted, str):
        raise InvalidInputError(f"queues must be a list of names, not a text; write queues=[{wanted!r:.200}]")
    queues = tuple(dict.fromkeys(wanted))
    for queue in queues:
        if not isinstance(queue, str):
            raise InvalidInputError(f"queues must be a list of names, not of {type(queue).__name__}: {queue!r:.200}")
        if mq.queue_name(queue) not in known:
            raise InvalidInputError(f"no job is in queue {queue!r}; there are jobs in {nearest(queue, known)}")
    if not queues:
        raise InvalidInputError("a worker needs one queue or more")
    return tuple(dict.fromkeys(map(mq.queue_name, queues)))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if find_spec("uvloop") is None:
        return None
    import uvloop

    return uvloop.new_event_loop


def _end_process() -> None:
    """Ends the process with code 0, whatever its streams are: closed, broken, full or held by a thread that hangs."""
    try:
        last_words = threading.Thread(target=_flush, daemon=True)
        last_words.start()
        last_words.join(_LAST_WORDS_S)
    finally:
        os._exit(0)


def _flush() -> None:
    for flush in (logging.shutdown, *(stream.flush for stream in (sys.stdout, sys.stderr) if stream is not None)):
        with suppress(Exception):
            flush()
