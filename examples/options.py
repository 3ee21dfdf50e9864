"""Options, many jobs at once, and jobs that say how they want to go on.

python examples/options.py          sends them, runs a worker beside itself, and prints what became of them
"""

import asyncio
from datetime import timedelta

from echomq import Dedup, Discard, EchoMQ, Fixed, Retry, Worker, current_job

mq = EchoMQ(queues=["letters-late"])


@mq.job(
    queue="letters",
    aliases=["letters.write"],
    max_attempts=3,
    backoff=Fixed(50),
    retry_on=ConnectionError,
    timeout=timedelta(seconds=30),
)
async def write(to: str, text: str = "hi") -> str:
    job = current_job()
    if to == "nobody":
        raise Discard("nobody has no letter box")
    if to == "busy" and job.attempt == 1:
        raise Retry("the line is busy", milliseconds=10)
    if to == "away" and job.attempt < 3:
        raise ConnectionError("not at home")
    return f"{job.meta.get('by', 'no one')} wrote {text!r} to {to} in attempt {job.attempt}, {job.queue}"


async def main() -> None:
    by = write.options(meta={"by": "ada"}, expires=timedelta(hours=1))
    jobs = await mq.aenqueue_many(
        [
            by.s("bob"),
            by.s("busy"),
            by.s("away", text="where are you"),
            write.s("nobody"),
            write.options(queue="letters-late", lane="acme").s("carol"),
            write.after(milliseconds=100).options(dedup=Dedup("dan", replace=True)).s("dan", text="old news"),
            write.options(dedup=Dedup("dan", replace=True)).s("dan", text="news"),
        ]
    )
    print("one job for both letters to dan:", jobs[-1].duplicate)
    worker = Worker(mq)  # one of your own would run elsewhere: echomq worker examples.options:mq
    working = asyncio.create_task(worker.serve())
    for job in jobs[:-1]:
        try:
            print(await job.result(timedelta(seconds=20)))
        except Exception as error:  # noqa: BLE001  (its text is what this example is about)
            print(f"{type(error).__name__}: {error}".split("\n")[0])
    worker.stop()
    await working


if __name__ == "__main__":
    asyncio.run(main())
