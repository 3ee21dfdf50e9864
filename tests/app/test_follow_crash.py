"""What follows a job is admitted exactly once, wherever an answer is lost or a worker killed."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import echomq
from echomq import EchoMQ, metrics
from echomq.identity.minter import mint
from echomq.protocol import follow, jobs
from echomq.protocol.errors import DisconnectedError
from echomq.protocol.follow import Follow, Owed
from echomq.runtime.hand import Held
from echomq.runtime.outcome import Bury, Done, Outcome, Retry
from echomq.runtime.owing import Owing
from echomq.runtime.settle import Settler
from echomq.wire import aconnect
from support.servers import Server, wait_until

ASKS = b'{"v":1,"job":"work","args":[],"kwargs":{},"on_dead":"alert"}'


def then() -> Follow:
    return Follow(mint(), b"next")


OUTCOMES = {
    "completion": lambda: Done(then=then()),
    "failure": lambda: Retry("e", delay_ms=3_600_000, max_attempts=5, then=then(), at_death=then()),
    "last failure": lambda: Retry("e", delay_ms=0, max_attempts=1, then=then(), at_death=then()),
    "burial": lambda: Bury("e", at_death=then()),
}


def wanted(outcome: Outcome) -> set[str]:
    """The ids that are to be admitted."""
    out = {getattr(outcome, "then", None)}
    if isinstance(outcome, Bury) or (isinstance(outcome, Retry) and outcome.max_attempts == 1):
        out.add(outcome.at_death)
    return {each.id for each in out if each is not None}


@pytest.mark.parametrize("lost", ["the call", "its answer"])
@pytest.mark.parametrize("kind", OUTCOMES)
async def test_a_settlement_without_an_answer_is_sent_again(server: Server, queue: str, kind: str, lost: str) -> None:
    async with aconnect(server.url) as conn:
        await conn.run(jobs.enqueue(queue, mint(), ASKS))
        job = await conn.run(jobs.claim(queue))
        assert job is not None
        held = Held(job)
        held.outcome = outcome = OUTCOMES[kind]()
        settler = Settler(queue, retry_delay=lambda _: 0, max_attempts=3, held={held})
        settler.waiting.append(held)
        batch, (call,) = settler.take(10)
        if lost == "its answer":
            await conn.run(call)
        settler.answered(batch, iter([DisconnectedError("gone", sent=True)]))
        assert settler.waiting == [held]
        await settler.clear_doubts(conn)
        if settler.waiting:
            batch, calls = settler.take(10)
            settler.answered(batch, iter(await conn.run_many(calls)))
        assert settler.waiting == []
        assert settler.tally.refused == 0
        admitted = await conn.run(jobs.browse(queue))
        assert set(admitted) == wanted(outcome)
        assert len(admitted) == len(wanted(outcome))
        assert await conn.run(follow.owed(queue)) == ()


async def test_two_who_pay_pay_once(server: Server, queue: str) -> None:
    async with aconnect(server.url) as one, aconnect(server.url) as two:
        for _ in range(250):
            await one.run(jobs.enqueue(queue, mint(), ASKS))
        claims = await one.run(jobs.claim_many(queue, 250))
        ends = [jobs.retry(queue, job.id, job.attempts, delay_ms=0, max_attempts=1, error="e") for job in claims.jobs]
        await one.run_many(ends)
        told: dict[str, set[str]] = {}

        def follower(owed: Owed) -> Follow:
            follows = then()
            told.setdefault(owed.id, set()).add(follows.id)
            return follows

        payers = [Owing(queue, follower, batch=7) for _ in range(2)]
        paid = await asyncio.gather(*(payer.pay(conn) for payer, conn in zip(payers, (one, two), strict=True)))
        admitted = set(await one.run(jobs.browse(queue, limit=1_000)))
        assert sum(paid) == len(admitted) == 250
        assert [len(ids & admitted) for ids in told.values()] == [1] * 250


# Workers that are killed

TASKS = """
import os, sys, time
from datetime import timedelta
from echomq import EchoMQ, Failure, Success, Worker, current_job
mq = EchoMQ(sys.argv[1], default_queue=sys.argv[2])
log = os.open(sys.argv[3], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def note(kind, told):
    os.write(log, f"{kind} {told.id} {current_job().id} {told.attempt}\\n".encode())

@mq.job(name="success")
def success(told: Success): note("success", told)
@mq.job(name="failure")
def failure(told: Failure): note("failure", told)
@mq.job(name="dead")
def dead(told: Failure): note("dead", told)
@mq.job(name="work", on_success="success", on_failure="failure", on_dead="dead", max_attempts=2, backoff=lambda n: 1)
def work(fails):
    os.write(log, b"start\\n")
    time.sleep(0.002)
    if fails: raise ValueError(fails)
"""

WORKER = """
Worker(mq, lease=timedelta(milliseconds=400), concurrency=10).run()
"""


class Workers:
    def __init__(self, server: Server, queue: str, folder: Path) -> None:
        self._path = folder / "log"
        self._words = [sys.executable, "-c", TASKS + WORKER, server.url, queue, str(self._path)]
        self._env = os.environ | {"PYTHONPATH": str(Path(echomq.__file__).parents[1])}
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(self._words, env=self._env, stderr=subprocess.DEVNULL)
        self._running.append(process)
        return process

    def lines(self) -> list[str]:
        return self._path.read_text().splitlines() if self._path.exists() else []

    def end(self) -> None:
        for process in self._running:
            process.kill()
            process.wait()


@pytest.fixture
def workers(server: Server, queue: str, tmp_path: Path) -> Iterator[Workers]:
    group = Workers(server, queue, tmp_path)
    try:
        yield group
    finally:
        group.end()


@pytest.mark.chaos
@pytest.mark.deadline(150)
def test_killed_workers_lose_and_double_nothing_that_follows(server: Server, queue: str, workers: Workers) -> None:
    with EchoMQ(server.url, default_queue=queue) as mq:
        for name in ("success", "failure", "dead"):
            mq.job(name=name)(lambda told: None)
        work = mq.job(name="work", on_success="success", on_failure="failure", on_dead="dead")(lambda fails: None)
        ids = {job.id for job in mq.enqueue_many([work.s(n % 3 == 0) for n in range(400)])}

        def left() -> int:
            counts = mq.run(metrics.counts(queue))
            return counts.pending + counts.active + counts.schedule + len(mq.run(follow.owed(queue)))

        for number in range(1, 6):
            process = workers.start()
            enough = len(workers.lines()) + 13 * number
            wait_until(lambda n=enough: len(workers.lines()) > n or not left(), seconds=60)
            process.kill()
            process.wait()
        workers.start()
        wait_until(lambda: not left(), seconds=100)
        dead = set(mq.run(jobs.browse_dead(queue, limit=10_000)))

    followers: dict[tuple[str, str, str], set[str]] = {}
    for line in workers.lines():
        if line != "start":
            kind, source, follower, attempt = line.split()
            followers.setdefault((kind, source, attempt), set()).add(follower)
    # A follower may run twice, as any job may; it is admitted once.
    assert {len(each) for each in followers.values()} == {1}
    told = {kind: [source for which, source, _ in followers if which == kind] for kind in ("success", "dead")}
    assert all(len(each) == len(set(each)) for each in told.values())
    assert set(told["dead"]) <= dead
    assert set(told["success"]) <= ids - dead
    # A follower that was itself killed too often lies in the morgue, and has told nobody.
    untold = (ids & dead) - set(told["dead"]) | (ids - dead) - set(told["success"])
    assert len(untold) <= len(dead - ids)
