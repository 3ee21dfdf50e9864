"""Sending many: one handle a call, in order, whatever the calls are; one failure hides no other's success."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from echomq import EchoMQ, InvalidInputError, State, connect, jobs, metrics
from echomq.app.bound import Bound
from echomq.app.sending import FLIGHT, TURN
from echomq.errors import ConnectError, EnqueueManyError
from echomq.events import events
from echomq.protocol.replies import Admission
from echomq.protocol.scripts import script
from echomq.telemetry import Added, Step, hub
from support.apps import envelope
from support.servers import Server


@pytest.fixture
def send(mq: EchoMQ):
    @mq.job(name="send")
    def send(to: str, n: int = 0) -> str: ...

    return send


@pytest.mark.parametrize("awaited", [False, True])
def test_plain_calls_lie_in_their_queue_in_order_in_one_call(mq: EchoMQ, queue: str, send, awaited: bool) -> None:
    calls = (send.s("a@b.c", n) for n in range(3))
    sent = asyncio.run(mq.aenqueue_many(calls)) if awaited else mq.enqueue_many(calls)
    assert tuple(job.id for job in sent) == mq.run(jobs.browse(queue, newest_first=False))
    assert [envelope(mq, job)["args"] for job in sent] == [["a@b.c", n] for n in range(3)]
    assert {(job.name, job.queue, job.duplicate) for job in sent} == {("send", queue, False)}


def test_calls_of_all_kinds_keep_their_order(mq: EchoMQ, queue: str, send) -> None:
    when = datetime(2040, 1, 1, tzinfo=UTC)
    other = f"{queue}-other"
    sent = mq.enqueue_many(
        [
            send.after(hours=1).s("later"),
            send.s("now"),
            send.options(queue=other, max_attempts=7).s("elsewhere"),
            send.options(lane="acme").s("lane"),
            send.options(dedup="k").at(when).s("first"),
            send.options(dedup="k").s("second"),
            send.s("last"),
        ]
    )
    assert [job.queue for job in sent] == [queue, queue, other, queue, queue, queue, queue]
    assert [job.state() for job in sent] == [
        *(State.SCHEDULED, State.PENDING, State.PENDING, State.PENDING),
        *(State.SCHEDULED, State.SCHEDULED, State.PENDING),
    ]
    assert [job.duplicate for job in sent] == [False] * 5 + [True, False]
    assert sent[5].id == sent[4].id
    assert envelope(mq, sent[2])["max_attempts"] == 7


def test_nothing_to_send_is_no_error(mq: EchoMQ) -> None:
    assert mq.enqueue_many([]) == []


def test_a_call_can_be_sent_again_and_expires_from_its_sending(mq: EchoMQ, send, monkeypatch) -> None:
    call = send.options(expires=timedelta(hours=1)).s("a")
    one = envelope(mq, mq.enqueue_many([call])[0])["expires_ms"]
    monkeypatch.setattr("echomq.app.options.wall_clock_ms", lambda: one)
    later = mq.enqueue_many([call, call])
    assert [envelope(mq, job)["expires_ms"] for job in later] == [one + 3_600_000] * 2


def test_the_arguments_are_those_of_the_moment_of_the_call(mq: EchoMQ) -> None:
    @mq.job(name="take")
    def take(names: list[str]) -> None: ...

    names = ["a"]
    call = take.s(names)
    names.append("b")
    assert envelope(mq, mq.enqueue_many([call])[0])["args"] == [["a"]]


def test_more_than_a_flight_is_taken_as_it_goes(mq: EchoMQ, queue: str, send) -> None:
    waiting: list[int] = []
    count = 2 * FLIGHT + 100

    def calls() -> Iterator[Bound[str]]:
        for n in range(count):
            if n == 2 * FLIGHT:  # the second flight has left, so the first one has landed
                waiting.append(mq.run(metrics.counts(queue)).pending)
            yield send.s("a", n)

    sent = mq.enqueue_many(calls())
    assert waiting[0] >= FLIGHT
    assert tuple(job.id for job in sent) == mq.run(jobs.browse(queue, limit=count + 1, newest_first=False))


@pytest.mark.parametrize("awaited", [False, True])
def test_a_failure_hides_no_success(mq: EchoMQ, queue: str, send, awaited: bool) -> None:
    call = send.options(lane="acme").s("refused")
    broken = send.options(queue=f"{queue}-other")
    calls = [send.s("a"), broken.s("b"), call, broken.s("c"), send.s("d")]
    conn = mq.connection()
    conn.execute("SET", f"emq:{{{queue}-other}}:pending", "not a set")
    try:
        with pytest.raises(EnqueueManyError, match="3 of 5 jobs are sent; the first of the others failed") as caught:
            asyncio.run(mq.aenqueue_many(calls)) if awaited else mq.enqueue_many(calls)
    finally:
        conn.execute("DEL", f"emq:{{{queue}-other}}:pending")
    error = caught.value
    assert sorted(error.errors) == [1, 3]
    assert [job.state() for job in error.jobs] == [
        *(State.PENDING, State.ABSENT, State.PENDING, State.ABSENT, State.PENDING)
    ]
    assert error.sent == [error.jobs[0], error.jobs[2], error.jobs[4]]


def test_calls_that_end_with_an_error_tell_what_was_sent(mq: EchoMQ, queue: str, send) -> None:
    def calls(n: int) -> Iterator[Bound[str]]:
        for each in range(n):
            yield send.s("a", each)
        yield send.s(5)

    with pytest.raises(InvalidInputError, match="'to'"):
        mq.enqueue_many(calls(3))
    assert mq.run(metrics.counts(queue)).pending == 0
    with pytest.raises(EnqueueManyError, match=rf"{FLIGHT:,} of {FLIGHT:,} jobs are sent; then making") as caught:
        mq.enqueue_many(calls(FLIGHT + 1))
    assert isinstance(caught.value.__cause__, InvalidInputError)
    assert len(caught.value.sent) == FLIGHT == mq.run(metrics.counts(queue)).pending


def test_a_fresh_id_that_is_taken_is_minted_again(mq: EchoMQ, queue: str, send, monkeypatch) -> None:
    taken = send.enqueue("taken")
    with monkeypatch.context() as patch:
        patch.setattr("echomq.app.sending.minter.mint_many", lambda n: [taken.id] * n)
        sent = mq.enqueue_many([send.s("a"), send.after(hours=1).s("b")])
    assert len({taken.id, *(job.id for job in sent)}) == 3
    assert not any(job.duplicate for job in sent)
    assert [envelope(mq, job)["args"] for job in sent] == [["a"], ["b"]]


def test_what_is_no_call_is_refused(mq: EchoMQ, server: Server, queue: str, send) -> None:
    with pytest.raises(InvalidInputError, match=r"takes calls such as send\.s"):
        mq.enqueue_many([send])  # type: ignore[list-item]  # the point of the test
    with pytest.raises(InvalidInputError, match="takes many calls"):
        mq.enqueue_many(send.s("a"))
    with pytest.raises(InvalidInputError, match=r"takes many calls, as in .*, not None"):
        mq.enqueue_many(None)  # type: ignore[arg-type]  # the point of the test
    with EchoMQ(server.url) as other, pytest.raises(InvalidInputError, match="belongs to another EchoMQ"):
        other.enqueue_many([send.s("a")])
    with pytest.raises(TypeError, match="missing a required argument: 'to'"):
        send.s()
    assert mq.run(metrics.counts(queue)).pending == 0


def test_a_thousand_plain_calls_are_two_script_calls(mq: EchoMQ, send, monkeypatch) -> None:
    flown: list[Any] = []
    connector = mq.connection()
    run_many = connector.run_many
    monkeypatch.setattr(type(connector), "run_many", lambda self, calls: flown.extend(calls) or run_many(calls))
    mq.enqueue_many(send.s("a", n) for n in range(1_000))
    assert [call.script for call in flown] == [script("enqueue_many")] * 2


def test_a_server_that_cannot_be_reached_is_said_as_it_is() -> None:
    mq = EchoMQ("valkey://127.0.0.1:1")

    @mq.job(name="send")
    def send() -> None: ...

    with pytest.raises(ConnectError):
        mq.enqueue_many([send.s()])
    with pytest.raises(ConnectError):
        asyncio.run(mq.aenqueue_many([send.s()]))


def test_others_have_their_turn_while_many_are_made_ready(mq: EchoMQ, send) -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def both() -> None:
        other = asyncio.ensure_future(others())
        await mq.aenqueue_many(send.s("a", n) for n in range(FLIGHT))
        other.cancel()

    asyncio.run(both())
    assert turns >= FLIGHT // TURN


@pytest.mark.parametrize("awaited", [False, True])
def test_each_job_is_told_and_published(server: Server, queue: str, awaited: bool) -> None:
    steps: list[Step] = []
    end = hub.observe(steps.append)
    try:
        with EchoMQ(server.url, default_queue=queue, events=True) as mq:

            @mq.job(name="send")
            def send() -> None: ...

            calls = [send.s(), send.after(hours=1).s(), send.options(dedup="k").s(), send.options(dedup="k").s()]
            with connect(server.url) as conn, events(conn, queue) as heard:
                sent = asyncio.run(mq.aenqueue_many(calls)) if awaited else mq.enqueue_many(calls)
                published = [next(iter(heard)) for _ in range(3)]
    finally:
        end()
    told = [(step.job, step.admission) for step in steps if isinstance(step, Added)]
    verdicts = [Admission.ADMITTED, Admission.SCHEDULED, Admission.ADMITTED, Admission.DUPLICATE]
    assert told == list(zip([job.id for job in sent], verdicts, strict=True))
    assert [(event.event, event.job) for event in published] == [
        ("enqueued", sent[0].id),
        ("scheduled", sent[1].id),
        ("enqueued", sent[2].id),
    ]
