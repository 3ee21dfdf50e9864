"""An app's connectors: a blocking one for all threads, an awaited one for each event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import weakref
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from echomq.app.background import Background
from echomq.app.flag import flag
from echomq.app.waiting import Waiting
from echomq.identity.errors import InvalidInputError
from echomq.protocol.checks import name_of
from echomq.wire import FENCE, Wire, aconnect, connect
from echomq.wire.dialect import check_wire
from echomq.wire.source import FixedSource, Source
from echomq.wire.url import parse_url

if TYPE_CHECKING:
    from echomq.wire import AsyncConnector, Connector

ENV_URL = "ECHOMQ_URL"


class _Awaited:
    """The connector of one event loop, closed at the latest when the loop ends.

    The loop's own runner ends every asynchronous generator that is still open, so one that holds the
    connector spares `asyncio.run(main())` a close of its own.
    """

    def __init__(self, source: Source, fence: str, wire: Wire) -> None:
        self._generator = self._hold(source, fence, wire)
        self._opening = asyncio.ensure_future(anext(self._generator))
        self._waiting: Waiting | None = None

    async def get(self) -> AsyncConnector:
        if not self._opening.done():
            # A caller that gives up does not take the connector from the others that wait for it.
            await asyncio.wait([self._opening])
        return self._opening.result()

    async def waiting(self) -> Waiting:
        """Those who wait for results over it."""
        connector = await self.get()
        if self._waiting is None:
            self._waiting = Waiting(connector)
        return self._waiting

    @property
    def failed(self) -> bool:
        opening = self._opening
        return opening.done() and (opening.cancelled() or opening.exception() is not None)

    async def close(self) -> None:
        if self._waiting is not None:
            self._waiting.close()
        with contextlib.suppress(Exception):
            await self._opening
        await self._generator.aclose()

    @staticmethod
    async def _hold(source: Source, fence: str, wire: Wire) -> AsyncGenerator[AsyncConnector, None]:
        async with aconnect(source, fence=fence, wire=wire) as connector:
            yield connector


class Connections:
    """Where an app's server is, and the connectors to it. Connectors find their own way through a fork.

    No `wire` is the URL's, or else "auto".
    """

    def __init__(
        self,
        url: str | None,
        home: str | os.PathLike[str] | None = None,
        durable: bool = False,
        *,
        fence: str = FENCE,
        wire: Wire | None = None,
    ) -> None:
        if home is not None and not isinstance(home, (str, os.PathLike)):
            raise InvalidInputError(f"home must be the path of a folder, as text or a Path, not {home!r:.200}")
        if url is not None and (home is not None or flag("durable", durable)):
            raise InvalidInputError(f"EchoMQ takes a url ({url!r}) or the embedded server's home and durable, not both")
        if url is None and home is None and not durable:
            url = os.environ.get(ENV_URL) or None
        self._url = url
        self._wire: Wire | None = wire
        # Parsed here, so that a wrong URL is refused where it is written.
        self._target = None if url is None else parse_url(url)
        self._home = home
        self._durable = flag("durable", durable)
        named = None if self._target is None else self._target.wire
        self.fence = name_of("fence", fence)
        self.wire: Wire = check_wire(wire if wire is not None else named or "auto")
        self._lock = threading.Lock()
        self._blocking: Connector | None = None
        self._at_exit: weakref.finalize[[], Connections] | None = None
        self._awaited: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Awaited] = weakref.WeakKeyDictionary()
        self.background = Background()
        """For threads that wait for what is awaited."""
        _every.add(self)

    def __repr__(self) -> str:
        if self._target is not None:
            return self._target.address
        return f"embedded server in {os.fspath(self._home)}" if self._home is not None else "embedded server"

    def moved(self, url: str | None, wire: Wire | None) -> Connections:
        """The same app's to another server, or on another wire; None leaves either as it is."""
        wire = wire if wire is not None else self._wire
        if url is not None:
            return Connections(url, fence=self.fence, wire=wire)
        return Connections(self._url, self._home, self._durable, fence=self.fence, wire=wire)

    def source(self) -> Source:
        """A source of the app's server, for one connector more."""
        if self._target is not None:
            return FixedSource(self._target)
        # Imported when used: most deployments name their server.
        from echomq.wire.embedded import EmbeddedSource

        return EmbeddedSource(self._home, durable=self._durable)

    def blocking(self) -> Connector:
        """The connector for threads, opened by the first that asks."""
        if (connector := self._blocking) is None:
            with self._lock:
                if (connector := self._blocking) is None:
                    connector = self._blocking = connect(self.source(), fence=self.fence, wire=self.wire)
                    # A program that just ends has not closed anything.
                    self._at_exit = weakref.finalize(self, connector.close)
        return connector

    async def awaited(self) -> AsyncConnector:
        """The running loop's connector, opened by the first task that asks."""
        return await self._held().get()

    async def waiting(self) -> Waiting:
        """Those who wait for results on the running loop."""
        return await self._held().waiting()

    def _held(self) -> _Awaited:
        loop = asyncio.get_running_loop()
        held = self._awaited.get(loop)
        if held is None or held.failed:
            # What is held for a loop refers to it, so nobody else lets go of those that have ended.
            for each in self._awaited.keyrefs():
                if (ended := each()) is not None and ended.is_closed():
                    self._awaited.pop(ended, None)
            held = self._awaited[loop] = _Awaited(self.source(), self.fence, self.wire)
        return held

    def close(self) -> None:
        """Closes the blocking connector, and ends who blocks on a result; the next use opens another."""
        self.background.close()
        with self._lock:
            connector, self._blocking = self._blocking, None
            if self._at_exit is not None:
                self._at_exit.detach()
        if connector is not None:
            connector.close()

    async def aclose(self) -> None:
        """Closes the running loop's connector, and the blocking one."""
        held = self._awaited.pop(asyncio.get_running_loop(), None)
        if held is not None:
            await held.close()
        await asyncio.to_thread(self.close)

    def let_go(self) -> None:
        """Closes everything, from any thread: the awaited connectors too, each as soon as its loop runs."""
        self.close()
        awaited = tuple(self._awaited.items())
        self._awaited.clear()
        for loop, held in awaited:
            with contextlib.suppress(RuntimeError):  # it is closed, and its connector with it
                loop.call_soon_threadsafe(_let_go, held)

    def after_fork(self) -> None:
        """In a child: the lock may have been held by a thread that does not live here."""
        self._lock = threading.Lock()


def _let_go(held: _Awaited) -> None:
    task = asyncio.ensure_future(held.close())
    _closing.add(task)
    task.add_done_callback(_closing.discard)


_closing = set[asyncio.Task[None]]()
_every: weakref.WeakSet[Connections] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for each in tuple(_every):
        each.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
