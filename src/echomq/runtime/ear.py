"""The ear: a blocking connection on a queue's wake list (protocol §12.2)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from echomq.identity.errors import EchoMQError
from echomq.protocol.backoff import delay_ms
from echomq.protocol.call import Call
from echomq.protocol.errors import ServerError
from echomq.protocol.keys import keys
from echomq.protocol.replies import ignored
from echomq.runtime.dial import Dial
from echomq.runtime.loops import curve, log, say
from echomq.runtime.outcome import brief
from echomq.wire import AsyncConnector
from echomq.wire.subscriptions import AsyncSubscription

BLOCK_S: Final = 10
"""How long the server keeps one BLPOP; it bounds what a connection that died unnoticed can cost."""

_MARGIN_S: Final = 5.0


def push_token(conn: AsyncConnector, queue: str) -> None:
    """Hand a token on to whoever parks, the list within its 64: a hint, for which the beats of the others stand in."""
    wake = keys(queue).wake
    with suppress(EchoMQError):
        for call in (
            Call("wake", (wake,), ("1",), ignored, command="LPUSH", subject=queue),
            Call("wake", (wake,), (0, 63), ignored, command="LTRIM", subject=queue),
        ):
            conn.submit(call).add_done_callback(_forget)


def _forget(future: asyncio.Future[Any]) -> None:
    """Look at what became of a call that nobody waits for, so that asyncio does not complain of it."""
    if not future.cancelled():
        future.exception()


class Ear:
    """Listens from `arm` until one token, then rests until it is armed again.

    `heard` is called on the loop for a token, and when the connection is lost, since a token may be lost with it;
    `told` with every event of the queue, which comes on the same connection and costs no command.
    Parking costs nothing while the ear is armed: the BLPOP stays where it is.
    """

    def __init__(
        self,
        dial: Dial,
        queue: str,
        heard: Callable[[], object],
        *,
        beat_ms: int,
        told: Callable[[bytes], None] | None = None,
    ) -> None:
        self._dial = dial
        self._queue = queue
        self._heard = heard
        self._told = told
        self._curve = curve(beat_ms)
        self._wanted = asyncio.Event()
        self._connector: AsyncConnector | None = None
        self._task: asyncio.Task[None] | None = None
        self._reader: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect; raises what the connect raises."""
        self._connector = await self._dial.aconnect(f"{self._queue}:park")
        loop = asyncio.get_running_loop()
        if self._told is not None:
            # Before anything blocks: what is sent behind a BLPOP waits for it, what the server pushes does not.
            messages = self._connector.subscribe(keys(self._queue).events)
            try:
                await messages.__aenter__()
            except ServerError as error:
                self._deaf(error)
            except BaseException:
                await self._connector.close()
                raise
            else:
                self._reader = loop.create_task(self._read(messages, self._told), name=f"echomq {self._queue} events")
        self._task = loop.create_task(self._listen(), name=f"echomq {self._queue} ear")

    def arm(self) -> None:
        """Listen for the next token."""
        self._wanted.set()

    async def close(self) -> bool:
        """Stop listening; True when a token may have been taken and nobody was told."""
        task, connector = self._task, self._connector
        if task is None or connector is None:
            return False
        was_listening = self._wanted.is_set()
        task.cancel()
        await asyncio.wait((task,))
        await connector.close()
        if self._reader is not None:
            await asyncio.wait((self._reader,))  # its subscription has ended with the connector
        return was_listening

    async def _read(self, messages: AsyncSubscription, told: Callable[[bytes], None]) -> None:
        try:
            while (message := await messages.get()) is not None:
                told(message.data)
        except EchoMQError as error:
            self._deaf(error)

    def _deaf(self, error: EchoMQError) -> None:
        # Events come at most once anyway: the lease keeper learns of the same wishes.
        log.warning("%s: the server sends no events (%s); a cancel takes up to half a lease", self._queue, brief(error))

    async def _listen(self) -> None:
        assert self._connector is not None
        wake = keys(self._queue).wake
        streak = 0
        while True:
            await self._wanted.wait()
            try:
                async with asyncio.timeout(BLOCK_S + _MARGIN_S):
                    reply = await self._connector.execute("BLPOP", wake, BLOCK_S, timeout=None)
            except (EchoMQError, TimeoutError) as error:
                streak += 1
                if streak == 1:
                    # A token may have gone down with the connection.
                    log.info("%s: the parked connection was lost (%s); listening again", self._queue, brief(error))
                    self._heard()
                else:
                    pause = delay_ms(self._curve, streak - 1)
                    say(f"{self._queue}:park", error, streak, pause)
                    await asyncio.sleep(pause / 1_000)
                continue
            streak = 0
            if reply is not None:
                self._wanted.clear()
                self._heard()
