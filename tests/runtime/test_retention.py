"""Consumers and pumps keep the morgue within the queue's settings, in steps, and only where there are settings."""

from __future__ import annotations

import pytest

from echomq.identity.minter import mint
from echomq.protocol import admin
from echomq.runtime import Pump
from echomq.runtime.legs import Legs
from echomq.runtime.retention import RETAIN_BEATS, Retention
from echomq.wire import aconnect
from support.desk import Desk, until

MINUTE = 60_000


def bury(desk: Desk, count: int, died_ms: int = 1) -> list[str]:
    ids = [mint() for _ in range(count)]
    for job_id in ids:
        desk.raw.execute(
            *("HSET", desk.key(f"job:{job_id}"), "state", "dead", "attempts", "1", "payload", "x"),
            *("last_error", "e", "died_ms", died_ms),
        )
        desk.raw.execute("ZADD", desk.key("dead"), "0", job_id)
    return ids


async def keep(desk: Desk, most: int | None, age_ms: int | None) -> None:
    async with aconnect(desk.server.url) as conn:
        await conn.run(admin.set_retention(desk.queue, dead_max=most, dead_age_ms=age_ms))


@pytest.mark.parametrize("by", ["count", "age"])
async def test_a_consumer_goes_on_until_nothing_is_to_purge(desk: Desk, by: str) -> None:
    bury(desk, 40)
    young = bury(desk, 5, died_ms=desk.raw.now_ms())
    await keep(desk, 5 if by == "count" else None, MINUTE if by == "age" else None)
    async with desk.consuming(beat_ms=MINUTE) as consumer:
        gear = consumer._gear
        assert gear is not None
        gear.legs.retention._budget = 7
        await until(lambda: desk.size("dead") == 5)
    assert [each.decode() for each in desk.raw.execute("ZRANGE", desk.key("dead"), 0, -1)] == young


async def test_the_pump_does_it_too(desk: Desk) -> None:
    bury(desk, 10)
    await keep(desk, 3, None)
    pump = Pump(desk.dial, desk.queue)
    await pump.beat()
    await pump.stop()
    assert desk.size("dead") == 3


async def test_without_settings_nothing_is_purged_for_one_call(desk: Desk) -> None:
    bury(desk, 10)
    async with aconnect(desk.server.url) as conn:
        before = desk.transitions()
        assert await Retention(desk.queue, budget=2).apply(conn) == 0
        assert desk.transitions() - before == 1
    assert desk.size("dead") == 10


async def test_a_look_that_finds_nothing_ends_and_the_next_goes_on_where_it_stopped(desk: Desk) -> None:
    now = desk.raw.now_ms()
    bury(desk, 25, died_ms=now)
    old = bury(desk, 3)
    await keep(desk, None, MINUTE)
    retention = Retention(desk.queue, budget=2)
    async with aconnect(desk.server.url) as conn:
        before = desk.transitions()
        assert await retention.apply(conn) == 0
        assert desk.transitions() - before == 10
        assert await retention.apply(conn) == len(old)
    assert desk.size("dead") == 25


def test_it_is_looked_at_every_thirtieth_beat() -> None:
    legs = Legs("q", None, beat_ms=1_000)
    looks = []
    for beat in range(100):
        legs.beat(float(beat))
        if legs._due.pop("retention", None):
            looks.append(beat)
    assert looks == [0, RETAIN_BEATS, 2 * RETAIN_BEATS, 3 * RETAIN_BEATS]
