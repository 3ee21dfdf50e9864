"""What every builder refuses before anything is sent: builders are pure, so a refusal is an exception and no call."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echomq.identity.errors import IdError
from echomq.identity.minter import Minter
from echomq.protocol import admission, checks, jobs, lanes, metrics, repeat
from echomq.protocol.call import Call
from echomq.protocol.errors import InvalidInputError, PayloadTooLargeError, QueueNameError

JOB_ID = "JOB0NgWEfAEJfs"
LAST = 2**53 - 1

Build = Callable[..., Call[Any]]

# Each builder with arguments that it takes.
BUILDERS: dict[str, tuple[Build, dict[str, Any]]] = {
    "enqueue": (jobs.enqueue, {"queue": "q", "job_id": JOB_ID, "payload": b"p"}),
    "enqueue_at": (jobs.enqueue_at, {"queue": "q", "job_id": JOB_ID, "payload": b"p", "at_ms": 1}),
    "enqueue_in": (jobs.enqueue_in, {"queue": "q", "job_id": JOB_ID, "payload": b"p", "delay_ms": 1}),
    "reschedule": (jobs.reschedule, {"queue": "q", "job_id": JOB_ID, "at_ms": 1}),
    "claim": (jobs.claim, {"queue": "q", "lease_ms": 1}),
    "claim_many": (jobs.claim_many, {"queue": "q", "n": 1, "lease_ms": 1}),
    "complete": (jobs.complete, {"queue": "q", "job_id": JOB_ID, "token": 1}),
    "retry": (
        jobs.retry,
        {"queue": "q", "job_id": JOB_ID, "token": 1, "delay_ms": 1, "max_attempts": 1, "error": "e"},
    ),
    "delay": (jobs.delay, {"queue": "q", "job_id": JOB_ID, "token": 1, "delay_ms": 1}),
    "release": (jobs.release, {"queue": "q", "job_id": JOB_ID, "token": 1}),
    "promote": (jobs.promote, {"queue": "q", "batch": 1}),
    "reap": (jobs.reap, {"queue": "q"}),
    "sweep": (jobs.sweep, {"queue": "q", "max_stalled": 1, "limit": 1}),
    "extend": (jobs.extend, {"queue": "q", "job_id": JOB_ID, "token": 1, "lease_ms": 1}),
    "browse": (jobs.browse, {"queue": "q", "limit": 1}),
    "browse_dead": (jobs.browse_dead, {"queue": "q", "limit": 1}),
    "pending_size": (jobs.pending_size, {"queue": "q"}),
    "counts": (metrics.counts, {"queue": "q"}),
    "state": (metrics.state, {"queue": "q", "job_id": JOB_ID}),
    "row": (metrics.row, {"queue": "q", "job_id": JOB_ID}),
    "register": (
        repeat.register,
        {"queue": "q", "name": "n", "every_ms": 1, "template": b"t", "first_run_ms": 1},
    ),
    "upsert": (
        repeat.upsert,
        {"queue": "q", "name": "n", "every_ms": 1, "template": b"t", "first_run_ms": 1},
    ),
    "cancel": (repeat.cancel, {"queue": "q", "name": "n"}),
    "due": (repeat.due, {"queue": "q", "now_ms": 1, "limit": 1}),
    "advance": (repeat.advance, {"queue": "q", "name": "n", "next_run_ms": 1}),
    "fire": (repeat.fire, {"queue": "q", "name": "n", "score": "1", "job_id": JOB_ID}),
    "count": (repeat.count, {"queue": "q"}),
}


def taking(parameter: str) -> list[str]:
    """The builders that have this parameter."""
    return [name for name, (_, arguments) in BUILDERS.items() if parameter in arguments]


def refuse(name: str, parameter: str, value: Any, error: type[Exception] = InvalidInputError) -> str:
    """The words with which a builder refuses a value."""
    build, arguments = BUILDERS[name]
    with pytest.raises(error) as caught:
        build(**arguments | {parameter: value})
    assert isinstance(caught.value, InvalidInputError)
    return str(caught.value)


@pytest.mark.parametrize("name", BUILDERS)
def test_what_is_right_is_taken(name: str) -> None:
    build, arguments = BUILDERS[name]
    call = build(**arguments)
    assert call.keys[0].startswith("emq:{q}:")
    assert all(key.startswith("emq:{q}:") for key in call.keys)


@pytest.mark.parametrize("queue", ["", "a b", "a\tb", "a\n", "{", "}", "a{b}", "\0", "a\0", "\u2028", "\x7f", "\ud800"])
@pytest.mark.parametrize("name", taking("queue"))
def test_a_queue_name_outside_the_protocol(name: str, queue: str) -> None:
    assert repr(queue) in refuse(name, "queue", queue, QueueNameError) or not queue


@pytest.mark.parametrize("queue", [None, 5, b"q", ["q"], {}, 1.5])
@pytest.mark.parametrize("name", taking("queue"))
def test_a_queue_name_of_another_type(name: str, queue: Any) -> None:
    assert "str" in refuse(name, "queue", queue, QueueNameError)


@given(st.text())
def test_any_text_is_a_queue_name_or_is_refused_with_its_reason(queue: str) -> None:
    try:
        call = jobs.pending_size(queue)
    except QueueNameError:
        assert not queue or any(c in "{}\0" or c.isspace() or not c.isprintable() for c in queue)
    else:
        assert call.keys == (f"emq:{{{queue}}}:pending",)


@pytest.mark.parametrize(
    "job_id",
    [
        *("", "JOB", "ORD0NgWEfAEJfs", "job0NgWEfAEJfs", "JOB0NgWEfAEJf", "JOB0NgWEfAEJfss", "JOB0NgWEfAEJf-"),
        *("JOBzzzzzzzzzzz", "JOBAzL8n0Y58m8", "JOB0NgWEfAEJf\n", "JOB\uff10NgWEfAEJfs", JOB_ID + " "),
        *(None, 5, b"JOB0NgWEfAEJfs", [JOB_ID]),
    ],
)
@pytest.mark.parametrize("name", taking("job_id"))
def test_an_id_of_a_wrong_kind_or_shape(name: str, job_id: Any) -> None:
    assert repr(job_id) in refuse(name, "job_id", job_id, IdError)


LANE_BUILDERS: dict[str, Callable[[Any], object]] = {
    "enqueue": lambda group: lanes.enqueue("q", JOB_ID, b"p", group),
    "admit": lambda group: admission.admit("q", JOB_ID, b"p", group=group),
    "pause": lambda group: lanes.pause("q", group),
    "resume": lambda group: lanes.resume("q", group),
    "limit": lambda group: lanes.limit("q", group, 1),
    "weight": lambda group: lanes.weight("q", group, 1),
    "reassign": lambda group: lanes.reassign("q", JOB_ID, group),
    "drain": lambda group: lanes.drain("q", group),
    "reap": lambda group: lanes.reap("q", group),
    "depth": lambda group: lanes.depth("q", group),
}


@pytest.mark.parametrize("name", LANE_BUILDERS)
def test_what_is_no_lane_is_refused_with_how_a_text_becomes_one(name: str) -> None:
    build = LANE_BUILDERS[name]
    build(lanes.lane_id("acme"))
    for wrong, says in (
        ("acme", r"lane 'acme' is not a branded id: it has 4 characters;.*; .*lanes\.lane_id\('acme'\)$"),
        ("LANzzzzzzzzzzz", "2.63 or more"),
        ("", r"^the lane is an empty text; .*lanes\.lane_id\('acme'\)"),
        (5, "^a lane is named by its id, .*must be str, not int"),
    ):
        with pytest.raises(IdError, match=says):
            build(wrong)


@given(st.text(alphabet=st.characters(codec="ascii"), min_size=14, max_size=14) | st.text())
def test_no_text_but_an_id_passes_as_one(text: str) -> None:
    if re.fullmatch(r"JOB[0-9A-Za-z]{11}", text) and text <= "JOBAzL8n0Y58m7":
        assert jobs.complete("q", text, 1).subject == text
    else:
        with pytest.raises(IdError) as caught:
            jobs.complete("q", text, 1)
        assert repr(text) in str(caught.value)


TIMES = [
    (name, parameter)
    for name, (_, arguments) in BUILDERS.items()
    for parameter in arguments
    if parameter.endswith("_ms") or parameter in ("n", "batch", "limit", "max_stalled", "max_attempts")
]


@pytest.mark.parametrize("value", [-1, -LAST, LAST + 1, 10**30])
@pytest.mark.parametrize(("name", "parameter"), TIMES)
def test_a_number_out_of_its_range(name: str, parameter: str, value: int) -> None:
    message = refuse(name, parameter, value)
    assert parameter in message
    assert str(value) in message


@pytest.mark.parametrize("value", [1.0, 1.5, "5", b"5", True, float("nan"), dt.timedelta(1)])
@pytest.mark.parametrize(("name", "parameter"), TIMES)
def test_a_number_that_is_no_integer(name: str, parameter: str, value: Any) -> None:
    message = refuse(name, parameter, value)
    assert parameter in message
    assert type(value).__name__ in message


@pytest.mark.parametrize(
    ("name", "parameter"),
    [
        (name, parameter)
        for name, parameter in TIMES
        if parameter in ("lease_ms", "every_ms", "n", "batch", "limit", "max_stalled")
    ],
)
def test_what_must_be_at_least_one(name: str, parameter: str) -> None:
    assert "1" in refuse(name, parameter, 0)


@pytest.mark.parametrize("name", taking("token"))
@pytest.mark.parametrize("token", [0, -1, "0", "01", "-1", "+1", " 1", "1.0", "", "x", "١", None, 1.0, True, b"1"])
def test_a_token_that_no_claim_returned(name: str, token: Any) -> None:
    assert repr(token) in refuse(name, "token", token)


@pytest.mark.parametrize("name", ["enqueue", "enqueue_at", "enqueue_in", "register", "upsert"])
@pytest.mark.parametrize("payload", [None, 5, {}, ["p"], bytearray(b"p"), memoryview(b"p"), "\ud800"])
def test_a_payload_that_is_no_bytes_nor_text(name: str, payload: Any) -> None:
    refuse(name, "template" if name in ("register", "upsert") else "payload", payload)


@pytest.mark.parametrize("name", ["enqueue", "enqueue_in", "register"])
def test_a_payload_above_the_servers_limit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "MAX_PAYLOAD", 1_000)
    parameter = "template" if name == "register" else "payload"
    build, arguments = BUILDERS[name]
    build(**arguments | {parameter: b"x" * 1_000})
    message = refuse(name, parameter, b"x" * 1_001, PayloadTooLargeError)
    assert "1,001" in message
    assert "1,000" in message
    refuse(name, parameter, "ä" * 501, PayloadTooLargeError)


def test_the_servers_limit_is_its_default() -> None:
    assert checks.MAX_PAYLOAD == 512 * 1024 * 1024


@pytest.mark.parametrize("name", ["register", "upsert"])
@pytest.mark.parametrize("value", ["", "a\nb", "\0", "\ud800", None, 5, b"n"])
def test_a_recurrence_name_that_nobody_could_read(name: str, value: Any) -> None:
    refuse(name, "name", value)


@pytest.mark.parametrize("name", ["cancel", "advance", "fire"])
@pytest.mark.parametrize("value", ["", None, 5, b"n", "\ud800"])
def test_a_recurrence_name_that_cannot_be_sent(name: str, value: Any) -> None:
    refuse(name, "name", value)


@pytest.mark.parametrize("score", ["", None, 5, 1.0, b"1"])
def test_a_score_that_due_did_not_give(score: Any) -> None:
    refuse("fire", "score", score)


@pytest.mark.parametrize("error", [None, 5, b"e", ValueError("e")])
def test_an_error_that_is_no_text(error: Any) -> None:
    refuse("retry", "error", error)


@pytest.mark.parametrize("build", [jobs.reschedule, lambda q, i, **t: jobs.delay(q, i, 1, **t)])
@pytest.mark.parametrize("times", [{}, {"at_ms": 1, "delay_ms": 1}])
def test_neither_or_both_times(build: Build, times: dict[str, int]) -> None:
    with pytest.raises(InvalidInputError, match="exactly one"):
        build("q", JOB_ID, **times)


def test_batches_of_nothing() -> None:
    for build in (jobs.enqueue_many, jobs.complete_many, jobs.extend_many):
        for empty in ([], (), iter([])):
            with pytest.raises(InvalidInputError, match="at least one"):
                build("q", empty)  # type: ignore[operator]


@pytest.mark.parametrize("build", [jobs.enqueue_many, jobs.complete_many, jobs.extend_many])
def test_one_wrong_id_in_a_batch(build: Build) -> None:
    value: Any = b"p" if build is jobs.enqueue_many else 1
    with pytest.raises(IdError, match="ORD0NgWEfAEJfs"):
        build("q", [(JOB_ID, value), ("ORD0NgWEfAEJfs", value)])


junk = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.just([]) | st.just({})


@given(st.data())
def test_junk_gives_a_call_or_a_refusal_and_never_another_error(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(BUILDERS)))
    build, arguments = BUILDERS[name]
    for parameter in data.draw(st.sets(st.sampled_from(sorted(arguments)), min_size=1)):
        arguments = arguments | {parameter: data.draw(junk)}
    if arguments.get("at_ms") is None and name == "reschedule":
        arguments["at_ms"] = 1
    with suppress(InvalidInputError):
        for word in build(**arguments).words():
            assert isinstance(word.encode() if isinstance(word, str) else word, bytes | int)


def test_every_verb_knows_its_native_name() -> None:
    minted = Minter().mint()
    call = jobs.enqueue_in("q", minted, b"p", delay_ms=5)
    script = call.script
    assert script is not None
    assert call.words() == ("EVALSHA", script.sha, 2, *call.keys, minted, b"p", "in", 5)
    assert call.native_words() == ("EMQ.SCHEDULE", 2, *call.keys, minted, b"p", "in", 5)
    for build, native in (
        (jobs.reschedule("q", minted, at_ms=5), "EMQ.RESCHEDULE"),
        (jobs.promote("q"), "EMQ.PROMOTE"),
        (jobs.delay("q", minted, 1, at_ms=5), "EMQ.DELAY"),
    ):
        assert build.native_words()[0] == native


@pytest.mark.parametrize("late", [LAST, LAST - 2**42 + 1])
def test_a_span_that_a_server_could_not_add_to_its_now_is_refused_here_with_the_limit(late: int) -> None:
    for build in (
        lambda: jobs.enqueue_in("q", JOB_ID, b"", delay_ms=late),
        lambda: jobs.reschedule("q", JOB_ID, delay_ms=late),
        lambda: jobs.delay("q", JOB_ID, 1, delay_ms=late),
        lambda: jobs.retry("q", JOB_ID, 1, delay_ms=late, max_attempts=2, error="e"),
        lambda: jobs.claim("q", lease_ms=late),
        lambda: jobs.extend("q", JOB_ID, 1, lease_ms=late),
    ):
        with pytest.raises(InvalidInputError, match=f"_ms must be from . to {LAST - 2**42}, not {late}"):
            build()
