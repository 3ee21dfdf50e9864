"""Retention: the morgue is kept within the queue's settings, in steps that hold nobody up (protocol §7)."""

from __future__ import annotations

from typing import Final

from echomq.protocol import admin
from echomq.protocol.keys import check_queue
from echomq.runtime.loops import log
from echomq.wire import AsyncConnector

RETAIN_BEATS: Final = 30
"""Beats from one look into the morgue to the next."""

BUDGET: Final = 500
"""Dead jobs that one step looks at or purges."""

_BARREN: Final = 10
"""Steps without anything to purge, after which a look ends; the next one goes on where it stopped."""


class Retention:
    """The morgue of one queue. A queue without settings costs one call a look."""

    def __init__(self, queue: str, *, budget: int = BUDGET) -> None:
        self._queue = check_queue(queue)
        self._budget = budget
        self._after = ""

    async def apply(self, conn: AsyncConnector) -> int:
        """Purge what may not be kept, step by step while there is something; gives how many jobs."""
        after, self._after = self._after, ""
        total = barren = 0
        while barren < _BARREN:
            purged, after = await conn.run(admin.retain(self._queue, after=after, budget=self._budget))
            total += purged
            if purged == 0:
                barren += 1
                if not after:
                    break
        self._after = after
        if total:
            log.info("queue %s: %d dead jobs purged, as its retention says", self._queue, total)
        return total
