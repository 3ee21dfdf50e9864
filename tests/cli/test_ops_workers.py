"""`echomq workers` and `echomq health`: who is there, and the exit code that an orchestrator acts on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from echomq.protocol import admin, jobs, lanes, repeat, workers
from support.program import SOURCE, cli
from support.servers import wait_until


def arrive(shop: Any, name: str = "w-1", *, ago_ms: int = 0, **info: object) -> None:
    """A worker says that it lives, or said so some time ago."""
    shop.run(workers.beat(shop.queue, name, json.dumps(info).encode()))
    if ago_ms:
        shop.raw.execute("ZADD", shop.keys.workers, shop.raw.now_ms() - ago_ms, name)


def test_workers_are_listed_once_with_all_their_queues(ops: Any, open_shop: Callable[[str], Any], queue: str) -> None:
    one, two = open_shop(queue), open_shop(f"{queue}-2")
    started_ms = one.raw.now_ms() - 3_600_000
    about = {"host": "box", "pid": 42, "version": "0.1.0", "started_ms": started_ms}
    queues = [one.queue, two.queue]
    arrive(one, queues=queues, in_hand=2, concurrency=10, ids=["JOB0NgWEfAEJfs"], **about)
    arrive(two, queues=queues, in_hand=1, concurrency=10, **about)
    arrive(two, "w-2", ago_ms=90_000, host="old", pid=7)
    told = ops("workers", "--json").json["workers"]
    assert [(each["name"], each["alive"], each["queues"]) for each in told] == [
        ("w-1", True, queues),
        ("w-2", False, [two.queue]),
    ]
    assert (told[0]["in_hand"], told[0]["concurrency"], told[0]["ids"]) == (3, 20, ["JOB0NgWEfAEJfs"])
    assert (told[0]["host"], told[0]["pid"], told[0]["started_ms"]) == ("box", 42, started_ms)
    assert 90_000 <= told[1]["silent_ms"] < 150_000
    heading, first, second, end = ops("workers").lines
    assert heading.split()[0] == "WORKER"
    assert first.split()[:3] == ["w-1", "box", "42"]
    assert "  3 of 20  " in first
    assert second.endswith("silent")
    assert end == "1 live worker in the registry of all queues, 1 silent"
    assert [each["name"] for each in ops("workers", one.queue, "--json").json["workers"]] == ["w-1"]


def test_what_a_worker_says_of_itself_may_be_anything(ops: Any, shop: Any) -> None:
    for name, info in (("a", b"\xff"), ("b", b"[1]"), ("c", b'{"pid": "x", "queues": 5, "host": 1}'), ("d", b"{}")):
        shop.run(workers.beat(shop.queue, name, info))
    told = ops("workers", "--json").json["workers"]
    assert sorted(each["name"] for each in told) == ["a", "b", "c", "d"]
    assert all(each["queues"] == [shop.queue] and each["pid"] is None for each in told)
    assert ops("workers").code == 0


TASKS = """
import os, time
from echomq import EchoMQ

mq = EchoMQ("{url}", default_queue="{queue}")

@mq.job(name="wait")
def wait(folder):
    open(folder + "/began", "w").close()
    while not os.path.exists(folder + "/go"):
        time.sleep(0.01)
