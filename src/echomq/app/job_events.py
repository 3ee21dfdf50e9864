"""What happens to one job, as it happens: the events of its queue that are its own, and its end (protocol §10)."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from echomq.app.results import value_of
from echomq.app.times import first_ms
from echomq.protocol.keys import keys
from echomq.protocol.replies import State
from echomq.protocol.results import Ending
from echomq.runtime.listening import Event, read
from echomq.wire.subscriptions import AsyncSubscription

if TYPE_CHECKING:
    from echomq.app.handles import Job

__all__ = ["JobEvents"]

_LAST: Final = ("completed", "dead")


class JobEvents:
    """The events of a job until it has ended: `async for` over it, or `for` in a thread; each time from then on."""

    def __init__(self, job: Job[Any], timeout: timedelta | None) -> None:
        self._job = job
        self._limit_s = None if timeout is None else first_ms("timeout", timeout) / 1_000

    def __aiter__(self) -> AsyncIterator[Event]:
        return self._events()

    def __iter__(self) -> Iterator[Event]:
        self._job.mq.warn_on_a_loop("events", "use async for")
        events, wait_for = self._events(), self._job.mq.wait_for
        try:
            while (event := wait_for(_next(events))) is not None:
                yield event
        finally:
            wait_for(events.aclose())

    async def _events(self) -> AsyncGenerator[Event, None]:
        job, until = self._job, None if self._limit_s is None else time.monotonic() + self._limit_s
        connector = await job.mq.aconnection()
        inbox, heard = deque[Event](), asyncio.Event()
        async with AsyncExitStack() as stack:
            messages = await stack.enter_async_context(connector.subscribe(keys(job.queue).events))
            reading = asyncio.ensure_future(_read(messages, job.id, inbox, heard))
            stack.callback(reading.cancel)
            left_s = None if until is None else max(0.0, until - time.monotonic())
            ending = asyncio.ensure_future(job.mq.aending(job.queue, job.id, left_s))
            stack.callback(ending.cancel)
            ending.add_done_callback(lambda _: heard.set())
            while True:
                while inbox:
                    event = inbox.popleft()
                    yield event
                    if _is_last(event):
                        return
                if ending.done():
                    break
                heard.clear()
                await heard.wait()
            if (last := self._last(ending.result())) is not None:
                yield last

    def _last(self, ending: Ending) -> Event | None:
        """The last event, which nobody needs to publish; None for a job that is gone and has left nothing."""
        job = self._job
        if ending.result is not None:
            return Event("completed", job.id, {})
        if ending.state is State.ABSENT:
            return None
        if ending.state is not State.DEAD:
            value_of(job, ending, self._limit_s)  # raises: its time is over
        if ending.error.startswith("cancelled"):
            return Event("cancelled", job.id, {"error": ending.error, "state": "dead"})
        return Event("dead", job.id, {"error": ending.error})


async def _read(messages: AsyncSubscription, job_id: str, inbox: deque[Event], heard: asyncio.Event) -> None:
    sign = job_id.encode()
    while (message := await messages.get()) is not None:
        if sign in message.data and (event := read(message.data)) is not None and event.job == job_id:
            inbox.append(event)
            heard.set()


async def _next(events: AsyncGenerator[Event, None]) -> Event | None:
    return await anext(events, None)


def _is_last(event: Event) -> bool:
    return event.event in _LAST or (event.event == "cancelled" and event.more.get("state") == "dead")
