"""The pump: promotes, fires recurrences, delivers the outbox, keeps the morgue; opt-in where no consumer does it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from echomq.identity.errors import EchoMQError
from echomq.identity.minter import mint
from echomq.protocol import jobs, repeat
from echomq.protocol.checks import integer
from echomq.protocol.discover import clock
from echomq.protocol.errors import ServerError
from echomq.protocol.keys import check_queue
from echomq.protocol.repeat import Due, Fired, Firing
from echomq.runtime.dial import Dial
from echomq.runtime.loops import BEAT_MS, Loop, log
from echomq.runtime.outbox import Outbox
from echomq.runtime.outcome import brief
from echomq.runtime.retention import RETAIN_BEATS, Retention
from echomq.wire import AsyncConnector

PROMOTE_BATCH: Final = 100
_DUE_LIMIT: Final = 100
_MINTS: Final = 5


async def promote_due(conn: AsyncConnector, queue: str, batch: int) -> int:
    """Makes everything that is due claimable, `batch` jobs a call; gives how many it selected."""
    selected = count = await conn.run(jobs.promote(queue, batch))
    while count == batch:
        selected += (count := await conn.run(jobs.promote(queue, batch)))
    return selected


class Recurrences:
    """Fires the due recurrences of one queue, whoever else does. One slot fires once (protocol §9)."""

    def __init__(self, queue: str, mint_id: Callable[[], str] = mint) -> None:
        self._queue = check_queue(queue)
        self._mint = mint_id
        self._refused: set[str] = set()

    async def fire(self, conn: AsyncConnector, now_ms: int) -> int:
        """Fires what is due at `now_ms`; gives how many recurrences it moved on or saw moved on by another.

        A recurrence that the server refuses to fire is said once and does not keep the others from firing.
        """
        moved = 0
        dues = await conn.run(repeat.due(self._queue, now_ms=now_ms, limit=_DUE_LIMIT))
        for _ in range(_MINTS):
            if not dues:
                break
            calls = [repeat.fire(self._queue, due.name, score=due.score, job_id=self._mint()) for due in dues]
            again: list[Due] = []
            for due, answer in zip(dues, await conn.run_many(calls), strict=True):
                if isinstance(answer, ServerError):
                    self._cannot(due.name, answer)
                elif isinstance(answer, EchoMQError):
                    raise answer
                elif self._fired(due, answer):
                    moved += 1
                elif answer.verdict is Firing.DUPLICATE:
                    again.append(due)  # the id was taken: a fresh one
            dues = tuple(again)
        return moved

    def _fired(self, due: Due, answer: Fired) -> bool:
        if answer.verdict is Firing.UNREADABLE:
            log.error(
                "queue %s: recurrence %r has a record that cannot be read and is off the timetable; register it anew",
                *(self._queue, brief(due.name)),
            )
        return answer.verdict in (Firing.FIRED, Firing.LOST, Firing.UNREADABLE)

    def _cannot(self, name: str, error: ServerError) -> None:
        if name not in self._refused:
            self._refused.add(name)
            log.error("queue %s: recurrence %r cannot fire: %s", self._queue, brief(name), brief(error))


class Pump(Loop):
    """Does what a queue's consumers do beside their jobs, once a beat, for a queue that has none. It does not reap."""

    def __init__(self, dial: Dial, queue: str, *, beat_ms: int = BEAT_MS, batch: int = PROMOTE_BATCH) -> None:
        super().__init__(dial, beat_ms=beat_ms)
        self._queue = check_queue(queue)
        self._batch = integer("batch", batch, least=1)
        self._recurrences = Recurrences(queue)
        self._retention = Retention(queue)
        self._count = 0
        self.outbox = Outbox(queue)
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
        await self._recurrences.fire(conn, await conn.run(clock()))
        await self.outbox.deliver(conn)
        if self._count % RETAIN_BEATS == 0:
            await self._retention.apply(conn)
        self._count += 1
