"""When a worker process has done enough, and is to be replaced by a fresh one: by its jobs, or by its memory.

For code that leaks: the process ends between jobs, never inside one.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from pathlib import Path
from typing import Final

from echomq.runtime.budget import Budget

_LOOK_S: Final = 1.0
_STATM: Final = Path("/proc/self/statm")


def rss_bytes() -> int:
    """Memory of this process that is resident. Where the system does not tell, the most that ever was."""
    try:
        return int(_STATM.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


async def had_enough(budget: Budget, max_rss: int | None) -> str:
    """Waits until this process has claimed what its budget allows, or has more than `max_rss` bytes; says which."""
    spent = asyncio.ensure_future(budget.spent.reach(1))
    try:
        while not spent.done():
            if max_rss is not None and (size := rss_bytes()) > max_rss:
                return f"it has {size / 1e6:,.0f} MB of memory, and {max_rss / 1e6:,.0f} MB are allowed"
            await asyncio.wait((spent,), timeout=None if max_rss is None else _LOOK_S)
        return "it has run as many jobs as it may"
    finally:
        spent.cancel()
