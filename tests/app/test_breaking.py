"""A job that breaks the worker from within, by its tasks or its loop: it counts as one that kills its process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from echomq import EchoMQ, Worker, metrics
from echomq.protocol.replies import Counts, State
from support.program import NOTING, Process, noted
from support.servers import Server, wait_until

TASKS = (
    NOTING
    + """
from echomq import Supervisor

@mq.job(name="cancels")
async def cancels(which: str) -> None:
    note("ran", 0)
    if which == "stop":
        asyncio.get_running_loop().stop()
    for task in asyncio.all_tasks():
        main = "_serve_with_signals" in repr(task) or "_Cell" in repr(task)
        if task is not asyncio.current_task() and (which == "all" or which == "main" and main):
            task.cancel()
    await asyncio.sleep(30)

@mq.job(name="beside")
async def beside() -> None:
    while not noted("ran"):
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.5)
    note("done", 1)

def noted(what):
    return (here / what).exists()

if __name__ == "__main__":
    Supervisor(mq, processes=1, lease=timedelta(seconds=2), grace=timedelta(seconds=1)).run()
"""
)


@pytest.fixture
def program(tmp_path: Path, server: Server, queue: str) -> Iterator[Process]:
    process = Process(tmp_path, TASKS, server, queue, command=("tasks.py",))
    yield process
    process.signal(15)
    try:
        process.wait()
    finally:
        process.close()


@pytest.mark.chaos
@pytest.mark.deadline(90)
@pytest.mark.parametrize("which", ["all", "main", "stop"])
def test_a_job_that_cancels_the_workers_tasks_is_counted_and_buried(
    mq: EchoMQ, queue: str, tmp_path: Path, program: Process, which: str
) -> None:
    for name in ("cancels", "beside"):
        mq.job(name=name)(lambda *_: None)
    mq.jobs["beside"].enqueue()
    job = mq.jobs["cancels"].enqueue(which)
    wait_until(
        lambda: mq.run(metrics.counts(queue)) == Counts(0, 0, 0, 1, completed=1, failed=1),
        seconds=60,
        what="the neighbour done, the killer dead",
    )
    row = mq.run(metrics.row(queue, job.id))
    assert (row["last_error"], row["stalled"], row["attempts"]) == (b"stalled", b"3", b"3"), program.log
    assert program.log.count("a job has cancelled the worker's own tasks") == 1, program.log
    assert "Traceback" not in program.log
    assert "ended with exit code 1 after" in program.log
    assert len(noted(tmp_path / "ran")) == 3


async def test_a_worker_on_a_loop_of_somebody_elses_hands_back_when_that_is_cancelled(mq: EchoMQ, queue: str) -> None:
    begun = asyncio.Event()

    @mq.job(name="waits")
    async def waits() -> None:
        begun.set()
        await asyncio.Event().wait()

    job = await waits.aenqueue()
    serving = asyncio.ensure_future(Worker(mq).serve())
    await begun.wait()
    before = asyncio.current_task()
    for task in asyncio.all_tasks() - {before}:
        task.cancel()
    await asyncio.wait((serving,))
    assert serving.cancelled()
    assert await mq.arun(metrics.state(queue, job.id)) is State.PENDING
    assert b"stalled" not in (await mq.arun(metrics.row(queue, job.id)))
