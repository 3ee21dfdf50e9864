"""Waiting for jobs to end, on one event loop: one subscription a queue, however many jobs are waited for.

A job's end is told on the queue's `results` channel; then, and once a second in case that a message was lost, the jobs
in question are looked at, up to a thousand in one call. Nobody waits: nothing is sent, and soon nothing is subscribed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import islice
from typing import Final

from echomq.identity.errors import EchoMQError
from echomq.protocol.errors import DisconnectedError, OverloadedError, ServerError
from echomq.protocol.keys import keys
from echomq.protocol.replies import State
from echomq.protocol.results import MOST, Ending, endings, ids_in
from echomq.wire import AsyncConnector
from echomq.wire.subscriptions import AsyncSubscription

log: Final = logging.getLogger("echomq")

LOOK_S: Final = 1.0
"""From one look at those that are waited for to the next."""

LINGER_S: Final = 5.0
"""How long a subscription outlasts the last that waited: who waits for one job after the other needs one."""

_BUFFER: Final = 10_000
_PAUSES_S: Final = (0.02, 0.1, 0.5, 1.0)


class Waiting:
    """Whoever waits on one event loop, over one connector."""

    def __init__(self, connector: AsyncConnector) -> None:
        self._connector = connector
        self._desks: dict[str, Desk] = {}

    async def ending(self, queue: str, job_id: str, timeout_s: float | None) -> Ending:
        """The job's end; what was last seen of it when that has not come after `timeout_s`.

        Raises what the first look raises; a connection that is lost later is waited for.
        """
        desk = self._desks.get(queue)
        if desk is None:
            desk = self._desks[queue] = Desk(self._connector, queue, self._gone)
        return await desk.ending(job_id, timeout_s)

    def close(self) -> None:
        """Whoever still waits gets a `DisconnectedError`."""
        for desk in tuple(self._desks.values()):
            desk.close()

    def _gone(self, desk: Desk) -> None:
        if self._desks.get(desk.queue) is desk:
            del self._desks[desk.queue]


class Wait:
    """A job that is waited for: by whom, and where it was when last looked at."""

    __slots__ = ("futures", "seen")

    def __init__(self) -> None:
        self.futures = set[asyncio.Future[Ending]]()
        self.seen: Ending | None = None


class Desk:
    """Whoever waits for jobs of one queue. `gone` is called when there is nobody left, and it has ended."""

    def __init__(self, connector: AsyncConnector, queue: str, gone: Callable[[Desk], None]) -> None:
        self.queue = queue
        self._connector = connector
        self._gone = gone
        self._loop = asyncio.get_running_loop()
        self._waits: dict[str, Wait] = {}
        self._due: dict[str, None] = {}
        """Jobs to be looked at now."""
        self._round: list[str] = []
        """Jobs that this round of looks has still to come to."""
        self._nudge = asyncio.Event()
        self._failures = 0
        """Looks in a row that got no answer."""
        self._retry_at = 0.0
        self._missed = (0, 0)
        self._reader: asyncio.Task[None] | None = None
        self._task = self._loop.create_task(self._run(), name=f"echomq {queue} results")
        self._task.add_done_callback(self._ended)

    async def ending(self, job_id: str, timeout_s: float | None) -> Ending:
        """See `Waiting.ending`."""
        wait = self._waits.get(job_id)
        if wait is None:
            wait = self._waits[job_id] = Wait()
        self._due[job_id] = None
        self._nudge.set()
        future: asyncio.Future[Ending] = self._loop.create_future()
        wait.futures.add(future)
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            if future.done() and not future.cancelled():
                return future.result()  # both at once
            return wait.seen or await self._glance(job_id, timeout_s)
        finally:
            wait.futures.discard(future)
            if not wait.futures and self._waits.get(job_id) is wait:
                self._forget(job_id)

    async def _glance(self, job_id: str, timeout_s: float | None) -> Ending:
        """Where a job is whose time to wait was over before anybody had looked."""
        with suppress(EchoMQError, TimeoutError):
            if timeout_s is not None and timeout_s < LOOK_S:
                async with asyncio.timeout(LOOK_S):
                    return (await self._connector.run(endings(self.queue, (job_id,))))[0]
        return Ending(State.UNKNOWN)

    def close(self) -> None:
        """Fail those that wait."""
        self._fail(tuple(self._waits), DisconnectedError("the connection was closed while it waited", sent=False))
        self._task.cancel()

    # The task

    async def _run(self) -> None:
        messages = await self._subscribed()
        if messages is not None:
            self._reader = self._loop.create_task(self._read(messages), name=f"echomq {self.queue} ended jobs")
        looks_at = self._loop.time() + LOOK_S
        while True:
            now = self._loop.time()
            if now >= looks_at:
                looks_at = now + LOOK_S
                self._look_around(messages)
            if self._due and now >= self._retry_at:
                await self._look()
            elif self._waits:
                await self._sleep(min(looks_at, self._retry_at) if self._due else looks_at)
            else:
                await self._sleep(now + LINGER_S)
                if not self._waits:
                    break
        self._gone(self)
        if messages is not None:
            self._stop_reading()
            await messages.__aexit__(None, None, None)

    async def _subscribed(self) -> AsyncSubscription | None:
        """The queue's channel; None where the server does not let us listen: then there are the looks."""
        messages = self._connector.subscribe(keys(self.queue).results, buffer=_BUFFER)
        for pause_s in (*_PAUSES_S, None):
            try:
                return await messages.__aenter__()
            except ServerError as error:
                self._deaf(error)
                return None
            except DisconnectedError:
                if pause_s is None:
                    raise
                await asyncio.sleep(pause_s)
        return None

    async def _read(self, messages: AsyncSubscription) -> None:
        """Hears which jobs have ended."""
        waits, due = self._waits, self._due
        try:
            while (message := await messages.get()) is not None:
                for job_id in ids_in(message.data):
                    if job_id in waits:
                        due[job_id] = None
                if due:
                    self._nudge.set()
        except EchoMQError as error:
            self._deaf(error)
        else:
            self.close()  # its connector was closed

    def _deaf(self, error: EchoMQError) -> None:
        log.warning("queue %s: results come up to a second late, nobody may listen for them: %s", self.queue, error)

    def _look_around(self, messages: AsyncSubscription | None) -> None:
        """What is waited for is looked at without a message, too: all of it when some may be missing."""
        missed = (0, 0) if messages is None else (messages.dropped, messages.restored)
        if missed != self._missed:
            self._missed = missed
            self._due.update(dict.fromkeys(self._waits))
            return
        if not self._round:
            self._round = list(self._waits)
        self._due.update(dict.fromkeys(each for each in self._round[-MOST:] if each in self._waits))
        del self._round[-MOST:]

    async def _look(self) -> None:
        ids = list(islice(self._due, MOST))
        for job_id in ids:
            del self._due[job_id]
        try:
            found = await self._connector.run(endings(self.queue, ids))
        except EchoMQError as error:
            passes = isinstance(error, ServerError) and error.passes
            if passes or isinstance(error, DisconnectedError | OverloadedError):
                self._look_again(ids, error)
            else:
                self._fail(ids, error)
            return
        self._failures = 0
        for job_id, ending in zip(ids, found, strict=True):
            wait = self._waits.get(job_id)
            if wait is None:
                continue
            wait.seen = ending
            if ending.is_final:
                del self._waits[job_id]
                for future in wait.futures:
                    if not future.done():
                        future.set_result(ending)

    def _look_again(self, ids: list[str], error: EchoMQError) -> None:
        log.debug("queue %s: no look at %d jobs that are waited for: %s", self.queue, len(ids), error)
        self._due.update(dict.fromkeys(each for each in ids if each in self._waits))
        self._retry_at = self._loop.time() + _PAUSES_S[min(self._failures, len(_PAUSES_S) - 1)]
        self._failures += 1

    async def _sleep(self, until: float) -> None:
        """Wait for a nudge, at most until the instant `until`."""
        self._nudge.clear()
        timer = self._loop.call_at(until, self._nudge.set)
        try:
            await self._nudge.wait()
        finally:
            timer.cancel()

    # The end

    def _forget(self, job_id: str) -> None:
        del self._waits[job_id]
        self._due.pop(job_id, None)

    def _fail(self, ids: Iterable[str], error: BaseException) -> None:
        for job_id in ids:
            wait = self._waits.pop(job_id, None)
            self._due.pop(job_id, None)
            for future in () if wait is None else wait.futures:
                if not future.done():
                    future.set_exception(error)

    def _stop_reading(self) -> None:
        if self._reader is not None:
            self._reader.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._gone(self)
        self._stop_reading()
        if task.cancelled():
            for wait in self._waits.values():
                for future in wait.futures:
                    future.cancel()
        elif (error := task.exception()) is not None:
            self._fail(tuple(self._waits), error)
