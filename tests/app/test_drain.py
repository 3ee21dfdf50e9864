"""The end of a worker process: a first signal gives running jobs their grace, a second hands them back at once."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from echomq import EchoMQ, metrics
from echomq.protocol.replies import State
from support.embedded import alive
from support.program import SOURCE, Process
from support.servers import Server, wait_until

TASKS = """
import asyncio, os, time
from pathlib import Path
from echomq import EchoMQ

mq = EchoMQ(default_queue=os.environ["QUEUE"])
go = Path(__file__).with_name("go")

@mq.job(name="coroutine-until")
async def coroutine_until() -> None:
    print("started", flush=True)
    while not go.exists():
        await asyncio.sleep(0.01)
    print("ended", flush=True)

def until() -> None:
    print("started", flush=True)
    while not go.exists():
        time.sleep(0.01)
    print("ended", flush=True)

mq.job(name="plain-until")(until)
mq.job(name="apart-until", process=True)(until)

@mq.job(name="coroutine")
async def coroutine(seconds: float) -> None:
    print("started", flush=True)
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        print("cancelled", flush=True)
        raise
    print("ended", flush=True)

@mq.job(name="plain")
def plain(seconds: float) -> None:
    print("started", flush=True)
    time.sleep(seconds)
    print("ended", flush=True)

@mq.job(name="apart", process=True)
def apart(seconds: float) -> None:
    print("started", flush=True)
    time.sleep(seconds)
    print("ended", flush=True)

@mq.job(name="unflushed")
def unflushed(seconds: float) -> None:
    print("never read")
    time.sleep(seconds)

@mq.job(name="flood")
def flood(seconds: float) -> None:
    print("never read" * 100_000)
    time.sleep(seconds)

@mq.job(name="borrowed")
async def borrowed(seconds: float) -> None:
    print("started", flush=True)
    await asyncio.to_thread(time.sleep, seconds)
    print("ended", flush=True)