"""


def test_a_worker_at_work_is_seen_with_what_it_has_in_hand(ops: Any, shop: Any, server: Any, tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text(TASKS.format(url=server.url, queue=shop.queue))
    job_id = shop.put("wait", str(tmp_path))
    assert ops("health", shop.queue).code == 3
    worker = subprocess.Popen(
        [sys.executable, "-m", "echomq.cli", "worker", "tasks:mq", "--log-level", "error"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": SOURCE},
    )
    try:
        wait_until((tmp_path / "began").exists, seconds=30, what="the job begins")
        wait_until(lambda: ops("health", shop.queue).code == 0, seconds=20, what="the worker says that it is there")
        wait_until(lambda: job_id in ops("workers", "--json").out, seconds=20, what="it says what it has in hand")
        (told,) = ops("workers", "--json").json["workers"]
        assert (told["pid"], told["queues"], told["in_hand"]) == (worker.pid, [shop.queue], 1)
        assert ops("job", job_id, "--json").json["state"] == "active"
        (tmp_path / "go").touch()
        wait_until(lambda: ops("job", job_id, "--json").json["state"] == "completed", seconds=20, what="done")
        worker.terminate()
        assert worker.wait(40) == 0
        assert ops("workers", "--json").json == {"workers": []}
    finally:
        worker.kill()
        worker.wait()


def test_a_served_queue_is_healthy(ops: Any, shop: Any) -> None:
    shop.put()
    arrive(shop)
    said = ops("health")
    assert (said.code, len(said.lines)) == (0, 1)
    assert said.lines[0].startswith(f"{shop.queue}: healthy, 1 job waiting, the oldest ")
    told = ops("health", "--json").json
    assert (told["healthy"], told["exit_code"], told["queues"][0]["code"]) == (True, 0, 0)


def test_a_queue_with_nothing_to_do_needs_no_worker(ops: Any, shop: Any) -> None:
    shop.later()
    shop.dead()
    assert ops("health", shop.queue).code == 0


def test_jobs_that_wait_for_nobody_are_code_3(ops: Any, shop: Any) -> None:
    shop.put()
    said = ops("health")
    assert said.code == 3
    assert said.lines[0].startswith(f"{shop.queue}: UNHEALTHY, no live worker serves it and 1 job waiting")
    arrive(shop, ago_ms=90_000)
    assert ops("health").code == 3
    assert ops("health", "--silence", "120").code == 0


def test_what_is_due_or_lapsed_waits_too(ops: Any, open_shop: Callable[[str], Any], queue: str) -> None:
    due, lapsed, laned = (open_shop(f"{queue}-{n}") for n in range(3))
    due.overdue()
    lapsed.put()
    job = lapsed.run(jobs.claim(lapsed.queue))
    lapsed.raw.execute("ZADD", lapsed.keys.active, lapsed.raw.now_ms() - 1, job.id)
    laned.lane("acme")
    told = {each["queue"]: each["code"] for each in ops("health", "--json").json["queues"]}
    assert told == {due.queue: 3, lapsed.queue: 3, laned.queue: 3}
    laned.run(lanes.pause(laned.queue, lanes.lane_id("acme")))
    assert ops("health", laned.queue).code == 0


def test_what_is_overdue_for_too_long_is_code_4(ops: Any, shop: Any) -> None:
    arrive(shop)
    at_ms = shop.raw.now_ms() - 90_000
    shop.run(repeat.register(shop.queue, "r", every_ms=60_000, template=b"{}", first_run_ms=at_ms))
    said = ops("health")
    assert said.code == 4
    assert "what should have begun 1m 3" in said.lines[0]
    assert ops("health", "--late", "300").code == 0


def test_a_lapsed_lease_that_nobody_takes_back_is_code_4(ops: Any, shop: Any) -> None:
    arrive(shop)
    job_id, _ = shop.hold()
    shop.raw.execute("ZADD", shop.keys.active, shop.raw.now_ms() - 90_000, job_id)
    said = ops("health")
    assert said.code == 4
    assert "1 job in hand whose lease lapsed 1m 3" in said.lines[0]


def test_a_paused_queue_is_left_in_peace(ops: Any, shop: Any) -> None:
    shop.put()
    shop.overdue()
    shop.run(admin.pause_queue(shop.queue))
    said = ops("health", "--late", "0")
    assert (said.code, "paused by somebody" in said.out) == (0, True)


def test_of_several_queues_the_worst_counts(ops: Any, open_shop: Callable[[str], Any], queue: str) -> None:
    late, unserved, well = (open_shop(f"{queue}-{name}") for name in ("late", "unserved", "well"))
    arrive(late)
    late.run(repeat.register(late.queue, "r", every_ms=9_000, template=b"{}", first_run_ms=late.raw.now_ms() - 90_000))
    unserved.put()
    arrive(well)
    assert ops("health").code == 3
    assert ops("health", late.queue, well.queue).code == 4
    assert ops("health", well.queue).code == 0
    assert ops("health", well.queue, "nowhere").code == 2


def test_a_server_that_cannot_be_reached_is_code_1_and_one_sentence(ops: Any, tmp_path: Path) -> None:
    said = ops("health", "--url", f"unix://{tmp_path}/nothing")
    assert said.code == 1
    assert said.out == ""
    assert len(said.err.splitlines()) == 1


def test_the_exit_code_is_the_process_s(shop: Any, server: Any) -> None:
    shop.put()
    done = cli("health", shop.queue, ECHOMQ_URL=server.url)
    assert (done.returncode, done.stderr) == (3, "")
