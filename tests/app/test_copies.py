"""A fork inside a job: its child ends when it comes back from the job, and whatever ends by itself is left alone."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from echomq import EchoMQ, metrics
from support.embedded import alive
from support.program import NOTING, Process, noted
from support.servers import Server, wait_until

TASKS = (
    NOTING
    + """
import multiprocessing, subprocess
from echomq import Middleware

class Hooks(Middleware):
    def after(self, job, result):
        note("after", 0)

def fork(then):
    if os.fork() == 0:
        note("copies", 0)
        if then == "raises":
            raise ValueError("in the copy")
        if then == "exits":
            raise SystemExit(0)
    else:
        note("parents", 0)
    return os.getpid()

def run(then):
    if then in ("returns", "raises", "exits"):
        return fork(then)
    if then == "multiprocessing":
        child = multiprocessing.get_context("fork").Process(target=note, args=("children", 0))
        child.start()
        child.join()
        assert child.exitcode == 0
    elif then == "preexec":
        subprocess.run([sys.executable, "-c", "pass"], preexec_fn=lambda: note("children", 0), check=True)
    else:
        child = os.fork()
        if child == 0:
            note("children", 0)
            os._exit(3)
        assert os.waitpid(child, 0)[1] == 3 << 8
    return os.getpid()

@mq.job(name="coroutine", max_attempts=1)
async def coroutine(then: str) -> int:
    return run(then)

@mq.job(name="awaits", max_attempts=1)
async def awaits(then: str) -> int:
    pid = run(then)
    await asyncio.sleep(0.2)
    return os.getpid()

@mq.job(name="spawns", max_attempts=1)
async def spawns(then: str) -> int:
    async def child():
        return run(then)
    return await asyncio.create_task(child())

@mq.job(name="plain", max_attempts=1)
def plain(then: str) -> int:
    return run(then)

@mq.job(name="process", max_attempts=1, process=True)
def process(then: str) -> int:
    return run(then)
"""
)
HOOKED = "mq.middleware(Hooks())\n"
ASYNCIO = "import sys; sys.modules['uvloop'] = None\n"
KINDS = ("coroutine", "awaits", "spawns", "plain", "process")


def begun(mq: EchoMQ, tmp_path: Path, server: Server, queue: str, tasks: str) -> Process:
    for name in KINDS:
        mq.job(name=name)(returns)
    return Process(tmp_path, tasks, server, queue, "--grace", "5", "--pool", "1", "--log-level", "error")


def returns(then: str) -> int:
    raise NotImplementedError(then)


@pytest.mark.deadline(90)
@pytest.mark.parametrize("before", ["", ASYNCIO, HOOKED], ids=["uvloop", "asyncio", "middleware"])
def test_a_copy_of_a_worker_that_comes_back_from_a_job_ends(
    mq: EchoMQ, server: Server, queue: str, tmp_path: Path, before: str
) -> None:
    tasks = before + TASKS if before == ASYNCIO else TASKS + before
    program = begun(mq, tmp_path, server, queue, tasks)
    try:
        for kind in KINDS:
            for then in ("returns", "raises", "exits"):
                answer = mq.jobs[kind].enqueue(then).get(timedelta(seconds=40))
                assert answer == noted(tmp_path / "parents")[-1][1], "the parent's answer"
        wait_until(lambda: len(noted(tmp_path / "copies")) == 15, seconds=20, what="the copies have begun")
        copies = [pid for _, pid in noted(tmp_path / "copies")]
        wait_until(lambda: not any(map(alive, copies)), seconds=20, what="the copies have ended")
        wait_until(lambda: program.log.count("came back from the job") == 15, seconds=20, what="a line for each")
        counts = mq.run(metrics.counts(queue))
        assert (counts.completed, counts.failed, counts.dead) == (15, 0, 0)
        assert len(program.log.splitlines()) == 15, program.log
        assert not set(noted(tmp_path / "after")) & {(0, pid) for pid in copies}, "no hook runs in a copy"
        program.signal(signal.SIGTERM)
        assert program.wait(20) == 0, "it is not deaf"
    finally:
        for _, pid in noted(tmp_path / "copies"):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        program.close()


@pytest.mark.deadline(60)
def test_a_child_that_ends_by_itself_is_left_alone(mq: EchoMQ, server: Server, queue: str, tmp_path: Path) -> None:
    program = begun(mq, tmp_path, server, queue, TASKS + HOOKED)
    try:
        for kind in KINDS:
            for then in ("multiprocessing", "preexec", "os._exit"):
                mq.jobs[kind].enqueue(then).get(timedelta(seconds=40))
        assert len(noted(tmp_path / "children")) == 15
        program.signal(signal.SIGTERM)
        assert program.wait(20) == 0
        assert program.log == ""
    finally:
        program.close()
