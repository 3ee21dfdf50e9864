"""A worker in a process of its own, to be killed: `python worker_process.py URL QUEUE FILE [OPTION=N ...]`.

Each start of a handler appends a line with the job's id to FILE, whole or not at all.
"""

from __future__ import annotations

import asyncio
import os
import sys

from echomq.protocol.replies import Claimed
from echomq.runtime import Consumer, Dial


async def main(url: str, queue: str, path: str, **options: int) -> None:
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    pause = options.pop("pause_ms", 0) / 1_000

    async def handler(job: Claimed) -> None:
        os.write(log, f"{job.id}\n".encode())
        await asyncio.sleep(pause)

    consumer = Consumer(Dial(url), queue, handler, **options)
    await consumer.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    given = dict(each.split("=") for each in sys.argv[4:])
    asyncio.run(main(*sys.argv[1:4], **{name: int(value) for name, value in given.items()}))
