"""The awaited connector: everything awaited at once leaves in one flight."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable
from types import TracebackType
from typing import Literal, TypeVar, Unpack

from echomq.identity.minter import minter
from echomq.protocol.call import Arg, Call, Plan, Reply
from echomq.protocol.errors import DisconnectedError, EchoMQError, WireError
from echomq.wire import forks, node
from echomq.wire.aiocarrier import Carrier
from echomq.wire.commands import check_command
from echomq.wire.options import DEFAULT, Options, OptionWords, Timeout
from echomq.wire.plans import check_calls, drive, no_call
from echomq.wire.resp import raw
from echomq.wire.source import FixedSource, Source, resolve
from echomq.wire.subscriptions import BUFFER, AsyncSubscription, Box
from echomq.wire.url import Target

T = TypeVar("T")


class AsyncConnector:
    """A connection to one server, for one event loop; opened by `open`, `async with` or its first call.

    `where` is a URL, a source, or None for the embedded server; `InvalidInputError` for what is none of these.
    Each connect holds the server to the fence (protocol §11); a task renews the lease of the minter's node (§1).

    It reopens by itself after a lost connection, in a new event loop and in a forked child. A call that was written
    when its connection died fails with `DisconnectedError(sent=True)` and is never repeated; one that was not written
    waits up to `Options.timeout` seconds for the next connection. All limits here are seconds on the loop's clock.
    """

    def __init__(self, where: str | Source | None = None, options: Options | None = None) -> None:
        self._source = resolve(where)
        self._options = options or Options()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._carrier: Carrier | None = None
        self._lease: node.NodeLease | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._leased: asyncio.Future[None] | None = None
        self._closed = False
        forks.watch(self)

    def __repr__(self) -> str:
        connected = self._carrier is not None and self._carrier.link is not None
        state = "closed" if self._closed else "connected" if connected else "not connected"
        return f"<AsyncConnector {self._source!r}, {state}>"

    @property
    def wire(self) -> Literal[4, 6] | None:
        """What the connection of this moment speaks: 6 when it sends native commands; None without a connection."""
        link = None if self._carrier is None else self._carrier.link
        return None if link is None else 6 if link.pipe.native else 4

    # Calls

    def submit(self, call: Call[T], *, timeout: Timeout = DEFAULT, ordered: bool = True) -> asyncio.Future[T]:
        """Put `call` into the next flight, which leaves at this turn of the loop; the future is its answer.

        The calls of a queue run in the order of submission. One that is not `ordered` may run before or after others of
        its flight, and never waits for a flight of its own.

        Raises `OverloadedError` at once when `max_pending` calls wait, `DisconnectedError` when closed, `WireError`
        on a second running loop, `InvalidInputError` for words that cannot be sent. The future raises as `run` does.
        """
        carrier = self._carrier
        if carrier is None or asyncio.get_running_loop() is not self._loop:
            carrier = self._carry()
        options = self._options
        try:
            limit = options.call_timeout if timeout is DEFAULT else options.seconds(timeout)
            return carrier.enter(call, limit, ordered=ordered)
        except AttributeError:
            if isinstance(call, Call):
                raise
            raise no_call(call) from None

    async def run(self, work: Call[T] | Plan[T], *, timeout: Timeout = DEFAULT) -> T:  # noqa: ASYNC109  (as in the blocking face; it drops the connection)
        """The answer to a call, or what a plan returns.

        After `timeout` seconds without an answer (None: never) the connection is dropped. Raises `ServerError` for
        what the server refused (protocol §11); for what was not sent, `InvalidInputError`, `PayloadTooLargeError`
        above the server's limit for a string, `OverloadedError` beyond `max_pending`; `ConnectError` or `FenceError`
        when no connection comes about; `DisconnectedError` when one is lost, its `sent` telling whether the call may
        have run. A cancelled caller's call may run all the same.
        """
        if isinstance(work, Call):
            return await self.submit(work, timeout=timeout)
        return await drive(work, lambda call: self.submit(call, timeout=timeout))

    async def run_many(
        self,
        calls: Iterable[Call[T]],
        *,
        timeout: Timeout = DEFAULT,  # noqa: ASYNC109
    ) -> list[T | EchoMQError]:
        """One outcome a call, in their order: its answer, or its error (those of `run`) as a value.

        More calls than `max_pending` or the server allows go in several flights, one after another; `timeout`, in
        seconds, is each call's own.
        """
        check_calls(calls)
        waiting = list(calls)
        size = max(1, self._options.max_pending // 4)
        outcomes: list[T | EchoMQError] = []
        for start in range(0, len(waiting), size):
            flight = [self._try(call, timeout) for call in waiting[start : start + size]]
            for answer in await asyncio.gather(*flight, return_exceptions=True):
                if isinstance(answer, BaseException) and not isinstance(answer, EchoMQError):
                    raise answer
                outcomes.append(answer)
        return outcomes

    def _try(self, call: Call[T], timeout: Timeout) -> asyncio.Future[T]:
        try:
            return self.submit(call, timeout=timeout)
        except EchoMQError as error:
            refused: asyncio.Future[T] = asyncio.get_running_loop().create_future()
            refused.set_exception(error)
            return refused

    async def execute(self, *words: Arg, timeout: Timeout = DEFAULT) -> Reply:  # noqa: ASYNC109
        """A raw command's reply; raises as `run` does, and `InvalidInputError` for what no shared connection allows.

        A blocking command needs `timeout=None` and a connector of its own.
        Cancelling one that blocks drops its connection when it is alone there, so that the server forgets it
        too; the next call reconnects.
        """
        check_command(words)
        future = self.submit(raw(*words), timeout=timeout)
        try:
            return await future
        except asyncio.CancelledError:
            if timeout is None and self._carrier is not None:
                self._carrier.forsake(future)
            raise

    def mint(self, namespace: str = "JOB") -> str:
        """A new id from the process's minter (protocol §1), by this host's clock; no I/O."""
        return minter.mint(namespace)

    def subscribe(self, *channels: str, buffer: int = BUFFER) -> AsyncSubscription:
        """The messages of `channels`: enter it, or iterate over it, to begin.

        At most `buffer` messages wait for the reader, the newest. `InvalidInputError` for a channel without a name.
        """
        return AsyncSubscription(Box(channels, buffer), self._attach, self._detach)

    async def _attach(self, box: Box) -> None:
        await self._carry().attach(box)

    async def _detach(self, box: Box) -> None:
        if self._carrier is not None:
            await self._carrier.detach(box)

    # Life

    async def open(self) -> None:
        """Connect now, by one try: `ConnectError` or `FenceError` says what stands in the way."""
        carrier = self._carry()
        if carrier.link is None and (error := await asyncio.shield(carrier.opening(once=True))) is not None:
            raise error
        if self._leased is not None:
            await asyncio.shield(self._leased)

    async def close(self) -> None:
        """Take no more calls, wait up to `timeout` for the answers under way, and close; again does nothing."""
        if self._closed:
            return
        self._closed = True
        loop = asyncio.get_running_loop()
        carrier, self._carrier = self._carrier, None
        lease, self._lease = self._lease, None
        last = lease is not None and node.leave(lease, self)
        try:
            if carrier is not None and loop is self._loop:
                try:
                    await self._finish(carrier, lease if last else None)
                finally:
                    await carrier.close()
        finally:
            if not isinstance(self._source, FixedSource):
                await _aside(loop, self._source.release)

    async def _finish(self, carrier: Carrier, lease: node.NodeLease | None) -> None:
        await carrier.finish()
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
        if lease is not None and carrier.link is not None and not carrier.parked:
            seconds = self._options.timeout
            await drive(lease.give_back(), lambda call: carrier.enter(call, seconds))

    def _carry(self) -> Carrier:
        """The carrier of the running loop."""
        if self._closed:
            raise DisconnectedError("not sent: the connector is closed", sent=False)
        loop = asyncio.get_running_loop()
        carrier = self._carrier
        if carrier is None or loop is not self._loop:
            if carrier is not None and self._loop is not None:
                if self._loop.is_running():
                    raise WireError("this connector serves another event loop, which is running: one a loop")
                carrier.leave("its event loop ended")
            self._loop = loop
            self._keeper = self._leased = None
            carrier = self._carrier = Carrier(self._source, self._options, self._connected)
        return carrier

    def _connected(self, target: Target) -> None:
        if self._options.lease_node and self._keeper is None:
            if self._lease is None:
                self._lease = node.join(target, self)
            loop = asyncio.get_running_loop()
            self._leased = loop.create_future()
            self._keeper = loop.create_task(self._keep_node(self._lease, self._leased))

    async def _keep_node(self, lease: node.NodeLease, leased: asyncio.Future[None]) -> None:
        try:
            while True:
                if self._carrier is not None and not self._carrier.parked:
                    await self.run(lease.keep())
                if not leased.done():
                    leased.set_result(None)
                await asyncio.sleep(max(1.0, lease.wait_s()))
        finally:
            if not leased.done():
                leased.set_result(None)

    async def __aenter__(self) -> AsyncConnector:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def after_fork(self) -> None:
        """Leave the parent its connection; the child's first call opens one of its own."""
        if self._carrier is not None:
            self._carrier.abandon()
        forks.graveyard.append((self._carrier, self._loop, self._keeper, self._leased))
        self._carrier = self._loop = self._keeper = self._leased = self._lease = None


