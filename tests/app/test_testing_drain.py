"""`mq.drain()`: what can run now is run, and what became of it is told."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

import pytest

from echomq import (
    Cancel,
    Depends,
    Discard,
    EchoMQ,
    Failure,
    JobContext,
    JobFailed,
    Snooze,
    State,
    Success,
    chain,
    current_job,
    flow,
    jobs,
    previous,
    results,
)
from echomq.errors import DrainTimeoutError, InvalidInputError
from echomq.testing import End
from support.servers import Server


@pytest.fixture
def mq(server: Server) -> Iterator[EchoMQ]:
    mq = EchoMQ("valkey://localhost:1")
    with mq.testing(server.url):
        yield mq


class OddError(Exception):
    """One that nobody else raises."""


def test_everything_that_jobs_send_in_turn_is_run(mq: EchoMQ) -> None:
    ran: list[int] = []

    @mq.job(name="down", queue="a")
    def down(n: int) -> None:
        ran.append(n)
        if n:
            (down if n % 2 else adown).enqueue(n - 1)

    @mq.job(name="adown", queue="b")
    async def adown(n: int) -> None:
        ran.append(n)
        if n:
            await down.aenqueue(n - 1)

    down.enqueue(9)
    done = mq.drain_blocking()
    assert (ran, done.completed, done.scheduled) == ([9, 8, 7, 6, 5, 4, 3, 2, 1, 0], 10, 0)
    # Not in that order: one that sends another may end after it.
    assert Counter((run.name, run.attempt, run.end) for run in done.runs) == {
        ("down", 1, End.DONE): 6,
        ("adown", 1, End.DONE): 4,
    }
    assert mq.drain_blocking().runs == ()


@pytest.mark.filterwarnings("ignore::echomq.errors.UndeclaredQueueWarning")
def test_a_queue_that_the_app_does_not_declare_is_run_too(mq: EchoMQ) -> None:
    ran: list[str] = []

    @mq.job(name="go")
    def go(queue: str) -> None:
        ran.append(current_job().queue)
        if queue:
            go.options(queue=queue).options(lane="acme").enqueue("")

    go.options(queue="first").enqueue("second")
    assert mq.drain_blocking().completed == 2
    assert ran == [mq.queue_name("first"), mq.queue_name("second")]


async def test_each_end_is_counted(mq: EchoMQ) -> None:
    @mq.job(name="ends")
    async def ends(how: str) -> None:
        match how:
            case "fail":
                raise OddError(how)
            case "discard":
                raise Discard("not wanted")
            case "cancel":
                raise Cancel("by itself")
            case "snooze":
                raise Snooze(minutes=1)

    for how in ("done", "fail", "discard", "cancel", "snooze", "done"):
        await ends.aenqueue(how)
    await ends.options(max_attempts=1).aenqueue("fail")
    await ends.after(hours=1).aenqueue("later")
    done = await mq.drain(concurrency=1)
    assert (done.completed, done.failed, done.dead, done.cancelled, done.snoozed, done.lapsed) == (2, 1, 2, 1, 1, 0)
    assert done.scheduled == 3
    assert [run.end for run in done.runs] == [
        *(End.DONE, End.FAILED, End.DEAD, End.CANCELLED, End.SNOOZED, End.DONE, End.DEAD)
    ]
    first, discarded, last = done.errors
    assert isinstance(first, OddError)
    assert isinstance(discarded, Discard)
    assert isinstance(last, OddError)
    assert "2 done, 1 failed" in str(done)
    assert str(done.runs[1]) == "ends attempt 1 failed: OddError: fail"


def test_what_a_job_has_raised_is_raised_whole(mq: EchoMQ) -> None:
    @mq.job(name="fails")
    def fails(n: int) -> None:
        raise OddError(n)

    fails.enqueue(1)
    with pytest.raises(OddError) as caught:
        mq.drain_blocking(raise_errors=True)
    assert caught.traceback[-1].name == "fails"
    for n in (2, 3):
        fails.enqueue(n)
    with pytest.raises(ExceptionGroup, match="2 jobs failed") as group:
        mq.drain_blocking(raise_errors=True, concurrency=1)
    assert [error.args for error in group.value.exceptions] == [(2,), (3,)]


def test_retries_wait_unless_they_are_asked_for(mq: EchoMQ) -> None:
    tries: list[int] = []

    @mq.job(name="flaky", backoff=lambda _: 3_600_000, max_attempts=5)
    def flaky(until: int) -> int:
        tries.append(current_job().attempt)
        if len(tries) < until:
            raise OddError
        return len(tries)

    job = flaky.enqueue(3)
    done = mq.drain_blocking()
    assert (done.failed, done.scheduled, tries) == (1, 1, [1])
    mq.clock.advance(hours=1)
    done = mq.drain_blocking(retries=True, raise_errors=True)
    assert (done.failed, done.completed, done.errors, tries) == (1, 1, (), [1, 2, 3])
    assert job.get() == 3
    flaky.enqueue(99)
    done = mq.drain_blocking(retries=True)
    assert (done.failed, done.dead, done.scheduled) == (4, 1, 0)
    assert len(done.errors) == 1


def test_a_payload_that_nobody_can_run_is_buried_and_said(mq: EchoMQ) -> None:
    @mq.job(name="known")
    def known(n: int) -> None: ...

    queue = mq.default_queue
    mq.run(jobs.enqueue(queue, "JOB0NgWEfAEJfs", b"no envelope"))
    mq.run(jobs.enqueue(queue, "JOB0NgWEfAEJft", b'{"v": 1, "job": "unknown"}'))
    mq.run(jobs.enqueue(queue, "JOB0NgWEfAEJfu", b'{"v": 1, "job": "known", "args": ["text"]}'))
    done = mq.drain_blocking(concurrency=1)
    assert (done.dead, done.scheduled) == (3, 0)
    assert [run.name for run in done.runs] == ["", "unknown", "known"]
    said = [str(error) for error in done.errors]
    assert "payload is not an envelope" in said[0]
    assert "unknown job 'unknown'" in said[1]
    assert "argument 'n' does not fit" in said[2]


def test_flows_and_followers_are_run_to_their_end(mq: EchoMQ) -> None:
    told: list[object] = []

    @mq.job(name="told")
    def tell(what: Success | Failure) -> None:
        told.append(what.name)

    @mq.job(name="part", queue="parts", on_success=tell)
    def part(n: int) -> int:
        return n

    @mq.job(name="total")
    async def total(found: list[int]) -> int:
        return sum(found)

    @mq.job(name="double")
    def double(n: int) -> int:
        return n * 2

    found = chain(flow(total.s(results()), [part.s(n) for n in range(4)]), double.s(previous())).enqueue()
    done = mq.drain_blocking(raise_errors=True)
    assert found.job.get() == 12
    assert (done.completed, told) == (4 + 1 + 1 + 4, ["part"] * 4)


def test_what_surrounds_jobs_in_production_is_there(server: Server) -> None:
    mq, said = EchoMQ("valkey://localhost:1"), list[str]()

    @mq.on_startup
    def up() -> None:
        said.append("up")

    @mq.on_shutdown
    async def down() -> None:
        said.append("down")

    @mq.middleware
    class Says:
        def before(self, job: JobContext) -> None:
            said.append(f"before {job.attempt}")

        def error(self, job: JobContext, error: BaseException) -> None:
            said.append(f"error {error!r}")

    def number() -> int:
        return 7

    @mq.job(name="odd", max_attempts=1)
    def odd(n: int = Depends(number)) -> None:
        raise OddError(n)

    with mq.testing(server.url):
        odd.enqueue()
        with pytest.raises(OddError, match="7"):
            mq.drain_blocking(raise_errors=True)
    assert said == ["up", "before 1", "error OddError(7)", "down"]


def test_one_at_a_time_is_the_order_of_sending(mq: EchoMQ) -> None:
    ran: list[int] = []

    @mq.job(name="notes")
    async def notes(n: int) -> None:
        await asyncio.sleep(0)
        ran.append(n)

    mq.enqueue_many(notes.s(n) for n in range(50))
    assert mq.drain_blocking(concurrency=1).completed == 50
    assert ran == list(range(50))


def test_one_that_does_not_end_is_given_up_and_its_jobs_handed_back(mq: EchoMQ) -> None:
    @mq.job(name="forever")
    async def forever(n: int) -> None:
        await (asyncio.Event().wait() if n == 0 else asyncio.sleep(0))

    forever.enqueue(1)
    stuck = forever.enqueue(0)
    with pytest.raises(DrainTimeoutError, match=r"after 0:00:00.3.*1 jobs were in hand.*forever attempt 1 done"):
        mq.drain_blocking(timeout=timedelta(milliseconds=300))
    assert stuck.state() is State.PENDING
    assert mq.enqueued()[0].failures == 0


async def test_one_that_is_cancelled_leaves_nothing_behind(mq: EchoMQ) -> None:
    began = asyncio.Event()

    @mq.job(name="forever")
    async def forever() -> None:
        began.set()
        await asyncio.Event().wait()

    job = await forever.aenqueue()
    draining = asyncio.ensure_future(mq.drain())
    await began.wait()
    draining.cancel()
    with pytest.raises(asyncio.CancelledError):
        await draining
    assert await job.astate() is State.PENDING
    assert [task for task in asyncio.all_tasks() if "consumer" in task.get_name()] == []


async def test_the_blocking_one_is_refused_on_a_loop(mq: EchoMQ) -> None:
    with pytest.raises(InvalidInputError, match=r"await mq\.drain\(\)"):
        mq.drain_blocking()


def test_it_may_be_called_in_any_thread_and_without_a_job(mq: EchoMQ) -> None:
    assert mq.drain_blocking().runs == ()
    found: list[int] = []

    @mq.job(name="job")
    def job() -> None: ...

    job.enqueue()
    thread = threading.Thread(target=lambda: found.append(mq.drain_blocking().completed))
    thread.start()
    thread.join()
    assert found == [1]


def test_each_run_has_its_line_in_the_log(mq: EchoMQ, caplog: pytest.LogCaptureFixture) -> None:
    @mq.job(name="job")
    def job() -> None: ...

    job.enqueue()
    with caplog.at_level(logging.INFO, "echomq"):
        mq.drain_blocking()
    assert [record.message.split()[1:4] for record in caplog.records if record.name == "echomq.worker.jobs"] == [
        ["job", "attempt", "1"]
    ]


dying = EchoMQ("valkey://localhost:1")


@dying.job(process=True, name="dies")
def dies(how: str) -> None:
    if how == "exit":
        os._exit(3)
    raise OddError(how)


def test_a_job_in_a_process_has_its_error_as_text(server: Server) -> None:
    with dying.testing(server.url):
        dies.options(max_attempts=1).enqueue("raise")
        done = dying.drain_blocking()
        (error,) = done.errors
        assert isinstance(error, JobFailed)
        assert error.error == "OddError: raise"
        assert "in dies" in error.traceback


def test_a_job_that_kills_its_process_lapses_and_is_dead_by_its_last_lapse(server: Server) -> None:
    with dying.testing(server.url):
        job = dies.enqueue("exit")
        done = dying.drain_blocking()
        assert (done.lapsed, done.dead, done.failed, done.cancelled) == (3, 1, 0, 0)
        assert [(run.end, run.buried) for run in done.runs] == [(End.LAPSED, n == 2) for n in range(3)]
        assert str(done) == "<drained: 3 lapsed, 1 dead, 0 scheduled>"
        assert "dies attempt 1 lapsed and dead: JobFailed: " in str(done.runs[-1])
        assert (job.state(), len(done.errors)) == (State.DEAD, 1)
        assert dying.drain_blocking().runs == ()
