"""The line of a job: once, when the server has confirmed what became of it, with how late it began."""

from __future__ import annotations

import asyncio
import json
import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from echomq import Dedup, Discard, EchoMQ, Snooze, jobs, mint
from echomq.app.joblog import JobLog
from echomq.identity.minter import wall_clock_ms
from support.apps import burst
from support.desk import until
from support.servers import Server

LOGGER = "echomq.worker.jobs"


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, LOGGER)
    return caplog


def told(lines: pytest.LogCaptureFixture) -> list[Any]:
    return [record for record in lines.records if record.name == LOGGER]


def raising(error: BaseException | None) -> Any:
    def work() -> None:
        if error is not None:
            raise error

    return work


@pytest.mark.parametrize(
    ("error", "level", "outcome"),
    [
        (None, "INFO", "done"),
        (ValueError("no"), "WARNING", "failed"),
        (Discard("of no use"), "ERROR", "dead"),
        (Snooze(hours=1), "INFO", "snoozed"),
    ],
)
def test_each_end_has_its_line(mq: EchoMQ, queue: str, lines, error: Any, level: str, outcome: str) -> None:
    job = mq.job(name="work", backoff=lambda failures: 3_600_000)(raising(error)).enqueue()
    burst(mq)
    (line,) = told(lines)
    assert (line.levelname, line.outcome, line.job_id, line.job_name, line.queue) == (
        level,
        outcome,
        job.id,
        "work",
        queue,
    )
    assert line.attempt == 1
    assert 0 <= line.duration_ms < 60_000
    assert getattr(line, "retry_in_ms", None) == {"failed": 3_600_000, "snoozed": 3_600_000}.get(outcome)
    assert line.getMessage().startswith(f"{job.id} work attempt 1 {outcome}, ")
    # Nobody else speaks of it, of what was buried no less.
    assert [record for record in lines.records if job.id in record.getMessage()] == [line]


async def test_a_cancelled_job_and_one_that_is_handed_back_have_theirs(mq: EchoMQ, lines, working) -> None:
    started = asyncio.Semaphore(0)

    @mq.job(name="work")
    async def work() -> None:
        started.release()
        await asyncio.Event().wait()

    first = await work.aenqueue()
    async with working(grace=timedelta(0)):
        await started.acquire()
        await first.acancel("enough")
        second = await work.aenqueue()
        await started.acquire()
        await until(lambda: told(lines))
    assert [(line.job_id, line.outcome, line.levelname) for line in told(lines)] == [
        (first.id, "cancelled", "INFO"),
        (second.id, "handed back", "INFO"),
    ]


def test_a_job_that_expired_has_its_line(mq: EchoMQ, queue: str, lines) -> None:
    mq.job(name="work")(lambda: None)
    call = {"v": 1, "job": "work", "args": [], "kwargs": {}, "expires_ms": 1}
    mq.run(jobs.enqueue(queue, mint(), json.dumps(call)))
    burst(mq)
    (line,) = told(lines)
    assert (line.job_name, line.outcome, line.error.split(":")[0]) == ("work", "dead", "expired")


def test_a_job_in_a_lane_says_so(mq: EchoMQ, lines) -> None:
    mq.job(name="work")(lambda: None).options(lane="acme").enqueue()
    burst(mq)
    assert told(lines)[0].lane == mq.lane("acme").id


def test_nothing_is_told_before_the_server_has_said_so(mq: EchoMQ, server: Server, queue: str, lines) -> None:
    @mq.job(name="work")
    def work() -> None:
        with server.client() as client:  # somebody takes it away meanwhile
            client.execute("DEL", f"emq:{{{queue}}}:job:{job.id}")

    job = work.enqueue()
    burst(mq)
    assert told(lines) == []


# Lateness


def lateness(lines: pytest.LogCaptureFixture) -> list[int | None]:
    return [getattr(line, "lateness_ms", None) for line in told(lines)]


