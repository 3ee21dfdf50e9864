"""Jobs that return something, and a program that waits for all of them.

python examples/results.py          sends them, runs a worker beside itself, and prints what they returned
"""

import asyncio
from dataclasses import dataclass
from datetime import timedelta

from echomq import EchoMQ, JobFailed, Worker

mq = EchoMQ()


@dataclass
class Word:
    text: str
    length: int


@mq.job(queue="words", max_attempts=1)
async def measure(text: str) -> Word:
    if not text.isalpha():
        raise ValueError(f"{text!r} is no word")
    return Word(text, len(text))


async def main() -> None:
    worker = Worker(mq)  # one of your own would run elsewhere: echomq worker examples.results:mq
    working = asyncio.create_task(worker.serve())
    jobs = await mq.aenqueue_many([measure.s(text) for text in ("a", "bird", "in", "the", "hand", "42")])
    for job in jobs:
        try:
            word = await job.result(timedelta(seconds=20))
            print(f"{word.text} has {word.length}")
        except JobFailed as error:
            print(f"not a word: {error.error}")
    worker.stop()
    await working


if __name__ == "__main__":
    asyncio.run(main())
