"""How long a job that this worker does not know is kept waiting: in a rolling deploy another worker may know it."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from echomq.protocol.backoff import Exponential, delay_ms

PATIENCE_S: Final = 300.0
_WAITS: Final = Exponential(base=1_000, cap=60_000)
_MAX_ATTEMPTS: Final = 1_000
"""Claims after which a job is hopeless for certain, even if workers restart too often to remember it."""
_REMEMBERED: Final = 10_000


class Patience:
    """What one worker remembers of the jobs that it does not know: when it met each first, and how often."""

    def __init__(self, seconds: float = PATIENCE_S, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds = seconds
        self._clock = clock
        self._met: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def wait_ms(self, job_id: str, attempts: int) -> int | None:
        """How long the job waits on the schedule this time; None when it has waited long enough."""
        now = self._clock()
        first, times = self._met.pop(job_id, (now, 0))
        left_ms = int((first + self.seconds - now) * 1_000)
        if left_ms <= 0 or attempts >= _MAX_ATTEMPTS:
            return None
        self._met[job_id] = (first, times + 1)
        if len(self._met) > _REMEMBERED:
            self._met.popitem(last=False)
        return max(1, min(delay_ms(_WAITS, times + 1), left_ms))

    def left_s(self, job_id: str) -> float:
        """How long a job that waits is kept yet, in seconds to a tenth."""
        now = self._clock()
        first, _ = self._met.get(job_id, (now, 0))
        return round(max(0.0, first + self.seconds - now), 1)
