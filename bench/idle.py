"""What an idle worker costs: commands a second at the server, CPU of its process, connections.

    python bench/idle.py [SECONDS] [QUEUES]

Each queue has a scheduled job an hour ahead, so that there is a time to keep. Every command of every connection is
counted, as MONITOR sees them; those that scripts call are told beside them.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import time

from _server import Client, Server, new_loop

from echomq import jobs
from echomq.identity.minter import mint
from echomq.protocol.replies import Claimed
from echomq.runtime import Consumer, Dial, LeaseKeeper
from echomq.wire import aconnect


def seen(client: Client, watcher: Client) -> tuple[int, int]:
    """Commands that connections have sent since the last look, and those that scripts have called."""
    client.execute("ECHO", "that-is-all")
    lines = watcher.seen_until("that-is-all")
    called = sum(b" lua] " in line for line in lines)
    return len(lines) - called, called


def cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def run(url: str, server: Server, seconds: float, queues: int) -> None:
    async def handler(job: Claimed) -> None: ...

    dial = Dial(url)
    keeper = LeaseKeeper(dial)
    names = [f"idle{n}" for n in range(queues)]
    async with aconnect(url) as conn:
        for name in names:
            await conn.run(jobs.enqueue_in(name, mint(), "{}", delay_ms=3_600_000))
    consumers = [Consumer(dial, name, handler, concurrency=10, keeper=keeper) for name in names]
    for consumer in consumers:
        await consumer.start()
    await asyncio.sleep(1.5)
    client, watcher = server.client(), server.client()
    watcher.execute("MONITOR")
    seen(client, watcher)
    began, cpu = time.monotonic(), cpu_s()
    await asyncio.sleep(seconds)
    took, cpu = time.monotonic() - began, cpu_s() - cpu
    sent, called = seen(client, watcher)
    clients = client.execute("CLIENT", "LIST").decode().splitlines()
    blocked = sum("cmd=blpop" in line for line in clients)
    print(f"{queues} idle queues over {took:.1f} s, beat 1,000 ms")
    print(f"  commands a second and queue {sent / took / queues:.2f}, in scripts {called / took / queues:.2f}")
    print(f"  CPU {cpu / took * 100:.2f} % of a core")
    print(f"  blocked connections a queue {blocked / queues:g}, all connections {len(clients) - 2}")
    for consumer in consumers:
        await consumer.stop(0)
    await keeper.stop()


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    queues = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    with Server() as server, asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(run(server.url, server, seconds, queues))


if __name__ == "__main__":
    main()
