"""A backlog that nobody can claim, and a worker that holds jobs and no longer works, are seen at a glance."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from echomq.protocol import admin, jobs, lanes, workers
from support.program import SOURCE
from support.servers import wait_until


def notes_of(ops: Any, queue: str) -> str:
    """What `queues` notes of a queue; `stats` notes the same."""
    line = next(line for line in ops("queues").lines if line.startswith(queue))
    (fact,) = (line for line in ops("stats", queue).lines if line.startswith("notes:"))
    noted = fact.removeprefix("notes:").strip()
    assert _without_ages(line).endswith(_without_ages(noted))
    return noted


def _without_ages(text: str) -> str:
    return text.split("(oldest")[0]


def seen(ops: Any, queue: str) -> Any:
    (each,) = ops("stats", queue, "--json").json["queues"]
    return each


def fill(shop: Any, text: str, n: int = 1) -> None:
    for _ in range(n):
        shop.lane(text)


def pause_lane(shop: Any) -> str:
    fill(shop, "acme", 3)
    shop.run(lanes.pause(shop.queue, lanes.lane_id("acme")))
    return "3 held in 1 paused lane "


def fill_lanes(shop: Any) -> str:
    for text in ("acme", "zeta"):
        fill(shop, text, 3)
        shop.run(lanes.limit(shop.queue, lanes.lane_id(text), 1))
    for _ in range(2):
        assert shop.run(jobs.claim(shop.queue, lease_ms=100_000)) is not None
    return "4 held in 2 lanes at their limit "


def pause_queue(shop: Any) -> str:
    shop.put()
    fill(shop, "acme", 2)
    shop.run(admin.pause_queue(shop.queue))
    return "paused, 3 held by the pause "


def reach_ceiling(shop: Any) -> str:
    shop.hold()
    shop.put()
    shop.run(admin.set_ceiling(shop.queue, 1))
    return "1 held by the ceiling of 1 "


def spend_rate(shop: Any) -> str:
    shop.run(admin.set_rate(shop.queue, 1, period_ms=3_600_000))
    shop.hold()
    shop.put()
    return "1 held by the rate of 1 in 1h for 59m 5"


@pytest.mark.parametrize("hold", [pause_lane, fill_lanes, pause_queue, reach_ceiling, spend_rate])
def test_a_backlog_that_is_held_is_seen_with_the_reason(hold: Callable[[Any], str], ops: Any, shop: Any) -> None:
    shop.run(workers.beat(shop.queue, "w", b"{}"))
    said = hold(shop)
    assert notes_of(ops, shop.queue).startswith(said)
    each = seen(ops, shop.queue)
    (held,) = each["held"]
    assert (each["claimable"], each["oldest"], each["oldest_age_ms"]) == (0, None, None)
    assert held["jobs"] == each["pending"] > 0
    assert held["oldest_age_ms"] >= 0
    health = ops("health", shop.queue)
    assert health.code == 0
    assert said.removeprefix("paused, ") in health.out


def test_the_oldest_is_of_what_can_be_claimed(ops: Any, shop: Any) -> None:
    pause_lane(shop)
    claimable = shop.put()
    each = seen(ops, shop.queue)
    assert (each["pending"], each["claimable"], each["oldest"]) == (4, 1, claimable)
    (held,) = each["held"]
    assert (held["why"], held["jobs"], held["lanes"]) == ("lane_paused", 3, 1)
    assert held["oldest"] < claimable


def test_what_flows_is_not_held(ops: Any, shop: Any) -> None:
    shop.run(admin.set_ceiling(shop.queue, 2))
    shop.run(admin.set_rate(shop.queue, 3, period_ms=3_600_000))
    shop.hold()
    for _ in range(5):
        shop.put()
    each = seen(ops, shop.queue)
    assert (each["pending"], each["claimable"], each["held"]) == (5, 1, [])
    assert "held" not in ops("queues").out


def frozen(shop: Any, *, silent_ms: int, in_hand: int = 3, **info: int) -> None:
    """A worker that has said so some time ago that it has something in hand."""
    shop.run(workers.beat(shop.queue, "w", json.dumps({"in_hand": in_hand, **info})))
    shop.raw.execute("ZADD", shop.keys.workers, shop.raw.now_ms() - silent_ms, "w")


def lapse(shop: Any, n: int = 3, *, ago_ms: int = 14_000) -> None:
    for _ in range(n):
        job_id, _ = shop.hold()
        shop.raw.execute("ZADD", shop.keys.active, shop.raw.now_ms() - ago_ms, job_id)


@pytest.mark.parametrize(
    ("about", "alive"),
    [
        ({"silent_ms": 45_000}, False),
        ({"silent_ms": 45_000, "in_hand": 0}, True),
        ({"silent_ms": 45_000, "lease_ms": 90_000}, True),
        ({"silent_ms": 25_000, "lease_ms": 12_000}, False),
        ({"silent_ms": 8_000, "lease_ms": 1_000}, True),
        ({"silent_ms": 70_000, "lease_ms": 90_000}, False),
    ],
)
def test_a_worker_that_is_silent_for_longer_than_its_lease_is_not_alive(
    about: dict[str, int], alive: bool, ops: Any, shop: Any
) -> None:
    shop.put()
    frozen(shop, **about)
    said = ops("workers")
    assert said.lines[1].endswith("alive" if alive else "silent")
    assert said.lines[2].startswith("1 live worker" if alive else "0 live workers")
    assert seen(ops, shop.queue)["workers"] == alive
    assert ops("health", shop.queue).code == (0 if alive else 3)


def test_leases_that_lapsed_are_unhealthy_long_before_anything_else_is(ops: Any, shop: Any) -> None:
    lapse(shop)
    shop.run(workers.beat(shop.queue, "other", b"{}"))
    said = ops("health", shop.queue)
    assert said.code == 4
    assert "3 jobs in hand whose leases lapsed, the first 14s ago" in said.out
    assert "3 jobs in hand whose leases lapsed" in notes_of(ops, shop.queue)
    assert seen(ops, shop.queue)["lapsed"] == 3


def test_leases_that_lapsed_are_named_while_nobody_serves_the_queue(ops: Any, shop: Any) -> None:
    lapse(shop, 1)
    frozen(shop, silent_ms=45_000)
    said = ops("health", shop.queue)
    assert said.code == 3
    assert said.out.endswith("no live worker serves it and 1 job in hand whose lease lapsed 14s ago\n")
    shop.put()
    said = ops("health", shop.queue)
    assert said.code == 3
    assert "1 job waiting, the oldest" in said.out
    assert "1 job in hand whose lease lapsed 14s ago" in said.out


TASKS = """
import asyncio
from datetime import timedelta
from echomq import EchoMQ, Worker

