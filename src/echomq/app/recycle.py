"""When a worker process has had enough, and is to be replaced by a fresh one: by its jobs, its memory, its threads.

For code that leaks: the process ends between jobs, never inside one.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from echomq.identity.errors import InvalidInputError
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


def check_room(max_rss: int) -> None:
    """`InvalidInputError` where this process has more than `max_rss` bytes before its first job.

    Its successor would have as much, and so would never run one.
    """
    if (size := rss_bytes()) > max_rss:
        raise InvalidInputError(
            f"max_rss is {max_rss:,} bytes, and a worker of this app has {size:,} before its first job: allow more, "
            f"{2 * size / 1e6:,.0f}M say"
        )


async def had_enough(budget: Budget, max_rss: int | None, stuck: Callable[[], bool]) -> str:
    """Waits until this process has claimed what its budget allows, has more than `max_rss` bytes, or is `stuck`.

    Says which: a worker is stuck when each of its slots is held by a function that nothing can stop.
    """
    spent = asyncio.ensure_future(budget.spent.reach(1))
    try:
        while not spent.done():
            if max_rss is not None and (size := rss_bytes()) > max_rss:
                return f"it has {size / 1e6:,.0f} MB of memory, and {max_rss / 1e6:,.0f} MB are allowed"
            if stuck():
                return "all its slots are held by functions that go on past their time"
            await asyncio.wait((spent,), timeout=_LOOK_S)
        return "it has run as many jobs as it may"
    finally:
        spent.cancel()
