"""`mq.eager()`: jobs run where they are sent, without a server, as a worker would run them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

import pytest

from echomq import (
    Cancellation,
    Depends,
    Discard,
    EchoMQ,
    Failure,
    JobCancelled,
    JobContext,
    JobFailed,
    Retry,
    Snooze,
    State,
    Success,
    current_job,
    flow,
)
from echomq.errors import (
    BlockingCallWarning,
    EagerError,
    EnqueueManyError,
    NoResultError,
    ResultTimeoutError,
    SerializationError,
    StartupError,
)
from echomq.testing import Throwaway


@pytest.fixture
def mq() -> EchoMQ:
    """Its server is not there, and nothing asks for it."""
    return EchoMQ("valkey://localhost:1")


class OddError(Exception):
    """One that nobody else raises."""


def test_arguments_and_results_travel_as_they_would(mq: EchoMQ) -> None:
    got: list[Any] = []

    @mq.job(name="add")
    def add(span: timedelta, loose: Any) -> timedelta:
        got.append((span, loose))
        return span * 2

    sent = ["a"]
    with mq.eager():
        job = add.enqueue(timedelta(hours=1), sent)
        assert job.get() == timedelta(hours=2)
        assert (job.state(), job.queue, job.duplicate) == (State.ABSENT, "default", False)
        with pytest.raises(SerializationError):
            add.enqueue(timedelta(hours=1), object())
        with pytest.raises(TypeError):
            add.enqueue(timedelta(hours=1))
    assert got == [(timedelta(hours=1), ["a"])]
    assert got[0][1] is not sent


async def test_awaited_jobs_run_on_the_callers_loop_in_a_context_of_their_own(mq: EchoMQ) -> None:
    word: ContextVar[str] = ContextVar("word", default="none")
    loop = asyncio.get_running_loop()

    @mq.job(name="outer")
    async def outer() -> list[str]:
        assert asyncio.get_running_loop() is loop
        seen = [word.get()]
        word.set("inner")
        return [*seen, *(await (await inner.aenqueue()).result()), current_job().name]

    @mq.job(name="inner")
    def inner() -> list[str]:
        assert threading.current_thread() is not threading.main_thread()
        return [word.get(), current_job().name]

    word.set("mine")
    async with mq.eager():
        job = await outer.aenqueue()
        assert await job.result() == ["mine", "inner", "inner", "outer"]
        assert [await each.result() for each in await mq.aenqueue_many([inner.s(), inner.s()])] == [
            ["mine", "inner"]
        ] * 2
    assert word.get() == "mine"


def test_blocking_ones_run_in_the_callers_thread(mq: EchoMQ) -> None:
    @mq.job(name="plain")
    def plain() -> str:
        awaited.enqueue()
        return threading.current_thread().name

    @mq.job(name="awaited")
    async def awaited() -> str:
        await asyncio.sleep(0)
        return threading.current_thread().name

    with mq.eager():
        assert plain.enqueue().get() == threading.current_thread().name
        assert awaited.enqueue().get() != threading.current_thread().name
        assert len(mq.enqueued(awaited)) == 2


async def test_a_blocking_enqueue_on_a_loop_works_and_warns(mq: EchoMQ) -> None:
    @mq.job(name="awaited")
    async def awaited() -> int:
        return 1

    with mq.eager(), pytest.warns(BlockingCallWarning):
        assert await awaited.enqueue().result() == 1


def test_failures_are_tried_again_at_once_and_end_in_the_morgue(mq: EchoMQ) -> None:
    attempts: list[int] = []

    @mq.job(name="flaky", max_attempts=4, backoff=lambda _: 3_600_000)
    async def flaky(until: int) -> int:
        attempts.append(current_job().attempt)
        if len(attempts) == 2:
            raise Retry(after=timedelta(hours=1))
        if len(attempts) < until:
            raise OddError(until)
        return until

    with mq.eager():
        assert flaky.enqueue(3).get() == 3
        attempts.clear()
        job = flaky.enqueue(9)
        assert (job.state(), attempts) == (State.DEAD, [1, 2, 3, 4])
        with pytest.raises(JobFailed, match="OddError: 9") as caught:
            job.get()
        assert caught.value.attempt == 4
    with mq.eager(raise_errors=True):
        with pytest.raises(OddError, match="9"):
            flaky.enqueue(9)
        attempts.clear()
        assert flaky.enqueue(3).get() == 3


def test_instructions_are_followed(mq: EchoMQ) -> None:
    @mq.job(name="says")
    def says(how: str) -> None:
        if how == "snooze":
            raise Snooze(minutes=1)
        raise Discard(how)

    with mq.eager():
        napping = says.enqueue("snooze")
        assert napping.state() is State.SCHEDULED
        with pytest.raises(ResultTimeoutError, match="it is scheduled"):
            napping.get(timedelta(0))
        assert mq.drain_blocking().scheduled == 1
        assert (napping.cancel("not wanted"), napping.state(), napping.cancel()) == (
            *(Cancellation.DEAD, State.DEAD),
            Cancellation.GONE,
        )
        with pytest.raises(JobCancelled, match="was cancelled: cancelled: not wanted"):
            napping.get()
        with pytest.raises(JobFailed, match="discarded: no"):
            says.enqueue("no").get()
    with mq.eager(raise_errors=True), pytest.raises(Discard):
        says.enqueue("no")


def test_followers_follow_and_the_middleware_is_there(mq: EchoMQ) -> None:
    said: list[str] = []

    @mq.middleware
    class Says:
        async def before(self, job: JobContext) -> None:
            said.append(job.name)

    @mq.job(name="tell")
    def tell(what: Success | Failure) -> None:
        said.append(type(what).__name__)

    @mq.job(name="goes", on_success=tell, on_failure=tell, on_dead=tell, max_attempts=2)
    def goes(well: bool) -> None:
        if not well:
            raise OddError

    with mq.eager():
        goes.enqueue(True)
        goes.enqueue(False)
    assert said == [
        *("goes", "tell", "Success"),
        *("goes", "tell", "Failure", "goes", "tell", "Failure", "tell", "Failure"),
    ]


def test_the_context_of_a_job_is_kept_for_as_long_as_it_runs(mq: EchoMQ) -> None:
    @mq.job(name="works", queue="mail")
    def works() -> tuple[str, str | None, object, bool]:
        job = current_job()
        job.progress(50)
        job.log("half")
        assert works.handle(job.id).progress() == "50"
        assert works.handle(job.id).state() is State.ACTIVE
        return job.queue, job.lane, job.meta["by"], job.cancelled

    with mq.eager():
        job = works.options(lane="acme", meta={"by": "ada"}).enqueue()
        assert job.get() == ("mail", mq.lane("acme").id, "ada", False)
        assert (job.progress(), works.handle("JOB0NgWEfAEJfs").state()) == (None, State.ABSENT)
        with pytest.raises(NoResultError):
            works.options(result_ttl=timedelta(0), meta={"by": "eve"}).enqueue().get()


def test_no_time_is_waited_for_and_all_that_was_sent_is_known(mq: EchoMQ) -> None:
    ran: list[str] = []

    @mq.job(name="notes")
    def notes(what: str) -> None:
        ran.append(what)

    with mq.eager():
        notes.after(days=1).enqueue("tomorrow")
        mq.enqueue_many(notes.s(str(n)) for n in range(3))
        assert ran == ["tomorrow", "0", "1", "2"]
        mq.assert_enqueued(notes.after(days=1).s("tomorrow"))
        mq.assert_enqueued(notes, times=4)
        mq.assert_not_enqueued(notes, "3")
        with pytest.raises(EnqueueManyError, match="then making the calls failed"):
            mq.enqueue_many(call() for call in (lambda: notes.s("4"), lambda: 1 / 0))  # type: ignore[misc, return-value]
        assert ran[-1] == "4"


def test_dependencies_and_what_a_worker_begins_with(mq: EchoMQ) -> None:
    said: list[str] = []

    @mq.lifespan
    def life() -> Any:
        said.append("begin")
        yield {"db": "kept"}
        said.append("end")

    def make() -> Any:
        said.append("make")
        yield 7
        said.append("clean")

    @mq.job(name="needs")
    def needs(n: int = Depends(make, scope="worker")) -> tuple[int, object]:
        return n, current_job().state["db"]

    with mq.eager():
        assert (needs.enqueue().get(), needs.enqueue().get()) == ((7, "kept"), (7, "kept"))
    assert said == ["begin", "make", "clean", "end"]

    @mq.on_startup
    def fails() -> None:
        raise OddError

    with pytest.raises(StartupError), mq.eager():
        pytest.fail("it cannot begin")
    assert mq.ground.eager is None


def test_what_needs_a_server_is_refused(mq: EchoMQ) -> None:
    @mq.job(name="job")
    def job() -> None: ...

    with mq.eager() as eager:
        asks: list[Callable[[], object]] = [
            lambda: mq.clock,
            lambda: job.every(hours=1, name="n").register(),
            lambda: flow(job.s(), [job.s()]).enqueue(),
            lambda: mq.lane("acme").limit(1),
            mq.connection,
            mq.schedules,
            lambda: next(iter(job.enqueue().events())),
        ]
        for ask in asks:
            with pytest.raises(EagerError, match=r"needs a server.*use mq\.testing\(\)"):
                ask()
        assert eager.mq is mq


def test_it_may_be_inside_of_a_test_with_a_server(mq: EchoMQ) -> None:
    @mq.job(name="job")
    def job() -> int:
        return 1

    with Throwaway() as server, mq.testing(server):
        job.enqueue()
        with mq.testing(eager=True):
            assert job.enqueue().get() == 1
        assert len(mq.enqueued()) == 1


def test_an_interrupt_is_the_tests_and_not_the_jobs(mq: EchoMQ) -> None:
    @mq.job(name="interrupted")
    def interrupted() -> None:
        raise KeyboardInterrupt

    with mq.eager(), pytest.raises(KeyboardInterrupt):
        interrupted.enqueue()
