"""How fast an app sends: many jobs at once, a hundred at a time, one after another.

python bench/enqueue.py [JOBS] [ROUNDS]
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Callable

from _server import Server, new_loop

from echomq import EchoMQ


def main() -> None:
    count, rounds = [*map(int, sys.argv[1:]), *(100_000, 3)[len(sys.argv) - 1 :]]
    with Server() as server, EchoMQ(server.url) as mq:

        @mq.job(name="send")
        async def send(to: str, number: int) -> None: ...

        def many() -> int:
            return len(mq.enqueue_many(send.s("ada@example.org", number) for number in range(count)))

        async def amany() -> int:
            return len(await mq.aenqueue_many(send.s("ada@example.org", number) for number in range(count)))

        async def hundred() -> int:
            for start in range(0, count // 10, 100):
                await asyncio.gather(*(send.aenqueue("ada@example.org", start + each) for each in range(100)))
            return count // 10

        def one() -> int:
            for number in range(count // 10):
                send.enqueue("ada@example.org", number)
            return count // 10

        def awaited(work: Callable[[], object]) -> Callable[[], int]:
            def run() -> int:
                with asyncio.Runner(loop_factory=new_loop) as runner:
                    return runner.run(work())

            return run

        client = server.client()
        print(f"{rounds} rounds of {count} jobs (a tenth where not at once), one process, Unix socket; medians, jobs/s")
        for what, work in (
            ("enqueue_many", many),
            ("aenqueue_many", awaited(amany)),
            ("aenqueue, 100 at a time", awaited(hundred)),
            ("enqueue, one by one", one),
        ):
            rates = []
            for _ in range(rounds):
                client.execute("FLUSHALL")
                began = time.perf_counter()
                sent = work()
                rates.append(sent / (time.perf_counter() - began))
            print(f"  {what:24} {statistics.median(rates):>8,.0f}   ({min(rates):,.0f} to {max(rates):,.0f})")


if __name__ == "__main__":
    main()
