"""A job that goes wrong without its consumer: its process has died, or its function outlasts its time in a thread."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from echomq.protocol.replies import Claimed
from echomq.runtime import InThread, Lapsed, Retry, Router
from support.desk import Desk, until

MINUTE = 60_000


@pytest.mark.parametrize("group", [None, "LAN00000000001"], ids=["flat", "lane"])
async def test_a_lapse_that_the_consumer_sees_is_counted_and_buried_at_the_cap(desk: Desk, group: str | None) -> None:
    (job_id,) = desk.enqueue()
    if group is not None:
        desk.raw.execute("ZREM", desk.key("pending"), job_id)
        desk.raw.execute("HSET", desk.key(f"job:{job_id}"), "group", group)
        desk.raw.execute("ZADD", desk.key(f"g:{group}:pending"), "0", job_id)
        desk.raw.execute("RPUSH", desk.key("ring"), group)
    seen: list[int] = []

    async def handler(job: Claimed) -> Lapsed:
        seen.append(job.stalled)
        return Lapsed("its process ended with exit code 9")

    async with desk.consuming(handler, beat_ms=MINUTE, lease_ms=MINUTE, max_stalled=3) as consumer:
        await until(lambda: desk.row(job_id)["state"] == "dead")
        assert consumer.tally.lapsed == 3
    assert seen == [0, 1, 2]
    row = desk.row(job_id)
    assert (row["last_error"], row["stalled"], row.get("failures", "0")) == ("stalled", "3", "0"), "as any sweep has it"
    ways = desk.raw.execute("LRANGE", desk.key(f"job:{job_id}:logs"), "0", "-1")
    assert ways == [b"lapse %d: its process ended with exit code 9" % n for n in (1, 2, 3)]
    assert desk.raw.execute("HGET", desk.key("gactive"), group or "-") in (None, b"0")


async def test_a_consumer_is_not_idle_while_a_lapse_is_uncounted(desk: Desk) -> None:
    desk.enqueue()
    ran: list[int] = []

    async def handler(job: Claimed) -> Lapsed | None:
        ran.append(job.stalled)
        return None if job.stalled else Lapsed("it died")

    async with desk.consuming(handler, beat_ms=MINUTE, lease_ms=MINUTE) as consumer:
        await until(lambda: ran)
        while not consumer.idle:
            await consumer.parked.next()
    assert ran == [0, 1]


def late_after(timeout_ms: int, function, told: list[str]) -> Router:
    def late() -> Retry:
        told.append("late")
        return Retry("TimeoutError: it goes on", delay_ms=MINUTE, max_attempts=5)

    return Router(lambda job: InThread(function, timeout_ms, late))


async def test_a_function_past_its_time_fails_its_job_and_keeps_its_slot_until_it_returns(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    ids = desk.enqueue(count=2)
    go = threading.Event()
    began: list[int] = []

    def function() -> None:
        began.append(1)
        if len(began) == 1:
            go.wait(20)

    with caplog.at_level(logging.ERROR):
        async with desk.consuming(late_after(30, function, []), concurrency=1) as consumer:
            await until(lambda: consumer.tally.retried == 1)
            assert consumer.in_hand == 0
            await consumer.beat()
            assert len(began) == 1, "its slot is taken"
            assert desk.row(ids[0])["last_error"] == "TimeoutError: it goes on"
            go.set()
            await until(lambda: consumer.tally.completed == 1)
    assert len(began) == 2
    assert "goes on past its time" in caplog.text


async def test_a_function_that_is_done_in_time_is_not_late(desk: Desk) -> None:
    desk.enqueue(count=20)
    told: list[str] = []
    async with desk.consuming(late_after(MINUTE, lambda: None, told), concurrency=4) as consumer:
        await until(lambda: consumer.tally.completed == 20)
    assert told == []


async def test_what_comes_of_a_function_that_was_given_up_is_not_awaited(desk: Desk) -> None:
    desk.enqueue()
    go = threading.Event()
    awaited: list[int] = []

    async def never() -> None:
        awaited.append(1)

    def function() -> object:
        go.wait(20)
        return never()

    async with desk.consuming(late_after(20, function, []), concurrency=1) as consumer:
        await until(lambda: consumer.tally.retried == 1)
        go.set()
        await asyncio.to_thread(lambda: None)
        await until(lambda: not consumer._late)
    assert awaited == []
