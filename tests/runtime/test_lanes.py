"""Consumers serve lanes beside flat work, park when every lane is at its limit, and wake when one opens."""

from __future__ import annotations

import asyncio

from echomq.identity.minter import mint
from echomq.protocol import lanes
from echomq.protocol.replies import Claimed
from echomq.wire import aconnect
from support.desk import Desk, until

MINUTE = 60_000
LANE = lanes.lane_id("acme")


async def fill(desk: Desk, count: int, *, limit: int | None = 1, lane: str = LANE) -> None:
    async with aconnect(desk.server.url) as conn:
        if limit is not None:
            await conn.run(lanes.limit(desk.queue, lane, limit))
        for _ in range(count):
            await conn.run(lanes.enqueue(desk.queue, mint(), b"x", lane))


async def test_a_lane_at_its_limit_parks_the_worker_and_each_end_starts_the_next(desk: Desk) -> None:
    go = [asyncio.Event() for _ in range(3)]

    async def handler(job: Claimed) -> None:
        desk.seen.append(job)
        await go[len(desk.seen) - 1].wait()

    await fill(desk, 3)
    async with desk.consuming(handler, concurrency=5, beat_ms=MINUTE) as consumer:
        for number in range(3):
            await until(lambda number=number: len(desk.seen) == number + 1)
            await consumer.parked.reach(number + 1)
            assert (consumer.in_hand, desk.size("active")) == (1, 1)
            go[number].set()
        await until(lambda: consumer.tally.completed == 3)


async def test_a_lane_that_opens_wakes_a_worker_that_is_parked(desk: Desk) -> None:
    """The one that holds the lane's job has no slot to spare, so the parked one has to hear of it."""
    go = asyncio.Event()
    second: list[str | None] = []

    async def hold(job: Claimed) -> None:
        desk.seen.append(job)
        await go.wait()
        # Busy with flat work from here on.
        if job.group is None:
            await forever.wait()

    async def note(job: Claimed) -> None:
        second.append(job.group)

    forever = asyncio.Event()
    await fill(desk, 2)
    async with desk.consuming(hold, beat_ms=MINUTE) as one:
        await until(lambda: len(desk.seen) == 1)
        async with desk.consuming(note, beat_ms=MINUTE) as two:
            await two.parked.reach(1)
            assert second == []
            go.set()
            await until(lambda: one.tally.completed + two.tally.completed == 2)
            forever.set()


async def test_a_limit_that_is_lifted_wakes_it_too(desk: Desk) -> None:
    go = asyncio.Event()

    async def handler(job: Claimed) -> None:
        desk.seen.append(job)
        await go.wait()

    await fill(desk, 3)
    async with desk.consuming(handler, concurrency=5, beat_ms=MINUTE) as consumer, aconnect(desk.server.url) as conn:
        await until(lambda: len(desk.seen) == 1)
        await consumer.parked.reach(1)
        await conn.run(lanes.limit(desk.queue, LANE, None))
        await until(lambda: len(desk.seen) == 3)
        go.set()
        await until(lambda: consumer.tally.completed == 3)


async def test_nobody_waits_for_more_claims_than_there_are_others_with_work(desk: Desk) -> None:
    """One long lane, three short ones and flat work: each of them is served once a round."""
    others = [lanes.lane_id(f"small {number}") for number in range(3)]
    await fill(desk, 30, limit=None)
    for each in others:
        await fill(desk, 3, limit=None, lane=each)
    desk.enqueue(count=3)
    async with desk.consuming(beat_ms=MINUTE) as consumer:
        await until(lambda: consumer.tally.completed == 42)
    order = [job.group for job in desk.seen]
    for each in (*others, None):
        turns = [place for place, group in enumerate(order) if group == each]
        gaps = [later - sooner for sooner, later in zip([-1, *turns], turns, strict=False)]
        assert max(gaps) <= 5, (each, turns)
