"""A running job knows itself: `current_job()`, its progress and log, and whether somebody has cancelled it."""

from __future__ import annotations

import asyncio
import threading
import warnings
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from echomq import (
    Cancellation,
    Cancelled,
    EchoMQ,
    InvalidInputError,
    Job,
    JobContext,
    State,
    admin,
    current_job,
    jobs,
    metrics,
    mint,
)
from echomq.app.context import KEEP_LINES
from echomq.errors import BlockingCallWarning, IdError
from echomq.protocol.checks import MAX_SPAN_MS
from support.servers import wait_until

Rows = Callable[[], list[dict[str, bytes]]]


async def until(true: Callable[[], object]) -> None:
    """Returns when the condition holds; the test's deadline ends it otherwise."""
    while not true():
        await asyncio.sleep(0.01)


async def state_is(job: Job[Any], state: State) -> None:
    while await job.astate() is not state:
        await asyncio.sleep(0.01)


def facts(job: JobContext) -> tuple[object, ...]:
    return job.id, job.name, job.attempt, job.failures, job.lane, job.queue, dict(job.meta)


# What it knows


async def test_every_kind_of_job_knows_itself(mq: EchoMQ, queue: str, working) -> None:
    seen = dict[str, tuple[object, ...]]()

    @mq.job(name="coroutine")
    async def coroutine() -> None:
        await asyncio.sleep(0)
        seen["coroutine"] = await asyncio.create_task(deep())

    async def deep() -> tuple[object, ...]:
        return facts(current_job())

    @mq.job(name="plain")
    def plain() -> None:
        seen["plain"] = facts(current_job())

    @mq.job(name="both")
    def both():
        seen["first half"] = facts(current_job())

        async def inner() -> None:
            seen["second half"] = await asyncio.to_thread(lambda: facts(current_job()))

        return inner()

    sent = {each.name: await each.options(lane="acme", meta={"a": 1}).aenqueue() for each in (coroutine, plain, both)}
    async with working():
        await until(lambda: len(seen) == 4)
    lane = mq.lane("acme").id

    def expected(name: str) -> tuple[object, ...]:
        return sent[name].id, name, 1, 0, lane, queue, {"a": 1}

    assert seen == {
        "coroutine": expected("coroutine"),
        "plain": expected("plain"),
        "first half": expected("both"),
        "second half": expected("both"),
    }
    await mq.aclose()


async def test_jobs_beside_each_other_are_not_mixed_up(mq: EchoMQ, working) -> None:
    seen = set[tuple[str, str]]()

    @mq.job(name="work")
    async def work(n: str) -> None:
        for _ in range(5):
            await asyncio.sleep(0)
        seen.add((n, current_job().id))

    @mq.job(name="plain")
    def plain(n: str) -> None:
        seen.add((n, current_job().id))

    sent = [await job.aenqueue(f"{job.name} {n}") for n in range(20) for job in (work, plain)]
    async with working(concurrency=8):
        await until(lambda: len(seen) >= 40)
    assert len({name for name, _ in seen}) == 40
    assert {job_id for _, job_id in seen} == {job.id for job in sent}
    await mq.aclose()


async def test_attempts_are_counted_by_failures(mq: EchoMQ, working) -> None:
    seen = list[tuple[int, int]]()

    @mq.job(name="work", backoff=lambda n: 1)
    async def work() -> None:
        job = current_job()
        seen.append((job.attempt, job.failures))
        if job.attempt < 3:
            raise RuntimeError("not yet")

    await work.aenqueue()
    async with working():
        await until(lambda: len(seen) == 3)
    assert seen == [(1, 0), (2, 1), (3, 2)]
    await mq.aclose()


async def test_the_deadline_is_when_its_timeout_is_over(mq: EchoMQ, working) -> None:
    seen = dict[str, datetime | None]()

    @mq.job(name="work")
    async def work() -> None:
        seen["coroutine"] = current_job().deadline

    @mq.job(name="plain")
    def plain(what: str) -> None:
        seen[what] = current_job().deadline

    limit = timedelta(minutes=5)
    before = datetime.now(UTC)
    await work.options(timeout=limit).aenqueue()
    await plain.options(timeout=limit).aenqueue("plain")
    await plain.aenqueue("without")
    await plain.options(timeout=timedelta(milliseconds=MAX_SPAN_MS)).aenqueue("for ever")
    async with working():
        await until(lambda: len(seen) == 4)
    assert seen["without"] is None
    assert seen["for ever"] == datetime.max.replace(tzinfo=UTC)
    for what in ("coroutine", "plain"):
        deadline = seen[what]
        assert deadline is not None
        assert before + limit <= deadline <= datetime.now(UTC) + limit
    await mq.aclose()


async def test_a_coroutine_is_ended_at_its_deadline(mq: EchoMQ, working, dead_rows: Rows) -> None:
    @mq.job(name="work", max_attempts=1)
    async def work() -> None:
        await asyncio.Event().wait()

    job = await work.options(timeout=timedelta(milliseconds=20)).aenqueue()
    async with working():
        await state_is(job, State.DEAD)
    (row,) = await asyncio.to_thread(dead_rows)
    assert row["last_error"].startswith(b"TimeoutError: not done after 20 ms")
    await mq.aclose()


