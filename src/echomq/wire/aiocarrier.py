"""Under the awaited connector: one order of calls across reconnects, deadlines, and one connection at a time.

What stays true:

* a call is written once, unless the server said that it did not run (NOSCRIPT);
* a call that was written when its connection died fails with `DisconnectedError(sent=True)`; one that was not
  waits up to `timeout` for the reconnect;
* a caller that goes away never moves a reply to another caller.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Final, TypeVar

from echomq.protocol.backoff import delay_ms
from echomq.protocol.call import Call, Reply
from echomq.protocol.errors import (
    ConnectError,
    DisconnectedError,
    EchoMQError,
    OverloadedError,
    ServerError,
)
from echomq.wire import forks
from echomq.wire.aiolink import Link, Waiting
from echomq.wire.handshake import FINAL, handshake
from echomq.wire.options import RECONNECT, Options
from echomq.wire.pipe import Entry
from echomq.wire.resp import pack, raw
from echomq.wire.source import FixedSource, Source, prepared
from echomq.wire.subscriptions import Box, Channels
from echomq.wire.url import Target

T = TypeVar("T")

_log: Final = logging.getLogger("echomq")

_FOREVER: Final = float("inf")


class Carrier:
    """Carries calls of one event loop to one server. `connected` is called after every connect."""

    def __init__(self, source: Source, options: Options, connected: Callable[[Target], None]) -> None:
        self._source = source
        self._options = options
        self._connected = connected
        self._loop = asyncio.get_running_loop()
        self._unsent: deque[Waiting] = deque()
        self._scheduled = False
        self._now = 0.0
        self._max_pending = options.max_pending
        self._watch: asyncio.TimerHandle | None = None
        self._watch_at = _FOREVER
        self._opening: asyncio.Task[EchoMQError | None] | None = None
        self._preparing: asyncio.Future[Target] | None = None
        self._failures = 0
        self._was_connected = False
        self._last_error: EchoMQError | None = None
        self._address = "the server"
        self._channels = Channels()
        self._guard: AsyncGenerator[None, None] | None = None
        self.link: Link | None = None
        self.closed = False

    # Calls

    def enter(self, call: Call[T], timeout: float | None, *, ordered: bool = True) -> asyncio.Future[T]:
        """Put `call` into the next flight; the future is its answer."""
        link, unsent, loop = self.link, self._unsent, self._loop
        native = link is not None and call.script in link.pipe.native
        packed = pack(call, native=native)
        waiting = len(unsent)
        if link is not None:
            waiting += len(link.pipe.sent) + len(link.pipe.missing)
        if waiting >= self._max_pending:
            raise OverloadedError(
                f"{call.verb} {call.subject}: {waiting} calls already wait for {self._address}, max_pending is "
                f"{self._max_pending}; the call was not sent"
            )
        if not self._scheduled:
            self._scheduled = True
            loop.call_soon(self._flush_scheduled)
            self._now = loop.time()
        deadline = _FOREVER if timeout is None else self._now + timeout
        if link is None:
            deadline = min(deadline, self._now + self._options.timeout)
        if deadline < self._watch_at:
            self._watch_until(deadline)
        future: asyncio.Future[T] = loop.create_future()
        unsent.append(Entry(call, future, packed, timeout, deadline, native, ordered))
        return future

    def _flush_scheduled(self) -> None:
        self._scheduled = False
        self.flush()

    def flush(self) -> None:
        """Send what waits, or begin to reconnect for it."""
        link = self.link
        if link is None:
            self._reopen_if_wanted()
        elif not link.paused:
            link.write(self._unsent)

    def forsake(self, future: asyncio.Future[Reply]) -> None:
        """Drop the connection if all it does is wait for the answer to `future`, which nobody wants."""
        link = self.link
        if link is not None and len(link.pipe.sent) == 1 and link.pipe.sent[0].sink is future:
            link.drop("its blocking command was cancelled")

    @property
    def parked(self) -> bool:
        """Whether a command without a limit is under way, behind which any other would wait."""
        return self.link is not None and any(
            entry.timeout is None and entry.sink is not None for entry in self.link.pipe.sent
        )

    # Deadlines

    def _watch_until(self, deadline: float) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._watch_at = deadline
        self._watch = None if deadline == _FOREVER else self._loop.call_at(deadline, self._look)

    def _look(self) -> None:
        """Fail what has waited too long; replies come in order, so a late one costs the connection."""
        now = self._loop.time()
        link = self.link
        if link is not None:
            late = next((entry for entry in (*link.pipe.sent, *link.pipe.missing) if entry.deadline <= now), None)
            if late is not None:
                link.drop(f"{late.call.verb} had no answer within {late.timeout:g} s: the server may be frozen")
        for entry in tuple(self._unsent):
            if entry.deadline <= now:
                self._unsent.remove(entry)
                self._fail(entry, self._unreachable(entry.call))
        link = self.link
        entries = (*self._unsent, *link.pipe.sent, *link.pipe.missing) if link is not None else self._unsent
        self._watch_until(min((entry.deadline for entry in entries), default=_FOREVER))

    def _unreachable(self, call: Call[object]) -> EchoMQError:
        what = f"{call.verb} {call.subject}".strip()
        if self.link is not None:
            reason = f"{self._address} takes no more data"
        else:
            reason = f"no connection to {self._address}"
            if self._last_error is not None:
                reason = f"{reason} ({self._last_error})"
        text = f"{what}: not sent, {reason}"
        return DisconnectedError(text, sent=False) if self._was_connected else ConnectError(text)

    @staticmethod
    def _fail(entry: Waiting, error: EchoMQError) -> None:
        if entry.sink is not None and not entry.sink.done():
            entry.sink.set_exception(error)

    def _fail_unsent(self, error: EchoMQError) -> None:
        unsent, self._unsent = self._unsent, deque()
        for entry in unsent:
            self._fail(entry, error)

    # Connections

    def _wanted(self) -> bool:
        return not self.closed and (
            bool(self._channels) or any(entry.sink is not None and not entry.sink.done() for entry in self._unsent)
        )

    def opening(self, *, once: bool = False) -> asyncio.Task[EchoMQError | None]:
        """The connecting in the background, with `once` by one try only; gives the error it stopped at."""
        if self._opening is None:
            self._opening = self._loop.create_task(self._reopen(once=once))
            self._opening.add_done_callback(self._opened)
        return self._opening

    def _opened(self, task: asyncio.Task[EchoMQError | None]) -> None:
        self._opening = None
        if not task.cancelled():
            # A call may have come after the task had decided that nobody waits.
            self._reopen_if_wanted()

    def _reopen_if_wanted(self) -> None:
        if self.link is None and self._wanted():
            self._opening = self.opening()

    async def _reopen(self, *, once: bool) -> EchoMQError | None:
        while once or self._wanted():
            if self._failures and not once:
                await asyncio.sleep(delay_ms(RECONNECT, self._failures) / 1_000)
            try:
                link = await self._connect()
            except EchoMQError as error:
                self._failures += 1
                self._last_error = error
                if isinstance(error, FINAL):
                    self._fail_unsent(error)
                if once:
                    return error
                _log.debug("connect %d in a row failed: %s", self._failures, error)
            else:
                self._use(link)
                return None
        return self._last_error

    async def _connect(self) -> Link:
        if self._guard is None:
            # The loop finalizes its async generators before it closes: the last chance to close the socket.
            self._guard = self._until_loop_ends()
            await anext(self._guard)
        options = self._options
        target = await self._prepare()
        self._address = target.address
        link = Link(self, target)
        try:
            steps = handshake(target, name=options.name, fence=options.fence, wire=options.wire)
            await link.dial(steps, options)
        except BaseException:
            link.drop("the handshake failed")
            raise
        return link

    async def _prepare(self) -> Target:
        if isinstance(self._source, FixedSource):
            return self._source.target
        if self._preparing is None:
            self._preparing = self._loop.run_in_executor(None, prepared, self._source)
        try:
            return await asyncio.shield(self._preparing)
        finally:
            if self._preparing.done():
                self._preparing = None

    async def _until_loop_ends(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            self.leave("its event loop ended")

    def _use(self, link: Link) -> None:
        self.link = link
        self._failures = 0
        again = self._was_connected
        self._was_connected = True
        now = self._loop.time()
        for entry in self._unsent:
            entry.deadline = _FOREVER if entry.timeout is None else now + entry.timeout
        if again:
            for box in self._channels.boxes():
                box.restored += 1
        for name in reversed(self._channels.names()):
            self._restore(name)
        self._connected(link.target)
        self.flush()
        self._look()

    def lost(self, link: Link) -> None:
        """The connection is gone: what it never ran is sent on the next one."""
        if link is not self.link:
            return
        self.link = None
        self._unsent.extendleft(reversed(link.unsent))
        now = self._loop.time()
        for entry in self._unsent:
            entry.deadline = min(entry.deadline, now + self._options.timeout)
        if self._unsent:
            self._watch_until(min(entry.deadline for entry in self._unsent))
        self._reopen_if_wanted()

    # Subscriptions

    def pushed(self, push: list[Reply]) -> None:
        """A message for the boxes that want it."""
        self._channels.deliver(push)

    async def attach(self, box: Box) -> None:
        """Subscribe `box`; returns when the server has said so."""
        timeout = self._options.call_timeout
        futures = [self.enter(raw("SUBSCRIBE", name), timeout) for name in self._channels.add(box)]
        try:
            await asyncio.gather(*futures)
        except BaseException:
            await self.detach(box)
            raise

    async def detach(self, box: Box) -> None:
        """Unsubscribe `box` from what nobody else wants."""
        gone = self._channels.remove(box)
        if self.link is not None and not self.closed:
            timeout = self._options.call_timeout
            for name in gone:
                with suppress(EchoMQError):
                    await self.enter(raw("UNSUBSCRIBE", name), timeout)

    def _restore(self, name: bytes) -> None:
        subscribe = raw("SUBSCRIBE", name)
        timeout = self._options.call_timeout
        future: asyncio.Future[Reply] = self._loop.create_future()

        def restored(done: asyncio.Future[Reply]) -> None:
            error = None if done.cancelled() else done.exception()
            if isinstance(error, ServerError):
                for box in self._channels.boxes():
                    if name.decode() in box.channels:
                        box.end(error)

        future.add_done_callback(restored)
        deadline = self._loop.time() + timeout
        self._unsent.appendleft(Entry(subscribe, future, pack(subscribe), timeout, deadline))

    # The end

    async def finish(self) -> None:
        """Wait for the answers under way, as long as they have a deadline and at most `timeout`."""
        link = self.link
        if link is None:
            return
        under_way = [
            entry.sink
            for entry in (*link.pipe.sent, *link.pipe.missing, *self._unsent)
            if entry.sink is not None and entry.timeout is not None and not entry.sink.done()
        ]
        if under_way:
            await asyncio.wait(under_way, timeout=self._options.timeout)

    async def close(self) -> None:
        """Fail what is left and close the socket."""
        self.closed = True
        link = self.link
        self.leave("the connector was closed")
        if link is not None:
            await link.gone
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        if self._preparing is not None:
            await asyncio.wait([self._preparing])
        if self._guard is not None:
            await self._guard.aclose()

    def leave(self, reason: str) -> None:
        """Let go of the loop at once."""
        self.closed = True
        if self._loop.is_closed():
            # Its futures and transports cannot be touched any more.
            return
        self._watch_until(_FOREVER)
        for box in self._channels.boxes():
            box.end()
        self._fail_unsent(DisconnectedError(f"not sent: {reason}", sent=False))
        if self.link is not None:
            self.link.drop(reason)

    def abandon(self) -> None:
        """In a forked child: leave the parent its connection."""
        forks.graveyard.append(self)
        if self.link is not None and self.link.fd >= 0:
            forks.let_go(self.link.fd)
