"""Whether a giant lane holds up small ones and flat work: by turns of the ring, which no machine's load can change.

python bench/fairness.py [BATCH] [CONCURRENCY]

One lane of 100,000 jobs, 99 of 10, and flat work beside them. First by plain claims of BATCH jobs, each completed at
once: a turn of the ring is one claim from the giant. Then by a consumer as a worker runs it.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections import Counter

from _server import Server, new_loop

from echomq.identity.minter import minter
from echomq.protocol import jobs, lanes
from echomq.protocol.replies import Claimed
from echomq.runtime import Consumer, Dial
from echomq.wire import AsyncConnector, aconnect

GIANT, SMALL, EACH, FLAT = 100_000, 99, 10, 2_000
TURNS = 10
FLIGHT = 1_000


async def fill(conn: AsyncConnector, queue: str) -> tuple[str, list[str]]:
    """The giant first, so that the small lanes come behind a backlog; gives the giant's group and the others'."""
    giant, *small = (lanes.lane_id(f"tenant {n}") for n in range(SMALL + 1))
    wanted = [giant] * GIANT + [group for group in small for _ in range(EACH)]
    ids = minter.mint_many(len(wanted))
    for start in range(0, len(wanted), FLIGHT):
        part = zip(ids[start : start + FLIGHT], wanted[start : start + FLIGHT], strict=True)
        await asyncio.gather(*(conn.run(lanes.enqueue(queue, job_id, b"{}", group)) for job_id, group in part))
    await conn.run(jobs.enqueue_many(queue, [(job_id, b"{}") for job_id in minter.mint_many(FLAT)]))
    return giant, small


class Tally:
    """Turns of the ring, counted by the giant's claims, and by which of them each small lane was done."""

    def __init__(self, giant: str) -> None:
        self.giant = giant
        self.turns = 0
        self.served: Counter[str] = Counter()
        self.done: dict[str, int] = {}
        self.flat = 0
        self.claims = 0

    def take(self, job: Claimed) -> None:
        """One claimed job, in the order of the claims."""
        if len(self.done) == SMALL:
            return
        self.claims += 1
        if job.group is None:
            self.flat += 1
        elif job.group == self.giant:
            self.turns += 1
        else:
            self.served[job.group] += 1
            if self.served[job.group] == EACH:
                self.done[job.group] = self.turns

    def tell(self, how: str, took: float) -> bool:
        """Prints what was seen; whether every small lane was done within its first ten turns."""
        worst = max(self.done.values(), default=0)
        print(f"\n{how}, {self.claims:,} claims in {took:.2f} s until the {SMALL} small lanes were done:")
        for turn, count in sorted(Counter(self.done.values()).items()):
            print(f"  by turn {turn:>3} of the ring: {count} lanes")
        print(
            f"  flat work: {self.flat} jobs, a share of {self.flat / self.claims:.2%}; a seat is {1 / (SMALL + 2):.2%}"
        )
        fair = len(self.done) == SMALL and worst <= TURNS
        print(f"  {'fair' if fair else 'NOT FAIR'}: the last small lane was done by turn {worst}, {TURNS} are its due")
        return fair


async def by_claims(url: str, batch: int) -> bool:
    """Claims of `batch`, in order, each completed before the next."""
    async with aconnect(url) as conn:
        giant, _ = await fill(conn, "claims")
        tally, took = Tally(giant), []
        began = time.perf_counter()
        while len(tally.done) < SMALL:
            sent = time.perf_counter()
            claims = await conn.run(jobs.claim_many("claims", batch))
            took.append(time.perf_counter() - sent)
            for job in claims.jobs:
                tally.take(job)
            await conn.run(jobs.complete_many("claims", [(job.id, job.token) for job in claims.jobs]))
        fair = tally.tell(f"Claims of {batch}", time.perf_counter() - began)
        print(f"  a claim of {batch}: median {statistics.median(took) * 1e6:.0f} µs, slowest {max(took) * 1e6:.0f} µs")
        return fair


async def by_consumer(url: str, concurrency: int) -> bool:
    """A consumer with a handler that only counts."""
    async with aconnect(url) as conn:
        giant, _ = await fill(conn, "consumer")
    tally, done = Tally(giant), asyncio.Event()

    async def handler(job: Claimed) -> None:
        tally.take(job)
        if len(tally.done) == SMALL:
            done.set()

    consumer = Consumer(Dial(url), "consumer", handler, concurrency=concurrency)
    began = time.perf_counter()
    await consumer.start()
    await done.wait()
    took = time.perf_counter() - began
    await consumer.stop()
    return tally.tell(f"A consumer of {concurrency}", took)


def main() -> None:
    batch = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    concurrency = int(sys.argv[2]) if len(sys.argv) > 2 else 16
    print(f"1 lane of {GIANT:,} jobs, {SMALL} of {EACH}, {FLAT:,} flat jobs beside them")
    with Server() as server, asyncio.Runner(loop_factory=new_loop) as runner:
        fair = [runner.run(by_claims(server.url, n)) for n in (1, batch)]
        fair.append(runner.run(by_consumer(server.url, concurrency)))
    if not all(fair):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