def test_outside_of_a_job_there_is_none() -> None:
    with pytest.raises(InvalidInputError, match="no job runs here"):
        current_job()


async def test_calling_the_function_itself_is_not_running_the_job(mq: EchoMQ, working) -> None:
    seen = list[BaseException | str]()

    @mq.job(name="inner")
    def inner() -> str:
        return current_job().name

    @mq.job(name="outer")
    def outer() -> None:
        seen.append(inner())

        def beside() -> None:
            try:
                current_job()
            except InvalidInputError as error:
                seen.append(error)

        thread = threading.Thread(target=beside)
        thread.start()
        thread.join()

    with pytest.raises(InvalidInputError, match="no job runs here"):
        inner()
    await outer.aenqueue()
    async with working():
        await until(lambda: len(seen) == 2)
    assert seen[0] == "outer"
    await mq.aclose()


# Progress and log


async def test_progress_and_log_can_be_read_while_it_runs(mq: EchoMQ, queue: str, working) -> None:
    go = asyncio.Event()
    told = threading.Event()

    @mq.job(name="work")
    async def work() -> None:
        job = current_job()
        await job.aprogress(0.5)
        await job.alog("half way")
        await job.alog("Größe")
        await go.wait()

    @mq.job(name="plain")
    def plain() -> None:
        job = current_job()
        job.progress("almost")
        job.log("one")
        job.log("two")
        job.log("three", keep=2)
        told.wait()

    one, two = await work.aenqueue(), await plain.aenqueue()
    assert (await one.aprogress(), await two.aprogress()) == (None, None)
    async with working():
        while (await mq.arun(admin.logs(queue, one.id)))[1:] != ("Größe",):
            await asyncio.sleep(0.01)
        while (await mq.arun(admin.logs(queue, two.id))) != ("two", "three"):
            await asyncio.sleep(0.01)
        assert (await one.aprogress(), await two.aprogress()) == ("0.5", "almost")
        assert await asyncio.to_thread(one.progress) == "0.5"
        go.set()
        told.set()
        await state_is(one, State.ABSENT)
        await state_is(two, State.ABSENT)
        assert await one.aprogress() is None
    await mq.aclose()


async def test_a_log_is_bounded_unless_told_otherwise(mq: EchoMQ, queue: str, working) -> None:
    ended = asyncio.Event()

    @mq.job(name="work", backoff=lambda n: 3_600_000)
    async def work() -> None:
        job = current_job()
        await asyncio.gather(*(job.alog(str(n)) for n in range(KEEP_LINES + 5)))
        ended.set()
        raise RuntimeError("kept for the test to look at")

    job = await work.aenqueue()
    async with working():
        await ended.wait()
        await state_is(job, State.SCHEDULED)
    lines = await mq.arun(admin.logs(queue, job.id))
    assert (len(lines), lines[0]) == (KEEP_LINES, "5")
    await mq.aclose()


async def test_a_coroutine_that_blocks_is_warned(mq: EchoMQ, working) -> None:
    caught = list[warnings.WarningMessage]()

    @mq.job(name="work")
    async def work() -> None:
        with warnings.catch_warnings(record=True) as here:
            warnings.simplefilter("always")
            current_job().progress(1)
        caught.extend(here)

    await work.aenqueue()
    async with working():
        await until(lambda: caught)
    assert caught[0].category is BlockingCallWarning
    assert "await aprogress()" in str(caught[0].message)
    assert caught[0].filename == __file__
    await mq.aclose()


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (None, "progress must be a number or text, not NoneType"),
        (True, "progress must be a number or text, not bool"),
        ({"a": 1}, "progress must be a number or text, not dict"),
        (float("nan"), "progress must be a finite number"),
        ("\ud800", "progress is no text"),
    ],
)
async def test_wrong_progress_fails_the_job_with_a_sentence(mq: EchoMQ, working, dead_rows: Rows, value, why) -> None:
    @mq.job(name="work", max_attempts=1)
    async def work() -> None:
        await current_job().aprogress(value)

    job = await work.aenqueue()
    async with working():
        await state_is(job, State.DEAD)
    (row,) = await asyncio.to_thread(dead_rows)
    assert row["last_error"].startswith(f"InvalidInputError: {why}".encode())
    await mq.aclose()


async def test_a_log_line_that_is_no_text_is_refused(mq: EchoMQ, working, dead_rows: Rows) -> None:
    @mq.job(name="work", max_attempts=1)
    def work() -> None:
        line: Any = 5
        current_job().log(line)

    job = await work.aenqueue()
    async with working():
        await state_is(job, State.DEAD)
    (row,) = await asyncio.to_thread(dead_rows)
    assert row["last_error"].startswith(b"InvalidInputError: a log line must be text, not int: 5")
    await mq.aclose()


# Cancelling


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
