"""`echomq queues` and `echomq stats`: every number, what is late, which queues there are."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from echomq.identity.minter import mint
from echomq.protocol import admin, flows, jobs, lanes, repeat, workers
from support.program import SOURCE
from support.servers import Server

ODD = ["ünïcödé-日本", "glob*?[a-z]", "back\\slash^-]", "a:b/c", "%s'\"$(x)", "--"]


def by_name(document: Any) -> dict[str, Any]:
    return {each["queue"]: each for each in document["queues"]}


def test_an_empty_server_says_so(ops: Any) -> None:
    assert ops("queues").lines == ["no queue is on this server"]
    assert ops("queues", "--json").json == {"queues": [], "warnings": []}
    assert ops("stats").lines == ["no queue is on this server"]
    assert ops("stats", "--json").json["queues"] == []
    assert ops("workers", "--json").json == {"workers": []}
    assert ops("health").code == 0


def test_every_number_of_a_queue(ops: Any, shop: Any) -> None:
    for _ in range(2):
        shop.dead()
    held, _ = shop.hold()
    shop.run(jobs.complete(shop.queue, *shop.hold()))
    for _ in range(3):
        shop.put()
    for text in ("acme", "acme", "zeta"):
        shop.lane(text)
    for _ in range(4):
        shop.later()
    each = by_name(ops("queues", "--json").json)[shop.queue]
    assert shop.members(shop.keys.active) == [held]
    assert {name: each[name] for name in ("active", "pending", "pending_flat", "pending_in_lanes")} == {
        "active": 1,
        "pending": 6,
        "pending_flat": 3,
        "pending_in_lanes": 3,
    }
    assert {name: each[name] for name in ("scheduled", "dead", "failed", "completed", "lanes_waiting")} == {
        "scheduled": 4,
        "dead": 2,
        "failed": 2,
        "completed": 1,
        "lanes_waiting": 2,
    }
    assert (each["late_ms"], each["workers"], each["paused"]) == (0, 0, False)


def test_the_oldest_that_waits_may_lie_in_a_lane(ops: Any, shop: Any) -> None:
    first = shop.lane("acme")
    shop.put()
    each = by_name(ops("queues", "--json").json)[shop.queue]
    assert each["oldest"] == first
    assert each["oldest_age_ms"] >= 0


def test_a_full_lane_and_a_paused_one_count_as_waiting_and_not_as_claimable(ops: Any, shop: Any) -> None:
    shop.lane("acme")
    shop.lane("zeta")
    shop.run(lanes.pause(shop.queue, lanes.lane_id("acme")))
    each = by_name(ops("queues", "--json").json)[shop.queue]
    assert (each["pending"], each["lanes_waiting"], each["claimable"]) == (2, 2, 1)


def test_a_schedule_head_in_the_past_is_late_since_its_run_at(ops: Any, shop: Any) -> None:
    job_id = shop.later()
    shop.raw.execute("ZADD", shop.keys.schedule, shop.raw.now_ms() - 90_000, job_id)
    # Minted a moment ago: it cannot have been late for longer than it exists.
    assert by_name(ops("queues", "--json").json)[shop.queue]["late_ms"] < 60_000
    shop.run(repeat.register(shop.queue, "r", every_ms=60_000, template=b"{}", first_run_ms=shop.raw.now_ms() - 90_000))
    late = by_name(ops("queues", "--json").json)[shop.queue]["late_ms"]
    assert 90_000 <= late < 150_000
    assert "1m 30s" in ops("queues").out


def test_a_queue_whose_jobs_wait_for_nobody_is_warned_of(ops: Any, shop: Any) -> None:
    shop.put()
    said = ops("queues")
    assert said.err == f"echomq: queue {shop.queue}: no live worker serves it, and 1 job could start\n"
    assert "no live worker" in said.out
    shop.run(admin.pause_queue(shop.queue))
    said = ops("queues")
    assert said.err == ""
    assert "paused" in said.out
    shop.run(admin.resume_queue(shop.queue))
    shop.run(workers.beat(shop.queue, "w", b"{}"))
    assert ops("queues").err == ""


@pytest.mark.parametrize("name", ODD)
def test_a_queue_with_an_odd_name_is_found_and_meant(
    name: str, ops: Any, open_shop: Callable[[str], Any], queue: str
) -> None:
    odd, other = open_shop(name), open_shop(queue)
    ids = [odd.put() for _ in range(2)]
    laned = odd.lane("acme")
    other.put()
    assert set(by_name(ops("queues", "--json").json)) == {name, queue}
    assert name in ops("queues").out
    assert by_name(ops("stats", "--json", "--", name).json)[name]["pending"] == 3
    assert {job["id"] for job in ops("jobs", "--json", "--state", "pending", "--", name).json["jobs"]} == {*ids, laned}
    assert ops("pause", "--", name).code == 0
    assert odd.meta() == {"paused": "1"}
    assert other.meta() == {}
    assert ops("audit", "--", name).code == 0
    assert ops("obliterate", "--yes", "--", name).code == 0
    assert set(by_name(ops("queues", "--json").json)) == {queue}


def test_a_queue_of_waiting_parents_only_is_found(ops: Any, shop: Any, queue: str) -> None:
    parent, child = mint(), mint()
    elsewhere = f"{queue}-children"
    shop.run(flows.add(flows.Node(queue, parent, b"{}", (flows.Node(elsewhere, child, b"{}"),))))
    assert set(by_name(ops("queues", "--json").json)) == {queue, elsewhere}
    assert ops("stats", queue).code == 0


def test_no_row_is_read_for_the_queues(ops: Any, shop: Any) -> None:
    shop.run(jobs.enqueue_many(shop.queue, [(mint(), b"x") for _ in range(3_000)]))
    shop.forget_calls()
    assert by_name(ops("queues", "--json").json)[shop.queue]["pending"] == 3_000
    calls = shop.calls()
    assert calls.get("hmget", 0) + calls.get("keys", 0) == 0
    assert calls.get("hgetall", 0) == 1, "its settings"


@pytest.mark.strays("a key of another program")
def test_a_queue_that_cannot_be_read_does_not_hide_the_others(ops: Any, shop: Any) -> None:
    shop.put()
    shop.raw.execute("SET", "emq:{broken}:pending", "no set")
    said = ops("queues", "--json")
    assert set(by_name(said.json)) == {shop.queue}
    assert any("broken" in each and "WRONGTYPE" in each for each in said.json["warnings"])
    said = ops("stats", "--json")
    assert set(by_name(said.json)) == {shop.queue}
    assert ["broken" in each and "WRONGTYPE" in each for each in said.json["warnings"]] == [True]
    said = ops("stats", "--watch", "0.1", "--times", "1", "--json")
    assert ["broken" in each for each in said.json["warnings"]] == [True]
    said = ops("stats", "broken", "--json")
    assert (said.code, set(said.json)) == (1, {"error", "kind", "exit_code"})
    assert ops("health").code == 1
    shop.raw.execute("SET", "emq:{two words}:x", "not a queue's")
    assert set(by_name(ops("queues", "--json").json)) == {shop.queue}


def test_an_unknown_queue_is_told_the_nearest(ops: Any, shop: Any) -> None:
    shop.put()
    for words in (("stats",), ("jobs",), ("dead",), ("lanes",), ("repeats",), ("audit",), ("health",), ("workers",)):
        said = ops(*words, shop.queue + "x")
        assert said.code == 2
        assert said.out == ""
        assert said.err.startswith(f"echomq: there is no queue '{shop.queue}x'")
        assert f"nearest: '{shop.queue}'" in said.err


def test_stats_of_one_queue_are_told_with_its_settings(ops: Any, shop: Any) -> None:
    shop.lane("acme")
    shop.run(admin.set_ceiling(shop.queue, 7))
    said = ops("stats", shop.queue)
    assert f"queue:           {shop.queue}" in said.lines
    assert "pending:         1 (1 in 1 lane)" in said.lines
    assert "ceiling:         7 in hand at once" in said.lines
    assert ops("stats", shop.queue, "--json").json["queues"][0]["settings"]["ceiling"] == 7


def test_stats_of_all_are_summed(ops: Any, open_shop: Callable[[str], Any], queue: str) -> None:
    one, two = open_shop(queue), open_shop(f"{queue}-2")
    one.put()
    two.put()
    two.later()
    total = ops("stats", "--json").json["total"]
    assert (total["pending"], total["scheduled"]) == (2, 1)
    assert "(all)" in ops("stats").out


def test_watch_shows_the_speed_between_two_readings(ops: Any, shop: Any) -> None:
    shop.put()
    said = ops("stats", "--watch", "0.1", "--times", "2", "--json")
    first, second = map(json.loads, said.lines)
    assert first["per_second"] == {}
    assert second["per_second"] == {shop.queue: {"completed": 0.0, "failed": 0.0}}
    said = ops("stats", shop.queue, "--watch", "0.1", "--times", "2")
    assert said.out.count("DONE/S") == 2
    assert ops("stats", "--times", "2").code == 2


@pytest.mark.parametrize("columns", [80, 160])
def test_a_terminal_gets_a_table_that_cuts_no_id(columns: int, server: Server, shop: Any) -> None:
    job_id = shop.put("send \x1b[31mred")
    leader, follower = pty.openpty()
    try:
        done = subprocess.Popen(
            [sys.executable, "-m", "echomq.cli", "jobs", shop.queue, "--url", server.url],
            env=os.environ | {"PYTHONPATH": SOURCE, "COLUMNS": str(columns), "TERM": "xterm"},
            stdout=follower,
            stderr=subprocess.DEVNULL,
        )
        os.close(follower)
        shown = b""
        while True:
            try:
                chunk = os.read(leader, 65_536)
            except OSError:
                break
            if not chunk:
                break
            shown += chunk
        assert done.wait(40) == 0
    finally:
        os.close(leader)
    text = shown.decode()
    assert job_id in text
    assert "\x1b[1m" in text, "the heading is bold"
    assert "\x1b[31m" not in text, "what a stranger named a job is not obeyed"
    assert r"send \x1b[31mred" in text
