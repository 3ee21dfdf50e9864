"""A system that gives no more threads costs no job, and no job costs the others of its claim."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from echomq.protocol.replies import Claimed
from echomq.runtime.hand import Held
from echomq.runtime.runner import Runner
from support.desk import Desk, until


@pytest.fixture
def allow(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """`allow(n)`: only so many more threads of consumers can be started, as where the system has no more."""
    left = 0
    start = threading.Thread.start

    def scarce(thread: threading.Thread) -> None:
        nonlocal left
        if thread.name.startswith("echomq ") and thread.name != "echomq leases":
            if left == 0:
                raise RuntimeError("can't start new thread")
            left -= 1
        start(thread)

    def limit(count: int) -> None:
        nonlocal left
        left = count

    monkeypatch.setattr(threading.Thread, "start", scarce)
    return limit


async def test_jobs_wait_for_the_threads_that_there_are(desk: Desk, allow: Callable[[int], None]) -> None:
    allow(2)
    names: set[str] = set()

    def handler(job: Claimed) -> None:
        names.add(threading.current_thread().name)

    desk.enqueue(count=20)
    async with desk.consuming(handler, concurrency=10) as consumer:
        await until(lambda: consumer.tally.completed == 20)
        assert consumer.in_hand == 0
    assert len(names) <= 2


async def test_without_a_single_thread_jobs_are_put_off_until_there_is_one(
    desk: Desk, allow: Callable[[int], None]
) -> None:
    ids = desk.enqueue(count=5)

    def handler(job: Claimed) -> None:
        assert (job.failures, job.stalled) == (0, 0)

    async with desk.consuming(handler, concurrency=10) as consumer:
        await until(lambda: consumer.tally.snoozed >= 5)
        assert all("failures" not in desk.row(job_id) for job_id in ids)
        allow(1)
        await until(lambda: consumer.tally.completed == 5)


async def test_what_still_waits_for_a_thread_when_it_is_handed_back_never_runs(
    desk: Desk, allow: Callable[[int], None]
) -> None:
    allow(1)
    go = threading.Event()
    ran: list[str] = []

    def handler(job: Claimed) -> None:
        ran.append(job.id)
        go.wait(20)

    desk.enqueue(count=3)
    async with desk.consuming(handler, concurrency=3) as consumer:
        await until(lambda: consumer.in_hand == 3 and ran)
        worker = next(each for each in threading.enumerate() if each.name == f"echomq {desk.queue} 1")
        await consumer.stop(grace_ms=0)
        go.set()
        await until(lambda: not worker.is_alive())
    assert len(ran) == 1
    assert desk.size("pending") == 3


async def test_a_job_that_cannot_be_started_leaves_the_others_of_its_claim_alone(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    into_thread = Runner._into_thread
    ids = desk.enqueue(count=4)
    refused: list[str] = []

    def scarce(runner: Runner, held: Held, function: Callable[[], object], *more: object) -> None:
        if held.job.id == ids[0] and not refused:
            refused.append(held.job.id)
            raise MemoryError
        into_thread(runner, held, function)

    monkeypatch.setattr(Runner, "_into_thread", scarce)
    async with desk.consuming(lambda job: None, concurrency=4) as consumer:
        await until(lambda: consumer.tally.completed == 4)
        assert consumer.tally.snoozed == 1
    assert refused == ids[:1]
