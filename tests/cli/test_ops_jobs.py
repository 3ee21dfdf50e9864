"""`echomq jobs`: which jobs are listed, in which order, and what is said of each."""

from __future__ import annotations

from typing import Any

import pytest

from echomq.identity.minter import mint
from echomq.protocol import flows, jobs, lanes


def ids(document: Any) -> list[str]:
    return [job["id"] for job in document["jobs"]]


def test_each_state_lists_its_own_in_its_order(ops: Any, shop: Any) -> None:
    dead = [shop.dead() for _ in range(2)]
    held, _ = shop.hold()
    flat = [shop.put() for _ in range(3)]
    tenants = [shop.lane("acme") for _ in range(2)]
    second, first = shop.later(90_000), shop.later(50_000)
    listed = {state: ids(ops("jobs", shop.queue, "--state", state, "--json").json) for state in ("dead", "active")}
    assert listed == {"dead": dead, "active": [held]}
    assert ids(ops("jobs", shop.queue, "--state", "pending", "--json").json) == [*flat, *tenants]
    assert ids(ops("jobs", shop.queue, "--state", "pending", "--reverse", "--json").json) == [
        *flat[::-1],
        *tenants[::-1],
    ]
    assert ids(ops("jobs", shop.queue, "--state", "scheduled", "--json").json) == [first, second]
    assert ids(ops("jobs", shop.queue, "--state", "lane", "--json").json) == tenants
    assert ids(ops("jobs", shop.queue, "-s", "dead", "-s", "active", "--json").json) == [held, *dead]
    told = ops("jobs", shop.queue, "--json").json
    assert ids(told) == [held, *flat, *tenants, first, second, *dead]
    pending = {"pending": 5, "pending_flat": 3, "pending_in_lanes": 2}
    assert told["total"] == {"active": 1, **pending, "scheduled": 2, "dead": 2}
    said = "10 listed; in the queue are 1 active, 5 pending (2 in 1 lane), 2 scheduled, 2 dead"
    assert ops("jobs", shop.queue).lines[-1] == said
    (each,) = ops("stats", shop.queue, "--json").json["queues"]
    assert {name: each[name] for name in pending} == pending


def test_what_is_said_of_a_job(ops: Any, shop: Any) -> None:
    job_id, token = shop.hold("send")
    call = jobs.retry(shop.queue, job_id, token, delay_ms=60_000, max_attempts=3, error="\n ValueError: no\nline 2\n")
    shop.run(call)
    (job,) = ops("jobs", shop.queue, "--json").json["jobs"]
    score = int(shop.raw.execute("ZSCORE", shop.keys.schedule, job_id))
    expected = {"id": job_id, "name": "send", "state": "scheduled", "run_at_ms": score, "attempts": 1, "failures": 1}
    assert {key: job[key] for key in expected} == expected
    assert "payload" not in job
    heading, row, _ = ops("jobs", shop.queue).lines
    assert heading.split()[:4] == ["ID", "NAME", "STATE", "AGE"]
    assert job_id in row
    assert "in 59s" in row or "in 58s" in row or "in 1m" in row
    assert row.endswith("ValueError: no")


def test_payloads_are_shown_only_when_asked_for(ops: Any, shop: Any) -> None:
    shop.put("send", "secret@example.org")
    shop.dead("boom")
    for words in (("jobs", shop.queue), ("dead", shop.queue), ("queues",), ("stats", shop.queue)):
        assert "secret@" not in ops(*words).out + ops(*words, "--json").out
    assert "secret@" in ops("jobs", shop.queue, "--payload").out
    assert "secret@" in ops("jobs", shop.queue, "--payload", "--json").out


def test_lanes_are_shown_by_their_text_and_listed_alone(ops: Any, shop: Any) -> None:
    shop.put()
    acme, zeta = shop.lane("acme"), shop.lane("zeta")
    assert ids(ops("jobs", shop.queue, "--lane", "acme", "--json").json) == [acme]
    assert ids(ops("jobs", shop.queue, "--lane", lanes.lane_id("zeta"), "--json").json) == [zeta]
    told = ops("jobs", shop.queue, "--lane", "acme", "--json").json["jobs"][0]
    assert (told["lane"], told["lane_text"]) == (lanes.lane_id("acme"), "acme")
    said = ops("jobs", shop.queue, "--lane", "acne")
    assert (said.code, "nearest: 'acme'" in said.err) == (2, True)
    assert ops("jobs", shop.queue, "--lane", "acme", "--state", "dead").code == 2


