"""How fast jobs go in, and how fast no-op jobs come out, at concurrency 1 and 100.

python bench/drain.py [JOBS] [ROUNDS]
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time

from _server import Server, new_loop

from echomq import jobs
from echomq.identity.minter import minter
from echomq.protocol.replies import Claimed
from echomq.runtime import Consumer, Dial
from echomq.wire import aconnect

BULK = 500


async def fill(url: str, queue: str, count: int) -> float:
    """Admits `count` jobs, 500 a call, four calls under way; jobs per second."""
    async with aconnect(url) as conn:
        began = time.perf_counter()
        for start in range(0, count, 4 * BULK):
            calls = []
            for first in range(start, min(start + 4 * BULK, count), BULK):
                size = min(BULK, count - first)
                calls.append(jobs.enqueue_many(queue, [(i, b"{}") for i in minter.mint_many(size)]))
            await asyncio.gather(*(conn.run(call) for call in calls))
        return count / (time.perf_counter() - began)


async def drain(url: str, queue: str, count: int, concurrency: int) -> float:
    """Runs `count` no-op jobs to the server's confirmation; jobs per second."""
    seen = 0

    async def handler(_: Claimed) -> None:
        nonlocal seen
        seen += 1

    consumer = Consumer(Dial(url), queue, handler, concurrency=concurrency)
    began = time.perf_counter()
    await consumer.start()
    while consumer.tally.completed < count:
        await consumer.parked.next()
    took = time.perf_counter() - began
    await consumer.stop()
    assert seen == count, (seen, count)
    return count / took


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    with Server() as server, asyncio.Runner(loop_factory=new_loop) as runner:
        admitted, one, hundred = [], [], []
        for number in range(rounds):
            admitted.append(runner.run(fill(server.url, f"h{number}", count)))
            hundred.append(runner.run(drain(server.url, f"h{number}", count, 100)))
            runner.run(fill(server.url, f"o{number}", count // 10))
            one.append(runner.run(drain(server.url, f"o{number}", count // 10, 1)))
    print(f"{rounds} rounds of {count} jobs (a tenth at concurrency 1), one process, Unix socket; medians, jobs/s")
    for what, values in (
        ("bulk admission", admitted),
        ("drain, concurrency 100", hundred),
        ("drain, concurrency 1", one),
    ):
        print(f"  {what:24} {statistics.median(values):10,.0f}   ({min(values):,.0f} to {max(values):,.0f})")


if __name__ == "__main__":
    main()
