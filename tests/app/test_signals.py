"""Signals with something in their way: a loop that is blocked, a supervisor that stands still, a change of code."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from echomq import EchoMQ, metrics
from echomq.protocol.replies import State
from support.program import NOTING, Start, noted, starting
from support.servers import Server, wait_until

pytestmark = pytest.mark.chaos

TASKS = (
    NOTING
    + """
@mq.job(name="work")
async def work(number: int, seconds: float = 0.0) -> None:
    note("begun", number)
    await asyncio.sleep(seconds)
    note("done", number)

@mq.job(name="block")
async def block(number: int, seconds: float) -> None:
    note("begun", number)
    time.sleep(seconds)
    note("done", number)
"""
)
HOOK = """
@mq.on_%s
def hook() -> None:
    note("%s", 0)
    time.sleep(600)
"""
ASYNCIO = "import sys; sys.modules['uvloop'] = None\n"


@pytest.fixture
def start(tmp_path: Path, server: Server, queue: str) -> Iterator[Start]:
    with starting(tmp_path, TASKS, server, queue, signal.SIGINT) as start:
        yield start


@pytest.fixture
def app(mq: EchoMQ) -> EchoMQ:
    """The tasks above by their names, to be sent."""
    for name in ("work", "block"):
        mq.job(name=name)(lambda number, seconds=0.0: None)
    return mq


def once(path: Path, count: int = 1) -> None:
    """Returns when so many notes are there."""
    wait_until(lambda: len(noted(path)) >= count, seconds=40, what=f"{count} in {path.name}")


# A loop that cannot hear. Two signals of a kind would be one where neither is taken yet.


@pytest.mark.parametrize("loop", ["", ASYNCIO], ids=["uvloop", "asyncio"])
def test_a_second_signal_ends_a_worker_whose_start_up_hook_blocks_the_loop(
    start: Start, tmp_path: Path, loop: str
) -> None:
    process = start(tasks=loop + TASKS + HOOK % ("startup", "startup"))
    once(tmp_path / "startup")
    process.signal(signal.SIGTERM)
    process.signal(signal.SIGINT)
    assert process.wait() == 0
    assert "again, while something blocks the event loop: it ends, with nothing in hand" in process.log


def test_and_one_whose_shut_down_hook_does(start: Start, app: EchoMQ, queue: str, tmp_path: Path) -> None:
    process = start(tasks=TASKS + HOOK % ("shutdown", "shutdown"))
    job = app.jobs["work"].enqueue(1)
    once(tmp_path / "done")
    process.signal(signal.SIGTERM)
    once(tmp_path / "shutdown")
    assert app.run(metrics.state(queue, job.id)) is State.ABSENT
    process.signal(signal.SIGINT)
    assert process.wait() == 0
    assert "with nothing in hand" in process.log


@pytest.mark.parametrize("loop", ["", ASYNCIO], ids=["uvloop", "asyncio"])
def test_a_job_that_blocks_the_loop_is_not_lost_by_it(
    start: Start, app: EchoMQ, queue: str, tmp_path: Path, loop: str
) -> None:
    process = start(tasks=loop + TASKS)
    job = app.jobs["block"].enqueue(1, 4.0)
    once(tmp_path / "begun")
    process.signal(signal.SIGTERM)
    process.signal(signal.SIGINT)
    assert process.wait() == 0
    assert len(noted(tmp_path / "done")) == 1
    assert app.run(metrics.state(queue, job.id)) is State.ABSENT
    assert "blocks the event loop" not in process.log
    assert "SIGINT again: running jobs are handed back at once" in process.log or "SIGTERM again" in process.log


# A supervisor


def test_a_supervisor_that_is_stopped_for_a_while_costs_no_job(
    start: Start, app: EchoMQ, queue: str, tmp_path: Path
) -> None:
    process = start("--processes", "2", "--concurrency", "2")
    work = app.jobs["work"]
    app.enqueue_many(work.s(number, 0.01) for number in range(20))
    once(tmp_path / "done", 20)
    process.signal(signal.SIGSTOP)
    try:
        app.enqueue_many(work.s(number, 0.01) for number in range(20, 60))
        once(tmp_path / "done", 60)
        (victim, _) = process.workers()
        os.kill(victim, signal.SIGKILL)
        app.enqueue_many(work.s(number, 0.01) for number in range(60, 80))
        once(tmp_path / "done", 80)
        assert len(process.workers()) == 2
    finally:
        process.signal(signal.SIGCONT)
    wait_until(lambda: len(process.workers()) == 3, seconds=40, what="another worker for the one that was killed")
    app.enqueue_many(work.s(number) for number in range(80, 100))
    once(tmp_path / "done", 100)
    process.signal(signal.SIGTERM)
    assert process.wait() == 0
    assert Counter(number for number, _ in noted(tmp_path / "done")) == Counter(range(100))
    assert app.run(metrics.counts(queue)).completed == 100


def test_a_stop_that_comes_while_a_supervisor_is_stopped_is_heard_when_it_goes_on(
    start: Start, app: EchoMQ, queue: str, tmp_path: Path
) -> None:
    process = start("--processes", "2")
    job = app.jobs["work"].enqueue(1, 1.0)
    once(tmp_path / "begun")
    process.signal(signal.SIGSTOP)
    process.signal(signal.SIGTERM)
    process.signal(signal.SIGCONT)
    assert process.wait() == 0
    assert app.run(metrics.state(queue, job.id)) is State.ABSENT


def test_a_change_gives_running_jobs_their_grace_and_the_next_ones_the_new_code(
    start: Start, app: EchoMQ, queue: str, tmp_path: Path
) -> None:
    process = start("--reload", "--concurrency", "2")
    short, long = app.jobs["work"].enqueue(1, 1.0), app.jobs["work"].enqueue(2, 600)
    once(tmp_path / "begun", 2)
    (tmp_path / "tasks.py").write_text(TASKS.replace("asyncio.sleep(seconds)", "asyncio.sleep(0)"))
    once(tmp_path / "done", 2)
    (first, old), (second, new) = noted(tmp_path / "done")
    assert (first, second, old != new) == (1, 2, True)
    assert noted(tmp_path / "begun")[-1] == (2, new)
    wait_until(lambda: app.run(metrics.counts(queue)).completed == 2, what="both ends")
    assert {app.run(metrics.state(queue, each.id)) for each in (short, long)} == {State.ABSENT}
    assert app.run(metrics.counts(queue)).failed == 0
    assert "tasks.py changed: the workers are started anew" in process.log
