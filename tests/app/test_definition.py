"""What `@mq.job(...)` says: names that jobs wait under, limits and places that every send begins with."""

from __future__ import annotations

import asyncio
import json
import warnings
from collections.abc import Callable
from datetime import timedelta

import pytest

from echomq import EchoMQ, InvalidInputError, Worker, current_job, jobs, metrics, mint
from echomq.errors import JobDefinitionError, PayloadTooLargeError, UndeclaredQueueWarning
from support.apps import burst, envelope
from support.servers import Server

HOUR = timedelta(hours=1)


# Names


def test_a_renamed_function_still_runs_what_waits_under_its_old_names(mq: EchoMQ, queue: str) -> None:
    seen: list[tuple[str, str]] = []

    @mq.job(name="mail.send", aliases=["tasks.send", "old.send"])
    async def send(to: str) -> None:
        seen.append((current_job().name, to))

    for name in ("tasks.send", "old.send", "mail.send"):
        mq.run(jobs.enqueue(queue, mint(), json.dumps({"v": 1, "job": name, "args": [name]})))
    assert envelope(mq, send.enqueue("new"))["job"] == "mail.send"
    burst(mq)
    assert sorted(seen) == [("mail.send", each) for each in ("mail.send", "new", "old.send", "tasks.send")]
    assert list(mq.jobs) == ["mail.send"]


def test_a_new_argument_with_a_default_takes_old_payloads(mq: EchoMQ, queue: str) -> None:
    seen: list[tuple[str, str, int]] = []

    @mq.job(name="send")
    async def send(to: str, subject: str = "hi", *, priority: int = 0) -> None:
        seen.append((to, subject, priority))

    for call in ({"args": ["a"]}, {"args": ["b", "ho"]}, {"kwargs": {"to": "c"}}):
        mq.run(jobs.enqueue(queue, mint(), json.dumps({"v": 1, "job": "send", **call})))
    burst(mq)
    assert sorted(seen) == [("a", "hi", 0), ("b", "ho", 0), ("c", "hi", 0)]


def one() -> None: ...


def two() -> None: ...


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        ({"name": "a"}, {"name": "a"}, r"two jobs are named 'a', one \(.*\) and two \(.*\): give one of them another"),
        ({"name": "a", "aliases": ["old"]}, {"name": "old"}, "'old' is an alias of the job 'a', one .* the name of"),
        ({"name": "a"}, {"name": "b", "aliases": ["a"]}, "'a' is the name of the job 'a', one .* an alias of the job"),
        ({"name": "a", "aliases": ["old"]}, {"name": "b", "aliases": ["old"]}, "'old' is an alias of .* an alias of"),
    ],
)
def test_a_name_that_would_mean_two_jobs_is_refused(mq: EchoMQ, first, second, why) -> None:
    job = mq.job(**first)(one)
    with pytest.raises(JobDefinitionError, match=why):
        mq.job(**second)(two)
    assert dict(mq.jobs) == {"a": job}
    assert set(mq.names.values()) == {job}


def test_a_module_that_is_imported_again_changes_its_aliases(mq: EchoMQ) -> None:
    def work() -> None: ...

    mq.job(name="work", aliases=["old", "older"])(work)
    again = mq.job(name="work", aliases=["old"])(work)
    assert dict(mq.names) == {"work": again, "old": again}


# What every send begins with


def test_what_a_job_says_of_its_sends_is_where_each_begins(mq: EchoMQ, queue: str) -> None:
    @mq.job(name="work", lane="acme", expires=HOUR, meta={"team": "ops"})
    def work() -> None: ...

    for job in (work.enqueue(), mq.enqueue_many([work.s()])[0], work.options(max_attempts=5).enqueue()):
        sent = envelope(mq, job)
        assert sent["meta"] == {"team": "ops"}
        assert abs(sent["expires_ms"] - job.minted_ms - 3_600_000) < 60_000
        assert mq.run(metrics.row(queue, job.id))["group"].decode() == mq.lane("acme").id
    other = work.options(lane="zeta", meta={"team": "web"}).enqueue()
    assert envelope(mq, other)["meta"] == {"team": "web"}
    assert mq.run(metrics.row(queue, other.id))["group"].decode() == mq.lane("zeta").id


def test_a_timeout_of_the_job_holds_where_nothing_else_was_sent(mq: EchoMQ) -> None:
    seen: list[int | None] = []

    @mq.job(name="work", timeout=HOUR)
    async def work() -> None:
        seen.append(current_job().limit_ms)

    assert "timeout_ms" not in envelope(mq, work.enqueue())
    work.options(timeout=timedelta(minutes=1)).enqueue()
    burst(mq)
    assert seen == [3_600_000, 60_000]


