"""Options before arguments: what each of them changes in the job that is sent, and which of them are refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from echomq import Dedup, EchoMQ, InvalidInputError, Job, State, jobs, lanes, metrics
from echomq.app import sending
from echomq.app.job import TimedJob
from echomq.errors import QueueNameError
from echomq.protocol.checks import MAX_MS, MAX_SPAN_MS
from support.apps import ahead, envelope
from support.servers import Server

HOUR = timedelta(hours=1)


@pytest.fixture
def send(mq: EchoMQ):
    @mq.job(name="send")
    def send(to: str = "all") -> None: ...

    return send


# What they change


def test_a_send_without_options_is_as_plain_as_before(mq: EchoMQ, send) -> None:
    job = send.options().enqueue()
    assert envelope(mq, job) == {"v": 1, "job": "send", "args": [], "kwargs": {}}
    assert set(mq.run(metrics.row(job.queue, job.id))) == {"state", "attempts", "payload"}
    assert not job.duplicate


def test_limits_and_meta_travel_in_the_envelope(mq: EchoMQ, server: Server, send) -> None:
    meta: dict[str, Any] = {"trace": "a1", "hops": [1, {"x": None}]}
    bound = send.options(max_attempts=7, timeout=timedelta(seconds=1.5), expires=HOUR, meta=meta)
    meta["hops"].append("after the fact")
    with server.client() as client:
        before = client.now_ms()
        sent = envelope(mq, bound.enqueue("a"))
        after = client.now_ms()
    assert before <= sent.pop("expires_ms") - 3_600_000 <= after
    assert sent == {
        "v": 1,
        "job": "send",
        "args": ["a"],
        "kwargs": {},
        "max_attempts": 7,
        "timeout_ms": 1_500,
        "meta": {"trace": "a1", "hops": [1, {"x": None}]},
    }


def test_expires_counts_from_the_instant_that_a_job_is_sent_for(mq: EchoMQ, send) -> None:
    when = datetime(2040, 1, 1, tzinfo=UTC)
    expected = int(when.timestamp() * 1_000) + 60_000
    for bound in (
        send.at(when).options(expires=timedelta(minutes=1)),
        send.options(expires=timedelta(minutes=1)).at(when),
    ):
        assert envelope(mq, bound.enqueue())["expires_ms"] == expected
    now_ms = int(datetime.now(UTC).timestamp() * 1_000)
    late = envelope(mq, send.after(hours=1).options(expires=timedelta(minutes=1)).enqueue())["expires_ms"]
    assert 0 <= late - 3_660_000 - now_ms < 60_000
    # An expiry beyond what a time can be is none.
    longest = send.options(expires=timedelta(milliseconds=MAX_SPAN_MS))
    assert envelope(mq, longest.at(datetime(9999, 1, 1, tzinfo=UTC)).enqueue())["expires_ms"] == MAX_MS


def test_a_queue_of_this_send(mq: EchoMQ, queue: str, send) -> None:
    job = send.options(queue=f"{queue}-other").enqueue()
    assert (job.queue, send.queue) == (f"{queue}-other", queue)
    assert (ahead(mq, queue), ahead(mq, job.queue)) == ((0, 0), (1, 0))
    assert job.state() is State.PENDING


def test_a_lane_is_named_by_any_text(mq: EchoMQ, server: Server, queue: str, send) -> None:
    for name in ("acme", "Größe & Söhne", "a:b/c"):
        job = send.options(lane=name).enqueue()
        group = lanes.lane_id(name)
        assert mq.run(metrics.row(queue, job.id))["group"] == group.encode()
        assert mq.run(lanes.depth(queue, group)) == 1
        with server.client() as client:
            assert client.execute("HGET", f"emq:{{{queue}}}:lanes", group) == name.encode()
        assert (job.state(), job.duplicate) == (State.PENDING, False)


def test_options_and_time_go_together_in_any_order(mq: EchoMQ, queue: str, send) -> None:
    group = lanes.lane_id("acme").encode()
    when = datetime(2040, 1, 1, tzinfo=UTC)
    for bound in (
        send.options(lane="acme").at(when),
        send.at(when).options(lane="acme"),
        send.options(lane="acme").after(hours=1),
        send.after(HOUR).options(lane="acme"),
    ):
        row = mq.run(metrics.row(queue, bound.enqueue().id))
        assert (row["state"], row["group"]) == (b"scheduled", group)
    assert ahead(mq, queue) == (0, 4)


def test_the_last_word_counts_and_nothing_changes_what_it_was_made_from(mq: EchoMQ, send) -> None:
    first = send.options(max_attempts=2, meta={"a": 1})
    second = first.options(max_attempts=5)
    assert {k: envelope(mq, second.enqueue())[k] for k in ("max_attempts", "meta")} == {
        "max_attempts": 5,
        "meta": {"a": 1},
    }
    assert envelope(mq, first.enqueue())["max_attempts"] == 2
    assert "max_attempts" not in envelope(mq, send.enqueue())
    # None says nothing, so that an option may be left open.
    assert envelope(mq, second.options(max_attempts=None, lane=None).enqueue())["max_attempts"] == 5


async def test_awaited_sends_take_the_same_options(mq: EchoMQ, queue: str, send) -> None:
    bound = send.options(lane="acme", meta={"a": 1})
    sent = await asyncio.gather(*(bound.aenqueue(str(n)) for n in range(20)))
    assert len({job.id for job in sent}) == 20
    assert await mq.lane("acme").adepth() == 20
    one, two = await asyncio.gather(*(send.options(dedup="k").aenqueue() for _ in range(2)))
    assert (one.id, one.duplicate, two.duplicate) == (two.id, False, True)
    assert await one.astate() is State.PENDING
    await mq.aclose()


def test_a_bound_job_shows_its_options(send) -> None:
    assert "lane='acme'" in repr(send.options(lane="acme"))


# Deduplication


def test_a_key_is_one_living_job(mq: EchoMQ, queue: str, send) -> None:
    bound = send.options(dedup="k")
    first, second = bound.enqueue("a"), bound.enqueue("b")
    assert (first.duplicate, second.duplicate) == (False, True)
    assert second.id == first.id
    assert envelope(mq, first)["args"] == ["a"]
    assert send.options(dedup="other").enqueue().id != first.id
    assert ahead(mq, queue) == (2, 0)


def test_a_key_is_free_when_its_job_is_done(mq: EchoMQ, queue: str, send) -> None:
    first = send.options(dedup="k").enqueue()
    claimed = mq.run(jobs.claim(queue))
    assert claimed is not None
    assert send.options(dedup="k").enqueue().id == first.id
    mq.run(jobs.complete(queue, claimed.id, claimed.token))
    again = send.options(dedup="k").enqueue()
    assert (again.duplicate, again.id == first.id) == (False, False)


def test_replace_gives_the_waiting_job_the_new_arguments(mq: EchoMQ, queue: str, send) -> None:
    bound = send.options(dedup=Dedup("k", replace=True))
    first = bound.enqueue("a")
    second = bound.options(max_attempts=9).enqueue("b")
    assert (second.id, second.duplicate) == (first.id, True)
    assert (envelope(mq, first)["args"], envelope(mq, first)["max_attempts"]) == (["b"], 9)
    mq.run(jobs.claim(queue))
    assert bound.enqueue("c").duplicate
    assert envelope(mq, first)["args"] == ["b"]


def test_a_window_is_kept_by_the_server(mq: EchoMQ, server: Server, queue: str, send) -> None:
    send.options(dedup=Dedup("k", window=HOUR)).enqueue()
    with server.client() as client:
        assert 0 < client.execute("PTTL", f"emq:{{{queue}}}:de:k") <= 3_600_000
    send.options(dedup="forever").enqueue()
    with server.client() as client:
        assert client.execute("PTTL", f"emq:{{{queue}}}:de:forever") == -1


def test_a_key_goes_with_a_lane_and_a_time(mq: EchoMQ, queue: str, send) -> None:
    bound = send.options(lane="acme", dedup="k").after(hours=1)
    job = bound.enqueue()
    row = mq.run(metrics.row(queue, job.id))
    assert (row["state"], row["group"], row["dedup"]) == (b"scheduled", lanes.lane_id("acme").encode(), b"k")
    assert bound.enqueue() == Job(job.id, "send", queue, True, mq)


def test_a_taken_id_is_minted_again_with_options_too(mq: EchoMQ, send, monkeypatch: pytest.MonkeyPatch) -> None:
    first = send.enqueue()
    ids = iter([first.id, fresh := sending.mint()])
    monkeypatch.setattr(sending, "mint", lambda: next(ids))
    job = send.options(lane="acme", dedup="k").enqueue()
    assert (job.id, job.duplicate) == (fresh, False)


# What is refused


@pytest.mark.parametrize(
    ("options", "error", "why"),
    [
        ({"lane": ""}, InvalidInputError, "lane '' must be printable text, at least one character"),
        ({"lane": "a\nb"}, InvalidInputError, "lane 'a\\\\nb' must be printable text"),
        ({"lane": 5}, InvalidInputError, "lane must be str, not int: 5"),
        ({"queue": "a b"}, QueueNameError, "queue name 'a b' holds ' '"),
        ({"queue": 5}, QueueNameError, "queue name must be str, not int: 5"),
        ({"dedup": ""}, InvalidInputError, "deduplication key '' must be printable text"),
        ({"dedup": 5}, InvalidInputError, "dedup must be a key or a Dedup, not int: 5"),
        ({"max_attempts": 0}, InvalidInputError, "max_attempts must be from 1"),
        ({"max_attempts": "5"}, InvalidInputError, "max_attempts must be an integer, not str"),
        ({"max_attempts": True}, InvalidInputError, "max_attempts must be an integer"),
        ({"expires": 5}, InvalidInputError, "expires must be a timedelta, not int: 5"),
        ({"expires": timedelta(0)}, InvalidInputError, "expires needs a span of time above zero, not 0 s"),
        ({"timeout": 1.5}, InvalidInputError, "timeout must be a timedelta, not float: 1.5"),
        ({"timeout": -HOUR}, InvalidInputError, "timeout needs a span of time above zero, not -3600 s"),
        ({"meta": ["a"]}, InvalidInputError, "meta must be a mapping, not list"),
        ({"meta": {"a": object()}}, InvalidInputError, r"meta cannot be serialised: at \['a'\]"),
        ({"meta": {1: "a"}}, InvalidInputError, "meta cannot be serialised: the key 1 is an int"),
        ({"meta": {"a": float("nan")}}, InvalidInputError, "nan has no form in JSON"),
        ({"meta": {"a": "\ud800"}}, InvalidInputError, "meta cannot be serialised: .*surrogates not allowed"),
        ({"lain": "acme"}, TypeError, "unexpected keyword argument 'lain'; did you mean lane"),
    ],
)
def test_a_wrong_option_is_refused_where_it_is_written(mq: EchoMQ, queue: str, send, options, error, why) -> None:
    for bound in (send, send.options(lane="acme"), send.after(hours=1)):
        with pytest.raises(error, match=why):
            bound.options(**options)
    assert ahead(mq, queue) == (0, 0)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Dedup(""), "deduplication key '' must be printable text"),
        (lambda: Dedup(5), "deduplication key must be str, not int: 5"),
        (lambda: Dedup("k", window=60), "the window of a Dedup must be a timedelta, not int: 60"),
        (lambda: Dedup("k", window=timedelta(0)), "the window of a Dedup needs a span of time above zero"),
        (lambda: Dedup("k", replace="yes"), "replace of a Dedup must be True or False, not 'yes'"),
    ],
)
def test_a_wrong_key_is_refused_where_it_is_written(make: Callable[[], object], why: str) -> None:
    with pytest.raises(InvalidInputError, match=why):
        make()


def test_options_come_by_name(send) -> None:
    with pytest.raises(TypeError):
        send.options("acme")


def test_one_job_has_one_time(send) -> None:
    when = datetime(2040, 1, 1, tzinfo=UTC)
    timed: list[TimedJob[Any, Any]] = [send.at(when), send.after(hours=1), send.options(lane="a").at(when).options()]
    for bound in timed:
        for again in ("at", "after"):
            with pytest.raises(InvalidInputError, match="'send' has its time already: give either"):
                getattr(bound, again)(when)


def test_an_argument_that_is_wrong_is_still_a_type_error(mq: EchoMQ, queue: str, send) -> None:
    with pytest.raises(TypeError):
        send.options(lane="acme").enqueue(nothing=1)
    assert ahead(mq, queue) == (0, 0)
