"""What a worker does with jobs: each runs with its arguments, fails by its own rules, and tells by its end."""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
import threading
import time
from datetime import datetime, timedelta
from typing import Any

import pytest

from echomq import EchoMQ, InvalidInputError, Snooze, Worker, errors, jobs, metrics, mint
from echomq.protocol.replies import Counts, State
from support.apps import Rows, burst, state_is
from support.desk import until
from support.servers import Server


def counts(mq: EchoMQ, queue: str) -> Counts:
    return mq.run(metrics.counts(queue))


def other_client(mq: EchoMQ, queue: str, **members: Any) -> str:
    """A job that a client in another language wrote."""
    job_id = mint()
    mq.run(jobs.enqueue(queue, job_id, json.dumps({"v": 1} | members)))
    return job_id


def test_every_kind_of_function_runs_with_its_arguments(mq: EchoMQ, queue: str) -> None:
    seen: list[object] = []

    @mq.job
    def plain(a: int, when: datetime | None = None) -> None:
        seen.append((a, when, threading.current_thread() is threading.main_thread()))

    @mq.job
    async def coroutine(a: int, *rest: int, b: str) -> None:
        await asyncio.sleep(0)
        seen.append((a, rest, b, threading.current_thread() is threading.main_thread()))

    @mq.job(name="wrapped")
    def wrapped(a: int):
        async def inner() -> None:
            seen.append((a, "awaited"))

        return inner()

    when = datetime(2026, 1, 1, tzinfo=datetime.now().astimezone().tzinfo)
    plain.enqueue(1, when)
    coroutine.enqueue(2, 3, 4, b="five")
    wrapped.enqueue(6)
    burst(mq)
    assert sorted(seen, key=str) == sorted([(1, when, False), (2, (3, 4), "five", True), (6, "awaited")], key=str)
    assert counts(mq, queue) == Counts(0, 0, 0, 0, completed=3, failed=0)


def test_a_burst_takes_what_its_jobs_send_and_leaves_what_is_for_later(mq: EchoMQ, queue: str) -> None:
    seen: list[int] = []

    @mq.job
    async def count_down(n: int) -> None:
        seen.append(n)
        if n:
            await count_down.aenqueue(n - 1)

    @mq.job(queue=f"{queue}-other")
    def bounce(n: int) -> None:
        count_down.enqueue(n)

    count_down.after(hours=1).enqueue(99)
    bounce.enqueue(5)
    burst(mq)
    assert seen == [5, 4, 3, 2, 1, 0]
    assert counts(mq, queue).schedule == 1


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_no_exit_of_a_job_ends_the_worker(mq: EchoMQ, dead_rows: Rows, error: type[BaseException]) -> None:
    class Riddle(Exception):  # noqa: N818
        @property
        def __class__(self) -> Any:
            raise error

        @property
        def __traceback__(self) -> Any:
            raise error

        def __str__(self) -> str:
            raise error

    @mq.job(max_attempts=1)
    async def coroutine(riddle: bool) -> None:
        raise Riddle if riddle else error

    @mq.job(max_attempts=1)
    def plain(riddle: bool) -> None:
        raise Riddle if riddle else error

    for job in (coroutine, plain):
        for riddle in (False, True):
            job.enqueue(riddle)
    burst(mq)
    name = error.__name__
    texts = sorted(row["last_error"].decode().split("\n")[0].rpartition(".")[2] for row in dead_rows())
    assert texts == sorted([name, name, *[f"Riddle: <its text raised {name}>"] * 2])


def test_a_burst_over_nothing_ends_every_time(mq: EchoMQ, queue: str) -> None:
    @mq.job
    async def never() -> None: ...

    @mq.job(queue=f"{queue}-other")
    async def nowhere() -> None: ...

    began = time.monotonic()
    for _ in range(20):
        burst(mq)
    assert time.monotonic() - began < 30
    assert counts(mq, queue) == Counts(0, 0, 0, 0, completed=0, failed=0)


def test_only_the_queues_that_it_is_told(mq: EchoMQ, queue: str) -> None:
    seen: list[str] = []

    @mq.job
    def here() -> None:
        seen.append("here")

    @mq.job(queue=f"{queue}-there")
    def there() -> None:
        seen.append("there")

    here.enqueue()
    there.enqueue()
    burst(mq, queues=[f"{queue}-there"])
    assert seen == ["there"]
    burst(mq)
    assert seen == ["there", "here"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"queues": ["maill"]}, r"no job is in queue 'maill'; there are jobs in 'mail'"),
        ({"queues": []}, "one queue or more"),
        ({"queues": "mail"}, r"a list of names, not a text; write queues=\['mail'\]"),
        ({"queues": ["mail", 5]}, "a list of names, not of int: 5"),
        ({"concurrency": 100_001}, "concurrency must be from 1 to 100000, not 100001"),
        ({"concurrency": 0}, "concurrency"),
        ({"grace": timedelta(seconds=-1)}, "grace"),
        ({"lease": timedelta(0)}, "lease"),
    ],
)
def test_a_worker_that_is_set_up_wrongly_is_refused(options, why) -> None:
    mq = EchoMQ("valkey://localhost:1")
    with pytest.raises(InvalidInputError, match="no jobs yet"):
        Worker(mq)
    mq.job(queue="mail", name="work")(lambda: None)
    with pytest.raises(InvalidInputError, match=why):
        Worker(mq, **options)


