"""Cancelling: a job that waits is buried, one that runs is ended or told, and none of them has a further attempt."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

from echomq import (
    Cancellation,
    Cancelled,
    EchoMQ,
    Fixed,
    InvalidInputError,
    State,
    current_job,
    jobs,
    metrics,
    mint,
)
from echomq.errors import IdError
from support.apps import Rows, state_is
from support.desk import until
from support.servers import wait_until


@pytest.mark.parametrize("kind", ["now", "later", "in a lane"])
def test_a_job_that_does_not_run_is_buried_at_once(mq: EchoMQ, queue: str, dead_rows: Rows, kind: str) -> None:
    @mq.job(name="work")
    def work() -> None: ...

    bound = {"now": work.options(), "later": work.after(hours=1), "in a lane": work.options(lane="acme")}[kind]
    job = bound.enqueue()
    assert job.cancel("not wanted") is Cancellation.DEAD
    assert job.state() is State.DEAD
    (row,) = dead_rows()
    assert row["last_error"] == b"cancelled: not wanted"
    assert mq.run(jobs.claim(queue)) is None
    assert job.cancel() is Cancellation.DEAD


def test_a_job_that_is_gone_cannot_be_cancelled(mq: EchoMQ, queue: str) -> None:
    @mq.job(name="work")
    def work() -> None: ...

    job = work.enqueue()
    claimed = mq.run(jobs.claim(queue))
    assert claimed is not None
    mq.run(jobs.complete(queue, claimed.id, claimed.token))
    assert job.cancel() is Cancellation.GONE
    assert job.state() is State.ABSENT
    assert mq.cancel(mint()) is Cancellation.GONE


def test_an_app_cancels_by_the_id(mq: EchoMQ, queue: str) -> None:
    @mq.job(name="work")
    def work() -> None: ...

    assert mq.cancel(work.enqueue().id, reason="r") is Cancellation.DEAD
    other = work.options(queue=f"{queue}-other").enqueue()
    assert mq.cancel(other.id) is Cancellation.GONE
    assert mq.cancel(other.id, queue=f"{queue}-other") is Cancellation.DEAD
    with pytest.raises(IdError):
        mq.cancel("ORD0KHTOWnGLuC")
    reason: Any = 5
    with pytest.raises(InvalidInputError, match="must be str, not int"):
        other.cancel(reason)


async def test_a_coroutine_that_runs_is_ended(mq: EchoMQ, working, dead_rows: Rows) -> None:
    started = asyncio.Event()
    ended = list[tuple[bool, str | None]]()

    @mq.job(name="work")
    async def work() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append((current_job().cancelled, current_job().reason))

    job = await work.aenqueue()
    async with working():
        await started.wait()
        assert await job.acancel("not wanted") is Cancellation.REQUESTED
        await state_is(job, State.DEAD)
    (row,) = await asyncio.to_thread(dead_rows)
    assert row["last_error"] == b"cancelled: not wanted"
    assert ended == [(True, "cancelled: not wanted")]
    await mq.aclose()


async def test_a_plain_function_that_runs_is_told(mq: EchoMQ, working, dead_rows: Rows) -> None:
    started, seen = threading.Event(), list[tuple[bool, str | None]]()

    @mq.job(name="work")
    def work() -> None:
        job = current_job()
        seen.append((job.cancelled, job.reason))
        job.raise_if_cancelled()
        started.set()
        wait_until(lambda: job.cancelled)
        seen.append((job.cancelled, job.reason))
        job.raise_if_cancelled()
        raise AssertionError("it was to end here")

    job = await work.aenqueue()
    async with working():
        await asyncio.to_thread(started.wait)
        assert await mq.acancel(job.id) is Cancellation.REQUESTED
        await state_is(job, State.DEAD)
    (row,) = await asyncio.to_thread(dead_rows)
    assert row["last_error"] == b"cancelled"
    assert seen == [(False, None), (True, "cancelled")]
    await mq.aclose()


async def test_a_job_that_does_not_look_ends_as_it_ends(mq: EchoMQ, queue: str, working) -> None:
    started, go = threading.Event(), threading.Event()

    @mq.job(name="work")
    def work() -> None:
        started.set()
        go.wait()

    job = await work.aenqueue()
    async with working():
        await asyncio.to_thread(started.wait)
        await job.acancel()
        go.set()
        await state_is(job, State.ABSENT)
    assert (await mq.arun(metrics.counts(queue))).completed == 1
    await mq.aclose()


async def test_a_job_that_is_cancelled_has_no_further_attempt(mq: EchoMQ, queue: str, working) -> None:
    started, go = threading.Event(), threading.Event()

    @mq.job(name="work")
    def work() -> None:
        started.set()
        go.wait()
        wait_until(lambda: current_job().cancelled)
        raise RuntimeError("failed in the meantime")

    job = await work.aenqueue()
    async with working():
        await asyncio.to_thread(started.wait)
        await job.acancel()
        go.set()
        await state_is(job, State.DEAD)
    assert (await mq.arun(metrics.row(queue, job.id)))["last_error"].startswith(b"cancelled")
    await mq.aclose()


@pytest.mark.parametrize(
    ("reason", "text"), [((), b"cancelled"), (("the order is gone",), b"cancelled: the order is gone")]
)
async def test_a_job_may_cancel_itself(mq: EchoMQ, working, dead_rows: Rows, reason, text) -> None:
    @mq.job(name="work")
    async def work() -> None:
        raise Cancelled(*reason)

    job = await work.aenqueue()
    async with working():
        await state_is(job, State.DEAD)
    (row,) = await asyncio.to_thread(dead_rows)
    assert row["last_error"] == text
    await mq.aclose()


def test_a_reason_is_text() -> None:
    reason: Any = 5
    with pytest.raises(InvalidInputError, match="the reason of Cancelled must be str, not int: 5"):
        Cancelled(reason)


async def test_a_lost_lease_tells_the_job_and_buries_nothing(mq: EchoMQ, queue: str, working) -> None:
    started, seen, ended = threading.Event(), list[str | None](), threading.Event()

    @mq.job(name="work")
    def work() -> None:
        job = current_job()
        if started.is_set():
            ended.set()
            return
        started.set()
        wait_until(lambda: job.cancelled)
        seen.append(job.reason)
        job.raise_if_cancelled()

    job = await work.aenqueue()
    # One slot: nobody claims it before this run ends, so that its token is still the right one.
    async with working(lease=timedelta(milliseconds=300), concurrency=1):
        await asyncio.to_thread(started.wait)
        # The lease ends over the worker's head, and the job is claimable again.
        assert await mq.arun(jobs.release(queue, job.id, 1)) is None
        await asyncio.to_thread(ended.wait)
        await state_is(job, State.ABSENT)
        await until(lambda: seen)
    assert "lease was lost" in str(seen[0])
    assert (await mq.arun(metrics.counts(queue))).dead == 0
    await mq.aclose()


async def test_a_coroutine_that_cancels_its_own_task_fails_by_its_jobs_own_rules(
    mq: EchoMQ, working, dead_rows: Rows
) -> None:
    seen: list[int] = []

    @mq.job(name="work", max_attempts=2, backoff=Fixed(0))
    async def work() -> None:
        seen.append(current_job().attempt)
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    job = await work.aenqueue()
    async with working():
        await state_is(job, State.DEAD)
    assert seen == [1, 2]
    (row,) = await asyncio.to_thread(dead_rows)
    assert b"CancelledError" in row["last_error"]
    await mq.aclose()
