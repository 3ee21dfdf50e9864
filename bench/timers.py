"""How late timed jobs start on an idle worker, and whether any starts early, by the server's clock.

    python bench/timers.py [JOBS] [SECONDS]

Jobs are spread at random over the seconds. Each handler notes the host's clock; the offset to the server's clock is
measured beside it (here both are one machine, so it is the error of the measurement). Earliness is judged by the
server alone: the script that promotes compares with its own clock, and a second look at TIME in every handler
must not lie before the run-at. As many bare timers of the same event loop run beside them, so that what the machine
itself is late can be told apart.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time

from _server import Server, new_loop

from echomq import jobs
from echomq.identity.minter import minter
from echomq.protocol.replies import Claimed
from echomq.runtime import Consumer, Dial
from echomq.wire import aconnect


async def run(url: str, server: Server, count: int, seconds: float) -> None:
    clock = server.client()

    def server_ms() -> float:
        whole, micros = clock.execute("TIME")
        return int(whole) * 1_000 + int(micros) / 1_000

    late: list[float] = []
    bare: list[float] = []
    early = 0
    loop = asyncio.get_running_loop()

    def ring(at: float) -> None:
        bare.append((loop.time() - at) * 1_000)

    async def handler(job: Claimed) -> None:
        nonlocal early
        behind = server_ms() - int(job.payload)
        early += behind < 0
        late.append(behind)

    async with aconnect(url) as conn:
        consumer = Consumer(Dial(url), "timers", handler, concurrency=100)
        await consumer.start()
        base = int(server_ms()) + 1_000
        instants = [base + random.randrange(int(seconds * 1_000)) for _ in range(count)]
        calls = [
            jobs.enqueue_at("timers", job_id, str(at), at_ms=at)
            for job_id, at in zip(minter.mint_many(count), instants, strict=True)
        ]
        await asyncio.gather(*(conn.run(call) for call in calls))
        for _ in range(count):
            at_s = loop.time() + 1 + random.random() * seconds
            loop.call_at(at_s, ring, at_s)
        cpu = time.process_time()
        while consumer.tally.completed < count:
            await consumer.parked.next()
        cpu = time.process_time() - cpu
        await consumer.stop()
    print(f"{count} jobs at random instants over {seconds:g} s, one idle worker, Unix socket, lateness in ms")
    print(f"  jobs         {spread(late)}   early {early}")
    print(f"  bare timers  {spread(bare)}")
    print(f"  worker's CPU {cpu / (seconds + 1) * 100:.1f} % of a core")


def spread(values: list[float]) -> str:
    values.sort()
    at = [values[min(len(values) - 1, int(len(values) * share))] for share in (0.5, 0.9, 0.99)]
    return f"p50 {at[0]:6.2f}   p90 {at[1]:6.2f}   p99 {at[2]:6.2f}   max {values[-1]:6.2f}"


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 10.0
    with Server() as server, asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(run(server.url, server, count, seconds))


if __name__ == "__main__":
    main()
