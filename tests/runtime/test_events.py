"""What happens to jobs is published for whoever listens, in any process, and a listener bears whatever comes."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest

from echomq.events import Event, events
from echomq.identity.errors import InvalidInputError
from echomq.protocol.backoff import Fixed
from echomq.protocol.replies import Admission, Claimed, Idle
from echomq.runtime import Later
from echomq.runtime.listening import read
from echomq.runtime.publishing import event_of
from echomq.runtime.telemetry import Added, Cancelled, Dead, LimitHit, Stalled
from echomq.wire import aconnect, connect
from support.desk import Desk, until

MINUTE = 60_000


async def test_a_life_is_published_step_by_step(desk: Desk) -> None:
    (job_id,) = desk.enqueue()

    async def handler(job: Claimed) -> object:
        if job.attempts == 1:
            return Later(1)
        if job.failures == 0:
            raise ValueError("no")
        return None

    async with aconnect(desk.server.url) as conn, events(conn, desk.queue) as heard:
        async with desk.consuming(handler, beat_ms=MINUTE, retry_delay=Fixed(1), events=True) as consumer:
            await until(lambda: consumer.tally.completed == 1)
        found: list[Event] = []
        while not found or found[-1].event != "completed":
            event = await heard.get()
            assert event is not None
            found.append(event)
    assert {event.job for event in found} == {job_id}
    said = [(event.event, event.attempt) for event in found]
    assert said == [
        ("active", 1),
        ("delayed", None),
        ("active", 1),
        ("retried", 1),
        ("active", 2),
        ("completed", 2),
    ]
    assert str(found[3].error).startswith("ValueError: no")


async def test_nothing_is_published_unless_asked(desk: Desk) -> None:
    desk.enqueue()
    before = desk.calls().get("publish", 0)
    async with desk.consuming(beat_ms=MINUTE) as consumer:
        await until(lambda: consumer.tally.completed == 1)
    assert desk.calls().get("publish", 0) == before


async def test_what_is_no_event_is_left_out_and_counted(desk: Desk) -> None:
    good = json.dumps({"event": "progress", "job": "J", "progress": "40"})
    async with aconnect(desk.server.url) as conn, events(conn, desk.queue) as heard:
        for text in (b"", b"\xff\xfe", b"[]", b'{"event":"x"}', b'{"event":"x","job":"J","n":1}', good):
            desk.raw.execute("PUBLISH", desk.key("events"), text)
        async for event in heard:
            assert event == Event("progress", "J", {"progress": "40"})
            assert (event.progress, event.error, event.attempt) == ("40", None, None)
            break
        assert heard.malformed == 5


async def test_it_survives_a_reconnect(desk: Desk) -> None:
    async with aconnect(desk.server.url, name="listener") as conn, events(conn, desk.queue) as heard:
        assert desk.kill_clients("listener") == 1
        await until(lambda: heard.restored == 1)
        await until(lambda: desk.raw.execute("PUBSUB", "NUMSUB", desk.key("events"))[1] == 1)
        desk.raw.execute("PUBLISH", desk.key("events"), '{"event":"active","job":"J"}')
        async with asyncio.timeout(40):
            assert await heard.get() == Event("active", "J", {})


def test_a_thread_may_wait_for_them(desk: Desk) -> None:
    found: list[Event] = []
    with connect(desk.server.url) as conn, events(conn, desk.queue) as heard:
        assert heard.get(timeout=0.01) is None
        thread = threading.Thread(target=lambda: found.extend(heard))
        desk.raw.execute("PUBLISH", desk.key("events"), "no event")
        for number in range(3):
            desk.raw.execute("PUBLISH", desk.key("events"), json.dumps({"event": "active", "job": f"J{number}"}))
        thread.start()
        asyncio.run(until(lambda: len(found) == 3))
        heard.close()
        thread.join(40)
        assert not thread.is_alive()
        assert heard.malformed == 1
        assert heard.dropped == heard.restored == 0
    assert [event.job for event in found] == ["J0", "J1", "J2"]


def test_every_value_is_text() -> None:
    for step in (
        Added("q", "J", Admission.ADMITTED),
        Added("q", "J", Admission.SCHEDULED),
        Dead("q", "J", "e"),
        Stalled("q", "J", dead=True),
        Cancelled("q", "J", "r"),
    ):
        event = event_of(step)
        assert event is not None
        assert read(json.dumps(event).encode()) is not None
    assert event_of(Added("q", "J", Admission.DUPLICATE)) is None
    assert event_of(LimitHit("q", Idle.RATE)) is None


def test_events_need_a_connector() -> None:
    with pytest.raises(InvalidInputError, match="connector"):
        events("valkey://localhost", "q")  # type: ignore[call-overload]  (the mistake that is refused)
