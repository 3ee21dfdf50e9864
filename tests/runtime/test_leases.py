"""Leases are extended while a handler runs, whatever it does to the event loop, and given up when it is stuck."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from echomq.protocol.replies import Claimed
from echomq.runtime import LeaseKeeper
from support.desk import Desk, until

MINUTE = 60_000
LEASE = 1_000
"""The keeper is to get to the server within half of it, however busy the machine is."""


def deadline(desk: Desk, job_id: str) -> int:
    score = desk.raw.execute("ZSCORE", desk.key("active"), job_id)
    return int(score) if score is not None else 0


def lapses(desk: Desk, job_id: str) -> int:
    return int(desk.row(job_id).get("stalled", "0"))


async def test_a_long_handler_keeps_its_lease(desk: Desk) -> None:
    (job_id,) = desk.enqueue()
    go = asyncio.Event()

    async def handler(job: Claimed) -> None:
        await go.wait()

    # The sweep of its own beat would count a lapse at once.
    async with desk.consuming(handler, lease_ms=LEASE, beat_ms=20) as consumer:
        await until(lambda: deadline(desk, job_id))
        first = deadline(desk, job_id)
        await until(lambda: desk.raw.now_ms() > first + LEASE)
        assert deadline(desk, job_id) > desk.raw.now_ms()
        go.set()
        await until(lambda: consumer.tally.completed == 1)
    assert desk.seen == []
    assert consumer.tally.claimed == 1


async def test_a_handler_that_blocks_the_loop_keeps_its_lease(desk: Desk) -> None:
    (job_id,) = desk.enqueue()
    found: list[bool] = []

    async def handler(job: Claimed) -> None:
        end = desk.raw.now_ms() + 2 * LEASE
        while (now := desk.raw.now_ms()) < end:  # a busy handler: the loop does not move
            found.append(deadline(desk, job_id) > now)

    async with desk.consuming(handler, lease_ms=LEASE, beat_ms=20) as consumer:
        await until(lambda: consumer.tally.completed == 1)
    assert found
    assert all(found), "the lease lapsed while the loop was blocked"


async def test_a_loop_that_is_stuck_loses_its_jobs(desk: Desk) -> None:
    (job_id,) = desk.enqueue()

    async def handler(job: Claimed) -> None:
        end = time.monotonic() + 20
        while deadline(desk, job_id) > desk.raw.now_ms() and time.monotonic() < end:
            pass

    began = desk.raw.now_ms()
    async with desk.consuming(handler, lease_ms=LEASE, stuck_ms=LEASE, beat_ms=MINUTE) as consumer:
        await until(lambda: consumer.tally.completed == 1)
    assert desk.raw.now_ms() - began < 15_000


async def test_a_lost_lease_is_told_to_the_owner(desk: Desk) -> None:
    (job_id,) = desk.enqueue()
    told: list[Claimed] = []
    go = asyncio.Event()

    async def handler(job: Claimed) -> None:
        await go.wait()

    async with desk.consuming(handler, lease_ms=LEASE, beat_ms=MINUTE, on_lost=told.append) as consumer:
        await until(lambda: deadline(desk, job_id))
        desk.raw.execute("ZREM", desk.key("active"), job_id)
        desk.raw.execute("ZADD", desk.key("dead"), "0", job_id)
        desk.raw.execute("HSET", desk.key(f"job:{job_id}"), "state", "dead")
        await until(lambda: told)
        go.set()
        await until(lambda: consumer.tally.refused == 1)
    assert [job.id for job in told] == [job_id]


async def test_a_job_that_lapsed_and_came_back_to_the_same_consumer_is_kept_under_its_new_token(desk: Desk) -> None:
    (job_id,) = desk.enqueue()
    told: list[int] = []
    go = asyncio.Event()

    async def handler(job: Claimed) -> None:
        desk.seen.append(job)
        await go.wait()

    async with desk.consuming(
        handler, concurrency=2, lease_ms=LEASE, beat_ms=20, on_lost=lambda job: told.append(job.attempts)
    ) as consumer:
        await until(lambda: len(desk.seen) == 1)
        desk.raw.execute("ZADD", desk.key("active"), "1", job_id)
        await until(lambda: len(desk.seen) == 2)
        await until(lambda: told == [1])
        second = deadline(desk, job_id)
        await until(lambda: deadline(desk, job_id) > second)
        go.set()
        await until(lambda: consumer.tally.completed == 1 and consumer.tally.refused == 1)
    assert told == [1]


def keepers() -> int:
    return sum(thread.name == "echomq leases" for thread in threading.enumerate())


async def test_one_keeper_serves_many_queues_with_one_call_each(desk: Desk, server) -> None:
    keeper = LeaseKeeper(desk.dial)
    go = asyncio.Event()

    async def handler(job: Claimed) -> None:
        await go.wait()

    def ends() -> list[int]:
        return [
            int(score)
            for each in (desk, other)
            for score in each.raw.execute("ZRANGE", each.key("active"), 0, -1, "WITHSCORES")[1::2]
        ]

    before = keepers()
    with Desk(server, desk.queue + "b") as other:
        desk.enqueue(count=5)
        other.enqueue(count=5)
        options = {"concurrency": 5, "lease_ms": MINUTE, "beat_ms": MINUTE, "keeper": keeper}
        async with desk.consuming(handler, **options), other.consuming(handler, **options):
            await until(lambda: len(ends()) == 10)
            assert keepers() == before + 1
            # Both have said that they live, which is a call too.
            await until(lambda: desk.size("workers") == other.size("workers") == 1)
            first, spent = ends(), desk.transitions()
            await asyncio.to_thread(keeper.beat)
            assert desk.transitions() - spent == 2
            assert all(later > sooner for sooner, later in zip(first, ends(), strict=True))
            go.set()
    await keeper.stop()
    assert keepers() == before


async def test_the_keeper_bears_a_server_that_goes_away(start_server, queue, caplog: pytest.LogCaptureFixture) -> None:
    server = start_server(aof=True)
    with Desk(server, queue) as desk:
        (job_id,) = desk.enqueue()
        go = asyncio.Event()

        async def handler(job: Claimed) -> None:
            await go.wait()

        keeper = LeaseKeeper(desk.dial)
        async with desk.consuming(handler, lease_ms=20_000, beat_ms=50, keeper=keeper) as consumer:
            await until(lambda: consumer.in_hand == 1)
            before = deadline(desk, job_id)
            server.kill9()
            with keeper._changed:  # half of the lease is over, a little early
                keeper._due.update(dict.fromkeys(keeper._due, 0.0))
                keeper._changed.notify()
            await until(lambda: any("leases" in r.getMessage() for r in caplog.records))
            server.start()
            desk.reconnect()
            await until(lambda: deadline(desk, job_id) > before)
            go.set()
            await until(lambda: consumer.tally.completed == 1)
            assert lapses(desk, job_id) == 0
        await keeper.stop()
