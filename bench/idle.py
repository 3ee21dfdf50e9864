"""What an idle worker costs: commands a second at the server, CPU of its process, connections.

    python bench/idle.py [SECONDS] [QUEUES]

Each queue has a recurrence an hour ahead and a scheduled job, so that there is a time to keep. Commands are counted by
the server (INFO commandstats), those inside scripts left out by counting only what clients sent.
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

_SENT = ("evalsha", "blpop", "lpush", "ltrim", "hgetall", "ping", "set", "client|setname")


def sent(client: Client) -> int:
    calls = client.calls()
    return sum(calls.get(name, 0) for name in _SENT)


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
    client = server.client()
    began, before, cpu = time.monotonic(), sent(client), cpu_s()
    await asyncio.sleep(seconds)
    took, spent, cpu = time.monotonic() - began, sent(client) - before, cpu_s() - cpu
    clients = client.execute("CLIENT", "LIST").decode().splitlines()
    blocked = sum("cmd=blpop" in line for line in clients)
    print(f"{queues} idle queues over {took:.1f} s, beat 1,000 ms")
    print(f"  commands a second and queue {spent / took / queues:.2f}, CPU {cpu / took * 100:.2f} % of a core")
    print(f"  blocked connections a queue {blocked / queues:g}, all connections {len(clients) - 1}")
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
