"""Middleware: around every job in the order of an onion, plain or awaited, and never in the way of a verdict."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

import pytest

from echomq import EchoMQ, InvalidInputError, JobContext, Middleware, Sending, Snooze, Worker, current_job
from echomq.app.middleware import Layers
from support.apps import Rows, burst

said: ContextVar[str] = ContextVar("said", default="nothing")


def plain(name: str, heard: list[str], raises: tuple[str, ...] = ()) -> Middleware:
    """Middleware whose hooks are plain, and say where they run."""

    def say(what: str) -> None:
        heard.append(f"{name} {what}")
        if what.split(" ")[0] in raises:
            raise RuntimeError(f"{name} {what}")

    class Plain(Middleware):
        def before(self, job: JobContext) -> None:
            say(f"before {job.name}")

        def after(self, job: JobContext, result: object) -> None:
            say(f"after {result}")

        def error(self, job: JobContext, error: BaseException) -> None:
            say(f"error {type(error).__name__}")

    return Plain()


def awaited(name: str, heard: list[str], raises: tuple[str, ...] = ()) -> Middleware:
    inner = plain(name, heard, raises)

    class Awaited(Middleware):
        async def before(self, job: JobContext) -> None:
            await asyncio.sleep(0)
            inner.before(job)

        async def after(self, job: JobContext, result: object) -> None:
            await asyncio.sleep(0)
            inner.after(job, result)

        async def error(self, job: JobContext, error: BaseException) -> None:
            await asyncio.sleep(0)
            inner.error(job, error)

    return Awaited()


KINDS = {"plain": plain, "awaited": awaited}


def job_of(mq: EchoMQ, kind: str, body: Callable[[], Any], **options: Any) -> Any:
    """A job, plain or a coroutine, that does `body`."""
    if kind == "plain":
        return mq.job(name="work", **options)(lambda: body())

    async def work() -> Any:
        return body()

    return mq.job(name="work", **options)(work)


@pytest.mark.parametrize("kind", ["plain", "coroutine"])
@pytest.mark.parametrize("hooks", KINDS)
def test_the_order_is_that_of_an_onion(mq: EchoMQ, kind: str, hooks: str) -> None:
    heard: list[str] = []
    mq.middleware(KINDS[hooks]("outer", heard))
    mq.middleware(plain("inner", heard))
    job_of(mq, kind, lambda: heard.append("job") or 7).enqueue()
    burst(mq)
    assert heard == ["outer before work", "inner before work", "job", "inner after 7", "outer after 7"]


@pytest.mark.parametrize("kind", ["plain", "coroutine"])
@pytest.mark.parametrize("hooks", KINDS)
def test_a_failure_is_told_from_the_inside_out(mq: EchoMQ, kind: str, hooks: str, dead_rows: Rows) -> None:
    heard: list[str] = []

    def body() -> None:
        raise KeyError("no")

    mq.middleware(plain("outer", heard))
    mq.middleware(KINDS[hooks]("inner", heard))
    job_of(mq, kind, body, max_attempts=1).enqueue()
    burst(mq)
    assert heard[2:] == ["inner error KeyError", "outer error KeyError"]
    assert dead_rows()[0]["last_error"].startswith(b"KeyError: 'no'")


@pytest.mark.parametrize("kind", ["plain", "coroutine"])
@pytest.mark.parametrize("hooks", KINDS)
def test_a_before_that_raises_is_the_jobs_failure(mq: EchoMQ, kind: str, hooks: str, dead_rows: Rows) -> None:
    heard: list[str] = []
    mq.middleware(plain("outer", heard))
    mq.middleware(KINDS[hooks]("inner", heard, raises=("before",)))
    mq.middleware(plain("never", heard))
    job_of(mq, kind, lambda: heard.append("job"), max_attempts=1).enqueue()
    burst(mq)
    # Only those hear of the end whose beginning was whole.
    assert heard == ["outer before work", "inner before work", "outer error RuntimeError"]
    assert dead_rows()[0]["last_error"].startswith(b"RuntimeError: inner before work")


@pytest.mark.parametrize("kind", ["plain", "coroutine"])
@pytest.mark.parametrize("hooks", KINDS)
def test_what_is_raised_after_the_job_is_logged_and_changes_nothing(
    mq: EchoMQ, kind: str, hooks: str, dead_rows: Rows, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[str] = []
    mq.middleware(plain("outer", heard))
    mq.middleware(KINDS[hooks]("inner", heard, raises=("after", "error")))
    work = job_of(mq, kind, lambda: 1 // int(not current_job().meta), max_attempts=1)
    work.enqueue()
    work.options(meta={"fail": True}).enqueue()
    burst(mq, concurrency=1)
    assert heard[3:4] + heard[7:8] == ["outer after 1", "outer error ZeroDivisionError"]
    assert [row["last_error"].split(b":")[0] for row in dead_rows()] == [b"ZeroDivisionError"]
    logged = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert sum("hook" in line and "raised; the job stays as it is" in line for line in logged) == 2


def test_a_before_may_snooze_the_job(mq: EchoMQ) -> None:
    class Closed(Middleware):
        async def before(self, job: JobContext) -> None:
            raise Snooze(hours=1)

    mq.middleware(Closed())
    work = job_of(mq, "plain", lambda: None)
    work.enqueue()
    worker = Worker(mq, burst=True)
    worker.run()
    tally = worker.consumers[0].tally
    assert (tally.snoozed, tally.completed) == (1, 0)


def test_plain_code_runs_in_threads_and_coroutine_code_on_the_loop(mq: EchoMQ) -> None:
    where: dict[str, str] = {}

    class Where(Middleware):
        def before(self, job: JobContext) -> None:
            where[f"plain hook of {job.name}"] = threading.current_thread().name

        async def after(self, job: JobContext, result: object) -> None:
            where[f"awaited hook of {job.name}"] = threading.current_thread().name

    mq.middleware(Where())

    @mq.job(name="thread")
    def in_thread() -> None:
        where["thread"] = threading.current_thread().name

    @mq.job(name="loop")
    async def on_loop() -> None: ...

    in_thread.enqueue()
    on_loop.enqueue()
    burst(mq)
    loop = threading.current_thread().name
    assert where["plain hook of thread"] == where["thread"] != loop
    assert where["plain hook of loop"] != loop
    assert where["awaited hook of thread"] == where["awaited hook of loop"] == loop


def test_a_hook_that_blocks_does_not_block_the_loop(mq: EchoMQ) -> None:
    gate = threading.Event()

    class Blocks(Middleware):
        def before(self, job: JobContext) -> None:
            if job.name == "held":
                assert gate.wait(20)

    mq.middleware(Blocks())

    @mq.job(name="held")
    async def held() -> None: ...

    @mq.job(name="opens")
    async def opens() -> None:
        gate.set()

    held.enqueue()
    opens.enqueue()
    burst(mq)
    assert gate.is_set()


@pytest.mark.parametrize("kind", ["plain", "coroutine"])
@pytest.mark.parametrize("hooks", KINDS)
def test_context_variables_and_state_go_from_hook_to_job_and_on(mq: EchoMQ, kind: str, hooks: str) -> None:
    seen: list[object] = []

    class Sets(Middleware):
        def before(self, job: JobContext) -> object:
            return self._set(job) if hooks == "awaited" else self._here(job)

        async def _set(self, job: JobContext) -> None:
            self._here(job)

        def _here(self, job: JobContext) -> None:
            said.set(job.name)
            job.state["began"] = "now"

        def after(self, job: JobContext, result: object) -> None:
            seen.append((said.get(), job.state["began"], result))

    mq.middleware(Sets())
    job_of(mq, kind, lambda: (said.get(), current_job().state["began"])).enqueue()
    burst(mq)
    assert seen == [("work", "now", ("work", "now"))]
    assert said.get() == "nothing"


async def test_who_began_hears_of_an_interruption(mq: EchoMQ, working) -> None:
    heard: list[str] = []
    mq.middleware(awaited("it", heard))
    started = asyncio.Event()

    @mq.job(name="work")
    async def work() -> None:
        started.set()
        await asyncio.Event().wait()

    await work.aenqueue()
    async with working(grace=timedelta(0)):
        await started.wait()
    assert heard == ["it before work", "it error CancelledError"]


def test_the_time_limit_is_that_of_the_job_with_its_befores(mq: EchoMQ, dead_rows: Rows) -> None:
    heard: list[str] = []

    class Slow(Middleware):
        async def before(self, job: JobContext) -> None:
            await asyncio.Event().wait()

    mq.middleware(plain("outer", heard))
    mq.middleware(Slow())
    work = job_of(mq, "coroutine", lambda: None, max_attempts=1)
    work.options(timeout=timedelta(milliseconds=500)).enqueue()
    burst(mq)
    assert heard == ["outer before work", "outer error TimeoutError"]
    assert dead_rows()[0]["last_error"].startswith(b"TimeoutError: not done after 500 ms")


# Registering


def test_a_class_is_made_an_instance_and_an_object_needs_one_of_the_methods() -> None:
    mq = EchoMQ("valkey://localhost", middleware=[plain("one", [])])

    @mq.middleware
    class Duck:
        def after(self, job: JobContext, result: object) -> None: ...

    assert len(mq.layers.around) == 2
    assert mq.layers.around[1].before is None
    assert isinstance(Duck, type)
    for wrong in (object(), 5, type("Empty", (Middleware,), {})()):
        with pytest.raises(InvalidInputError, match="none of the methods before, after, error, before_enqueue"):
            mq.middleware(wrong)
    with pytest.raises(InvalidInputError, match="before of"):
        mq.middleware(type("Bad", (), {"before": 5}))


def test_without_middleware_a_job_has_nothing_around_it(mq: EchoMQ, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("echomq.app.dispatch.Around", None)  # nobody may ask for one
    done: list[int] = []
    job_of(mq, "plain", lambda: done.append(1)).enqueue()
    burst(mq)
    assert done == [1]


# In the sender


class Traced(Middleware):
    def __init__(self) -> None:
        self.sent: list[tuple[str, str]] = []

    def before_enqueue(self, sending: Sending) -> None:
        self.sent.append((sending.name, sending.queue))
        sending.meta["trace"] = said.get()


def test_a_send_is_stamped_and_the_worker_reads_it(mq: EchoMQ, queue: str) -> None:
    traced = mq.middleware(Traced())
    seen: list[dict[str, object]] = []
    work = job_of(mq, "plain", lambda: seen.append(dict(current_job().meta)))
    token = said.set("t1")
    work.enqueue()
    work.options(meta={"tenant": 7}).enqueue()
    asyncio.run(work.aenqueue())
    mq.enqueue_many([work.s()])
    said.reset(token)
    burst(mq)
    assert sorted(seen, key=str) == sorted([{"trace": "t1"}] * 3 + [{"tenant": 7, "trace": "t1"}], key=str)
    assert traced.sent == [("work", queue)] * 4
    assert not mq.layers.around


def test_a_sender_that_raises_refuses_the_send_and_one_that_is_a_coroutine_is_refused(mq: EchoMQ) -> None:
    class Refuses(Middleware):
        def before_enqueue(self, sending: Sending) -> None:
            raise PermissionError(sending.name)

    class Awaits:
        async def before_enqueue(self, sending: Sending) -> None: ...

    mq.middleware(Refuses())
    with pytest.raises(PermissionError, match="work"):
        job_of(mq, "plain", lambda: None).enqueue()
    with pytest.raises(InvalidInputError, match="must be plain"):
        Layers([Awaits()])
