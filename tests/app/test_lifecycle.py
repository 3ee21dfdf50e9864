"""What a worker begins with and ends with: in order and in reverse, once a process, and never by halves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any

import pytest

from echomq import Depends, EchoMQ, InvalidInputError, Worker, current_job
from echomq.errors import StartupError
from support.apps import burst
from support.desk import until


def noted(mq: EchoMQ) -> list[str]:
    """What happens in the life of a worker, as it happens."""
    heard: list[str] = []

    @mq.on_startup
    def first() -> None:
        heard.append("startup")

    @mq.on_shutdown
    async def last() -> None:
        await asyncio.sleep(0)
        heard.append("shutdown")

    @mq.lifespan
    async def life() -> AsyncIterator[dict[str, object]]:
        heard.append("life begins")
        yield {"number": 7}
        heard.append("life ends")

    @mq.lifespan
    def plain() -> Iterator[None]:
        heard.append("plain begins")
        yield
        heard.append("plain ends")

    @mq.on_startup
    async def second() -> None:
        heard.append("second startup")

    return heard


BEGUN = ["startup", "life begins", "plain begins", "second startup"]
ENDED = ["plain ends", "life ends", "shutdown"]


def test_it_begins_in_order_and_ends_in_reverse_around_all_jobs(mq: EchoMQ) -> None:
    heard = noted(mq)

    @mq.job
    def work() -> None:
        heard.append("job")

    for _ in range(3):
        work.enqueue()
    burst(mq)
    assert heard == [*BEGUN, "job", "job", "job", *ENDED]


def test_a_worker_that_runs_again_begins_again(mq: EchoMQ) -> None:
    heard = noted(mq)

    @mq.job
    def work() -> None: ...

    worker = Worker(mq, burst=True)
    worker.run()
    worker.run()
    assert heard == [*BEGUN, *ENDED] * 2


def test_what_lifespans_yield_is_in_the_state_of_every_job_and_belongs_to_it(mq: EchoMQ) -> None:
    noted(mq)
    seen: list[dict[str, object]] = []

    @mq.job
    def work() -> None:
        seen.append(dict(current_job().state))
        current_job().state["number"] = 8

    work.enqueue()
    work.enqueue()
    burst(mq)
    assert seen == [{"number": 7}] * 2


def test_a_failure_ends_what_was_begun_and_the_worker_claims_nothing(mq: EchoMQ) -> None:
    heard = noted(mq)

    @mq.on_startup
    def fails() -> None:
        raise ConnectionError("no database")

    @mq.on_shutdown
    def never() -> None:
        heard.append("never")

    @mq.job
    def work() -> None:
        heard.append("job")

    work.enqueue()
    with pytest.raises(StartupError, match=r"the startup hook .*fails raised ConnectionError: no database") as caught:
        burst(mq)
    assert isinstance(caught.value.__cause__, ConnectionError)
    assert heard == [*BEGUN, *ENDED]


def test_a_failure_at_the_end_is_logged_and_stops_nobody_else(mq: EchoMQ, caplog: pytest.LogCaptureFixture) -> None:
    heard = noted(mq)

    @mq.on_shutdown
    def fails() -> None:
        raise ConnectionError("gone")

    @mq.job
    def work() -> None: ...

    burst(mq)
    assert heard == [*BEGUN, *ENDED]
    (record,) = [each for each in caplog.records if "at the end of the worker" in each.getMessage()]
    assert record.exc_info is not None


async def test_a_stop_while_it_begins_ends_what_was_begun(mq: EchoMQ) -> None:
    heard = noted(mq)
    waits = asyncio.Event()

    @mq.on_startup
    async def hangs() -> None:
        waits.set()
        await asyncio.Event().wait()

    @mq.job
    def work() -> None: ...

    worker = Worker(mq)
    serving = asyncio.ensure_future(worker.serve())
    await waits.wait()
    worker.stop()
    await serving
    assert heard == [*BEGUN, *ENDED]


def test_a_lifespan_is_left_by_the_task_that_has_entered_it(mq: EchoMQ) -> None:
    tasks: list[object] = []

    @mq.lifespan
    async def life() -> AsyncIterator[None]:
        tasks.append(asyncio.current_task())
        async with asyncio.TaskGroup() as group:  # minds who leaves it
            beside = group.create_task(asyncio.Event().wait())
            yield
            beside.cancel()
        tasks.append(asyncio.current_task())

    @mq.job
    def work() -> None: ...

    burst(mq)
    assert len(tasks) == 2
    assert tasks[0] is tasks[1]


def test_dependencies_of_the_worker_are_begun_last_and_before_the_first_job(mq: EchoMQ) -> None:
    heard = noted(mq)

    async def database() -> AsyncIterator[str]:
        heard.append("database opens")
        yield "db"
        heard.append("database closes")

    @mq.job
    def work(db: str = Depends(database, scope="worker")) -> None:
        heard.append(f"job with {db}")

    @mq.job
    async def other(db: str = Depends(database, scope="worker")) -> None:
        heard.append(f"job with {db}")

    work.enqueue()
    other.enqueue()
    burst(mq)
    assert heard == [*BEGUN, "database opens", "job with db", "job with db", "database closes", *ENDED]


def test_a_dependency_of_the_worker_that_fails_stops_it(mq: EchoMQ) -> None:
    heard = noted(mq)

    def database() -> str:
        raise ConnectionError("no database")

    @mq.job
    def work(db: str = Depends(database, scope="worker")) -> None: ...

    with pytest.raises(StartupError, match=r"the dependency .*database raised ConnectionError: no database"):
        burst(mq)
    assert heard == [*BEGUN, *ENDED]


@pytest.mark.parametrize("wrong", [lambda mq: mq.on_startup(5), lambda mq: mq.on_shutdown(None)])
def test_a_hook_is_a_function(wrong: Any) -> None:
    with pytest.raises(InvalidInputError, match="takes a function"):
        wrong(EchoMQ("valkey://localhost"))


def test_a_lifespan_yields_once_a_mapping_or_nothing(mq: EchoMQ) -> None:
    with pytest.raises(InvalidInputError, match="a lifespan is a function that yields once"):
        mq.lifespan(lambda: None)

    @mq.lifespan
    def number() -> Iterator[int]:
        yield 5

    @mq.job
    def work() -> None: ...

    with pytest.raises(StartupError, match="it yields int; a mapping"):
        burst(mq)


@pytest.mark.parametrize("error", [SystemExit(0), KeyboardInterrupt(), asyncio.CancelledError()])
def test_whatever_a_hook_raises_is_its_failure(mq: EchoMQ, error: BaseException) -> None:
    heard = noted(mq)

    @mq.on_startup
    async def fails() -> None:
        raise error

    @mq.job
    def work() -> None: ...

    with pytest.raises(StartupError, match=f"fails raised {type(error).__name__}"):
        burst(mq)
    assert heard == [*BEGUN, *ENDED]


@pytest.mark.parametrize("error", [SystemExit(0), KeyboardInterrupt(), asyncio.CancelledError()])
def test_whatever_is_raised_at_the_end_stops_nobody_else(mq: EchoMQ, error: BaseException) -> None:
    heard = noted(mq)

    @mq.on_shutdown
    async def fails() -> None:
        raise error

    @mq.job
    def work() -> None: ...

    burst(mq)
    assert heard == [*BEGUN, *ENDED]


@pytest.mark.parametrize("stubborn", [False, True])
async def test_what_hangs_at_the_end_is_cut_short_by_a_second_stop(mq: EchoMQ, stubborn: bool) -> None:
    heard = noted(mq)
    hanging, freed = asyncio.Event(), asyncio.Event()

    @mq.on_shutdown
    async def hangs() -> None:
        hanging.set()
        while True:
            try:
                await freed.wait()
            except asyncio.CancelledError:
                if not stubborn:
                    raise
            else:
                return

    @mq.job
    def work() -> None: ...

    worker = Worker(mq)
    serving = asyncio.ensure_future(worker.serve())
    await until(worker.stop_soon)
    await hanging.wait()
    assert not serving.done()
    worker.stop()
    await serving
    assert heard == ([*BEGUN] if stubborn else [*BEGUN, *ENDED])
    freed.set()


async def test_what_does_not_let_itself_be_cancelled_at_the_start_holds_no_stop_up(mq: EchoMQ) -> None:
    begun, freed = asyncio.Event(), asyncio.Event()

    @mq.on_startup
    async def hangs() -> None:
        begun.set()
        while not freed.is_set():
            with suppress(asyncio.CancelledError):
                await freed.wait()

    @mq.job
    def work() -> None: ...

    worker = Worker(mq)
    serving = asyncio.ensure_future(worker.serve())
    await begun.wait()
    worker.stop()
    await asyncio.wait_for(serving, 20)
    freed.set()
