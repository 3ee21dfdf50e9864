"""What a job starts in a process of its own ends with that process, unless it has a session of its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from echomq import EchoMQ, metrics
from support.embedded import alive
from support.program import NOTING, Process, noted
from support.servers import Server, wait_until

pytestmark = pytest.mark.chaos

TASKS = (
    NOTING
    + """
import signal, subprocess

@mq.job(name="starts", process=True, max_attempts=1)
def starts(then: str) -> None:
    for session in (False, True):
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=session)
        note("sessions" if session else "started", child.pid)
    if then == "sleeps":
        time.sleep(600)
    elif then == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    elif then == "moves":
        os.setpgid(0, os.getpgid(os.getppid()))
        time.sleep(600)
"""
)


@pytest.fixture
def program(tmp_path: Path, server: Server, queue: str) -> Iterator[Process]:
    process = Process(tmp_path, TASKS, server, queue, "--pool", "1")
    yield process
    process.signal(signal.SIGTERM)
    try:
        process.process.wait(20)
    finally:
        # They hold its streams open.
        for number, _ in noted(tmp_path / "sessions") + noted(tmp_path / "started"):
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        process.close()


def started(tmp_path: Path) -> tuple[int, int]:
    """The process that a job has started, and the one with a session of its own."""
    wait_until(lambda: noted(tmp_path / "sessions"), seconds=40, what="the job has begun")
    ((one, _),), ((other, _),) = noted(tmp_path / "started"), noted(tmp_path / "sessions")
    return one, other


@pytest.mark.deadline(60)
@pytest.mark.parametrize("then", ["sleeps", "moves", "cancelled"])
def test_one_that_is_killed_takes_along_what_it_has_started(
    mq: EchoMQ, queue: str, program: Process, tmp_path: Path, then: str
) -> None:
    mq.job(name="starts")(lambda then: None)
    send = mq.jobs["starts"]
    if then == "cancelled":
        job = send.enqueue("sleeps")
        child, daemon = started(tmp_path)
        job.cancel("enough")
    else:
        send.options(timeout=timedelta(seconds=2)).enqueue(then)
        child, daemon = started(tmp_path)
    wait_until(lambda: mq.run(metrics.counts(queue)).dead == 1, seconds=30, what="the job is dead")
    wait_until(lambda: not alive(child), seconds=20, what="so is what it has started")
    assert alive(daemon)


@pytest.mark.deadline(60)
def test_so_does_one_that_dies(mq: EchoMQ, program: Process, tmp_path: Path) -> None:
    mq.job(name="starts")(lambda then: None)
    mq.jobs["starts"].enqueue("dies")
    wait_until(lambda: len(noted(tmp_path / "sessions")) == 3, seconds=40, what="three lapses")
    children = [number for number, _ in noted(tmp_path / "started")]
    wait_until(lambda: not any(map(alive, children)), seconds=20, what="nothing is left of any")


@pytest.mark.deadline(60)
def test_so_does_one_that_is_idle_when_its_worker_ends(
    mq: EchoMQ, queue: str, program: Process, tmp_path: Path
) -> None:
    mq.job(name="starts")(lambda then: None)
    mq.jobs["starts"].enqueue("returns")
    child, daemon = started(tmp_path)
    wait_until(lambda: mq.run(metrics.counts(queue)).completed == 1, seconds=30, what="it is done")
    assert alive(child), "a process is used again, and so what it has started stays"
    program.signal(signal.SIGTERM)
    assert program.process.wait(20) == 0
    wait_until(lambda: not alive(child), seconds=20, what="it has ended with the worker")
    assert alive(daemon)
