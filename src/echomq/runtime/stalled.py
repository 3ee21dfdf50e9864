"""The stalled sweep: counts lapsed leases, recovers the jobs and buries those that lapse too often."""

from __future__ import annotations

from typing import Final

from echomq.protocol import jobs
from echomq.protocol.checks import integer
from echomq.protocol.keys import check_queue
from echomq.protocol.replies import Sweep
from echomq.runtime.bereaved import Bereaved
from echomq.runtime.dial import Dial
from echomq.runtime.loops import Loop, log
from echomq.runtime.outcome import brief
from echomq.runtime.telemetry import Cancelled, Dead, Stalled, Telemetry, hub
from echomq.wire import AsyncConnector

INTERVAL_MS: Final = 30_000
LIMIT: Final = 100


async def sweep_all(
    conn: AsyncConnector, bereaved: Bereaved, *, max_stalled: int, limit: int = LIMIT, worker: str = ""
) -> Sweep:
    """Sweeps the queue of `bereaved` until no expired lease is left; gives every id that was recovered or buried.

    The observers are told of each; the parents of the dead are left to `bereaved`.
    """
    queue = bereaved.queue
    recovered: list[str] = []
    dead: list[str] = []
    cancelled: dict[str, str] = {}
    while True:
        swept = await conn.run(jobs.sweep(queue, max_stalled=max_stalled, limit=limit, worker=worker))
        report(queue, swept)
        tell(bereaved, swept)
        recovered += swept.recovered
        dead += swept.dead
        cancelled |= swept.cancelled
        if len(swept.recovered) + len(swept.dead) < limit:
            return Sweep(tuple(recovered), tuple(dead), swept.unknown, cancelled)


def report(queue: str, swept: Sweep) -> None:
    """Say what a sweep found: somebody died, or was too slow."""
    if swept.recovered:
        log.warning("queue %s: %d lapsed leases recovered: %s", queue, len(swept.recovered), _some(swept.recovered))
    stalled = tuple(job_id for job_id in swept.dead if job_id not in swept.cancelled)
    if stalled:
        log.error("queue %s: %d jobs buried as stalled: %s", queue, len(stalled), _some(stalled))
    if swept.cancelled:
        gone = tuple(swept.cancelled)
        log.info("queue %s: %d jobs of lapsed leases buried as cancelled: %s", queue, len(gone), _some(gone))


def tell(bereaved: Bereaved, swept: Sweep) -> None:
    """Every step that a sweep made, for the observers; `bereaved` has seen the deaths."""
    watch, queue = bereaved.watch, bereaved.queue
    if watch.observers:
        for job_id in swept.recovered:
            watch.emit(Stalled(queue, job_id, dead=False))
        for job_id in swept.dead:
            watch.emit(Stalled(queue, job_id, dead=True))
            if (reason := swept.cancelled.get(job_id)) is not None:
                watch.emit(Cancelled(queue, job_id, reason))
            else:
                watch.emit(Dead(queue, job_id, "stalled"))
        bereaved.saw(*swept.dead)


def _some(ids: tuple[str, ...]) -> str:
    return brief(", ".join(ids[:5]) + (", ..." if len(ids) > 5 else ""))


class StalledSweep(Loop):
    """Sweeps a queue on a timetable of its own; consumers do it at their beats anyway. `watch` is told of lapses."""

    def __init__(
        self,
        dial: Dial,
        queue: str,
        *,
        beat_ms: int = INTERVAL_MS,
        max_stalled: int = 1,
        limit: int = LIMIT,
        watch: Telemetry = hub,
    ) -> None:
        super().__init__(dial, beat_ms=beat_ms)
        self._queue = check_queue(queue)
        self._max_stalled = integer("max_stalled", max_stalled, least=1)
        self._bereaved = Bereaved(queue, watch)
        self._limit = integer("limit", limit, least=1, most=100_000)

    @property
    def name(self) -> str:
        """What it is."""
        return f"{self._queue}:stalled"

    async def beat(self) -> None:
        """Count every lease that has expired by now."""
        conn = await self.conn()
        await sweep_all(conn, self._bereaved, max_stalled=self._max_stalled, limit=self._limit)
        await self._bereaved.tell(conn)