mq = EchoMQ("{url}", default_queue="{queue}")

@mq.job(name="wait")
async def wait():
    open("began", "w").close()
    await asyncio.sleep(600)

if __name__ == "__main__":
    Worker(mq, lease=timedelta(seconds=2)).run()
"""


@pytest.mark.deadline(90)
def test_a_worker_that_is_frozen_is_silent_and_its_lapse_is_named(
    ops: Any, shop: Any, server: Any, tmp_path: Path
) -> None:
    (tmp_path / "tasks.py").write_text(TASKS.format(url=server.url, queue=shop.queue))
    shop.put("wait")
    worker = subprocess.Popen(
        [sys.executable, "tasks.py"], cwd=tmp_path, env=os.environ | {"PYTHONPATH": SOURCE}, stderr=subprocess.DEVNULL
    )
    try:
        wait_until((tmp_path / "began").exists, seconds=30, what="the job begins")
        wait_until(lambda: '"in_hand": 1' in ops("workers", "--json").out, seconds=20, what="it says so")
        worker.send_signal(signal.SIGSTOP)
        wait_until(lambda: ops("workers").lines[1].endswith("silent"), seconds=30, what="it counts as silent")
        said = ops("health", shop.queue)
        assert said.code == 3
        assert "1 job in hand whose lease lapsed" in said.out
    finally:
        worker.kill()
        worker.wait()
