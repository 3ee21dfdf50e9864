"""A worker is in the registry of its queues from its start to its stop, with what it holds."""

from __future__ import annotations

import asyncio
import json
import os
import socket

from echomq import __version__
from echomq.protocol.replies import Claimed
from echomq.runtime import identity
from echomq.runtime.legs import Legs
from echomq.runtime.presence import Presence
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
