"""The pump alone, and the sweep alone: beats by hand."""

from __future__ import annotations

import subprocess
import sys

import pytest

from echomq.identity.errors import InvalidInputError
from echomq.identity.minter import mint
from echomq.runtime import Dial, Pump, StalledSweep
from echomq.runtime.recurrences import Recurrences
from echomq.wire import aconnect
from support.desk import Desk

MINUTE = 60_000


async def test_a_beat_promotes_everything_that_is_due(desk: Desk) -> None:
    now = desk.raw.now_ms()
    due = sorted(desk.schedule(now - n, token=False) for n in range(1, 26))
    later = desk.schedule(now + MINUTE, token=False)
    pump = Pump(desk.dial, desk.queue, batch=10)
    await pump.beat()
    await pump.stop()
    assert sorted(each.decode() for each in desk.raw.execute("ZRANGE", desk.key("pending"), 0, -1)) == due
    assert desk.raw.execute("ZRANGE", desk.key("schedule"), 0, -1) == [later.encode()]


async def test_a_late_tick_fires_once_and_keeps_the_grid(desk: Desk) -> None:
    now = desk.raw.now_ms()
    first = now - 10_500
    desk.recur("late", 1_000, first)
    desk.recur("early", 1_000, now + MINUTE)
    pump = Pump(desk.dial, desk.queue)
    await pump.beat()
    await pump.beat()
    await pump.stop()
    assert desk.size("pending") == 1
    score = int(desk.raw.execute("ZSCORE", desk.key("repeat"), "late"))
    assert score > now
    assert (score - first) % 1_000 == 0


async def test_an_id_that_is_taken_is_minted_again(desk: Desk) -> None:
    (taken,) = desk.enqueue()
    fresh = mint()
    ids = iter([taken, fresh])
    desk.recur("r", 1_000, desk.raw.now_ms())
    async with aconnect(desk.server.url) as conn:
        assert await Recurrences(desk.queue, lambda: next(ids)).fire(conn, desk.raw.now_ms()) == 1
    assert desk.row(fresh)["payload"] == "r"


async def test_a_host_whose_clock_is_fast_fires_nothing_early(desk: Desk) -> None:
    desk.recur("r", 1_000, desk.raw.now_ms() + MINUTE)
    async with aconnect(desk.server.url) as conn:
        assert await Recurrences(desk.queue).fire(conn, desk.raw.now_ms() + 60 * MINUTE) == 0
    assert desk.size("pending") == 0


BEAT = """
import asyncio, sys
from time import time_ns
from echomq.identity import minter

wrong_ns = int(sys.argv[3]) * 1_000_000
minter.time_ns = lambda: time_ns() + wrong_ns
from echomq.runtime import Dial, Pump

async def main():
    pump = Pump(Dial(sys.argv[1]), sys.argv[2])
    await pump.beat()
    await pump.stop()

asyncio.run(main())
"""


@pytest.mark.parametrize("wrong_ms", [-60 * MINUTE, 60 * MINUTE])
def test_a_host_whose_clock_is_wrong_fires_what_is_due_and_no_more(desk: Desk, wrong_ms: int) -> None:
    now = desk.raw.now_ms()
    desk.recur("due", 60 * MINUTE, now - 10)
    desk.recur("later", 60 * MINUTE, now + 30 * MINUTE)
    # In a process of its own: ids of a fast clock would be ahead in all the tests that follow.
    subprocess.run([sys.executable, "-c", BEAT, desk.server.url, desk.queue, str(wrong_ms)], check=True, timeout=30)
    assert desk.size("pending") == 1
    assert int(desk.raw.execute("ZSCORE", desk.key("repeat"), "due")) == now - 10 + 60 * MINUTE
    assert int(desk.raw.execute("ZSCORE", desk.key("repeat"), "later")) == now + 30 * MINUTE


async def test_the_sweep_alone_buries_at_the_first_lapse(desk: Desk) -> None:
    ids = desk.enqueue(count=3)
    for job_id in ids:
        desk.raw.execute("ZREM", desk.key("pending"), job_id)
        desk.raw.execute("HSET", desk.key(f"job:{job_id}"), "state", "active")
        desk.raw.execute("ZADD", desk.key("active"), "1", job_id)
    sweep = StalledSweep(desk.dial, desk.queue, limit=2)
    await sweep.beat()
    await sweep.stop()
    assert desk.size("dead") == 3
    assert desk.size("active") == 0


def test_loops_refuse_nonsense() -> None:
    dial = Dial("unix:///nowhere")
    for build in (
        lambda: Pump(dial, "q", batch=0),
        lambda: Pump(dial, "q", beat_ms=0),
        lambda: Pump("unix:///nowhere", "q"),
        lambda: StalledSweep(dial, "q", max_stalled=0),
        lambda: StalledSweep(dial, "q{}"),
    ):
        with pytest.raises(InvalidInputError):
            build()
