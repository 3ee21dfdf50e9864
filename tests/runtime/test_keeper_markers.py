"""The keeper says on the server that a job is held: its marker, and the field of its row where that can expire."""

from __future__ import annotations

import asyncio

import pytest

from echomq.protocol import admin
from echomq.protocol.errors import LockedError
from echomq.protocol.replies import Claimed
from echomq.runtime import LeaseKeeper
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
