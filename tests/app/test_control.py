"""What a job raises to say what is to become of it, and which failures are tried again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from echomq import (
    Cancel,
    Cancelled,
    Discard,
    EchoMQ,
    Fixed,
    InvalidInputError,
    Job,
    Retry,
    Snooze,
    State,
    Worker,
    metrics,
)
from echomq.errors import JobDefinitionError

HOUR_MS = 3_600_000


class TooManyError(ConnectionError):
    """Of a kind and of a narrower one."""


def once(mq: EchoMQ, raises: Callable[[], object], **options: Any) -> tuple[State, dict[str, str]]:
    """Where a job is that has run once and raised, and its row."""

    @mq.job(name="work", **{"backoff": Fixed(HOUR_MS)} | options)
    async def work() -> None:
        raises()

    job: Job[None] = work.enqueue()
    asyncio.run(Worker(mq, burst=True).serve())
    row = {key: value.decode() for key, value in mq.run(metrics.row(job.queue, job.id)).items()}
    return job.state(), row


def due_in_ms(mq: EchoMQ, queue: str) -> float:
    """How long until the next run, on the server's clock."""
    conn = mq.connection()
    seconds, micros = conn.execute("TIME")
    key = f"emq:{{{queue}}}:schedule"
    (job_id,) = conn.execute("ZRANGE", key, 0, -1)
    return float(conn.execute("ZSCORE", key, job_id)) - (int(seconds) * 1_000 + int(micros) // 1_000)


def raising(error: BaseException) -> Callable[[], object]:
    def work() -> None:
        raise error

    return work


# What a job raises


def test_what_is_discarded_goes_to_the_morgue_with_its_reason_and_no_failure(mq: EchoMQ) -> None:
    state, row = once(mq, raising(Discard("no such customer")))
    assert (state, row["last_error"]) == (State.DEAD, "discarded: no such customer")
    assert row["failures"] == "1"


@pytest.mark.parametrize(
    ("error", "least", "most"),
    [
        (Retry(minutes=5), 240_000, 300_000),
        (Retry(after=timedelta(minutes=5)), 240_000, 300_000),
        (Retry("the gateway is closed", minutes=1, seconds=30), 60_000, 90_000),
        (Retry(), HOUR_MS - 60_000, HOUR_MS),
    ],
)
def test_a_retry_spends_an_attempt_and_has_its_own_delay(mq: EchoMQ, queue: str, error, least, most) -> None:
    state, row = once(mq, raising(error))
    assert (state, row["failures"]) == (State.SCHEDULED, "1")
    assert least < due_in_ms(mq, queue) <= most


def test_a_retry_of_the_last_attempt_is_the_end(mq: EchoMQ) -> None:
    state, row = once(mq, raising(Retry("closed", minutes=5)), max_attempts=1)
    assert state is State.DEAD
    assert row["last_error"].startswith("Retry: closed\n")


def test_a_retry_at_once(mq: EchoMQ) -> None:
    state, row = once(mq, raising(Retry(after=timedelta(0))), max_attempts=4)
    assert (state, row["failures"]) == (State.DEAD, "4")


def test_a_retry_without_a_reason_keeps_the_text_of_the_error_that_it_was_raised_for(mq: EchoMQ) -> None:
    def work() -> None:
        try:
            raise TooManyError("429")
        except TooManyError:
            raise Retry(minutes=5)  # noqa: B904  (the point of the test)

    state, row = once(mq, work)
    assert state is State.SCHEDULED
    assert row["last_error"].startswith("TooManyError: 429\n")


def test_cancel_and_cancelled_are_one(mq: EchoMQ) -> None:
    assert Cancel is Cancelled
    state, row = once(mq, raising(Cancel("the order is gone")))
    assert (state, row["last_error"]) == (State.DEAD, "cancelled: the order is gone")


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Retry(after=timedelta(-1)), "after must be zero or more"),
        (lambda: Retry(minutes=-1), "Retry must be zero or more, not -60 s"),
        (lambda: Retry(after=5), "after must be a timedelta, not int"),
        (lambda: Retry(after=timedelta(1), minutes=5), "not both"),
        (lambda: Retry(timedelta(1)), "the reason of Retry must be str, not timedelta: .*after=timedelta"),
        (lambda: Discard(5), "the reason of Discard must be str"),
        (lambda: Cancel(5), "the reason of Cancelled must be str"),
    ],
)
def test_an_instruction_that_says_nothing_clear_is_refused(make, why) -> None:
    with pytest.raises(InvalidInputError, match=why):
        make()


# Which failures are tried again


@pytest.mark.parametrize(
    ("options", "error", "state"),
    [
        ({"retry_on": ConnectionError}, ConnectionError("x"), State.SCHEDULED),
        ({"retry_on": ConnectionError}, TooManyError("x"), State.SCHEDULED),
        ({"retry_on": (ConnectionError, TimeoutError)}, TimeoutError("x"), State.SCHEDULED),
        ({"retry_on": ConnectionError}, ValueError("x"), State.DEAD),
        ({"retry_on": ConnectionError}, SystemExit(1), State.DEAD),
        ({"retry_on": ConnectionError}, Retry(minutes=1), State.SCHEDULED),
        ({"retry_on": ConnectionError}, Snooze(minutes=1), State.SCHEDULED),
        ({"discard_on": ValueError}, UnicodeError("x"), State.DEAD),
        ({"discard_on": ValueError}, KeyError("x"), State.SCHEDULED),
        ({"discard_on": BaseException}, Retry(minutes=1), State.SCHEDULED),
        ({"retry_on": ConnectionError, "discard_on": TooManyError}, TooManyError("x"), State.DEAD),
        ({"retry_on": ConnectionError, "discard_on": TooManyError}, ConnectionError("x"), State.SCHEDULED),
    ],
)
def test_the_types_say_which_failures_are_tried_again(mq: EchoMQ, options, error, state) -> None:
    found, row = once(mq, raising(error), **options)
    assert found is state
    if state is State.DEAD:
        assert row["last_error"].startswith(f"{type(error).__name__}: {error}")
        assert row["failures"] == "1"


def test_a_timeout_is_a_failure_by_its_type(mq: EchoMQ) -> None:
    @mq.job(name="work", timeout=timedelta(milliseconds=10), discard_on=TimeoutError)
    async def work() -> None:
        await asyncio.Event().wait()

    job = work.enqueue()
    asyncio.run(Worker(mq, burst=True).serve())
    assert job.state() is State.DEAD


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"retry_on": "ConnectionError"}, "retry_on takes a type of exception or a tuple of them, not 'Conn"),
        ({"retry_on": [ConnectionError]}, "retry_on takes a type"),
        ({"retry_on": ConnectionError("x")}, "retry_on takes a type"),
        (
            {"discard_on": (ValueError, int)},
            "discard_on takes a type of exception or a tuple of them, not <class 'int'>",
        ),
        ({"retry_on": ()}, "retry_on is empty"),
        ({"retry_on": Snooze}, "Snooze is no failure"),
        ({"discard_on": Retry}, "Retry is no failure"),
        ({"retry_on": ValueError, "discard_on": ValueError}, "both speak of ValueError"),
        ({"retry_on": UnicodeError, "discard_on": ValueError}, "both speak of UnicodeError"),
        ({"retry_on": ValueError, "max_attempts": 1}, "max_attempts=1 lets nothing be tried again"),
    ],
)
def test_types_that_make_no_sense_are_refused(mq: EchoMQ, options, why) -> None:
    with pytest.raises(JobDefinitionError, match=why):
        mq.job(**options)
