"""Arguments that the worker fills in: made once a run or once a worker, cleaned up, and never sent."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any

import pytest

from echomq import Depends, EchoMQ, InvalidInputError, jobs, metrics
from echomq.app.depends import Dependency
from echomq.errors import JobDefinitionError
from support.apps import Rows, burst

heard: list[str] = []


@pytest.fixture(autouse=True)
def silence() -> None:
    heard.clear()


def value() -> str:
    return "value"


async def awaited() -> str:
    return "awaited"


def opened() -> Iterator[str]:
    heard.append("open")
    yield "opened"
    heard.append("close")


async def aopened() -> AsyncIterator[str]:
    heard.append("aopen")
    yield "aopened"
    heard.append("aclose")


FACTORIES = {
    "value": value,
    "awaited": awaited,
    "opened": opened,
    "aopened": aopened,
    "managed opened": contextmanager(opened),
    "managed aopened": asynccontextmanager(aopened),
}


def job_of(mq: EchoMQ, kind: str, factory: Any, body: Callable[..., Any], **options: Any) -> Any:
    """A job, plain or a coroutine, that hands one sent and one injected argument to `body`."""

    def plain(sent: int, given: Any = Depends(factory)) -> Any:
        return body(sent, given)

    async def coroutine(sent: int, given: Any = Depends(factory)) -> Any:
        return body(sent, given)

    return mq.job(name="work", **options)(plain if kind == "plain" else coroutine)


KINDS = pytest.mark.parametrize("kind", ["plain", "coroutine"])


@KINDS
@pytest.mark.parametrize("name", FACTORIES)
def test_an_argument_is_filled_in_and_cleaned_up(mq: EchoMQ, queue: str, kind: str, name: str) -> None:
    work = job_of(mq, kind, FACTORIES[name], lambda sent, given: heard.append(f"{sent} {given}"))
    job = work.enqueue(1)
    assert b"given" not in mq.run(metrics.row(queue, job.id))["payload"]
    burst(mq)
    around = {"opened": ["open", "close"], "aopened": ["aopen", "aclose"]}.get(name.split()[-1], [])
    assert heard == [*around[:1], f"1 {name.split()[-1]}", *around[1:]]


@KINDS
def test_what_several_need_is_made_once_a_run_and_cleaned_up_in_reverse(mq: EchoMQ, kind: str) -> None:
    made: list[object] = []

    def shared() -> Iterator[object]:
        made.append(object())
        heard.append("shared opens")
        yield made[-1]
        heard.append("shared closes")

    async def left(base: object = Depends(shared)) -> AsyncIterator[object]:
        heard.append("left opens")
        yield base
        heard.append("left closes")

    def right(base: object = Depends(shared), other: object = Depends(left)) -> list[object]:
        return [base, other]

    seen: list[Any] = []
    work = job_of(mq, kind, right, lambda sent, given: seen.append(given))
    work.enqueue(1)
    work.enqueue(2)
    burst(mq, concurrency=1)
    assert [first is second for first, second in seen] == [True, True]
    assert [pair[0] for pair in seen] == made
    assert heard == ["shared opens", "left opens", "left closes", "shared closes"] * 2


@KINDS
@pytest.mark.parametrize("factory", [opened, aopened])
def test_it_is_cleaned_up_after_a_failure_and_knows_of_it(mq: EchoMQ, kind: str, factory: Any, dead_rows: Rows) -> None:
    def guarded() -> Iterator[None]:
        try:
            yield
        except KeyError as error:
            heard.append(f"saw {error}")
            raise

    async def aguarded() -> AsyncIterator[None]:
        try:
            yield
        except KeyError as error:
            heard.append(f"saw {error}")
            raise

    def body(sent: int, given: object) -> None:
        raise KeyError("no")

    job_of(mq, kind, guarded if factory is opened else aguarded, body, max_attempts=1).enqueue(1)
    burst(mq)
    assert heard == ["saw 'no'"]
    assert dead_rows()[0]["last_error"].startswith(b"KeyError: 'no'")


@KINDS
@pytest.mark.parametrize("hidden", ["plain", "awaited"])
def test_one_that_swallows_the_error_makes_no_success_of_it(
    mq: EchoMQ, kind: str, hidden: str, dead_rows: Rows
) -> None:
    def swallows() -> Iterator[None]:
        try:
            yield
        except KeyError:
            heard.append("swallowed")

    async def aswallows() -> AsyncIterator[None]:
        try:
            yield
        except KeyError:
            heard.append("swallowed")

    def body(sent: int, given: object) -> None:
        raise KeyError("no")

    job_of(mq, kind, swallows if hidden == "plain" else aswallows, body, max_attempts=1).enqueue(1)
    burst(mq)
    assert heard == ["swallowed"]
    assert dead_rows()[0]["last_error"].startswith(b"KeyError: 'no'")


@KINDS
@pytest.mark.parametrize("when", ["making", "cleaning up"])
@pytest.mark.parametrize("hidden", ["plain", "awaited"])
def test_a_failure_to_make_it_or_to_clean_it_up_is_the_jobs(
    mq: EchoMQ, kind: str, when: str, hidden: str, dead_rows: Rows
) -> None:
    def fails() -> Iterator[None]:
        if when == "making":
            raise OSError(when)
        yield
        raise OSError(when)

    async def afails() -> AsyncIterator[None]:
        if when == "making":
            raise OSError(when)
        yield
        raise OSError(when)

    job_of(
        mq, kind, fails if hidden == "plain" else afails, lambda sent, given: heard.append("ran"), max_attempts=1
    ).enqueue(1)
    burst(mq)
    assert heard == ([] if when == "making" else ["ran"])
    assert dead_rows()[0]["last_error"].startswith(f"OSError: {when}".encode())


async def test_it_is_cleaned_up_when_its_job_is_interrupted(mq: EchoMQ, working) -> None:
    started = asyncio.Event()

    async def lent() -> AsyncIterator[None]:
        heard.append("aopen")
        try:
            yield
        finally:
            heard.append("aclose")

    @mq.job(name="work")
    async def work(given: None = Depends(lent)) -> None:
        started.set()
        await asyncio.Event().wait()

    await work.aenqueue()
    async with working(grace=timedelta(0)):
        await started.wait()
    assert heard == ["aopen", "aclose"]


def test_plain_factories_run_in_threads_and_coroutines_on_the_loop(mq: EchoMQ) -> None:
    where: list[str] = []

    def plain() -> str:
        where.append(threading.current_thread().name)
        return ""

    async def coroutine() -> str:
        where.append(threading.current_thread().name)
        return ""

    @mq.job(name="a")
    async def a(one: str = Depends(plain), two: str = Depends(coroutine)) -> None: ...

    @mq.job(name="b")
    def b(one: str = Depends(plain), two: str = Depends(coroutine)) -> None:
        where.append(threading.current_thread().name)

    a.enqueue()
    burst(mq)
    b.enqueue()
    burst(mq)
    here = threading.current_thread().name
    assert where[0] != here
    assert where[1] == where[3] == here
    assert where[2] == where[4] != here


# Never sent


def test_it_is_never_sent(mq: EchoMQ, queue: str) -> None:
    work = job_of(mq, "plain", value, lambda sent, given: None)
    with pytest.raises(TypeError, match=r"argument 'given' is never sent: the worker fills it in, by Depends\(value\)"):
        work.enqueue(1, given="mine")
    with pytest.raises(TypeError, match="too many positional arguments"):
        work.enqueue(1, "mine")


@pytest.mark.parametrize("call", [{"args": [1, "mine"]}, {"args": [1], "kwargs": {"given": "mine"}}])
def test_another_client_cannot_send_it_either(mq: EchoMQ, queue: str, call: dict[str, Any], dead_rows: Rows) -> None:
    import json

    from echomq import mint

    job_of(mq, "plain", value, lambda sent, given: heard.append("ran"))
    mq.run(jobs.enqueue(queue, mint(), json.dumps({"v": 1, "job": "work"} | call)))
    burst(mq)
    assert heard == []
    assert b"the arguments do not fit" in dead_rows()[0]["last_error"]


def test_it_is_given_by_hand_where_the_function_is_called_by_hand() -> None:
    mq = EchoMQ("valkey://localhost")

    @mq.job
    def work(sent: int, db: str = Depends(value)) -> str:
        return f"{sent} {db.upper()}"

    assert work(1, "db") == work(1, db="db") == "1 DB"
    with pytest.raises(AttributeError, match=r"'upper' of Depends\(value\), which was not filled in"):
        work(1)


# Written wrongly


def needs_more(one: int, two: int = 2) -> None: ...


def job_scope() -> str:
    return ""


def of_worker(part: str = Depends(job_scope)) -> str:
    return part


def circle(part: Any = None) -> None: ...


circle.__defaults__ = (Depends(circle),)


def refused(function: Callable[..., object], pattern: str) -> None:
    with pytest.raises(JobDefinitionError, match=pattern):
        EchoMQ("valkey://localhost").job(name="work")(function)


def test_a_dependency_that_cannot_be_made_is_refused() -> None:
    def more(given: Any = Depends(needs_more)) -> None: ...
    def scopes(given: str = Depends(of_worker, scope="worker")) -> None: ...
    def round_(given: Any = Depends(circle)) -> None: ...
    def behind(given: str = Depends(value), sent: int = 1) -> None: ...
    def many(given: str = Depends(value), *rest: int) -> None: ...
    def only(given: str = Depends(value), /) -> None: ...

    refused(more, "dependency needs_more needs an argument 'one'")
    refused(scopes, 'dependency of_worker lives as long as the worker and needs job_scope.*scope="worker"')
    refused(round_, "dependencies go round in a circle: circle -> circle")
    refused(behind, r"argument 'sent' of job 'work' stands behind one that is filled in")
    refused(many, "argument 'rest' of job 'work' stands behind")
    refused(only, "argument 'given' of job 'work' is positional only")


def test_depends_takes_a_function_and_a_scope() -> None:
    wrong: Any = 5
    with pytest.raises(InvalidInputError, match=r"Depends takes a function, not 5"):
        Depends(wrong)
    scope: Any = "app"
    with pytest.raises(InvalidInputError, match="scope must be 'job' or 'worker', not 'app'"):
        Depends(value, scope=scope)
    found: Any = Depends(value)
    assert isinstance(found, Dependency)
