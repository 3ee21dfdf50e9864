"""The one shape of every loop: `start`, `stop`, one `beat` that can be called by hand, one failure rule."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from typing import Final, Self, TypeVar

from echomq.identity.errors import EchoMQError, InvalidInputError
from echomq.protocol.backoff import Exponential, delay_ms
from echomq.protocol.call import Call
from echomq.protocol.checks import integer
from echomq.runtime.dial import Dial
from echomq.runtime.outcome import LINE, brief, failure_text
from echomq.runtime.signals import Signal
from echomq.wire import AsyncConnector

T = TypeVar("T")

log: Final = logging.getLogger("echomq.runtime")

BEAT_MS: Final = 1_000
DEGRADED_CAP_MS: Final = 30_000


def curve(beat_ms: int) -> Exponential:
    """How long to sleep after a degraded beat, by how many were degraded in a row."""
    return Exponential(max(beat_ms, 1), max(DEGRADED_CAP_MS, beat_ms))


class Loop(ABC):
    """A background loop on the running event loop, with a connector of its own.

    A beat that fails is said in the log, `degraded` fires and the loop sleeps on the curve, then goes on. `stop` is
    honoured between beats.
    """

    def __init__(self, dial: Dial, *, beat_ms: int) -> None:
        if not isinstance(dial, Dial):
            raise InvalidInputError(f"a loop needs a Dial, which says where its server is, not {dial!r}")
        self._dial = dial
        self._beat_ms = integer("beat_ms", beat_ms, least=1)
        self._curve = curve(beat_ms)
        self._connector: AsyncConnector | None = None
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.beats = Signal()
        """Beats that went well."""
        self.degraded = Signal()
        """Beats that failed."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What it is, for logs and for the server's CLIENT LIST."""

    @abstractmethod
    async def beat(self) -> None:
        """The work of one beat; raises what the wire raises."""

    async def conn(self) -> AsyncConnector:
        """Its connector, opened at the first use."""
        if self._connector is None:
            self._connector = await self._dial.aconnect(self.name)
        return self._connector

    def submit(self, call: Call[T]) -> asyncio.Future[T]:
        """Have a call leave with the next flight of its connector, which is open."""
        assert self._connector is not None
        return self._connector.submit(call)

    async def start(self) -> None:
        """Begin to beat. Raises when the server cannot be reached at all; from then on it bears that."""
        if self._task is not None:
            raise InvalidInputError(f"{self.name} was started already")
        await self.conn()
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"echomq {self.name}")

    async def stop(self) -> None:
        """End after the beat that is running; close the connector."""
        self._stopping.set()
        if self._task is not None:
            await asyncio.shield(self._task)
        if self._connector is not None:
            connector, self._connector = self._connector, None
            await connector.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _run(self) -> None:
        streak = 0
        while not self._stopping.is_set():
            try:
                await self.beat()
            except Exception as error:  # noqa: BLE001  (`say` logs what is unexpected whole; a loop must survive)
                streak += 1
                pause = delay_ms(self._curve, streak)
                say(self.name, error, streak, pause)
                self.degraded.fire()
            else:
                streak = 0
                pause = self._beat_ms
                self.beats.fire()
            await self._pause(pause)

    async def _pause(self, pause_ms: int) -> None:
        """Wait for the next beat; a stop cuts it short."""
        try:
            async with asyncio.timeout(pause_ms / 1_000):
                await self._stopping.wait()
        except TimeoutError:
            pass


def say(name: str, error: Exception, streak: int, pause_ms: int) -> None:
    """Log a degraded beat: the server's troubles in a line, a fault of ours with its frames."""
    log.warning("%s: degraded beat %d, next one in %d ms: %s", name, streak, pause_ms, told(error))


def told(error: BaseException) -> str:
    """An error as a log may have it: nothing of ours is cut, what it quotes is."""
    return brief(error) if isinstance(error, EchoMQError) else failure_text(error, LINE)
