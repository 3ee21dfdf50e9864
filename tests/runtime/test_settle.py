"""What a handler returns or raises becomes what the server is told, with its text and its counts."""

from __future__ import annotations

import asyncio
import functools
import threading
from typing import Any

import pytest

from echomq import jobs
from echomq.identity.errors import InvalidInputError
from echomq.protocol.backoff import Fixed
from echomq.protocol.replies import Claimed
from echomq.runtime import Bury, Done, InThread, Later, Retry, Router
from echomq.runtime.outcome import MAX_TEXT, failure_text
from echomq.wire import aconnect
from support.desk import Desk, until

MINUTE = 60_000


class OddError(Exception):
    pass


async def test_a_raise_is_a_retry_with_its_text_and_delay(desk: Desk) -> None:
    (job_id,) = desk.enqueue()

    async def handler(job: Claimed) -> None:
        raise OddError("no such file: ä")

    before = desk.raw.now_ms()
    async with desk.consuming(handler, retry_delay=Fixed(MINUTE)) as consumer:
        await until(lambda: consumer.tally.retried == 1)
    row = desk.row(job_id)
    assert row["state"] == "scheduled"
    assert row["failures"] == "1"
    assert row["attempts"] == "1"
    assert row["last_error"].startswith("OddError: no such file: ä\n")
    assert "test_settle.py" in row["last_error"]
    score = int(desk.raw.execute("ZSCORE", desk.key("schedule"), job_id))
    assert before + MINUTE <= score <= desk.raw.now_ms() + MINUTE


async def test_the_failure_that_reaches_max_attempts_buries(desk: Desk) -> None:
    (job_id,) = desk.enqueue()
    seen: list[tuple[int, int]] = []

    async def handler(job: Claimed) -> None:
        seen.append((job.attempts, job.failures))
        raise OddError(f"try {job.attempts}")

    async with desk.consuming(handler, retry_delay=Fixed(0), max_attempts=3) as consumer:
        await until(lambda: consumer.tally.buried == 1)
    assert seen == [(1, 0), (2, 1), (3, 2)]
    row = desk.row(job_id)
    assert (row["state"], row["failures"]) == ("dead", "3")
    assert row["last_error"].startswith("OddError: try 3")
    assert desk.size("dead") == 1


async def test_a_policy_sees_the_failures_and_its_own_fault_costs_nothing(desk: Desk) -> None:
    asked: list[int] = []

    def policy(failures: int) -> int:
        asked.append(failures)
        if failures == 2:
            raise OddError("no idea")
        return 0

    desk.enqueue()

    async def handler(job: Claimed) -> None:
        raise OddError

    async with desk.consuming(handler, retry_delay=policy, max_attempts=4) as consumer:
        await until(lambda: consumer.tally.buried == 1)
    assert asked == [1, 2, 3]


async def test_snoozing_spends_no_attempt(desk: Desk) -> None:
    desk.enqueue()
    runs: list[Claimed] = []

    async def handler(job: Claimed) -> object:
        runs.append(job)
        return Later(1) if len(runs) < 5 else Done()

    async with desk.consuming(handler, max_attempts=1) as consumer:
        await until(lambda: consumer.tally.completed == 1)
        assert consumer.tally.snoozed == 4
    assert [job.attempts for job in runs] == [1, 2, 3, 4, 5]
    assert {job.failures for job in runs} == {0}
    assert desk.size("dead") == 0


async def test_an_outcome_may_say_its_own_delay_and_limit(desk: Desk) -> None:
    first, second, third = desk.enqueue(count=3)

    async def handler(job: Claimed) -> object:
        if job.id == first:
            return Retry("later", delay_ms=MINUTE)
        if job.id == second:
            return Retry("once only", max_attempts=1)
        return Bury("cannot be read")

    async with desk.consuming(handler, concurrency=3, retry_delay=Fixed(0)) as consumer:
        await until(lambda: consumer.tally.retried + consumer.tally.buried == 3)
    assert desk.row(first)["state"] == "scheduled"
    assert int(desk.raw.execute("ZSCORE", desk.key("schedule"), first)) > desk.raw.now_ms() + MINUTE // 2
    assert (desk.row(second)["state"], desk.row(second)["last_error"]) == ("dead", "once only")
    assert (desk.row(third)["state"], desk.row(third)["last_error"]) == ("dead", "cannot be read")


