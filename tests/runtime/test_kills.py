"""Workers are killed with -9, or frozen, at any instant: nothing is lost, nothing is fired twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from echomq.runtime import Pump
from support import worker_process
from support.desk import Desk, until

LEASE = 400


class Workers:
    """Worker processes on one queue, and the log that they share."""

    def __init__(self, desk: Desk, path: Path) -> None:
        self._desk = desk
        self._path = path
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, **options: int) -> subprocess.Popen[bytes]:
        given = {"lease_ms": LEASE, "beat_ms": 50, "max_stalled": 1_000, "concurrency": 10, **options}
        words = [f"{name}={value}" for name, value in given.items()]
        script = str(Path(worker_process.__file__))
        arguments = [self._desk.server.url, self._desk.queue, str(self._path), *words]
        process = subprocess.Popen([sys.executable, script, *arguments])
        self._running.append(process)
        return process

    def started(self) -> list[str]:
        """The ids of every start of a handler."""
        return self._path.read_text().split() if self._path.exists() else []

    def end(self) -> None:
        for process in self._running:
            process.kill()
            process.wait()


@pytest.fixture
def workers(desk: Desk, tmp_path: Path) -> Iterator[Workers]:
    group = Workers(desk, tmp_path / "started")
    try:
        yield group
    finally:
        group.end()


def kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


@pytest.mark.chaos
@pytest.mark.deadline(120)
@pytest.mark.parametrize("pause_ms", [0, 30], ids=["settling and claiming", "running"])
async def test_a_worker_that_is_killed_loses_nothing(desk: Desk, workers: Workers, pause_ms: int) -> None:
    ids = desk.enqueue(count=400)
    for round_number in range(1, 5):
        process = workers.start(pause_ms=pause_ms)
        seen = len(workers.started())
        await until(
            lambda seen=seen, n=round_number: len(workers.started()) > seen + 7 * n or not desk.size("pending"),
            seconds=60,
        )
        kill(process)
    workers.start(pause_ms=0, concurrency=50)
    await until(lambda: desk.completed() == 400, seconds=60)
    assert set(workers.started()) == set(ids)
    assert desk.size("active") == desk.size("pending") == desk.size("dead") == 0


@pytest.mark.chaos
@pytest.mark.deadline(120)
async def test_due_jobs_survive_the_death_of_who_promotes_them(desk: Desk, workers: Workers) -> None:
    now = desk.raw.now_ms()
    ids = [desk.schedule(now - 1_000 + n % 500, token=False) for n in range(503)]

    def everywhere() -> list[str]:
        found: list[str] = []
        for name in ("schedule", "pending", "active"):
            found += [each.decode() for each in desk.raw.execute("ZRANGE", desk.key(name), 0, -1)]
        return found

    for _ in range(3):
        process = workers.start(promote_batch=500, pause_ms=50)
        seen = len(workers.started())
        await until(lambda seen=seen: len(workers.started()) > seen, seconds=60)
        kill(process)
        left = everywhere()
        assert len(set(left)) == len(left), "an id lies in two sets"
        assert len(left) + desk.completed() == 503
    workers.start(concurrency=50)
    await until(lambda: desk.completed() == 503, seconds=60)
    assert set(workers.started()) == set(ids)


@pytest.mark.chaos
@pytest.mark.deadline(120)
async def test_one_slot_fires_once_however_many_fire_and_freeze(desk: Desk, workers: Workers) -> None:
    period = 200
    frozen = workers.start(beat_ms=50)
    await until(lambda: b":park" in desk.raw.execute("CLIENT", "LIST"), seconds=60)
    async with AsyncExitStack() as stack:
        for _ in range(4):
            await stack.enter_async_context(desk.consuming(beat_ms=100, concurrency=5))
        for _ in range(3):
            await stack.enter_async_context(Pump(desk.dial, desk.queue, beat_ms=50))
        first = desk.raw.now_ms() + 100
        desk.recur("tick", period, first)
        await until(lambda: len(desk.seen) + len(workers.started()) >= 3)
        os.kill(frozen.pid, signal.SIGSTOP)
        for more in (12, 5):  # a frozen worker is no reason to miss any, nor is one that comes back
            seen = len(desk.seen)
            await until(lambda enough=seen + more: len(desk.seen) >= enough)
            os.kill(frozen.pid, signal.SIGCONT)
        stop = "local next = redis.call('ZSCORE', KEYS[1], 'tick') redis.call('DEL', unpack(KEYS)) return next"
        last = int(desk.raw.execute("EVAL", stop, 2, desk.key("repeat"), desk.key("repeat:tick")))
        await until(lambda: desk.size("active") == desk.size("pending") == 0)
    ids = {job.id for job in desk.seen} | set(workers.started())
    # By their number: an id is minted a little before it is admitted, which may be in the slot before its own. A slot
    # may be missed where this machine is too busy.
    assert len(ids) <= (last - first) // period, "a slot fired twice"
