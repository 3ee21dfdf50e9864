"""One connection of the awaited face: bytes to futures. It never reconnects; its connector does."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias, cast

from echomq.protocol.call import Call, Reply
from echomq.protocol.errors import ConnectError, DisconnectedError, ServerError
from echomq.wire.handshake import Batch, Handshake, Outcome, RefusedError
from echomq.wire.options import Options
from echomq.wire.pipe import Entry, Pipe, lost, refusal, unreadable
from echomq.wire.resp import ErrorReply, pack
from echomq.wire.sockets import tune
from echomq.wire.url import Target

Waiting: TypeAlias = "Entry[asyncio.Future[Any]]"


class Owner(Protocol):
    """What a connection tells its connector."""

    def flush(self) -> None:
        """The connection can take more."""
        ...

    def pushed(self, push: list[Reply]) -> None:
        """The server sent something without being asked."""
        ...

    def lost(self, link: Link) -> None:
        """The connection is gone; calls that never ran are in its `unsent`."""
        ...


class Link(asyncio.Protocol):
    """A socket with its pipe; `dial` makes it usable."""

    def __init__(self, owner: Owner, target: Target) -> None:
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self.target = target
        self.pipe: Pipe[asyncio.Future[Any]] = Pipe()
        self.unsent: deque[Waiting] = deque()
        self.waiting_for = ""
        self.paused = False
        self.gone: asyncio.Future[None] = self._loop.create_future()
        self.ended = ""
        self.fd = -1
        self._transport: asyncio.Transport | None = None

    async def dial(self, steps: Handshake, options: Options) -> None:
        """Connect and shake hands within the options' `timeout`, or raise `ConnectError`."""
        address, timeout = self.target.address, options.timeout
        try:
            async with asyncio.timeout(timeout):
                await self._open(options.tls)
                await self._greet(steps)
        except ssl.SSLCertVerificationError as error:
            raise RefusedError(f"{address} is not trusted: {error.verify_message}") from error
        except TimeoutError as error:
            state = f"it says: {self.waiting_for}" if self.waiting_for else "no answer"
            if self._transport is None and (options.tls or self.target.tls):
                state = "does it speak TLS?"
            raise ConnectError(f"cannot connect to {address}: not within {timeout:g} s ({state})") from error
        except OSError as error:
            raise ConnectError(f"cannot connect to {address}: {error.strerror or error}") from error
        except DisconnectedError as error:
            # A server that is full closes at once, and its reason may be lost with the connection.
            raise ConnectError(
                f"cannot connect to {address}: it closed the connection ({self.ended}); is it at its maxclients?"
            ) from error

    async def _open(self, tls: ssl.SSLContext | None) -> None:
        target, loop = self.target, self._loop
        if target.path is not None:
            await loop.create_unix_connection(lambda: self, target.path)
            return
        context = tls or (target.tls.context() if target.tls is not None else None)
        await loop.create_connection(lambda: self, target.host, target.port, ssl=context)

    async def _greet(self, steps: Handshake) -> None:
        outcomes: list[Outcome] = []
        try:
            step = next(steps)
            while True:
                if isinstance(step, Batch):
                    outcomes = await self._exchange(step.calls)
                    step = steps.send(outcomes)
                else:
                    self.waiting_for = step.reason
                    await asyncio.sleep(step.seconds)
                    step = steps.send([])
        except StopIteration as stop:
            self.pipe.agree(stop.value)

    async def _exchange(self, calls: Sequence[Call[Reply]]) -> list[Outcome]:
        futures = [self._loop.create_future() for _ in calls]
        entries = deque(Entry(call, future, pack(call)) for call, future in zip(calls, futures, strict=True))
        self.write(entries)
        try:
            await asyncio.wait(futures)
        finally:
            for future in futures:
                future.cancel()
        errors = [future.exception() for future in futures]
        if fatal := next((e for e in errors if e is not None and not isinstance(e, ServerError)), None):
            raise fatal
        return [cast("Outcome", error or future.result()) for error, future in zip(errors, futures, strict=True)]

    def write(self, unsent: deque[Waiting]) -> None:
        """Send what may leave now, in one write."""
        if self._transport is None:
            return
        pipe = self.pipe
        if data := pipe.take(unsent):
            self._transport.write(data)
        if pipe.refused:
            refused, pipe.refused = pipe.refused, []
            for entry, error in refused:
                if entry.sink is not None and not entry.sink.done():
                    entry.sink.set_exception(error)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport, and its socket's number."""
        self._transport = cast("asyncio.Transport", transport)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            self.fd = int(sock.fileno())
            if self.target.path is None:
                tune(sock)

    def data_received(self, data: bytes) -> None:
        """Give answers to their futures."""
        pipe = self.pipe
        for entry, answer in pipe.feed(data):
            future = entry.sink
            if future is None or future.done():
                continue
            call = entry.call
            if isinstance(answer, ErrorReply):
                future.set_exception(refusal(call, answer))
                continue
            try:
                value = call.decode(answer)
            except Exception as error:  # noqa: BLE001  (as in `outcome`, which would cost every call more)
                future.set_exception(unreadable(call, answer, error))
            else:
                future.set_result(value)
        if pipe.pushes:
            pushes, pipe.pushes = pipe.pushes, []
            for push in pushes:
                self._owner.pushed(push)
        if pipe.broken:
            self.drop(pipe.broken)
        elif not pipe.sent and (pipe.missing or pipe.full):
            self._owner.flush()

    def pause_writing(self) -> None:
        """The server takes no more for now."""
        self.paused = True

    def resume_writing(self) -> None:
        """The server takes more again."""
        self.paused = False
        self._owner.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail what was sent."""
        self._end(str(exc) if exc is not None else "the server closed it")
        if not self.gone.done():
            self.gone.set_result(None)

    def close(self) -> None:
        """Close after what is written has left."""
        if self._transport is not None:
            self._transport.close()

    def drop(self, reason: str) -> None:
        """Close at once; what was sent fails."""
        if self._transport is not None and not self._loop.is_closed():
            self._transport.abort()
        self._end(reason)

    def _end(self, reason: str) -> None:
        if self.ended:
            return
        self.ended = reason
        for entry in self.pipe.sent:
            future = entry.sink
            if future is not None and not future.done():
                future.set_exception(lost(entry.call, self.target.address, reason))
        self.pipe.sent.clear()
        self.unsent.extend(self.pipe.missing)
        self._owner.lost(self)
