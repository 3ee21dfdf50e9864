"""Ids a second on one core: one by one, by the thousand, and checked.

python bench/ids.py
"""

from __future__ import annotations

import time
from collections.abc import Callable

from echomq.identity import check_job, mint
from echomq.identity.minter import minter

COUNT = 500_000


def per_second(work: Callable[[], object]) -> float:
    """Ids a second of processor time, the best of three."""
    best = 0.0
    for _ in range(3):
        start = time.process_time()
        work()
        best = max(best, COUNT / (time.process_time() - start))
    return best


def one_by_one() -> None:
    for _ in range(COUNT):
        mint()


def by_the_thousand() -> None:
    for _ in range(COUNT // 1_000):
        minter.mint_many(1_000)


def checked() -> None:
    text = mint()
    for _ in range(COUNT):
        check_job(text)


def main() -> None:
    for work in (one_by_one, by_the_thousand, checked):
        print(f"{work.__name__.replace('_', ' '):>16}  {per_second(work):>12,.0f} ids/s")


if __name__ == "__main__":
    main()
