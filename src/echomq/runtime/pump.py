"""The pump: promotes, fires recurrences, delivers the outbox, keeps the morgue; opt-in where no consumer does it."""

from __future__ import annotations

from typing import Final

from echomq.protocol import jobs
from echomq.protocol.checks import integer
from echomq.protocol.discover import clock
from echomq.protocol.keys import check_queue
from echomq.runtime.bereaved import Bereaved
from echomq.runtime.dial import Dial
from echomq.runtime.loops import BEAT_MS, Loop
from echomq.runtime.outbox import Outbox
from echomq.runtime.publishing import published
from echomq.runtime.recurrences import Recurrences
from echomq.runtime.retention import RETAIN_BEATS, Retention
from echomq.runtime.telemetry import Telemetry, hub
from echomq.wire import AsyncConnector

PROMOTE_BATCH: Final = 100


async def promote_due(conn: AsyncConnector, queue: str, batch: int) -> int:
    """Makes everything that is due claimable, `batch` jobs a call; gives how many it selected."""
    selected = count = await conn.run(jobs.promote(queue, batch))
    while count == batch:
        selected += (count := await conn.run(jobs.promote(queue, batch)))
    return selected


class Pump(Loop):
    """Does what a queue's consumers do beside their jobs, once a beat, for a queue that has none. It does not reap.

    `watch` is told of the occurrences that it adds and of the parents that die of what it delivers; with `events` that
    is published too (protocol §10).
    """

    def __init__(
        self,
        dial: Dial,
        queue: str,
        *,
        beat_ms: int = BEAT_MS,
        batch: int = PROMOTE_BATCH,
        watch: Telemetry = hub,
        events: bool = False,
    ) -> None:
        super().__init__(dial, beat_ms=beat_ms)
        self._queue = check_queue(queue)
        self._batch = integer("batch", batch, least=1)
        watch = published(watch, self.submit) if events else watch
        self._recurrences = Recurrences(queue, watch=watch)
        self._retention = Retention(queue)
        self._count = 0
        self.outbox = Outbox(queue, bereaved=Bereaved(queue, watch))
        """With what it has delivered and set aside."""

    @property
    def name(self) -> str:
        """What it is."""
        return f"{self._queue}:pump"

    async def beat(self) -> None:
        """Promote until nothing is due, fire what is due by the server's clock, deliver.

        Every thirtieth beat also looks at the morgue.
        """
        conn = await self.conn()
        await promote_due(conn, self._queue, self._batch)
        await self._recurrences.fire(conn, await conn.run(clock(self._queue)))
        await self.outbox.deliver(conn)
        if self._count % RETAIN_BEATS == 0:
            await self._retention.apply(conn)
        self._count += 1
