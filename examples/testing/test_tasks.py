"""Tests of an app, on a real server: python -m pytest examples/testing

The fixture `echomq` comes with the package; pytest.ini says which app it is about.
"""

from collections.abc import Iterator
from datetime import timedelta
from zoneinfo import ZoneInfo

import pytest
from tasks import outbox, send, sign_up

from echomq import EchoMQ, JobFailed, State


@pytest.fixture(autouse=True)
def empty_outbox() -> Iterator[None]:
    yield
    outbox.clear()


def test_a_sign_up_sends_a_welcome_at_once(echomq: EchoMQ) -> None:
    sign_up.enqueue("ada")
    assert echomq.drain_blocking(raise_errors=True).completed == 2
    assert outbox == ["Welcome: ada@example.org"]


def test_and_a_reminder_a_week_later(echomq: EchoMQ) -> None:
    sign_up.enqueue("ada")
    echomq.drain_blocking()
    waits = echomq.assert_enqueued(send.options(lane="reminders").s("ada@example.org", "How are you?"))
    assert waits.run_at is not None

    echomq.clock.advance(days=7)
    echomq.drain_blocking()
    assert outbox[-1] == "How are you?: ada@example.org"
    echomq.assert_not_enqueued(send)


def test_a_wrong_address_ends_in_the_morgue(echomq: EchoMQ) -> None:
    job = send.enqueue("nobody")
    assert echomq.drain_blocking().failed == 1  # it is tried again, in a minute
    echomq.clock.advance(minutes=1)
    done = echomq.drain_blocking(retries=True)  # and then for the last time, without the wait
    assert (done.failed, done.dead, job.state()) == (1, 1, State.DEAD)
    with pytest.raises(JobFailed, match="is no address"):
        job.get()


def test_the_report_of_each_night(echomq: EchoMQ) -> None:
    echomq.drain_blocking(schedules=True)
    first = echomq.schedule("nightly").info()
    assert first is not None
    assert first.next_slot is not None
    for night in range(2):
        echomq.clock.advance(days=1)
        echomq.drain_blocking()
        due = (first.next_slot + timedelta(days=night)).astimezone(ZoneInfo("UTC"))
        assert outbox[-1] == f"report of {due:%d %B}"
    assert len(outbox) == 2


@pytest.mark.usefixtures("echomq_eager")
def test_without_a_server() -> None:
    assert send.enqueue("ada@example.org").get() == "ada@example.org"
    assert outbox == ["Hello: ada@example.org"]
