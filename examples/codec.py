"""A codec between arguments and server: compressed, and told apart by its name.

python examples/codec.py          sends a long text, shows how little of it is stored, and runs it
"""

import asyncio
import zlib
from datetime import timedelta

from echomq import EchoMQ, Worker, metrics


class Zip:
    name = "zlib"

    def encode(self, data: bytes, /) -> bytes:
        return zlib.compress(data)

    def decode(self, data: bytes, /) -> bytes:
        return zlib.decompress(data)


mq = EchoMQ(codec=Zip())


@mq.job(queue="reports")
async def words(text: str) -> int:
    return len(text.split())


async def main() -> None:
    text = "much of the same, " * 10_000
    job = await words.aenqueue(text)
    stored = (await mq.arun(metrics.row(job.queue, job.id)))["payload"]
    print(f"{len(text):,} characters, {len(stored):,} bytes of payload")
    worker = Worker(mq)  # one of your own would run elsewhere: echomq worker examples.codec:mq
    working = asyncio.create_task(worker.serve())
    print(f"{await job.result(timedelta(seconds=20)):,} words")
    worker.stop()
    await working


if __name__ == "__main__":
    asyncio.run(main())
