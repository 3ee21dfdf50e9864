"""`echomq job`: everything about one job, and each action on it, its effect seen by plain commands."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from echomq.identity.minter import mint
from echomq.protocol import admin, flows, jobs, lanes, workers


def facts(said: Any) -> dict[str, str]:
    return {name: value.strip() for name, _, value in (line.partition(":") for line in said.lines)}


def test_a_job_is_found_in_whichever_queue_has_it(ops: Any, open_shop: Callable[[str], Any], queue: str) -> None:
    shops = [open_shop(f"{queue}-{n}") for n in range(3)]
    for shop in shops:
        shop.put()
    job_id = shops[1].put("needle")
    assert ops("job", job_id, "--json").json["queue"] == f"{queue}-1"
    assert ops("job", job_id, "--queue", f"{queue}-1").code == 0
    said = ops("job", job_id, "--queue", f"{queue}-2")
    assert (said.code, "is not in queue" in said.err) == (2, True)
    said = ops("job", mint())
    assert (said.code, "is in none of 3 queues" in said.err) == (2, True)
    assert ops("job", "JOB123").code == 2
    assert ops("job", "USR0NgWEfAEJfs").code == 2


def test_everything_about_a_job_in_hand(ops: Any, shop: Any) -> None:
    shop.put("send", "secret@example.org", subject="hush")
    job = shop.run(jobs.claim(shop.queue, lease_ms=60_000))
    assert job is not None
    shop.run(workers.keep(shop.queue, [(job.id, job.token)], lease_ms=60_000))
    shop.run(admin.add_log(shop.queue, job.id, "first \x1b[2J line"))
    shop.run(admin.add_log(shop.queue, job.id, "second line"))
    shop.run(admin.update_progress(shop.queue, job.id, "half"))
    said = ops("job", job.id)
    seen = facts(said)
    assert (seen["job"], seen["name"], seen["queue"], seen["state"]) == (job.id, "send", shop.queue, "active")
    assert (seen["attempts"], seen["failures"], seen["stalled"], seen["progress"]) == ("1", "0", "0", "half")
    assert "in 59s" in said.out or "in 1m" in said.out
    assert " UTC" in said.out
    assert seen["held by"].startswith("a worker, for ")
    assert "lock" not in seen
    shop.run(workers.beat(shop.queue, "box:1:ab", json.dumps({"ids": [job.id]})))
    shop.run(workers.beat(shop.queue, "box:2:cd", json.dumps({"ids": [mint()]})))
    assert facts(ops("job", job.id))["held by"].startswith("box:1:ab, for ")
    assert ops("job", job.id, "--json").json["held_by"] == "box:1:ab"
    assert seen["takes"] == "1 argument and subject"
    assert said.lines[-3:] == ["log, the last 2 of 2 lines:", r"  first \x1b[2J line", "  second line"]
    assert "secret@" not in said.out
    assert "hush" not in said.out
    told = ops("job", job.id, "--json").json
    assert "secret@" not in str(told)
    assert told["row"]["progress"] == "half"
    assert told["lease_ends_ms"] == int(shop.raw.execute("ZSCORE", shop.keys.active, job.id))
    assert told["envelope"]["keywords"] == ["subject"]
    told = ops("job", job.id, "--json", "--payload").json
    assert told["envelope"]["args"] == ["secret@example.org"]
    assert "hush" in ops("job", job.id, "--payload").out
    assert "second line" in ops("job", job.id, "--logs", "1").out
    assert "first" not in ops("job", job.id, "--logs", "1").out


def test_the_flow_of_a_parent_and_of_its_children(ops: Any, shop: Any, queue: str) -> None:
    parent, done, ignored, open_ = (mint() for _ in range(4))
    elsewhere = f"{queue}-elsewhere"
    children = (
        flows.Node(queue, done, b"{}"),
        flows.Node(queue, ignored, b"{}", on_death=flows.OnDeath.IGNORE),
        flows.Node(elsewhere, open_, b"{}"),
    )
    shop.run(flows.add(flows.Node(queue, parent, b"{}", children)))
    for _ in range(2):
        job = shop.run(jobs.claim(queue))
        assert job is not None
        if job.id == done:
            shop.run(jobs.complete(queue, job.id, job.token))
        else:
            shop.run(jobs.retry(queue, job.id, job.token, delay_ms=0, max_attempts=1, error="no luck\nat all"))
    told = ops("job", parent, "--json").json
    assert (told["state"], told["flow"]["outstanding"]) == ("awaiting_children", 1)
    assert told["flow"]["done"] == {"total": 1, "children": {done: None}}
    assert told["flow"]["ignored"] == {"total": 1, "children": {ignored: "no luck\nat all"}}
    seen = facts(ops("job", parent))
    assert (seen["state"], seen["children outstanding"]) == ("awaiting children", "1")
    assert seen["children ignored"] == f"1: {ignored} (no luck)"
    told = ops("job", open_, "--json").json
    assert (told["flow"]["parent"], told["flow"]["parent_queue"]) == (parent, queue)
    assert facts(ops("job", open_))["parent"] == f"{parent} in queue {queue}, which dies with it"
    assert facts(ops("job", ignored))["parent"] == f"{parent}, which ignores its death"


def test_a_job_that_is_done_is_known_by_the_result_it_left(ops: Any, shop: Any) -> None:
    job_id = mint()
    shop.put()
    shop.raw.execute("SET", shop.keys.job(job_id) + ":result", '{"sum": 5}', "PX", 60_000)
    said = ops("job", job_id)
    assert facts(said)["state"].startswith("completed (its result is kept for")
    assert "sum" not in said.out
    assert ops("job", job_id, "--json").json["state"] == "completed"
    assert ops("job", job_id, "--json", "--payload").json["result"] == '{"sum": 5}'


def test_a_dead_job_is_shown_with_its_whole_error_and_gets_another_life(ops: Any, shop: Any) -> None:
    job_id = shop.dead(error="ValueError: no\n  at line 2")
    said = ops("job", job_id)
    assert "died" in facts(said)
    assert said.lines[-3:] == ["last error:", "  ValueError: no", "    at line 2"]
    told = ops("job", job_id, "--retry", "--json").json
    assert told == {"id": job_id, "queue": shop.queue, "action": "retry", "outcome": "retried"}
    assert shop.members(shop.keys.pending) == [job_id]
    assert "last_error" not in shop.row(job_id)


@pytest.mark.parametrize(("children", "left"), [(1, "its child is"), (2, "its 2 children are")])
def test_a_parent_of_open_children_is_held_again(ops: Any, shop: Any, queue: str, children: int, left: str) -> None:
    parent, *ids = (mint() for _ in range(children + 1))
    shop.run(flows.add(flows.Node(queue, parent, b"{}", tuple(flows.Node(queue, each, b"{}") for each in ids))))
    for words in ((), ("--json",)):
        shop.run(admin.cancel_job(queue, parent))
        said = ops("job", parent, "--retry", *words)
        assert shop.row(parent)["state"] == "awaiting_children"
        if words:
            assert said.json == {"id": parent, "queue": queue, "action": "retry", "outcome": "held"}
        else:
            assert (
                said.out == f"job {parent} of queue {queue} is held again until {left} done, its failures forgotten\n"
            )


def test_only_a_dead_job_gets_another_life(ops: Any, shop: Any) -> None:
    job_id = shop.later()
    said = ops("job", job_id, "--retry")
    assert said.code == 1
    assert said.err == (
        f"echomq: job {job_id} of queue {shop.queue} is scheduled: only a dead job can be given another life\n"
    )


def test_a_job_for_later_is_made_to_run_now(ops: Any, shop: Any) -> None:
    job_id = shop.later()
    assert ops("job", job_id, "--promote").code == 0
    assert int(shop.raw.execute("ZSCORE", shop.keys.schedule, job_id)) <= shop.raw.now_ms()
    waiting = shop.put()
    said = ops("job", waiting, "--promote")
    assert (said.code, "is pending: only a job for later" in said.err) == (1, True)


def test_a_job_is_removed_unless_a_worker_holds_it(ops: Any, shop: Any) -> None:
    gone = shop.lane("acme")
    assert ops("job", gone, "--remove").code == 0
    assert shop.row(gone) == {}
    assert shop.raw.execute("EXISTS", shop.keys.lane(lanes.lane_id("acme"))) == 0
    held, token = shop.hold()
    shop.run(workers.keep(shop.queue, [(held, token)]))
    said = ops("job", held, "--remove")
    assert (said.code, "is held by a worker: --cancel" in said.err) == (1, True)
    assert shop.row(held)["state"] == "active"


def test_a_cancel_buries_what_waits_and_tells_who_works(ops: Any, shop: Any) -> None:
    held, _ = shop.hold()
    waiting = shop.put()
    told = ops("job", waiting, "--cancel", "--reason", "wrong address", "--json").json
    assert told["outcome"] == "dead"
    assert shop.members(shop.keys.dead) == [waiting]
    assert shop.row(waiting)["last_error"] == "cancelled: wrong address"
    said = ops("job", held, "--cancel")
    assert "its worker is told to stop" in said.out
    assert shop.row(held)["cancel"] == "cancelled"
    assert shop.members(shop.keys.active) == [held]


def test_one_action_at_a_time(ops: Any, shop: Any) -> None:
    job_id = shop.put()
    said = ops("job", job_id, "--remove", "--cancel")
    assert said.err == "echomq: --remove and --cancel cannot be combined: give one of them\n"
    assert said.code == 2
    assert ops("job", job_id, "--reason", "x").code == 2
    assert shop.row(job_id)["state"] == "pending"


@pytest.mark.parametrize("payload", [b"", b"\xff", b'{"v":9,"job":"x"}', b"x" * 100_000])
def test_any_payload_can_be_shown(payload: bytes, ops: Any, shop: Any) -> None:
    job_id = mint()
    shop.run(jobs.enqueue(shop.queue, job_id, payload))
    for words in ((), ("--payload",), ("--json",), ("--json", "--payload")):
        assert ops("job", job_id, *words).code == 0
    assert ops("job", job_id, "--json").json["payload_bytes"] == len(payload)