@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError("mine"), GeneratorExit(), BaseException("?")]
)
async def test_nothing_that_a_handler_raises_ends_the_consumer(desk: Desk, error: BaseException) -> None:
    bad, _ = desk.enqueue(count=2)

    async def handler(job: Claimed) -> None:
        if job.id == bad:
            raise error

    async with desk.consuming(handler, retry_delay=Fixed(MINUTE)) as consumer:
        await until(lambda: consumer.tally.completed == 1 and consumer.tally.retried == 1)
    assert desk.row(bad)["last_error"].startswith(type(error).__name__)


class RiddleError(Exception):
    """Raises whenever somebody looks at it."""

    raised: type[BaseException] = RuntimeError

    def _raise(self, *_: object) -> Any:
        raise self.raised

    __str__ = __repr__ = _raise
    __traceback__ = __cause__ = __context__ = __notes__ = __class__ = property(_raise)  # type: ignore[assignment]


class Nameless(type):
    """A class whose name raises."""

    def __getattribute__(cls, name: str) -> Any:
        if name in ("__name__", "__qualname__"):
            raise SystemExit
        return super().__getattribute__(name)


class Text(str):
    """A text that raises whenever it is used."""

    def __format__(self, _: str) -> str:
        raise KeyboardInterrupt

    encode = __len__ = __bool__ = __str__ = __getitem__ = __add__ = __format__  # type: ignore[assignment]


class SphinxError(Exception, metaclass=Nameless):
    """Nameless, and its text is a riddle too."""

    def __str__(self) -> str:
        return Text("told")


@pytest.mark.parametrize("raised", [RuntimeError, SystemExit, KeyboardInterrupt, GeneratorExit])
@pytest.mark.parametrize("kind", ["thread", "coroutine", "routed"])
async def test_an_error_that_raises_when_it_is_looked_at_is_a_failure_all_the_same(
    desk: Desk, kind: str, raised: type[BaseException]
) -> None:
    bad, worse, _ = desk.enqueue(count=3)

    def plain(job: Claimed) -> None:
        if job.id == bad:
            riddle = RiddleError()
            riddle.raised = raised
            raise riddle
        if job.id == worse:
            raise SphinxError

    async def coroutine(job: Claimed) -> None:
        plain(job)

    handler = {"thread": plain, "coroutine": coroutine, "routed": Router(plain)}[kind]
    async with desk.consuming(handler, retry_delay=Fixed(MINUTE)) as consumer:
        await until(lambda: consumer.tally.completed == 1 and consumer.tally.retried == 2)
    assert desk.row(bad)["last_error"].startswith(f"RiddleError: <its text raised {raised.__name__}>\n")
    assert "in plain" in desk.row(bad)["last_error"]
    assert desk.row(worse)["last_error"].startswith("SphinxError: told\n")


@pytest.mark.parametrize("kind", ["thread", "coroutine", "routed"])
async def test_a_value_that_raises_when_it_is_looked_at_is_a_value(desk: Desk, kind: str) -> None:
    class Value:
        @property
        def __class__(self) -> Any:
            raise SystemExit

        @__class__.setter
        def __class__(self, _: object) -> None: ...

    def plain(job: Claimed) -> object:
        return Value()

    async def coroutine(job: Claimed) -> object:
        return Value()

    desk.enqueue(count=2)
    handler = {"thread": plain, "coroutine": coroutine, "routed": Router(plain)}[kind]
    async with desk.consuming(handler) as consumer:
        await until(lambda: consumer.tally.completed == 2)