def test_a_limit_ends_the_listing_and_the_reading(ops: Any, shop: Any) -> None:
    made = [mint() for _ in range(2_000)]
    shop.run(jobs.enqueue_many(shop.queue, [(job_id, b"x") for job_id in made]))
    shop.forget_calls()
    assert ids(ops("jobs", shop.queue, "--limit", "20", "--json").json) == made[:20]
    assert shop.calls()["hmget"] <= 20
    assert len(ids(ops("jobs", shop.queue, "--limit", "1200", "--json").json)) == 1_200


def test_jobs_of_one_name_are_looked_for_no_further_than_asked(ops: Any, shop: Any) -> None:
    for _ in range(5):
        shop.put("send")
    needle = shop.put("needle")
    shop.later(name="needle")
    told = ops("jobs", shop.queue, "--name", "needle", "--json").json
    assert len(told["jobs"]) == 2
    assert told["looked_at"] == 7
    told = ops("jobs", shop.queue, "--name", "needle", "--scan", "3", "--json").json
    assert (told["jobs"], told["looked_at"]) == ([], 3)
    assert ids(ops("jobs", shop.queue, "--name", "needle", "--limit", "1", "--json").json) == [needle]
    assert "2 listed that match, of 7 looked at" in ops("jobs", shop.queue, "--name", "needle").out


def test_a_name_is_read_from_the_beginning_of_a_long_payload(ops: Any, shop: Any) -> None:
    shop.put('na"me ü', "x" * 100_000)
    (job,) = ops("jobs", shop.queue, "--json").json["jobs"]
    assert job["name"] == 'na"me ü'
    assert job["payload_bytes"] > 100_000
    (job,) = ops("jobs", shop.queue, "--payload", "--json").json["jobs"]
    assert (len(job["payload"]), job["payload_cut"]) == (4_096, True)


def test_payloads_of_other_clients_have_no_name(ops: Any, shop: Any) -> None:
    for payload in (b"", b"\xff\xfe", b"[]", b'{"job": 5}', b'{"v": 1, "job": ', b'"job"'):
        shop.run(jobs.enqueue(shop.queue, mint(), payload))
    told = ops("jobs", shop.queue, "--payload", "--json").json["jobs"]
    assert [job["name"] for job in told] == [None] * 6
    assert told[1]["payload_base64"] == "//4="
    assert ops("jobs", shop.queue, "--payload").code == 0


def test_parents_that_wait_for_children_are_listed_when_asked_for(ops: Any, shop: Any) -> None:
    parent, child = mint(), mint()
    shop.run(flows.add(flows.Node(shop.queue, parent, b"{}", (flows.Node(shop.queue, child, b"{}"),))))
    assert ids(ops("jobs", shop.queue, "--json").json) == [child]
    told = ops("jobs", shop.queue, "--state", "awaiting_children", "--json").json["jobs"]
    assert [(job["id"], job["state"]) for job in told] == [(parent, "awaiting_children")]


def test_an_unknown_state_is_told_the_nearest(ops: Any, shop: Any) -> None:
    shop.put()
    said = ops("jobs", shop.queue, "--state", "schedule")
    assert said.code == 2
    assert said.err == "echomq: there is no state 'schedule'; nearest: 'scheduled'\n"
    every = "'active', 'awaiting_children', 'dead', 'lane', 'pending', 'scheduled'"
    assert ops("jobs", shop.queue, "--state", "xyz").err == f"echomq: there is no state 'xyz'; nearest: {every}\n"


@pytest.mark.strays("a member without a row")
def test_a_member_without_a_row_is_said_to_have_none(ops: Any, shop: Any) -> None:
    job_id = shop.put()
    shop.raw.execute("DEL", shop.keys.job(job_id))
    shop.raw.execute("ZADD", shop.keys.pending, 0, b"\xff\x00stray")
    assert [job["state"] for job in ops("jobs", shop.queue, "--json").json["jobs"]] == ["absent", "absent"]
    assert "no row" in ops("jobs", shop.queue).out


@pytest.mark.strays("a row of another client's making")
def test_a_row_of_anybodys_making_is_listed(ops: Any, shop: Any) -> None:
    job_id = shop.put()
    shop.raw.execute("HSET", shop.keys.job(job_id), "group", "no lane", "attempts", "x", "last_error", b"\xff\x1b[2J")
    (job,) = ops("jobs", shop.queue, "--json").json["jobs"]
    assert (job["attempts"], job["lane"]) == (0, "no lane")
    assert r"\x1b[2J" in ops("jobs", shop.queue).out