def sent(mq: EchoMQ, queue: str, ago_ms: int, **members: Any) -> None:
    """A job that was minted so long ago."""
    from echomq.identity.minter import Minter

    job_id = Minter(clock_ms=lambda: wall_clock_ms() - ago_ms).mint()
    mq.run(jobs.enqueue(queue, job_id, json.dumps({"v": 1, "job": "work"} | members)))


@pytest.mark.parametrize(
    ("members", "least", "most"),
    [
        ({}, 3_600_000, 3_660_000),
        ({"delay_ms": 3_000_000}, 600_000, 660_000),
        ({"at_ms": "now"}, 0, 60_000),
        ({"slot_ms": "now"}, 0, 60_000),
        ({"delay_ms": 9_000_000}, 0, 0),
        ({"at_ms": "soon", "delay_ms": None}, 3_600_000, 3_660_000),
    ],
)
def test_it_counts_from_when_the_job_was_due(
    mq: EchoMQ, queue: str, lines, members: dict[str, Any], least: int, most: int
) -> None:
    mq.job(name="work")(lambda: None)
    sent(mq, queue, 3_600_000, **{name: wall_clock_ms() if each == "now" else each for name, each in members.items()})
    burst(mq)
    (late,) = lateness(lines)
    assert late is not None
    assert least <= late <= most


def test_a_timed_send_says_when_it_was_for(mq: EchoMQ, lines) -> None:
    work = mq.job(name="work")(lambda: None)
    work.at(datetime.now(UTC) - timedelta(hours=1)).enqueue()  # at once, and late by nothing that a worker could help
    work.after(milliseconds=1).enqueue()
    while len(told(lines)) < 2:
        burst(mq)
    assert all(late is not None and late < 60_000 for late in lateness(lines))


def test_it_is_not_said_where_the_payload_may_have_come_to_a_job_with_another_time(mq: EchoMQ, lines) -> None:
    work = mq.job(name="work")(lambda: None)
    newest = work.options(dedup=Dedup("k", replace=True))
    replaced = work.options(dedup="k").after(days=1).enqueue()
    for send in (newest.at(datetime.now(UTC) - timedelta(days=9)), newest, newest.after(hours=1)):
        assert send.enqueue().id == replaced.id
        mq.run(jobs.reschedule(replaced.queue, replaced.id, delay_ms=0))
    alone = newest.options(dedup=Dedup("l", replace=True)).enqueue()
    plain = work.options(dedup="m").enqueue()
    burst(mq)
    late = {line.job_id: getattr(line, "lateness_ms", None) for line in told(lines)}
    assert plain.id in late
    assert late.pop(plain.id) is not None
    assert late == {replaced.id: None, alone.id: None}


def test_only_the_first_run_has_one(mq: EchoMQ, lines) -> None:
    mq.job(name="work", max_attempts=2, backoff=lambda failures: 1)(raising(ValueError())).enqueue()
    while len(told(lines)) < 2:
        burst(mq)
    first, second = lateness(lines)
    assert first is not None
    assert second is None


# What it costs


def test_nobody_is_asked_for_a_line_that_nobody_reads(
    mq: EchoMQ, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.WARNING, LOGGER)

    def unasked(*_: object) -> bool:
        raise AssertionError

    monkeypatch.setattr(JobLog, "told", unasked)
    mq.job(name="work")(lambda: None).enqueue()
    burst(mq)


@pytest.mark.parametrize("asked", [False, True])
def test_arguments_are_there_when_asked_for_and_cut(mq: EchoMQ, lines, asked: bool) -> None:
    mq.job(name="work")(lambda word, more="": None).enqueue("hush" * 1_000, more="x")
    burst(mq, log_payloads=asked)
    (line,) = told(lines)
    assert ("hush" in line.getMessage()) == asked
    assert len(line.getMessage()) < 500
    assert len(getattr(line, "arguments", "")) == (2_000 if asked else 0)
