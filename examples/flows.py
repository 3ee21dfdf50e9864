"""A flow: a report that waits for its pages. Run it with `python examples/flows.py`; it brings its own worker."""

import asyncio
from datetime import timedelta

from echomq import EchoMQ, Worker, chain, flow, previous, results

mq = EchoMQ(default_queue="reports")


@mq.job
async def fetch(city: str) -> int:
    return len(city)


@mq.job
def total(counts: list[int]) -> int:
    return sum(counts)


@mq.job
async def say(count: int) -> str:
    return f"{count} letters"


async def main() -> None:
    letters = flow(total.s(results()), [fetch.s(city) for city in ("Berlin", "Oslo", "Rome")])
    report = await chain(letters, say.s(previous())).aenqueue()
    worker = Worker(mq)
    serving = asyncio.create_task(worker.serve())
    print(await report.result(timedelta(seconds=30)))  # 14 letters
    worker.stop()
    await serving
    await mq.aclose()


if __name__ == "__main__":
    asyncio.run(main())
