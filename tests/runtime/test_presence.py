"""A worker is in the registry of its queues from its start to its stop, with what it holds."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from contextlib import AsyncExitStack

import pytest

from echomq import __version__
from echomq.protocol import admin
from echomq.protocol.replies import Claimed
from echomq.runtime import Metronome, identity
from echomq.runtime.legs import Legs
from echomq.runtime.presence import Presence
from echomq.wire import aconnect
from support.desk import Desk, until

MINUTE = 60_000


def known(desk: Desk) -> dict[str, dict[str, object]]:
    flat = desk.raw.execute("HGETALL", desk.key("workers:info"))
    assert sorted(flat[::2]) == sorted(desk.raw.execute("ZRANGE", desk.key("workers"), 0, -1))
    return {name.decode(): json.loads(info) for name, info in zip(flat[::2], flat[1::2], strict=True)}


async def test_it_says_who_it_is_from_its_start_to_its_stop(desk: Desk) -> None:
    async with desk.consuming(beat_ms=MINUTE, concurrency=7):
        await until(lambda: known(desk))
        ((name, info),) = known(desk).items()
        assert name.startswith(f"{socket.gethostname()}:{os.getpid()}:")
        assert info["host"] == socket.gethostname()
        assert info["pid"] == os.getpid()
        assert info["queues"] == [desk.queue]
        assert info["concurrency"] == 7
        assert info["version"] == __version__
        assert (info["in_hand"], info["ids"]) == (0, [])
        assert 0 <= desk.raw.now_ms() - int(str(info["started_ms"])) < MINUTE
    assert known(desk) == {}


async def test_it_names_up_to_twenty_of_the_jobs_in_hand(desk: Desk) -> None:
    ids = desk.enqueue(count=25)
    go = asyncio.Event()

    async def handler(job: Claimed) -> None:
        await go.wait()

    async with desk.consuming(handler, beat_ms=MINUTE, concurrency=30) as consumer:
        await until(lambda: consumer.in_hand == 25)
        gear = consumer._gear
        assert gear is not None
        await gear.legs.rest()
        await gear.legs._say(gear.conn)
        ((_, info),) = known(desk).items()
        assert info["in_hand"] == 25
        assert info["ids"] == ids[:20]
        go.set()
        await until(lambda: consumer.tally.completed == 25)


async def test_consumers_of_one_worker_share_a_name(desk: Desk) -> None:
    who = identity((desk.queue, "other"))
    async with desk.consuming(beat_ms=MINUTE, who=who), desk.consuming(beat_ms=MINUTE, who=who):
        await until(lambda: known(desk))
        ((name, info),) = known(desk).items()
        assert name == who.name
        assert info["queues"] == [desk.queue, "other"]
    assert identity(("q",)).name != identity(("q",)).name


async def test_a_pool_says_the_longest_lease_of_its_consumers(desk: Desk) -> None:
    def leases() -> list[object]:
        return [info["lease_ms"] for info in known(desk).values()]

    async with Metronome(desk.dial, desk.queue, beat_ms=20) as pool, desk.consuming(metronome=pool, lease_ms=5_000):
        await until(lambda: leases() == [5_000])
        async with desk.consuming(metronome=pool, lease_ms=90_000):
            await until(lambda: leases() == [90_000])
        await until(lambda: leases() == [5_000])


@pytest.mark.parametrize("pooled", [False, True])
async def test_it_registers_again_at_its_next_beat_when_its_queue_is_obliterated(
    desk: Desk, pooled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("echomq.runtime.legs.PRESENCE_S", 3_600.0)
    async with AsyncExitStack() as stack:
        conn = await stack.enter_async_context(aconnect(desk.server.url))
        if pooled:
            metronome = Metronome(desk.dial, desk.queue, beat_ms=20)
            await stack.enter_async_context(metronome)
            beats = metronome.beats
            await stack.enter_async_context(desk.consuming(metronome=metronome, beat_ms=20))
        else:
            beats = (await stack.enter_async_context(desk.consuming(beat_ms=20))).beats
        await until(lambda: [info["concurrency"] for info in known(desk).values()] == [1])
        (name,) = known(desk)
        await beats.reach(beats.count + 2)  # it has nothing to say for an hour
        said = desk.calls()["zadd"]
        await beats.reach(beats.count + 5)
        assert desk.calls()["zadd"] == said
        await conn.run(admin.pause_queue(desk.queue))
        await conn.run(admin.obliterate(desk.queue, force=True))
        await beats.reach(beats.count + 2)
        await until(lambda: list(known(desk)) == [name])
    assert known(desk) == {}


async def test_a_registry_that_is_none_is_not_written_to_at_every_beat(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    desk.raw.execute("SET", desk.key("workers"), "no sorted set")
    async with desk.consuming(beat_ms=MINUTE) as consumer:
        for _ in range(20):
            await consumer.beat()
            gear = consumer._gear
            assert gear is not None
            await gear.legs.rest()
        desk.enqueue()
        await until(lambda: desk.seen)
    desk.raw.execute("DEL", desk.key("workers"))
    # The first pause is as long as a beat by itself, which none of these was.
    assert len([each for each in caplog.records if "legs: degraded beat" in each.getMessage()]) == 1


async def test_what_keeps_failing_is_tried_ever_more_slowly_whatever_else_succeeds(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    def streak() -> int:
        said = [each.getMessage().partition("legs: degraded beat ")[2] for each in caplog.records]
        return max((int(each.partition(",")[0]) for each in said if each), default=0)

    desk.raw.execute("SET", desk.key("workers"), "no sorted set")
    async with desk.consuming(beat_ms=10):
        await until(lambda: streak() >= 5, "a fifth failure in a row, with the outbox delivered between them")
    desk.raw.execute("DEL", desk.key("workers"))


def test_it_says_so_about_every_five_seconds() -> None:
    legs = Legs("q", Presence("q", identity(("q",)), set(), lambda: 1), beat_ms=1_000)
    said = []
    for second in range(1, 31):
        legs.beat(float(second))
        if legs._due.pop("presence", None):
            said.append(second)
    assert said == [1, 6, 11, 16, 21, 26]


async def test_an_idle_worker_costs_three_commands_a_beat_at_most(desk: Desk) -> None:
    def spent() -> int:
        calls = desk.calls()
        # Scripts run other commands; these are what clients send.
        return sum(calls.get(name, 0) for name in ("evalsha", "blpop", "lrange", "subscribe", "ping"))

    async with desk.consuming(beat_ms=200) as consumer:
        await consumer.parked.reach(1)
        await consumer.beats.next(2)
        before, beats = spent(), consumer.beats.count
        await consumer.beats.next(8)
        cost = (spent() - before) / (consumer.beats.count - beats)
    assert cost <= 3, cost
