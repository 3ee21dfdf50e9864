"""How soon a result is with whoever waits for it, and what keeping results costs a worker.

python bench/results.py [ROUNDS] [WAITERS] [JOBS]
"""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import sys
import time
from datetime import timedelta

from _server import Client, Server, new_loop

from echomq import EchoMQ, Job, Worker

MINUTE = timedelta(minutes=1)


def app(url: str) -> EchoMQ:
    mq = EchoMQ(url)

    @mq.job(name="now")
    async def now() -> float:
        return time.perf_counter()  # one clock for all processes of a host

    @mq.job(name="nothing", queue="nothing")
    async def nothing() -> None: ...

    return mq


def worker(url: str) -> int:
    """A worker in a process of its own."""
    if (pid := os.fork()) == 0:
        Worker(app(url), concurrency=100).run()
        os._exit(0)
    return pid


def shown(what: str, seconds: list[float], more: str = "") -> None:
    ms = sorted(each * 1_000 for each in seconds)
    p99 = ms[min(len(ms) - 1, len(ms) * 99 // 100)]
    print(f"  {what:46} p50 {statistics.median(ms):7.2f} ms   p99 {p99:7.2f} ms   max {ms[-1]:7.2f} ms{more}")


async def late(job: Job[float]) -> float:
    ended = await job.result(MINUTE)
    return time.perf_counter() - ended


async def alone(mq: EchoMQ, rounds: int) -> None:
    """One job after the other, each awaited."""
    lates, whole = [], []
    now = mq.jobs["now"]
    for _ in range(rounds):
        began = time.perf_counter()
        lates.append(await late(await now.aenqueue()))
        whole.append(time.perf_counter() - began)
    shown("1 waiter, from the job's return", lates)
    shown("1 waiter, from before the enqueue", whole)


async def crowd(mq: EchoMQ, waiters: int, client: Client) -> None:
    """Many at once, their jobs due one after the other within two seconds."""
    now = mq.jobs["now"]
    calls = [now.after(seconds=1 + 2 * number / waiters).s() for number in range(waiters)]
    jobs = await mq.aenqueue_many(calls)
    before = client.calls()
    lates = await asyncio.gather(*[late(job) for job in jobs])
    after = client.calls()
    subscriptions = after.get("subscribe", 0) - before.get("subscribe", 0)
    looks = after.get("mget", 0) - before.get("mget", 0)
    shown(f"{waiters:,} waiters, from each job's return", lates, f"   {subscriptions} subscribe, {looks} looks")


async def drained(url: str, ttl: timedelta, count: int) -> float:
    """No-op jobs a second through an app's worker that runs in this process."""
    mq = EchoMQ(url)

    @mq.job(name="nothing", queue="nothing", result_ttl=ttl)
    async def nothing() -> None: ...

    await mq.aenqueue_many([nothing.s() for _ in range(count)])
    serving = Worker(mq, concurrency=100, burst=True)
    began = time.perf_counter()
    await serving.serve()
    took = time.perf_counter() - began
    await mq.aclose()
    return count / took


def main() -> None:
    given = [int(each) for each in sys.argv[1:]]
    rounds, waiters, count = given + [500, 1_000, 20_000][len(given) :]
    with Server() as server:
        pid = worker(server.url)
        try:
            with asyncio.Runner(loop_factory=new_loop) as runner:

                async def latencies() -> None:
                    async with app(server.url) as mq:
                        await alone(mq, rounds)
                        await crowd(mq, waiters, server.client())

                print("A worker in a process of its own, concurrency 100")
                runner.run(latencies())
        finally:
            os.kill(pid, signal.SIGTERM)
            os.waitpid(pid, 0)
        print(f"No-op jobs run by an app's worker, concurrency 100, {count:,} a round, jobs/s")
        rates: dict[timedelta, list[float]] = {timedelta(0): [], timedelta(hours=1): []}
        for _ in range(5):
            for ttl in rates:
                with asyncio.Runner(loop_factory=new_loop) as runner:
                    rates[ttl].append(runner.run(drained(server.url, ttl, count)))
                server.client().execute("FLUSHALL")
        for ttl, values in rates.items():
            what = "nothing kept" if not ttl else "an empty marker kept for an hour"
            print(f"  {what:46} {statistics.median(values):10,.0f}   ({min(values):,.0f} to {max(values):,.0f})")


if __name__ == "__main__":
    main()
