"""Firing the `cron` registry on a real server: every slot once, with its own instant, whoever fires and how late."""

from __future__ import annotations

import asyncio
import json
import logging
from random import Random
from typing import Any

import pytest

from echomq.identity.minter import mint
from echomq.protocol import cron
from echomq.protocol.recurring import Definition, Standing
from echomq.runtime import Pump
from echomq.runtime.recurrences import Recurrences
from echomq.wire import aconnect
from support.desk import Desk, until

HOUR = 3_600_000
TEMPLATE = b'{"v":1,"job":"j","args":[],"kwargs":{}}'
NOTHING = Standing(0, None, None)


def hourly(**more: Any) -> Definition:
    return Definition(TEMPLATE, **{"every_ms": HOUR, "overlap": "allow", "start_ms": 0, **more})


async def put(conn: Any, desk: Desk, definition: Definition, slot_ms: int, name: str = "n") -> None:
    assert await conn.run(cron.put(desk.queue, name, definition, NOTHING, slot_ms=slot_ms, due_ms=slot_ms))


def slots(desk: Desk) -> list[int]:
    """The slots of the jobs that wait, in mint order."""
    ids = [each.decode() for each in desk.raw.execute("ZRANGE", desk.key("pending"), 0, -1)]
    return [json.loads(desk.row(each)["payload"])["slot_ms"] for each in ids]


def stored(desk: Desk, field: str, name: str = "n") -> int:
    return int(desk.raw.execute("HGET", desk.key(f"cron:{name}"), field))


@pytest.mark.parametrize("line", [None, "0 * * * *"])
@pytest.mark.parametrize(
    ("policy", "limit", "expected"),
    [("skip", None, []), ("one", None, [4]), ("all", 3, [2, 3, 4]), ("all", 9, [0, 1, 2, 3, 4])],
)
async def test_five_missed_slots_are_caught_up_with_by_policy(
    desk: Desk, line: str | None, policy: str, limit: int | None, expected: list[int]
) -> None:
    now = desk.raw.now_ms()
    first = now // HOUR * HOUR - 5 * HOUR
    what = {"every_ms": None, "line": line, "tz": "UTC"} if line else {}
    definition = hourly(catch_up=policy, catch_up_limit=limit, **what)
    async with aconnect(desk.server.url) as conn:
        await put(conn, desk, definition, first)
        at = first + 4 * HOUR + HOUR // 2
        assert await Recurrences(desk.queue).fire(conn, at) == 1
        assert await Recurrences(desk.queue).fire(conn, at) == 0
    assert slots(desk) == [first + n * HOUR for n in expected]
    assert stored(desk, "slot_ms") == first + 5 * HOUR


async def test_two_hundred_slots_of_half_a_second_are_exact_however_late_the_sweeps(desk: Desk) -> None:
    random, first = Random(5), desk.raw.now_ms() - 110_000
    async with aconnect(desk.server.url) as conn:
        await put(conn, desk, hourly(every_ms=500, catch_up="all", catch_up_limit=100), first)
        recurrences, at = Recurrences(desk.queue), first
        while at < first + 199 * 500:
            at += random.randrange(50, 2_500)
            await recurrences.fire(conn, at)
    found = slots(desk)
    assert len(found) >= 200
    assert found == [first + n * 500 for n in range(len(found))]


async def test_a_clock_that_steps_back_fires_no_slot_twice(desk: Desk) -> None:
    first = desk.raw.now_ms() // HOUR * HOUR - 9 * HOUR
    async with aconnect(desk.server.url) as conn:
        await put(conn, desk, hourly(), first)
        for hours in (1, 3, 2, 0, 3, 1, 4):
            await Recurrences(desk.queue).fire(conn, first + hours * HOUR)
    assert slots(desk) == [first + n * HOUR for n in (1, 3, 4)]


