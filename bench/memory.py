"""What scheduled jobs cost a worker in memory: nothing should be kept of them.

    python bench/memory.py [JOBS]

The jobs are scheduled by another process, so that only the worker's resident set is measured.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sys
from pathlib import Path

from _server import Server, new_loop

from echomq import jobs
from echomq.identity.minter import minter
from echomq.protocol.replies import Claimed
from echomq.runtime import Consumer, Dial
from echomq.wire import aconnect

QUEUE = "memory"
FAR_MS = 90_000_000


async def fill(url: str, count: int) -> None:
    async with aconnect(url) as conn:
        for start in range(0, count, 1_000):
            ids = minter.mint_many(min(1_000, count - start))
            calls = [jobs.enqueue_in(QUEUE, job_id, "{}", delay_ms=FAR_MS) for job_id in ids]
            await asyncio.gather(*(conn.run(call) for call in calls))


def filler(url: str, count: int) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(fill(url, count))


def resident_kib() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


async def run(url: str, count: int) -> None:
    async def handler(job: Claimed) -> None: ...

    consumer = Consumer(Dial(url), QUEUE, handler, concurrency=10)
    await consumer.start()
    await consumer.beats.next(3)
    before = resident_kib()
    process = multiprocessing.get_context("spawn").Process(target=filler, args=(url, count))
    process.start()
    while process.is_alive():
        await consumer.beats.next()
    await consumer.beats.next(3)
    after = resident_kib()
    async with aconnect(url) as conn:
        held = await conn.execute("ZCARD", f"emq:{{{QUEUE}}}:schedule")
    print(f"{held:,} scheduled jobs: the worker's resident set went from {before / 1024:.1f} to {after / 1024:.1f} MiB")
    print(f"  change {(after - before) / 1024:+.2f} MiB")
    await consumer.stop(0)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with Server() as server, asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(run(server.url, count))


if __name__ == "__main__":
    main()
