"""A worker's slots over its queues: alike, by weights, or in a strict order; and a worker that has had enough."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

from echomq import EchoMQ, InvalidInputError, Worker, metrics
from echomq.app.recycle import rss_bytes
from support.apps import burst
from support.desk import until


def queues_of(mq: EchoMQ, queue: str, order: list[str], names: str = "abc", count: int = 60) -> None:
    """Jobs in queues of these names; each notes its queue."""
    for name in names:
        # A coroutine: it begins on the loop, in the order of the claims; a thread may be late.
        async def work(name: str = name) -> None:
            order.append(name)

        job = mq.job(name=name, queue=f"{queue}-{name}")(work)
        mq.enqueue_many(job.s() for _ in range(count))


@pytest.mark.parametrize("concurrency", [1, 4])
def test_weights_are_shares_of_the_slots(mq: EchoMQ, queue: str, concurrency: int) -> None:
    order: list[str] = []
    queues_of(mq, queue, order, "ab", 200)
    burst(mq, queues={f"{queue}-a": 3, f"{queue}-b": 1}, concurrency=concurrency)
    assert len(order) == 400
    assert 75 <= order[20:140].count("a") <= 108, "about three of four while both have work"


@pytest.mark.parametrize("names", ["abc", "cab"])
def test_in_a_strict_order_a_queue_waits_for_those_before_it(mq: EchoMQ, queue: str, names: str) -> None:
    order: list[str] = []
    queues_of(mq, queue, order)
    burst(mq, queues=[f"{queue}-{name}" for name in names], order="strict", concurrency=2)
    first = [order.index(name) for name in names]
    last = [len(order) - 1 - order[::-1].index(name) for name in names]
    assert first == sorted(first)
    assert last[0] - first[1] <= 4
    assert last[1] - first[2] <= 4


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"queues": {"mail": 0}}, "the weight of queue 'mail' must be from 1 to 1000, not 0"),
        ({"queues": {"mail": 1_001}}, "the weight of queue 'mail' must be from 1 to 1000, not 1001"),
        ({"queues": {"mail": 1.5}}, "the weight of queue 'mail' must be"),
        ({"queues": {"maill": 3}}, "no job is in queue 'maill'; there are jobs in 'mail'"),
        ({"queues": {"mail": 3}, "order": "strict"}, "in a strict order a queue has no weight"),
        ({"order": "strict"}, "a strict order is that of the queues given: give queues="),
        ({"order": "random"}, "order must be 'shares' or 'strict', not 'random'"),
        ({"max_jobs": 0}, "max_jobs must be"),
        ({"max_rss": 0}, "max_rss must be"),
        ({"pool": 0}, "pool must be"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], why: str) -> None:
    mq = EchoMQ("valkey://localhost:1")
    mq.job(queue="mail", name="work")(lambda: None)
    with pytest.raises(InvalidInputError, match=why):
        Worker(mq, **options)


@pytest.mark.parametrize("names", ["a", "ab"])
def test_a_worker_claims_as_many_jobs_as_it_may_and_says_why_it_has_stopped(mq: EchoMQ, queue: str, names: str) -> None:
    order: list[str] = []
    queues_of(mq, queue, order, names, 20)
    worker = Worker(mq, max_jobs=7)
    worker.run()
    assert len(order) == 7
    assert worker.worn == "it has run as many jobs as it may"
    worker.run()
    assert len(order) == 14


async def test_a_worker_with_too_much_memory_ends_what_it_has_in_hand(mq: EchoMQ, queue: str) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    @mq.job(name="work")
    async def work() -> None:
        hoard = b"x" * 120_000_000
        begun.set()
        await go.wait()
        assert hoard

    await work.aenqueue()
    worker = Worker(mq, max_rss=rss_bytes() + 60_000_000)
    serving = asyncio.ensure_future(worker.serve())
    await begun.wait()
    await until(lambda: worker.worn is not None)
    late = await work.aenqueue()
    assert not serving.done()
    go.set()
    await serving
    assert "MB are allowed" in worker.worn
    assert (await mq.arun(metrics.counts(queue))).completed == 1
    assert (await mq.arun(metrics.row(queue, late.id)))["attempts"] == b"0"


async def test_a_worker_that_has_too_much_memory_from_the_start_is_refused(mq: EchoMQ, queue: str) -> None:
    mq.job(name="work")(lambda: None)
    with pytest.raises(InvalidInputError, match=r"max_rss is 5 bytes, and a worker of this app has [\d,]+ before its"):
        await Worker(mq, max_rss=5).serve()


@pytest.mark.parametrize("told", [1, 2], ids=["its grace", "at once"])
async def test_a_worker_that_is_worn_can_still_be_told_to_stop(mq: EchoMQ, queue: str, told: int) -> None:
    @mq.job(name="work")
    async def work() -> None:
        await asyncio.Event().wait()

    job = await work.aenqueue()
    worker = Worker(mq, max_jobs=1, grace=timedelta(milliseconds=50 if told == 1 else 60_000))
    serving = asyncio.ensure_future(worker.serve())
    await until(lambda: worker.worn is not None)
    for _ in range(told):
        worker.stop()
    await serving
    row = await mq.arun(metrics.row(queue, job.id))
    assert (row["state"], row.get("failures", b"0")) == (b"pending", b"0")


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_an_exit_of_a_task_that_a_job_starts_does_not_end_the_worker(
    mq: EchoMQ, queue: str, caplog: pytest.LogCaptureFixture, error: type[BaseException]
) -> None:
    heard: list[str] = []

    @mq.job(name="starts", max_attempts=1)
    async def starts() -> None:
        async def exits() -> None:
            raise error

        try:
            await asyncio.create_task(exits())
        except BaseException as raised:  # noqa: BLE001  (exits are what this is about)
            heard.append(type(raised).__name__)

    @mq.job(name="other")
    async def other() -> None:
        await asyncio.sleep(0)
        heard.append("other")

    for _ in range(3):
        starts.enqueue()
        other.enqueue()
    burst(mq)
    assert sorted(heard) == sorted([error.__name__] * 3 + ["other"] * 3)
    assert f"a task that a job has started raised {error.__name__}; the worker goes on" in caplog.text
    assert mq.run(metrics.counts(queue)).completed == 6


def test_an_exit_of_the_program_ends_the_worker(mq: EchoMQ) -> None:
    mq.job(name="work")(lambda: None)

    worker = Worker(mq)

    @mq.on_startup
    async def fails() -> None:
        raise SystemExit(3)

    ended: list[object] = []

    def run() -> None:
        try:
            worker.run()
        except BaseException as error:  # noqa: BLE001  (exits are what this is about)
            ended.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(40)
    assert not thread.is_alive()
    assert len(ended) == 1