async def test_jitter_moves_the_score_and_never_the_slot(desk: Desk) -> None:
    first = desk.raw.now_ms() // HOUR * HOUR - 30 * HOUR
    async with aconnect(desk.server.url) as conn:
        await put(conn, desk, hourly(jitter_ms=HOUR // 2), first)
        offsets = set()
        for n in range(1, 12):
            await Recurrences(desk.queue).fire(conn, first + n * HOUR - 1)
            score = int(desk.raw.execute("ZSCORE", desk.key("cron"), "n"))
            assert stored(desk, "slot_ms") == first + n * HOUR
            assert 0 <= score - first - n * HOUR <= HOUR // 2
            offsets.add(score % HOUR)
    assert len(offsets) > 5
    assert slots(desk) == [first + n * HOUR for n in range(11)]


async def test_a_fast_host_fires_nothing_early(desk: Desk) -> None:
    async with aconnect(desk.server.url) as conn:
        await put(conn, desk, hourly(), desk.raw.now_ms() + HOUR // 2)
        assert await Recurrences(desk.queue).fire(conn, desk.raw.now_ms() + 9 * HOUR) == 0
    assert desk.size("pending") == 0


async def test_many_pumps_fire_each_slot_once(desk: Desk) -> None:
    first = desk.raw.now_ms() // HOUR * HOUR - 40 * HOUR
    pumps = [(await aconnect(desk.server.url), Recurrences(desk.queue)) for _ in range(4)]
    await put(pumps[0][0], desk, hourly(), first)
    for n in range(20):
        await asyncio.gather(*(each.fire(conn, first + n * HOUR) for conn, each in pumps))
    for conn, _ in pumps:
        await conn.close()
    assert slots(desk) == [first + n * HOUR for n in range(20)]


async def test_what_was_changed_between_reading_and_firing_is_read_again(desk: Desk) -> None:
    first = desk.raw.now_ms() - 5

    def meddling() -> str:
        desk.raw.execute("HSET", desk.key("cron:n"), "template", TEMPLATE.replace(b'"j"', b'"k"'))
        return mint()

    async with aconnect(desk.server.url) as conn:
        await put(conn, desk, hourly(), first)
        assert await Recurrences(desk.queue, meddling).fire(conn, desk.raw.now_ms()) == 1
        assert desk.size("pending") == 0
        assert await Recurrences(desk.queue).fire(conn, desk.raw.now_ms()) == 1
    (job_id,) = desk.raw.execute("ZRANGE", desk.key("pending"), 0, -1)
    assert json.loads(desk.row(job_id.decode())["payload"]) == {
        "v": 1, "job": "k", "args": [], "kwargs": {}, "slot_ms": first,
    }  # fmt: skip


async def test_an_id_that_is_taken_is_minted_again(desk: Desk) -> None:
    (taken,) = desk.enqueue(payload='{"slot_ms":0}')
    ids = iter([taken, mint()])
    first = desk.raw.now_ms() - 5
    async with aconnect(desk.server.url) as conn:
        await put(conn, desk, hourly(), first)
        assert await Recurrences(desk.queue, lambda: next(ids)).fire(conn, desk.raw.now_ms()) == 1
    assert slots(desk) == [0, first]


@pytest.mark.parametrize("template", [b"\x83m\0\xff", b'{"v":2,"job":"j"}', b"{}", b'["v"]', b"", b'{"v":1,"job":5}'])
async def test_what_is_no_envelope_is_admitted_as_it_is(desk: Desk, template: bytes) -> None:
    async with aconnect(desk.server.url) as conn:
        await put(conn, desk, hourly(), desk.raw.now_ms() - 5)
        desk.raw.execute("HSET", desk.key("cron:n"), "template", template)
        desk.recur("m", HOUR, desk.raw.now_ms() - 5)
        desk.raw.execute("HSET", desk.key("repeat:m"), "template", template)
        assert await Recurrences(desk.queue).fire(conn, desk.raw.now_ms()) == 2
    ids = desk.raw.execute("ZRANGE", desk.key("pending"), 0, -1)
    payloads = {desk.raw.execute("HGET", desk.key(f"job:{each.decode()}"), "payload") for each in ids}
    assert (len(ids), payloads) == (2, {template})


async def test_a_plain_occurrence_carries_the_newest_slot_that_has_come(desk: Desk) -> None:
    now = desk.raw.now_ms()
    first = now - 10_500
    desk.recur("r", 1_000, first, template=' {"v": 1, "job": "j", "more": [1]} \n')
    async with aconnect(desk.server.url) as conn:
        assert await Recurrences(desk.queue).fire(conn, now) == 1
    assert slots(desk) == [first + 10_000]


async def test_expiry_counts_from_the_slot(desk: Desk) -> None:
    first = desk.raw.now_ms() - 5
    async with aconnect(desk.server.url) as conn:
        await put(conn, desk, hourly(expires_in_ms=60_000), first)
        await Recurrences(desk.queue).fire(conn, desk.raw.now_ms())
    (job_id,) = desk.raw.execute("ZRANGE", desk.key("pending"), 0, -1)
    assert json.loads(desk.row(job_id.decode())["payload"])["expires_ms"] == first + 60_000


async def test_what_cannot_be_fired_hides_nobody_and_is_said_once(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    now = desk.raw.now_ms()
    recurrences = Recurrences(desk.queue)
    async with aconnect(desk.server.url) as conn:
        await put(conn, desk, Definition(TEMPLATE, line="0 * * * *", tz="Mars/Phobos"), now - HOUR, "zoneless")
        await put(conn, desk, hourly(), now - 5, "good")
        desk.raw.execute("HSET", desk.key("cron:alien"), "spec", "every now and then")
        desk.raw.execute("ZADD", desk.key("cron"), 1, "alien")
        with caplog.at_level(logging.ERROR, "echomq"):
            assert await recurrences.fire(conn, now) == 2
            assert await recurrences.fire(conn, now) == 0
    said = [each.getMessage() for each in caplog.records]
    assert len(said) == 2
    assert any("'zoneless' cannot fire: tz 'Mars/Phobos' is no IANA time zone" in each for each in said)
    assert any("'alien' has a record that cannot be read and is off the timetable" in each for each in said)
    assert desk.size("pending") == 1
    # A host that knows the zone may fire it; the alien waits for its owner.
    assert int(desk.raw.execute("ZSCORE", desk.key("cron"), "zoneless")) == now - HOUR
    assert desk.raw.execute("ZSCORE", desk.key("cron"), "alien") == b"inf"


async def test_however_many_cannot_be_fired_they_hide_nobody(desk: Desk) -> None:
    now = desk.raw.now_ms()
    async with aconnect(desk.server.url) as conn:
        for n in range(250):
            what = Definition(TEMPLATE, line="0 * * * *", tz="Mars/Phobos")
            await put(conn, desk, what, now - HOUR + n, f"zoneless {n}")
        await put(conn, desk, hourly(), now - 5, "good")
        recurrences = Recurrences(desk.queue)
        assert [await recurrences.fire(conn, now) for _ in range(4)] == [0, 0, 1, 0]
    assert slots(desk) == [now - 5]


@pytest.mark.parametrize("line", ["99 * * * *", "0 0 30 2 *", "", "@daily", "every noon", "*" * 5_000])
async def test_a_line_that_never_comes_leaves_the_timetable(desk: Desk, line: str) -> None:
    async with aconnect(desk.server.url) as conn:
        await put(conn, desk, Definition(TEMPLATE, line="0 * * * *", tz="UTC"), desk.raw.now_ms() - 5)
        desk.raw.execute("HSET", desk.key("cron:n"), "line", line)
        await Recurrences(desk.queue).fire(conn, desk.raw.now_ms())
    parked = line != "@daily"
    assert (desk.raw.execute("ZSCORE", desk.key("cron"), "n") == b"inf") is parked
    assert desk.size("pending") == (0 if parked else 1)


async def test_a_pump_fires_them_at_its_beat(desk: Desk) -> None:
    now = desk.raw.now_ms()
    async with aconnect(desk.server.url) as conn:
        await put(conn, desk, hourly(), now - 5)
    pump = Pump(desk.dial, desk.queue)
    await pump.beat()
    await pump.beat()
    await pump.stop()
    assert slots(desk) == [now - 5]


async def test_a_parked_consumer_fires_at_the_instant_itself(desk: Desk) -> None:
    async with desk.consuming(beat_ms=60_000) as consumer:
        await consumer.parked.next()
        slot = desk.raw.now_ms() + 500
        async with aconnect(desk.server.url) as conn:
            await put(conn, desk, hourly(), slot)
        await until(lambda: desk.seen, "the occurrence")
        assert json.loads(desk.seen[0].payload)["slot_ms"] == slot
        assert stored(desk, "last_late_ms") < 10_000  # a beat is a minute
        await until(lambda: consumer.next_run_ms == slot + HOUR, "the next run")


async def test_a_paused_or_unreadable_recurrence_costs_an_idle_consumer_nothing(desk: Desk) -> None:
    async with aconnect(desk.server.url) as conn:
        await put(conn, desk, hourly(), desk.raw.now_ms() - 5)
        await conn.run(cron.pause(desk.queue, "n"))
    async with desk.consuming(beat_ms=200) as consumer:
        await consumer.beat()
        before = desk.transitions()
        for _ in range(3):
            await consumer.beats.next()
        after = desk.transitions()
    assert consumer.next_run_ms is None
    assert after - before <= 3 * 3
    assert desk.size("pending") == 0
