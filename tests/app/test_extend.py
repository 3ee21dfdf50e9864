"""A job that runs may give itself more time than its timeout says."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

from echomq import Cancelled, EchoMQ, InvalidInputError, JobContext, State, Worker, current_job, metrics
from support.apps import burst, state_is
from support.servers import wait_until

SHORT = timedelta(seconds=1)
"""A job has to get to its `extend` in this time, in a thread that is to be started first."""


def first_line(mq: EchoMQ, job) -> str:
    return mq.run(metrics.row(job.queue, job.id))["last_error"].decode().split("\n")[0]


def outlive(job: JobContext) -> None:
    """Returns when the time that the job had at first is over."""
    end = time.monotonic() + SHORT.total_seconds() + 0.1
    wait_until(lambda: time.monotonic() > end, what="the first deadline has gone by")


def test_a_coroutine_goes_on_past_its_first_deadline(mq: EchoMQ) -> None:
    seen: list[object] = []

    @mq.job(timeout=SHORT)
    async def work() -> None:
        job = current_job()
        before = job.deadline
        after = job.extend(seconds=30)
        assert before is not None
        assert after is not None
        seen.append(after - before)
        await asyncio.to_thread(outlive, job)
        seen.append(job.deadline == after)

    job = work.enqueue()
    burst(mq)
    assert (seen, job.state()) == ([timedelta(seconds=30), True], State.ABSENT)


def test_a_coroutine_is_extended_from_a_thread_of_its_own(mq: EchoMQ) -> None:
    @mq.job(timeout=SHORT)
    async def work() -> None:
        job = current_job()
        await asyncio.to_thread(job.extend, timedelta(seconds=30))
        await asyncio.to_thread(outlive, job)

    job = work.enqueue()
    burst(mq)
    assert job.state() is State.ABSENT


def test_a_plain_function_goes_on_past_its_first_deadline(mq: EchoMQ) -> None:
    @mq.job(timeout=SHORT)
    def work() -> None:
        job = current_job()
        job.extend(seconds=30)
        outlive(job)
        job.raise_if_cancelled()

    job = work.enqueue()
    burst(mq)
    assert job.state() is State.ABSENT


def test_the_new_deadline_holds(mq: EchoMQ) -> None:
    @mq.job(timeout=SHORT, max_attempts=1)
    async def work() -> None:
        current_job().extend(milliseconds=50)
        await asyncio.Event().wait()

    @mq.job(timeout=SHORT, max_attempts=1)
    def plain() -> None:
        job = current_job()
        job.extend(milliseconds=50)
        wait_until(lambda: job.cancelled, what="its time is over")
        with pytest.raises(Cancelled):
            job.extend(milliseconds=50)

    sent = [work.enqueue(), plain.enqueue()]
    asyncio.run(Worker(mq, burst=True).serve())  # `run` ends the process while a function is in its thread
    assert first_line(mq, sent[0]) == "TimeoutError: not done after 1050 ms"
    assert first_line(mq, sent[1]).startswith("TimeoutError: not done after 1050 ms; its function still runs")


def test_a_coroutine_whose_time_is_over_gets_no_more(mq: EchoMQ) -> None:
    seen: list[str] = []

    @mq.job(timeout=SHORT, max_attempts=1)
    async def work() -> None:
        job = current_job()
        before = job.deadline
        try:
            await asyncio.Event().wait()
        finally:
            with pytest.raises(Cancelled) as caught:
                job.extend(minutes=5)
            seen.append(caught.value.reason)
            assert job.deadline == before

    sent = work.enqueue()
    burst(mq)
    assert seen == ["its time is over"]
    assert first_line(mq, sent) == "TimeoutError: not done after 1000 ms"


def test_without_a_timeout_there_is_nothing_to_move(mq: EchoMQ) -> None:
    seen: list[datetime | None] = []

    @mq.job
    def work() -> None:
        seen.append(current_job().extend(hours=1))

    work.enqueue()
    burst(mq)
    assert seen == [None]


def test_a_job_that_is_cancelled_gets_no_more_time(mq: EchoMQ) -> None:
    ready = threading.Event()
    seen: list[str] = []

    @mq.job(timeout=timedelta(minutes=5))
    def work() -> None:
        job = current_job()
        ready.set()
        wait_until(lambda: job.cancelled, what="it is cancelled")
        try:
            job.extend(minutes=5)
        except Cancelled as error:
            seen.append(error.reason)
            raise

    job = work.enqueue()

    async def serve() -> None:
        worker = Worker(mq)
        serving = asyncio.ensure_future(worker.serve())
        await asyncio.to_thread(ready.wait)
        await job.acancel("not wanted")
        await state_is(job, State.DEAD)
        worker.stop()
        await serving

    asyncio.run(serve())
    assert seen == ["cancelled: not wanted"]


@pytest.mark.parametrize("parts", [{}, {"minutes": 0}, {"minutes": -1}, {"minutes": "5"}])
def test_what_is_no_time_is_refused(mq: EchoMQ, parts) -> None:
    seen: list[type[Exception]] = []

    @mq.job
    def work() -> None:
        with pytest.raises(InvalidInputError, match="extend"):
            current_job().extend(**parts)
        seen.append(InvalidInputError)

    work.enqueue()
    burst(mq)
    assert seen


def test_a_deadline_beyond_the_calendar_is_its_end(mq: EchoMQ) -> None:
    seen: list[datetime | None] = []

    @mq.job(timeout=timedelta(hours=1))
    async def work() -> None:
        job = current_job()
        for _ in range(40):
            job.extend(days=100_000)
        seen.append(job.deadline)

    work.enqueue()
    burst(mq)
    assert seen == [datetime.max.replace(tzinfo=UTC)]
