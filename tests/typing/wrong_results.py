"""Uses of results that a type checker must reject: every line that ends in `# wrong`, and no other."""

from __future__ import annotations

from datetime import timedelta

from echomq import EchoMQ, Job

mq = EchoMQ("valkey://localhost:6379/0")


@mq.job
async def count(words: list[str]) -> int:
    return len(words)


mq.job(result_ttl=60)  # wrong
mq.job(result_ttl=None)  # wrong


async def awaited(job: Job[int]) -> None:
    text: str = await job.result()  # wrong
    await job.result(5)  # wrong
    await job.result(timeout=0.5)  # wrong
    await job.get()  # wrong
    for _ in job.result():  # wrong
        print(text)
    async for event in job.events():
        event.progress.upper()  # wrong


def blocking() -> None:
    count.options(result_ttl=5)  # wrong
    number: int = count.enqueue(["a"]).result()  # wrong
    text: str = count.enqueue(["a"]).get()  # wrong
    count.enqueue(["a"]).get(timeout="1s")  # wrong
    count.handle(5)  # wrong
    count.handle()  # wrong
    mq.handle("JOB0KHTOWnGLuC", timedelta(1))  # wrong
    other: Job[str] = count.handle("JOB0KHTOWnGLuC")  # wrong
    value: int = mq.handle("JOB0KHTOWnGLuC").get()  # wrong
    print(number, text, other, value)