async def test_a_plain_function_runs_in_a_thread_and_never_blocks_the_loop(desk: Desk) -> None:
    barrier = threading.Barrier(4, timeout=20)
    threads: set[int] = set()

    def handler(job: Claimed) -> object:
        threads.add(threading.get_ident())
        barrier.wait()
        if job.payload == b"bad":
            raise OddError("in a thread")
        return None

    desk.enqueue(count=3)
    (bad,) = desk.enqueue("bad")
    async with desk.consuming(handler, concurrency=4, retry_delay=Fixed(MINUTE)) as consumer:
        await until(lambda: consumer.tally.completed == 3 and consumer.tally.retried == 1)
    assert len(threads) == 4
    assert threading.get_ident() not in threads
    assert desk.row(bad)["last_error"].startswith("OddError: in a thread")


async def test_a_plain_function_that_gives_a_coroutine_has_it_awaited_on_the_loop(desk: Desk) -> None:
    async def work(job: Claimed) -> object:
        desk.seen.append(job)
        return Later(MINUTE)

    desk.enqueue()
    async with desk.consuming(lambda job: work(job)) as consumer:
        await until(lambda: consumer.tally.snoozed == 1)
    desk.enqueue()
    async with desk.consuming(functools.partial(work)) as consumer:
        await until(lambda: consumer.tally.snoozed == 1)
    assert len(desk.seen) == 2


async def test_a_router_decides_per_job_where_it_runs(desk: Desk) -> None:
    where: dict[bytes, bool] = {}
    home = threading.get_ident()

    async def on_loop(job: Claimed) -> None:
        where[job.payload] = threading.get_ident() == home

    def in_thread(job: Claimed) -> None:
        where[job.payload] = threading.get_ident() == home

    def route(job: Claimed) -> object:
        match job.payload:
            case b"loop":
                return on_loop(job)
            case b"thread":
                return InThread(lambda: in_thread(job))
            case b"raise":
                raise OddError("in the router")
            case _:
                return Bury("unknown")

    for payload in ("loop", "thread", "raise", "other"):
        desk.enqueue(payload)
    async with desk.consuming(Router(route), concurrency=4, retry_delay=Fixed(MINUTE)) as consumer:
        tally = consumer.tally
        await until(lambda: (tally.completed, tally.retried, tally.buried) == (2, 1, 1))
    assert where == {b"loop": True, b"thread": False}


async def test_a_completion_that_comes_too_late_is_said_once_and_ends_there(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    (job_id,) = desk.enqueue()
    started, go = asyncio.Event(), asyncio.Event()

    async def handler(job: Claimed) -> None:
        started.set()
        await go.wait()

    async with desk.consuming(handler, beat_ms=MINUTE) as consumer, aconnect(desk.server.url) as other:
        await started.wait()
        # Its lease lapses as it does when a worker is frozen: swept, and claimed by another.
        desk.raw.execute("ZADD", desk.key("active"), "1", job_id)
        await other.run(jobs.sweep(desk.queue, max_stalled=5))
        again = await other.run(jobs.claim(desk.queue))
        assert again is not None
        assert again.attempts == 2
        go.set()
        await until(lambda: consumer.tally.refused == 1)
        await consumer.beat()
        assert await other.run(jobs.complete(desk.queue, job_id, 2))
    assert len([r for r in caplog.records if "too late" in r.getMessage()]) == 1
    assert consumer.degraded.count == 0


def test_a_failures_text_is_bounded_and_survives_a_broken_str() -> None:
    class BrokenError(Exception):
        def __str__(self) -> str:
            raise OddError

    def deep(n: int) -> None:
        if n:
            deep(n - 1)
        raise OddError("x" * 100_000 + "\udc80")

    assert failure_text(BrokenError()).endswith("BrokenError: <its text raised OddError>")
    try:
        deep(200)
    except OddError as error:
        text = failure_text(error)
    assert text.startswith("OddError: xxx")
    assert len(text.encode("utf-8", "backslashreplace")) <= MAX_TEXT
    assert "deep(n - 1)" in text


@pytest.mark.parametrize(
    "build",
    [
        lambda: Later(-1),
        lambda: Later(1.5),
        lambda: Later(2**53 - 1),
        lambda: Retry("x", delay_ms=-1),
        lambda: Retry("x", max_attempts=0),
        lambda: Retry(None),
        lambda: Bury(3),
    ],
)
def test_an_outcome_refuses_what_no_server_could_take(build) -> None:
    with pytest.raises(InvalidInputError):
        build()
