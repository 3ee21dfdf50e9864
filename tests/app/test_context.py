"""A running job knows itself: `current_job()`, its progress and its log."""

from __future__ import annotations

import asyncio
import threading
import warnings
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from echomq import (
    EchoMQ,
    InvalidInputError,
    State,
    admin,
    current_job,
)
from echomq.errors import BlockingCallWarning
from echomq.protocol.admin import KEEP_LINES
from echomq.protocol.checks import MAX_SPAN_MS
from support.apps import Rows, facts, state_is
from support.desk import until

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

    async def logged() -> bool:
        of_one, of_two = [await mq.arun(admin.logs(queue, each.id)) for each in (one, two)]
        return (of_one[1:], of_two) == (("Größe",), ("two", "three"))

    async with working():
        await until(logged)
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
