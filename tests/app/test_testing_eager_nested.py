"""`mq.eager()`: coroutines that block on jobs of their own, which a worker allows with a warning, never hang."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import pytest

from echomq import Depends, EchoMQ, JobContext, Success, current_job
from echomq.app.background import Background
from echomq.errors import BlockingCallWarning, EchoMQError

pytestmark = [pytest.mark.deadline(20), pytest.mark.filterwarnings("ignore::echomq.errors.BlockingCallWarning")]

WORD: ContextVar[str] = ContextVar("word", default="none")


@pytest.fixture
def mq() -> EchoMQ:
    """Its server is not there, and nothing asks for it."""
    return EchoMQ("valkey://localhost:1")


def test_a_coroutine_may_block_on_any_job(mq: EchoMQ) -> None:
    @mq.job(name="plain")
    def plain(number: int) -> tuple[int, str]:
        return number, threading.current_thread().name

    @mq.job(name="awaited")
    async def awaited(number: int) -> tuple[int, str]:
        return number, WORD.get()

    @mq.job(name="outer")
    async def outer() -> list[object]:
        WORD.set("outer")
        with pytest.warns(BlockingCallWarning):
            first = plain.enqueue(1)
        many = mq.enqueue_many([awaited.s(3), plain.s(4)])
        here = threading.current_thread().name
        assert first.get() == (1, here)
        return [awaited.enqueue(2).get()[1], [each.get()[0] for each in many], current_job().name]

    before = threading.active_count()
    with mq.eager():
        assert outer.enqueue().get() == ["outer", [3, 4], "outer"]
        assert len(mq.enqueued()) == 5
        assert threading.active_count() <= before + 1, "the stand-in loops have ended"


def test_they_nest_as_deep_as_they_like_also_through_threads(mq: EchoMQ) -> None:
    @mq.job(name="down")
    async def down(left: int) -> int:
        if not left:
            return 0
        below = through if left % 3 == 0 else down
        job = await below.aenqueue(left - 1) if left % 2 else below.enqueue(left - 1)
        return 1 + await job.result()

    @mq.job(name="through")
    def through(left: int) -> int:
        return 1 + down.enqueue(left - 1).get() if left else 0

    with mq.eager():
        assert down.enqueue(12).get() == 12


async def test_on_the_callers_loop_as_well(mq: EchoMQ) -> None:
    @mq.job(name="inner")
    async def inner() -> int:
        return 1

    @mq.job(name="middle")
    async def middle() -> int:
        return inner.enqueue().get() + 1

    @mq.job(name="outer")
    async def outer() -> int:
        return middle.enqueue().get() + 1

    async with mq.eager():
        assert await (await outer.aenqueue()).result() == 3
        assert await outer.enqueue().result() == 3


def test_followers_retries_and_errors_are_what_they_are_elsewhere(mq: EchoMQ) -> None:
    said: list[str] = []

    @mq.job(name="tell")
    async def tell(what: Success) -> None:
        said.append(what.name)

    @mq.job(name="flaky", on_success=tell, max_attempts=3)
    async def flaky() -> int:
        if current_job().attempt < 3:
            raise OSError("not yet")
        return current_job().attempt

    @mq.job(name="broken", max_attempts=1)
    async def broken() -> None:
        raise LookupError("at the bottom")

    @mq.job(name="outer")
    async def outer(well: bool) -> int | None:
        return (flaky if well else broken).enqueue().get()

    with mq.eager(raise_errors=True):
        assert outer.enqueue(True).get() == 3
        assert said == ["flaky"]
        with pytest.raises(LookupError, match="at the bottom"):
            outer.enqueue(False)


def test_hooks_and_dependencies_of_either_kind_run_on_a_loop_that_is_free(mq: EchoMQ) -> None:
    said: list[str] = []

    @mq.middleware
    class Awaits:
        async def before(self, job: JobContext) -> None:
            said.append(f"async {job.name}")

        def after(self, job: JobContext, result: object) -> None:
            said.append(f"plain {job.name}")

    async def made() -> int:
        return 20

    def made_plainly() -> int:
        return 1

    @mq.job(name="plain")
    def plain(a: int = Depends(made), b: int = Depends(made_plainly)) -> int:
        return a + b

    @mq.job(name="awaited")
    async def awaited(a: int = Depends(made), b: int = Depends(made_plainly)) -> int:
        return a + b + plain.enqueue().get()

    @mq.job(name="outer")
    async def outer() -> int:
        return plain.enqueue().get() + awaited.enqueue().get()

    with mq.eager():
        assert outer.enqueue().get() == 63
    assert said == [
        *("async outer", "async plain", "plain plain", "async awaited"),
        *("async plain", "plain plain", "plain awaited", "plain outer"),
    ]


async def test_plain_hooks_serve_the_callers_loop_and_the_other_one(mq: EchoMQ) -> None:
    @mq.middleware
    class Plain:
        def before(self, job: JobContext) -> None:
            WORD.set(job.name)

    @mq.job(name="word")
    async def word() -> str:
        return WORD.get()

    async with mq.eager():
        for _ in range(2):
            assert await (await word.aenqueue()).result() == await word.enqueue().result() == "word"


def test_what_a_worker_begins_with_may_block_on_a_job(mq: EchoMQ) -> None:
    @mq.job(name="warm")
    async def warm() -> int:
        return 7

    @mq.lifespan
    async def life() -> Any:
        yield {"warm": warm.enqueue().get()}

    @mq.job(name="reads")
    def reads() -> object:
        return current_job().state["warm"]

    with mq.eager():
        assert reads.enqueue().get() == 7


@contextmanager
def background() -> Iterator[Background]:
    loop = Background()
    try:
        yield loop
    finally:
        loop.close()


def test_a_call_that_would_wait_for_itself_is_refused() -> None:
    async def inner() -> int:
        return 1

    with background() as loop, background() as other:

        async def outer() -> int:
            return loop.run(inner())

        with pytest.raises(EchoMQError, match="blocking call on the loop that it waits for never ends"):
            loop.run(outer())
        assert other.run(outer()) == loop.run(inner()) == 1
