"""The keeper says on the server that a job is held: its marker, and the field of its row where that can expire."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

import pytest

from echomq.protocol import admin, jobs
from echomq.protocol.errors import LockedError
from echomq.protocol.replies import Claimed
from echomq.runtime import LeaseKeeper
from echomq.runtime.hand import Hand, Held
from echomq.runtime.outcome import DONE
from echomq.wire import aconnect
from support.desk import Desk, until
from support.servers import wire_6

MINUTE = 60_000


def fields_expire(desk: Desk) -> bool:
    return any(desk.raw.execute("COMMAND", "INFO", "HPEXPIRE"))


async def test_a_held_job_carries_its_marker_until_its_hold_ends_and_cannot_be_removed(desk: Desk) -> None:
    (job_id,) = desk.enqueue()
    keeper = LeaseKeeper(desk.dial)
    go = asyncio.Event()

    async def handler(job: Claimed) -> None:
        desk.seen.append(job)
        await go.wait()

    row = desk.key(f"job:{job_id}")
    async with desk.consuming(handler, keeper=keeper, lease_ms=MINUTE, beat_ms=MINUTE) as consumer:
        await until(lambda: desk.seen)
        await asyncio.to_thread(keeper.beat)
        assert desk.raw.execute("GET", row + ":lock") == b"1"
        assert MINUTE < desk.raw.execute("PTTL", row + ":lock") <= 2 * MINUTE
        assert desk.row(job_id).get("lock") == ("1" if fields_expire(desk) else None)
        if fields_expire(desk):
            (left,) = desk.raw.execute("HPTTL", row, "FIELDS", "1", "lock")
            assert MINUTE < left <= 2 * MINUTE
        async with aconnect(desk.server.url) as conn:
            with pytest.raises(LockedError):
                await conn.run(admin.remove_job(desk.queue, job_id))
        go.set()
        await until(lambda: consumer.tally.completed == 1)
        assert desk.raw.execute("EXISTS", row, row + ":lock") == 0
    await keeper.stop()


async def test_a_job_is_marked_soon_after_its_claim_and_cannot_be_removed_then(desk: Desk) -> None:
    (job_id,) = desk.enqueue()
    go = asyncio.Event()

    async def handler(job: Claimed) -> None:
        await go.wait()

    row = desk.key(f"job:{job_id}")
    lease_ms = 10 * MINUTE  # of which half passes before the keeper would come by itself
    async with desk.consuming(handler, lease_ms=lease_ms, beat_ms=MINUTE) as consumer:
        await until(lambda: desk.raw.execute("EXISTS", row + ":lock"))
        assert lease_ms < desk.raw.execute("PTTL", row + ":lock") <= 2 * lease_ms
        async with aconnect(desk.server.url) as conn:
            with pytest.raises(LockedError):
                await conn.run(admin.remove_job(desk.queue, job_id))
        go.set()
        await until(lambda: consumer.tally.completed == 1)
    assert desk.raw.execute("EXISTS", row + ":lock") == 0


def marked(desk: Desk, jobs: Iterable[Claimed]) -> list[bool]:
    return [desk.raw.execute("EXISTS", desk.key(f"job:{job.id}:lock")) == 1 for job in jobs]


def keepers(desk: Desk) -> int:
    """Connections of lease keepers."""
    return int(desk.raw.execute("CLIENT", "LIST").decode().count("leases"))


async def test_what_is_in_hand_for_a_moment_is_marked_in_one_call_and_what_ends_sooner_costs_nothing(
    desk: Desk,
) -> None:
    desk.enqueue(count=6)
    async with aconnect(desk.server.url) as conn:
        claimed = (await conn.run(jobs.claim_many(desk.queue, 6, lease_ms=MINUTE))).jobs
    held: set[Held] = set()
    hand = Hand(desk.queue, held, MINUTE)
    keeper = LeaseKeeper(desk.dial)  # not started: its looks are made by hand, at instants of this test's own
    began = time.monotonic()

    async def look(after_s: float) -> int:
        """How many calls a look makes."""
        before = desk.transitions()
        await asyncio.to_thread(keeper.beat, began + after_s)
        return desk.transitions() - before

    def take(job: Claimed, after_s: float) -> Held:
        held.add(one := Held(job, began + after_s))
        keeper.taken(hand, began + after_s)
        return one

    keeper.add(hand)
    short = take(claimed[0], 0)
    held.discard(short)
    assert (await look(0.26), keepers(desk)) == (0, 0)
    for n, job in enumerate(claimed[1:4]):
        take(job, 1 + n / 100)
    young = take(claimed[4], 1.2)
    done = take(claimed[5], 1)
    done.outcome = DONE
    assert await look(1.2) == 0  # the first is not there for long enough
    assert await look(1.26) == 1
    assert marked(desk, claimed) == [False, True, True, True, False, False]
    assert await look(1.5) == 0  # from look to look it is as long
    assert await look(1.52) == 1
    assert marked(desk, claimed) == [False, True, True, True, True, False]
    assert young.marked
    assert await look(9) == 0
    take(claimed[0], 9).lost = True
    assert (await look(9.5), hand.unmarked_since()) == (0, None)
    keeper._disconnect()


async def test_a_job_that_blocks_the_loop_is_marked_meanwhile(desk: Desk) -> None:
    (job_id,) = desk.enqueue()
    found: list[int] = []

    async def handler(job: Claimed) -> None:
        end = desk.raw.now_ms() + 20_000
        while not found and desk.raw.now_ms() < end:  # the loop does not move
            if desk.raw.execute("EXISTS", desk.key(f"job:{job_id}:lock")):
                found.append(1)

    async with desk.consuming(handler, lease_ms=MINUTE, beat_ms=MINUTE) as consumer:
        await until(lambda: consumer.tally.completed == 1, seconds=30)
    assert found


async def test_a_marker_that_could_not_be_set_is_set_later(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    (job_id,) = desk.enqueue()
    row = desk.key(f"job:{job_id}")
    go = asyncio.Event()

    async def handler(job: Claimed) -> None:
        desk.raw.execute("RENAME", desk.key("active"), desk.key("limiter"))
        desk.raw.execute("SET", desk.key("active"), "no sorted set")
        await go.wait()

    async with desk.consuming(handler, lease_ms=MINUTE, beat_ms=MINUTE) as consumer:
        await until(lambda: any("leases" in record.getMessage() for record in caplog.records))
        desk.raw.execute("RENAME", desk.key("limiter"), desk.key("active"))
        await until(lambda: desk.raw.execute("EXISTS", row + ":lock"), seconds=30)
        go.set()
        await until(lambda: consumer.tally.completed == 1)


async def test_what_the_server_knows_is_asked_once_a_connection(desk: Desk) -> None:
    desk.enqueue()
    keeper = LeaseKeeper(desk.dial)
    go = asyncio.Event()

    async def handler(job: Claimed) -> None:
        desk.seen.append(job)
        await go.wait()

    async with desk.consuming(handler, keeper=keeper, lease_ms=MINUTE, beat_ms=MINUTE):
        await until(lambda: desk.seen)
        before = desk.calls().get("command|info", 0)
        for _ in range(3):
            await asyncio.to_thread(keeper.beat)
        # On wire 6 the connect asks as well, for the native commands.
        assert desk.calls()["command|info"] - before == 1 + wire_6()
        go.set()
    await keeper.stop()