@pytest.mark.parametrize(
    ("options", "error", "why"),
    [
        ({"timeout": timedelta(0)}, InvalidInputError, "timeout needs a span of time above zero"),
        ({"timeout": 5}, InvalidInputError, "timeout must be a timedelta"),
        ({"expires": timedelta(-1)}, InvalidInputError, "expires needs a span of time above zero"),
        ({"lane": ""}, InvalidInputError, "lane"),
        ({"meta": [1]}, InvalidInputError, "meta must be a mapping"),
        (
            {"aliases": "old"},
            JobDefinitionError,
            r"aliases must be a list of names, not a text; write aliases=\['old'\]",
        ),
        ({"aliases": 5}, JobDefinitionError, "aliases must be a list of names, not 5"),
        ({"aliases": [5]}, InvalidInputError, "an alias of a job must be str"),
        ({"aliases": [""]}, InvalidInputError, "an alias of a job"),
        ({"tries": 5}, TypeError, "job[(][)] got an unexpected keyword argument 'tries'; it takes name, aliases, "),
        ({"max_attempt": 5}, TypeError, "'max_attempt'; did you mean max_attempts"),
    ],
)
def test_what_is_wrong_is_refused_where_it_is_written(mq: EchoMQ, options, error, why) -> None:
    with pytest.raises(error, match=why):
        mq.job(**options)


def test_a_mebibyte_is_the_limit_unless_told_otherwise(mq: EchoMQ) -> None:
    @mq.job(name="work")
    def work(text: str) -> None: ...

    work.enqueue("a" * (1024 * 1024 - 100))
    with pytest.raises(
        PayloadTooLargeError, match=r"job 'work' is 1,048,6\d\d bytes; at most 1,048,576 are allowed: keep"
    ):
        work.enqueue("a" * (1024 * 1024))


# Queues that no job is in


@pytest.mark.parametrize("way", ["enqueue", "aenqueue", "s"])
def test_a_queue_that_no_worker_of_the_app_serves_is_warned_of_once(server: Server, queue: str, way: str) -> None:
    with EchoMQ(server.url, default_queue=queue) as mq:

        @mq.job(name="work")
        def work() -> None: ...

        sends: dict[str, Callable[[], object]] = {
            "enqueue": work.options(queue=f"{queue}-ops").enqueue,
            "aenqueue": lambda: asyncio.run(awaited()),
            "s": lambda: mq.enqueue_many([work.options(queue=f"{queue}-ops").s()]),
        }

        async def awaited() -> None:
            await work.options(queue=f"{queue}-ops").aenqueue()

        with pytest.warns(UndeclaredQueueWarning) as caught:
            sends[way]()
        assert str(caught[0].message) == (
            f"no job of this app is in queue '{queue}-ops', so none of its workers serves it: declare it with "
            f"EchoMQ(queues=['{queue}-ops']), or use one of '{queue}'"
        )
        assert caught[0].filename == __file__
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            sends[way]()
        assert mq.run(metrics.counts(f"{queue}-ops")).pending == 2


def test_a_queue_that_the_app_declares_is_served(server: Server, queue: str) -> None:
    with EchoMQ(server.url, default_queue=queue, queues=[f"{queue}-ops"]) as mq:
        seen: list[str] = []

        @mq.job(name="work")
        async def work() -> None:
            seen.append(current_job().queue)

        work.options(queue=f"{queue}-ops").enqueue()
        work.enqueue()
        burst(mq, queues=[f"{queue}-ops"])
        assert seen == [f"{queue}-ops"]
        burst(mq)
        assert seen == [f"{queue}-ops", queue]
        assert Worker(mq).queues == (queue, f"{queue}-ops")
        with pytest.raises(InvalidInputError, match=rf"no job is in queue '{queue}-opps'; .*'{queue}-ops'"):
            Worker(mq, queues=[f"{queue}-opps"])


@pytest.mark.parametrize(
    ("queues", "why"),
    [
        ("ops", r"queues must be a list of names, not a text; write queues=\['ops'\]"),
        (5, "queues must be a list of names, not 5"),
        (["a b"], "queue name 'a b'"),
        ([5], "queue name must be str"),
    ],
)
def test_what_declares_no_queue_is_refused(queues, why) -> None:
    with pytest.raises(InvalidInputError, match=why):
        EchoMQ(queues=queues)