async def _aside(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    """Calls it in a thread; at the interpreter's end, which has no threads to give, here."""
    try:
        called = loop.run_in_executor(None, function)
    except RuntimeError:
        function()
    else:
        await called


class _Opening:
    """What `aconnect` gives: await it for an open connector, or enter it for one that is closed behind you."""

    def __init__(self, connector: AsyncConnector) -> None:
        self._connector = connector

    async def _open(self) -> AsyncConnector:
        try:
            await self._connector.open()
        except BaseException:
            await self._connector.close()
            raise
        return self._connector

    def __await__(self) -> Generator[object, None, AsyncConnector]:
        return self._open().__await__()

    async def __aenter__(self) -> AsyncConnector:
        return await self._open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._connector.close()


def aconnect(where: str | Source | None = None, **options: Unpack[OptionWords]) -> _Opening:
    """An open `AsyncConnector`: `conn = await aconnect(url)`, or `async with aconnect(url) as conn`.

    `where` is a URL (see `echomq.wire.url`), a source, or None for the embedded server; `options` are those of
    `Options`, times in seconds. It is one try of at most `timeout` seconds, without an embedded server's start.
    Raises `InvalidInputError` at once for a URL or an option that is none; when awaited, `ConnectError` (for the
    embedded server `EmbeddedServerError`) when there is no connection, `FenceError` when the server belongs to another
    version of the protocol (§11).
    """
    return _Opening(AsyncConnector(where, Options(**options)))
