"""What a consumer has once it is open: its connections, and those who work for it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from echomq.identity.errors import EchoMQError
from echomq.runtime.drain import FAREWELL_S
from echomq.runtime.ear import Ear, push_token
from echomq.runtime.hand import Hand
from echomq.runtime.legs import Legs
from echomq.runtime.loops import log
from echomq.runtime.outcome import brief
from echomq.runtime.runner import Runner
from echomq.runtime.seat import Seat
from echomq.wire import AsyncConnector


@dataclass(frozen=True, slots=True)
class Gear:
    """A consumer's equipment, bound to one event loop."""

    conn: AsyncConnector
    hand: Hand
    runner: Runner
    ear: Ear | Seat
    legs: Legs
    loop: asyncio.AbstractEventLoop

    def push_token(self) -> None:
        """Hand a token on, see `push_token`."""
        push_token(self.conn, self.hand.queue)

    async def farewell(self) -> None:
        """The last words to the server, within `FAREWELL_S`."""
        try:
            async with asyncio.timeout(FAREWELL_S):
                await self.legs.farewell(self.conn)
        except (EchoMQError, TimeoutError) as error:
            log.info("queue %s: gone without a farewell: %s", self.hand.queue, brief(error))

    async def close(self) -> None:
        """End the threads and the connections."""
        await self.legs.end()
        self.runner.close()
        await self.ear.close()
        await self.conn.close()