def test_an_annotation_that_no_job_can_serve_stops_the_worker_at_its_start(mq: EchoMQ) -> None:
    def work(a: datetime | str) -> None: ...

    work.__annotations__["a"] = "Later"  # known only once the job is written
    mq.job(work)
    work.__annotations__["a"] = datetime | str
    with pytest.raises(errors.JobDefinitionError, match="are all text there"):
        burst(mq)


def test_a_server_that_is_not_there_is_told() -> None:
    mq = EchoMQ("valkey://localhost:1")
    mq.job(name="work")(lambda: None)
    with pytest.raises(errors.ConnectError, match="localhost:1"):
        burst(mq)


async def test_a_failure_is_retried_by_the_jobs_own_rules(mq: EchoMQ, working, queue: str) -> None:
    times: list[float] = []

    @mq.job(max_attempts=3, backoff=lambda failures: 20 * failures)
    async def flaky() -> None:
        times.append(time.monotonic())
        if len(times) < 3:
            raise ValueError("not yet")

    job = await flaky.aenqueue()
    async with working():
        await state_is(job, State.ABSENT)
    assert len(times) == 3
    assert times[1] - times[0] >= 0.02
    assert times[2] - times[1] >= 0.04


@pytest.mark.parametrize("kind", ["plain", "coroutine"])
def test_the_last_failure_buries_with_its_text(mq: EchoMQ, dead_rows: Rows, kind: str) -> None:
    if kind == "plain":

        @mq.job(max_attempts=1)
        def fails() -> None:
            raise ValueError("so not")
    else:

        @mq.job(max_attempts=1)
        async def fails() -> None:
            raise ValueError("so not")

    fails.enqueue()
    burst(mq)
    (row,) = dead_rows()
    first, _, trace = row["last_error"].decode().partition("\n")
    assert first == "ValueError: so not"
    assert "in fails" in trace
    assert "dispatch.py" not in trace
    assert row["failures"] == b"1"


class Odd(BaseException):
    pass


@pytest.mark.parametrize(
    "error", [SystemExit(3), Odd("x"), asyncio.CancelledError(), StopIteration(1), GeneratorExit()]
)
@pytest.mark.parametrize("kind", ["plain", "coroutine"])
def test_nothing_that_a_job_raises_ends_the_worker(mq: EchoMQ, dead_rows: Rows, queue: str, kind, error) -> None:
    def plain() -> None:
        raise error

    async def coroutine() -> None:
        raise error

    job = mq.job(name="odd", max_attempts=1)(plain if kind == "plain" else coroutine)
    job.enqueue()
    mq.job(name="even")(lambda: None).enqueue()
    burst(mq)
    (row,) = dead_rows()
    # Python itself turns a StopIteration in a coroutine into a RuntimeError.
    expected = "RuntimeError" if kind == "coroutine" and isinstance(error, StopIteration) else type(error).__name__
    assert row["last_error"].decode().startswith(expected)
    assert counts(mq, queue).completed == 1


def test_a_backoff_that_fails_does_not_lose_the_job(mq: EchoMQ, queue: str, caplog: pytest.LogCaptureFixture) -> None:
    @mq.job(backoff=lambda failures: -1)
    def fails() -> None:
        raise ValueError

    fails.enqueue()
    burst(mq)
    assert counts(mq, queue).schedule == 1
    assert "gives no delay" in caplog.text


@pytest.mark.parametrize("kind", ["plain", "coroutine"])
def test_a_snooze_is_a_delay_in_hand_and_spends_no_attempt(mq: EchoMQ, queue: str, kind: str) -> None:
    def plain() -> None:
        raise Snooze(minutes=5)

    async def coroutine() -> None:
        raise Snooze(timedelta(minutes=5))

    job = mq.job(name="snoozes", max_attempts=1)(plain if kind == "plain" else coroutine)
    sent = job.enqueue()
    for turn in range(1, 4):
        before = time.time() * 1_000
        burst(mq)
        row = mq.run(metrics.row(queue, sent.id))
        assert (row["state"], row["attempts"], row.get("failures", b"0")) == (b"scheduled", b"%d" % turn, b"0")
        assert "last_error" not in row
        score = float(mq.connection().execute("ZSCORE", f"emq:{{{queue}}}:schedule", sent.id))  # type: ignore[arg-type]
        assert before + 300_000 - 1 <= score <= time.time() * 1_000 + 300_000
        mq.run(jobs.reschedule(queue, sent.id, at_ms=0))
    assert counts(mq, queue).schedule == 1


