"""`mq.testing()`: an app on a server of the test's own, and back where it was at the end."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
from abc import ABC, abstractmethod
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from echomq.app.clock import Clock
from echomq.app.drained import Drained, Draining, drained
from echomq.app.enqueued import Enqueued, waiting
from echomq.app.ground import Ground
from echomq.app.throwaway import Throwaway
from echomq.identity.errors import InvalidInputError
from echomq.protocol.call import Plan
from echomq.protocol.discover import queues
from echomq.protocol.trials import wipe

if TYPE_CHECKING:
    from echomq.app.connections import Connections
    from echomq.app.echomq import EchoMQ


_ASIDE: Final = re.compile(r"test-[0-9a-f]{12}:")


def _aside() -> str:
    return f"test-{secrets.token_hex(6)}:"


class Trial(ABC):
    """An app under test: `with mq.testing():`, or `async with`. At the end it stands where it stood before.

    What it is for is on the app itself: `mq.drain()`, `mq.clock`, `mq.enqueued()`, `mq.assert_enqueued(...)`.
    """

    def __init__(self, mq: EchoMQ) -> None:
        self.mq = mq
        self._former: Ground | None = None

    @property
    @abstractmethod
    def clock(self) -> Clock:
        """See `Clock`."""

    @abstractmethod
    def ahead_ms(self) -> int | None:
        """How far the clock is ahead of the server's; None while it is being moved."""

    @abstractmethod
    def enqueued(self) -> list[Enqueued]:
        """Every job that waits, in the order of their ids."""

    @abstractmethod
    async def aenqueued(self) -> list[Enqueued]:
        """`enqueued`, awaited."""

    @abstractmethod
    async def drain(self, how: Draining) -> Drained:
        """See `EchoMQ.drain`."""

    @abstractmethod
    def _open(self) -> None:
        """Puts the app on its new ground."""

    @abstractmethod
    def _close(self) -> None:
        """Puts it back, and removes what the test has left."""

    def _takes(self, ground: Ground) -> None:
        if self._former is not None:
            raise InvalidInputError("this mq.testing() is in use, or was: begin another one")
        self._former = self.mq.exchange(ground)

    def _gives_back(self) -> None:
        if self._former is not None:
            self.mq.exchange(self._former)

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    async def __aenter__(self) -> Self:
        opening = asyncio.ensure_future(asyncio.to_thread(self._open))
        try:
            await asyncio.shield(opening)
        except asyncio.CancelledError:
            with suppress(Exception):
                await opening  # a thread cannot be told, and nobody else would close what it opens
                await asyncio.to_thread(self._close)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self._close)


class ServerTrial(Trial):
    """On a real server: one that is started for it, a throwaway one that is there, or a given one, set apart.

    On a throwaway server the queues have the names that they always have, unless another test is on it already. On a
    given one each has another name, `test-<random>:` and its own, and nothing else on that server is touched.
    """

    def __init__(self, mq: EchoMQ, where: str | Throwaway | None = None) -> None:
        super().__init__(mq)
        if where is not None and not isinstance(where, str | Throwaway):
            raise InvalidInputError(f"testing takes the URL of a server, or a Throwaway, not {where!r:.200}")
        self._where = where
        self._clock = Clock(self)
        self._stack = ExitStack()
        self._connections: Connections | None = None
        self._pid = os.getpid()
        self.aside = ""
        """What the names of the queues begin with."""

    @property
    def url(self) -> str:
        """The server's URL, for programs that the test starts."""
        return self._where if isinstance(self._where, str) else self._server.url

    @property
    def _server(self) -> Throwaway:
        if not isinstance(self._where, Throwaway):
            raise InvalidInputError("the test's server does not run: use it in `with mq.testing():`")
        return self._where

    @property
    def clock(self) -> Clock:
        """See `Clock`."""
        return self._clock

    def queues(self) -> Plan[tuple[str, ...]]:
        """Every queue that belongs to the test: the app's, and whatever others it has sent to."""
        there: tuple[str, ...] = yield from queues()
        own = (each for each in there if (each.startswith(self.aside) if self.aside else not _ASIDE.match(each)))
        return tuple(dict.fromkeys([*self.mq.queues, *own]))

    def ahead_ms(self) -> int | None:
        """How far the clock is ahead of the server's; None while it is being moved."""
        return self._clock.ahead_ms()

    def enqueued(self) -> list[Enqueued]:
        """Every job that waits, in the order of their ids."""
        return self.mq.run(self._waiting())

    async def aenqueued(self) -> list[Enqueued]:
        """`enqueued`, awaited."""
        return await self.mq.arun(self._waiting())

    def _waiting(self) -> Plan[list[Enqueued]]:
        there: tuple[str, ...] = yield from self.queues()
        return (yield from waiting(self.mq, there))

    async def drain(self, how: Draining) -> Drained:
        """See `EchoMQ.drain`."""
        return await drained(self.mq, self.queues, how)

    def _open(self) -> None:
        self._pid = os.getpid()
        with ExitStack() as stack:
            if self._where is None:
                self._where = stack.enter_context(Throwaway())
            base = self.mq.ground
            if isinstance(self._where, Throwaway):
                connections = self._where.connections(self.mq)
                stack.callback(self._where.leave, self, fence=connections.fence)
                stack.callback(connections.close)
                self.aside = "" if self._where.enter(self) else _aside()
            else:
                self.aside = _aside()
                connections = base.connections.moved(self._where, None)
                stack.callback(self._wipe)
                stack.callback(connections.let_go)
            self._connections = connections
            moved = (self.url, None if base.moved is None else base.moved[1])
            self._takes(Ground(connections, moved, self.aside, trial=self))
            stack.callback(self._gives_back)
            self.mq.connection()  # what stands in the way is said here
            self._stack = stack.pop_all()

    def _close(self) -> None:
        if os.getpid() == self._pid:
            self._stack.close()
        else:
            self._gives_back()  # a forked child leaves the block: what is on the server is its parent's

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """The connector of this loop is closed on it."""
        try:
            if self._connections is not None:
                await self._connections.aclose()
        finally:
            await super().__aexit__(kind, error, trace)

    def _wipe(self) -> None:
        from echomq.wire import connect

        with connect(self.url, fence=self.mq.ground.connections.fence) as conn:
            conn.run(wipe(self.aside))
