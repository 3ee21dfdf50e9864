"""Pumps that are killed at any instant, each started again: every slot of a `cron` entry becomes one job."""

from __future__ import annotations

import os
import subprocess
import sys
from random import Random

import pytest

from echomq.protocol import cron
from echomq.protocol.recurring import Definition, Standing
from echomq.wire import connect
from support.desk import Desk
from support.servers import wait_until

PUMP = """
import asyncio, sys
from echomq.protocol.discover import clock
from echomq.runtime import Dial
from echomq.runtime.recurrences import Recurrences

async def main():
    conn = await Dial(sys.argv[1]).aconnect("pump")
    recurrences = Recurrences(sys.argv[2])
    print("runs", flush=True)
    while True:
        await recurrences.fire(conn, await conn.run(clock()))
        await asyncio.sleep(0.002)

asyncio.run(main())
"""
EVERY_MS = 20
SLOTS = 400


def start(desk: Desk) -> subprocess.Popen[bytes]:
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    words = [sys.executable, "-c", PUMP, desk.server.url, desk.queue]
    return subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


@pytest.mark.chaos
@pytest.mark.deadline(120)
def test_pumps_that_are_killed_at_any_instant_fire_each_slot_once(desk: Desk) -> None:
    random = Random(3)
    template = b'{"v":1,"job":"j","args":[],"kwargs":{}}'
    definition = Definition(template, every_ms=EVERY_MS, catch_up="all", catch_up_limit=1_000, max_runs=SLOTS)
    first = desk.raw.now_ms()
    with connect(desk.server.url) as conn:
        put = cron.put(desk.queue, "n", definition, Standing(0, None, None), slot_ms=first, due_ms=first)
        assert conn.run(put)
    pumps = [start(desk) for _ in range(3)]
    try:
        kills = 0
        while desk.size("pending") < SLOTS:
            number = random.randrange(len(pumps))
            assert pumps[number].stdout is not None
            pumps[number].stdout.readline()  # it runs; what it is doing when it is killed is left to chance
            before = desk.size("pending")
            wait_until(lambda: desk.size("pending") > before or before >= SLOTS, seconds=60, what="a slot is fired")  # noqa: B023
            pumps[number].kill()
            pumps[number].wait()
            pumps[number].stdout.close()
            pumps[number] = start(desk)
            kills += 1
    finally:
        for pump in pumps:
            pump.kill()
            pump.wait()
            assert pump.stdout is not None
            pump.stdout.close()
    assert kills > 0
    ids = [each.decode() for each in desk.raw.execute("ZRANGE", desk.key("pending"), 0, -1)]
    slots = sorted(int(desk.row(each)["payload"].rpartition(":")[2].rstrip("}")) for each in ids)
    assert slots == [first + n * EVERY_MS for n in range(SLOTS)]
    assert desk.raw.execute("ZSCORE", desk.key("cron"), "n") == b"inf"