def test_what_other_clients_set_in_the_envelope_counts(mq: EchoMQ, queue: str, dead_rows: Rows) -> None:
    seen: list[str] = []

    @mq.job(name="work")
    async def work(what: str = "ok") -> None:
        seen.append(what)
        if what == "fail":
            raise ValueError("no")
        if what == "sleep":
            await asyncio.sleep(60)

    now = time.time_ns() // 1_000_000
    other_client(mq, queue, job="work", expires_ms=now - 1)
    other_client(mq, queue, job="work", kwargs={"what": "fresh"}, expires_ms=now + 60_000, future={"a": 1})
    other_client(mq, queue, job="work", kwargs={"what": "fail"}, max_attempts=1)
    other_client(mq, queue, job="work", args=["sleep"], timeout_ms=20, max_attempts=1)
    burst(mq)
    assert seen == ["fresh", "fail", "sleep"]
    texts = [row["last_error"].decode().partition("\n")[0] for row in dead_rows()]
    assert texts[0].startswith("expired: it was not to start after")
    assert texts[1:] == ["ValueError: no", "TimeoutError: not done after 20 ms"]


@pytest.mark.parametrize("member", ["max_attempts", "timeout_ms"])
@pytest.mark.parametrize("number", [2**53, 2**63, 10**300])
def test_a_number_beyond_all_counting_does_not_cost_a_job_its_own_error(
    mq: EchoMQ, queue: str, member: str, number: int
) -> None:
    @mq.job(name="work", max_attempts=2**53 - 1)
    async def work() -> None:
        raise ValueError("my own")

    job_id = other_client(mq, queue, job="work", **{member: number})
    burst(mq)
    row = mq.run(metrics.row(queue, job_id))
    assert row["last_error"].decode().startswith("ValueError: my own")
    assert (row["state"], row["failures"]) == (b"scheduled", b"1")


def test_a_timeout_of_the_jobs_own_is_its_own(mq: EchoMQ, queue: str, dead_rows: Rows) -> None:
    @mq.job(name="work", max_attempts=1)
    async def work() -> None:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(60)

    other_client(mq, queue, job="work", timeout_ms=60_000)
    burst(mq)
    (row,) = dead_rows()
    assert row["last_error"].startswith(b"TimeoutError\n")


def test_context_variables_reach_threads(mq: EchoMQ) -> None:
    seen: list[str] = []
    variable = contextvars.ContextVar("variable", default="unset")

    @mq.job
    def work() -> None:
        seen.append(variable.get())

    work.enqueue()
    context = contextvars.copy_context()
    context.run(variable.set, "set")
    context.run(burst, mq)
    assert seen == ["set"]


async def test_jobs_of_a_queue_run_beside_each_other_up_to_the_limit(mq: EchoMQ, working) -> None:
    running, most = 0, 0
    gate = asyncio.Event()
    full = asyncio.Event()

    @mq.job
    async def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 3:
            full.set()
        await gate.wait()
        running -= 1

    await asyncio.gather(*(work.aenqueue() for _ in range(9)))
    async with working(concurrency=3) as worker:
        await full.wait()
        gate.set()
        await until(lambda: sum(each.tally.completed for each in worker.consumers) == 9)
    assert most == 3


def test_one_line_a_job_without_its_payload(mq: EchoMQ, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "echomq.worker")

    @mq.job(name="send")
    def send(secret: str) -> None: ...

    job = send.enqueue("hush")
    burst(mq)
    lines = [record.getMessage() for record in caplog.records if job.id in record.getMessage()]
    assert len(lines) == 1
    assert lines[0].startswith(f"{job.id} send attempt 1 done, ")
    assert "hush" not in caplog.text


def test_a_worker_can_run_again(mq: EchoMQ, queue: str) -> None:
    @mq.job
    def work() -> None: ...

    worker = Worker(mq, burst=True)
    for _ in range(2):
        work.enqueue()
        worker.run()
    assert counts(mq, queue).completed == 2


async def test_it_bears_a_server_that_comes_and_goes(start_server, queue: str) -> None:
    server: Server = start_server(aof=True)
    seen: asyncio.Queue[int] = asyncio.Queue()
    mq = EchoMQ(server.url, default_queue=queue)

    @mq.job
    async def work(n: int) -> None:
        await seen.put(n)

    worker = Worker(mq, grace=timedelta(seconds=1))
    serving = asyncio.ensure_future(worker.serve())
    await work.aenqueue(1)
    assert await seen.get() == 1
    await asyncio.to_thread(server.restart)
    while True:
        try:
            await work.aenqueue(2)
            break
        except errors.WireError:
            await asyncio.sleep(0.05)
    assert await seen.get() == 2
    worker.stop()
    await serving
    await mq.aclose()