"""


@pytest.fixture
def start(tmp_path: Path, server: Server, queue: str) -> Iterator[Callable[..., Process]]:
    started: list[Process] = []

    def start(*options: str) -> Process:
        started.append(Process(tmp_path, TASKS, server, queue, *options))
        return started[-1]

    yield start
    for each in started:
        each.close()


def send(mq: EchoMQ, name: str, *seconds: float) -> str:
    if name not in mq.jobs:

        @mq.job(name=name)
        def job(*seconds: float) -> None: ...

    return mq.jobs[name].enqueue(*seconds).id


def assert_handed_back(mq: EchoMQ, queue: str, job_id: str) -> None:
    row = mq.run(metrics.row(queue, job_id))
    assert (row["state"], row["attempts"], row.get("failures", b"0")) == (b"pending", b"1", b"0")
    assert "last_error" not in row
    assert row.get("stalled", b"0") == b"0"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("name", ["coroutine", "plain", "apart"])
def test_a_running_job_ends_within_the_grace(
    mq: EchoMQ, queue: str, tmp_path: Path, start, name: str, number: int
) -> None:
    running = send(mq, f"{name}-until")
    worker = start("--concurrency", "1")
    worker.expect("started")
    waiting = send(mq, f"{name}-until")
    worker.signal(number)
    wait_until(lambda: "no more claims" in worker.log, what="the worker's hearing of it")
    (tmp_path / "go").touch()
    worker.expect("ended")
    assert worker.wait() == 0
    assert worker.lines.empty()
    assert mq.run(metrics.state(queue, running)) is State.ABSENT
    row = mq.run(metrics.row(queue, waiting))
    assert (row["state"], row["attempts"]) == (b"pending", b"0")


def test_a_coroutine_that_outlasts_the_grace_is_cancelled_and_handed_back(mq: EchoMQ, queue: str, start) -> None:
    job_id = send(mq, "coroutine", 60)
    worker = start("--grace", "0.2")
    worker.expect("started")
    worker.signal(signal.SIGTERM)
    worker.expect("cancelled")
    assert worker.wait() == 0
    assert_handed_back(mq, queue, job_id)


@pytest.mark.parametrize("name", ["plain", "borrowed", "apart"])
def test_a_function_that_outlasts_the_grace_ends_with_the_process(mq: EchoMQ, queue: str, start, name: str) -> None:
    job_id = send(mq, name, 60)
    worker = start("--grace", "0.2")
    worker.expect("started")
    began = time.monotonic()
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert time.monotonic() - began < 15
    assert worker.lines.empty()
    assert_handed_back(mq, queue, job_id)


@pytest.mark.parametrize("name", ["coroutine", "plain", "apart"])
def test_a_second_signal_hands_back_at_once(mq: EchoMQ, queue: str, start, name: str) -> None:
    job_id = send(mq, name, 60)
    worker = start("--grace", "600")
    worker.expect("started")
    worker.signal(signal.SIGTERM)
    wait_until(lambda: "SIGTERM: no more claims" in worker.log)
    assert mq.run(metrics.state(queue, job_id)) is State.ACTIVE
    worker.signal(signal.SIGINT)
    assert worker.wait() == 0
    assert_handed_back(mq, queue, job_id)


def test_an_idle_worker_ends_at_once(start) -> None:
    worker = start()
    wait_until(lambda: "serving" in worker.log, seconds=40, what="the worker")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0


def test_a_worker_that_is_killed_leaves_its_job_in_hand(mq: EchoMQ, queue: str, start) -> None:
    job_id = send(mq, "coroutine", 60)
    worker = start()
    worker.expect("started")
    worker.signal(signal.SIGKILL)
    assert worker.wait() == -signal.SIGKILL
    assert mq.run(metrics.state(queue, job_id)) is State.ACTIVE


@pytest.mark.parametrize(
    ("name", "out"),
    [("plain", ">&-"), ("plain", ">&- 2>&-"), ("unflushed", "| exec sleep 0"), ("flood", "| exec sleep 60")],
    ids=["closed", "both closed", "broken", "full"],
)
def test_a_process_that_hands_back_ends_whatever_its_output_is(
    mq: EchoMQ, server: Server, queue: str, tmp_path: Path, name: str, out: str
) -> None:
    (tmp_path / "tasks.py").write_text(TASKS)
    job_id = send(mq, name, 60)
    words = [sys.executable, "-m", "echomq.cli", "worker", "tasks:mq", "--grace", "0.2"]
    script = f'{{ echo $$ >pid; exec "$@"; }} {out}' if out.startswith("|") else f'echo $$ >pid; exec "$@" {out}'
    environment = os.environ | {"ECHOMQ_URL": server.url, "QUEUE": queue, "PYTHONPATH": SOURCE, "PYTHONUNBUFFERED": ""}
    command = ["/bin/bash", "-c", f"set -o pipefail; {script}".replace("$$", "$BASHPID"), "bash", *words]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, start_new_session=True) as shell:
        try:
            wait_until(lambda: mq.run(metrics.state(queue, job_id)) is State.ACTIVE, seconds=40, what="the job in hand")
            worker = int((tmp_path / "pid").read_text())
            os.kill(worker, signal.SIGTERM)
            wait_until(lambda: not alive(worker), seconds=20, what="the end of the worker")
        finally:
            os.killpg(shell.pid, signal.SIGKILL)
    assert_handed_back(mq, queue, job_id)


def hears_signals(worker: Process) -> bool:
    """Whether a worker has its handlers: that of SIGHUP is its last, and Python itself has one for SIGINT."""
    status = Path(f"/proc/{worker.process.pid}/status").read_text()
    caught = int(next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt")), 16)
    return bool(caught >> (signal.SIGHUP - 1) & 1)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells which signals a process catches")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_worker_that_waits_for_a_frozen_server(
    mq: EchoMQ, server: Server, start_server, queue: str, tmp_path: Path, number: int
) -> None:
    frozen = start_server()
    frozen.freeze()
    worker = Process(tmp_path, TASKS, frozen, queue)
    try:
        wait_until(lambda: hears_signals(worker), seconds=40, what="the worker's handlers")
        began = time.monotonic()
        worker.signal(number)
        assert worker.wait() == 0
        assert time.monotonic() - began < 4  # a server has five seconds to answer
    finally:
        worker.close()
        frozen.thaw()
    assert "it was told to stop while it was connecting" in worker.log
    assert "Traceback" not in worker.log


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells which signals a process catches")
def test_a_signal_ends_a_worker_that_waits_for_an_embedded_server(server: Server, queue: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    with (home / "start.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # somebody starts one, and never comes to an end
        worker = Process(tmp_path, TASKS, server, queue, url="", home=str(home))
        try:
            wait_until(lambda: (home / "users.lock").exists(), seconds=40, what="the worker's hold")
            wait_until(lambda: hears_signals(worker), seconds=40, what="the worker's handlers")
            began = time.monotonic()
            worker.signal(signal.SIGTERM)
            assert worker.wait() == 0
            assert time.monotonic() - began < 10  # a server has a minute to start
        finally:
            worker.close()
    assert "it was told to stop while it was connecting" in worker.log
    assert "Traceback" not in worker.log
