"""`mq.enqueued()` and `mq.assert_enqueued(...)`: what waits, read from the server, and what is said if it does not."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from echomq import Depends, EchoMQ, State, flow, jobs, lanes, results
from echomq.errors import BlockingCallWarning, InvalidInputError, SerializationError
from support.servers import Server


@dataclass
class Address:
    """An argument that JSON has no form for."""

    street: str
    since: datetime


@pytest.fixture
def mq(server: Server) -> Iterator[EchoMQ]:
    mq = EchoMQ("valkey://localhost:1", queues=["other"])
    with mq.testing(server.url):
        yield mq


@pytest.fixture
def send(mq: EchoMQ) -> Any:
    @mq.job(name="send", queue="mail", aliases=["post"])
    def send(to: str, subject: str = "hi", *, copies: int = 1, db: object = Depends(dict)) -> None: ...

    return send


def test_a_record_says_what_a_worker_would_be_given(mq: EchoMQ) -> None:
    @mq.job(name="move", queue="mail")
    def move(where: Address, *more: Address, **words: timedelta) -> None: ...

    here, now = Address("Main St", datetime(2026, 1, 1, tzinfo=UTC)), datetime.now(UTC)
    plain = move.enqueue(here, here, soon=timedelta(hours=1))
    timed = move.after(hours=1).options(meta={"by": "ada"}).enqueue(here)
    laned = move.options(lane="acme", queue="other").enqueue(here)
    first, second, third = mq.enqueued()
    assert (first.id, first.name, first.args, first.kwargs) == (
        *(plain.id, "move"),
        *((here, here), {"soon": timedelta(hours=1)}),
    )
    assert (first.queue, first.lane, first.run_at, dict(first.meta)) == (mq.queue_name("mail"), None, None, {})
    assert (second.id, second.state, second.meta, second.failures) == (timed.id, State.SCHEDULED, {"by": "ada"}, 0)
    assert second.run_at is not None
    assert abs(second.run_at - now - timedelta(hours=1)) < timedelta(seconds=30)
    assert (third.id, third.queue, third.lane) == (laned.id, mq.queue_name("other"), "acme")
    assert "move(Address(street='Main St'" in str(first)


def test_jobs_wait_in_lanes_paused_ones_too_on_the_schedule_and_in_flows(mq: EchoMQ, send: Any) -> None:
    mq.lane("acme", queue="mail").pause()
    mq.run(lanes.enqueue(mq.queue_name("mail"), "JOB00000000001", send.payload(("raw",), {}), "LAN00000000001"))
    send.options(lane="acme").enqueue("lane")
    send.options(lane="acme").after(hours=1).enqueue("later")
    flow(send.s("parent", results()), [send.s("child")]).enqueue()
    assert [(job.args[0], job.lane, job.state) for job in mq.enqueued(send)] == [
        ("raw", "LAN00000000001", State.PENDING),
        ("lane", "acme", State.PENDING),
        ("later", "acme", State.SCHEDULED),
        ("parent", None, State.AWAITING_CHILDREN),
        ("child", None, State.PENDING),
    ]


def test_what_no_app_has_written_is_there_as_well(mq: EchoMQ, send: Any) -> None:
    for n, payload in enumerate((b"\xff", b'{"v": 1, "job": "stranger", "args": [1]}', b'{"v": 1, "job": "send"}'), 1):
        mq.run(jobs.enqueue(mq.queue_name("mail"), f"JOB0000000000{n}", payload))
    assert [(job.name, job.args) for job in mq.enqueued()] == [("", ()), ("stranger", (1,)), ("send", ())]
    assert [job.name for job in mq.enqueued("stranger")] == ["stranger"]
    assert "a payload of no app()" in str(mq.enqueued()[0])
    mq.assert_enqueued("stranger")


def test_what_waits_under_an_alias_or_a_codec_is_known(server: Server) -> None:
    class Codec:
        name = "b64"

        def encode(self, data: bytes) -> bytes:
            return b64encode(data)

        def decode(self, data: bytes) -> bytes:
            return b64decode(data)

    mq = EchoMQ("valkey://localhost:1", codec=Codec())

    @mq.job(name="now", aliases=["before"])
    def now(n: int) -> None: ...

    with mq.testing(server.url):
        mq.run(jobs.enqueue(mq.default_queue, "JOB00000000001", b'{"v": 1, "job": "before", "args": [1]}'))
        now.enqueue(2)
        assert [job.args for job in mq.enqueued(now)] == [(1,), (2,)]
        mq.assert_enqueued(now, 1)
        mq.assert_enqueued(now, 2)


def test_arguments_are_compared_as_the_function_gets_them(mq: EchoMQ, send: Any) -> None:
    job = send.enqueue(to="ada", copies=2)
    for wanted in (send.s("ada", copies=2), send.s("ada", "hi", copies=2), send.s(subject="hi", to="ada", copies=2)):
        assert mq.assert_enqueued(wanted).id == job.id
    mq.assert_enqueued(send)
    mq.assert_not_enqueued(send, "ada")  # with one copy
    with pytest.raises(AssertionError, match="copies is 2, not 1"):
        mq.assert_enqueued(send, "ada", "hi")


def test_place_and_time_count_where_they_are_said(mq: EchoMQ, send: Any) -> None:
    when = datetime.now(UTC) + timedelta(days=1)
    send.at(when).options(lane="acme", queue="other").enqueue("ada")
    mq.assert_enqueued(send, "ada", queue="other", lane="acme", at=when)
    mq.assert_enqueued(send, at=when + timedelta(minutes=4), within=timedelta(minutes=5))
    mq.assert_enqueued(send.options(queue="other", lane="acme").at(when).s("ada"))
    mq.assert_enqueued(send.s("ada"))
    for words, said in (
        ({"queue": "mail"}, f"it is in queue {mq.queue_name('other')}, not {mq.queue_name('mail')}"),
        ({"lane": "beta"}, "it is in lane acme, not beta"),
        ({"at": when - timedelta(hours=1)}, "it is due 1:00:00 later"),
        ({"at": when + timedelta(hours=1)}, "it is due 1:00:00 earlier"),
    ):
        with pytest.raises(AssertionError) as caught:
            mq.assert_enqueued(send, "ada", **words)
        assert said in str(caught.value)
    mq.assert_not_enqueued(send, queue="mail")


def test_a_delay_counts_from_the_sending(mq: EchoMQ, send: Any) -> None:
    send.after(minutes=5).enqueue("ada")
    send.enqueue("eve")
    mq.assert_enqueued(send.after(minutes=5).s("ada"))
    with pytest.raises(AssertionError, match="it is due 0:04:"):
        mq.assert_enqueued(send.after(seconds=1).s("ada"))
    with pytest.raises(AssertionError, match="it can run now"):
        mq.assert_enqueued(send.after(minutes=5).s("eve"))


def test_how_many_is_counted_when_it_is_asked(mq: EchoMQ, send: Any) -> None:
    for _ in range(3):
        send.enqueue("ada")
    mq.assert_enqueued(send, "ada", times=3)
    with pytest.raises(AssertionError, match=r"send\('ada'\) was enqueued 3 times, not 2:\n  send\('ada'\) in"):
        mq.assert_enqueued(send, "ada", times=2)
    with pytest.raises(InvalidInputError, match="times"):
        mq.assert_enqueued(send, "ada", times=0)


def test_the_nearest_is_shown_first(mq: EchoMQ, send: Any) -> None:
    with pytest.raises(AssertionError, match="no job waits at all"):
        mq.assert_enqueued(send)
    send.options(lane="x").enqueue("b", "other", copies=4)
    for n in range(6):
        send.enqueue("b", str(n))
    send.enqueue("a", copies=2)
    with pytest.raises(AssertionError) as caught:
        mq.assert_enqueued(send, "a")
    lines = str(caught.value).splitlines()
    assert lines[0] == "send('a') was not enqueued, or waits no longer; the nearest:"
    assert lines[1:3] == [f"  send('a', copies=2) in {mq.queue_name('mail')}", "    copies is 2, not 1"]
    assert lines[-1] == "  and 3 more of that name"

    @mq.job(name="sent")
    def sent() -> None: ...

    with pytest.raises(AssertionError, match=r"of that name none waits; there are 'send':\n  send\('b', 'other'"):
        mq.assert_enqueued(sent)
    with pytest.raises(AssertionError, match=r"send\('a', copies=2\) was enqueued:\n  send"):
        mq.assert_not_enqueued(send.s("a", copies=2))


def test_what_was_run_does_not_wait(mq: EchoMQ, send: Any) -> None:
    send.enqueue("ada")
    mq.assert_enqueued(send)
    mq.drain_blocking()
    assert mq.enqueued() == []
    with pytest.raises(AssertionError, match="or waits no longer"):
        mq.assert_enqueued(send)


def test_many_are_all_there(mq: EchoMQ, send: Any) -> None:
    mq.enqueue_many(send.s(str(n)) for n in range(2_300))
    assert [job.args for job in mq.enqueued()] == [(str(n),) for n in range(2_300)]


def test_a_wrong_question_is_refused(mq: EchoMQ, send: Any) -> None:
    def refused(error: type[Exception], ask: Callable[[], object], said: str) -> None:
        with pytest.raises(error, match=said):
            ask()

    refused(InvalidInputError, lambda: mq.assert_enqueued(7), "takes a job, a call such as")  # type: ignore[arg-type]
    refused(InvalidInputError, lambda: mq.assert_enqueued("send", 7), "takes arguments behind a job")
    refused(InvalidInputError, lambda: mq.assert_enqueued(send, at=datetime(2026, 1, 1)), "naive")  # noqa: DTZ001
    refused(TypeError, lambda: mq.assert_enqueued(send, 1, 2, 3), "too many positional arguments")
    refused(SerializationError, lambda: mq.assert_enqueued(send, 7), "does not fit its annotation")


async def test_all_of_it_can_be_awaited(mq: EchoMQ, send: Any) -> None:
    await send.aenqueue("ada")
    (job,) = await mq.aenqueued(send)
    assert (await mq.aassert_enqueued(send, "ada")).id == job.id
    await mq.aassert_not_enqueued(send, "eve")
    with pytest.raises(AssertionError):
        await mq.aassert_not_enqueued(send)
    with pytest.warns(BlockingCallWarning, match="aenqueued"):
        mq.enqueued()
