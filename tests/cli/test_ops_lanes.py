"""`echomq lanes`: the books of every lane, and each action on one, its effect seen by plain commands."""

from __future__ import annotations

from typing import Any

import pytest

from echomq.protocol import jobs, lanes

ACME = lanes.lane_id("acme")


def by_text(document: Any) -> dict[str, Any]:
    return {each["text"] or each["lane"]: each for each in document["lanes"]}


def test_the_books_of_every_lane(ops: Any, shop: Any) -> None:
    oldest = shop.lane("acme")
    for text in ("acme", "acme", "zeta"):
        shop.lane(text)
    shop.run(lanes.limit(shop.queue, ACME, 9))
    shop.run(lanes.weight(shop.queue, ACME, 3))
    shop.run(lanes.pause(shop.queue, lanes.lane_id("zeta")))
    held = shop.run(jobs.claim(shop.queue))
    assert held is not None
    assert held.id == oldest
    told = ops("lanes", shop.queue, "--json").json
    assert (told["total"], told["depth"]) == (2, 3)
    acme, zeta = (by_text(told)[text] for text in ("acme", "zeta"))
    assert (acme["lane"], acme["depth"], acme["in_hand"], acme["limit"], acme["weight"]) == (ACME, 2, 1, 9, 3)
    assert acme["paused"] is False
    assert (zeta["depth"], zeta["claimable"], zeta["limit"], zeta["paused"]) == (1, 0, None, True)
    heading, first, second, end = ops("lanes", shop.queue).lines
    assert heading.split()[:3] == ["LANE", "ID", "DEPTH"]
    assert first.split()[:3] == ["acme", ACME, "2"]
    assert second.endswith("paused")
    assert end == f"2 listed, of 2 lanes in queue {shop.queue} with 3 jobs waiting"
    assert list(by_text(ops("lanes", shop.queue, "zeta", "--json").json)) == ["zeta"]
    assert list(by_text(ops("lanes", shop.queue, "--most", "1", "--json").json)) == ["acme"]


def test_a_paused_lane_is_served_again(ops: Any, shop: Any) -> None:
    shop.lane("acme")
    told = ops("lanes", shop.queue, "acme", "--pause", "--json").json
    assert told == {"queue": shop.queue, "lane": ACME, "action": "pause", "outcome": "paused"}
    assert shop.raw.execute("SMEMBERS", shop.keys.paused) == [ACME.encode()]
    assert shop.raw.execute("LRANGE", shop.keys.ring, 0, -1) == []
    assert ops("lanes", shop.queue, ACME, "--resume").out == f"lane {ACME} of queue {shop.queue} is served\n"
    assert shop.raw.execute("LRANGE", shop.keys.ring, 0, -1) == [ACME.encode()]


def test_a_limit_and_a_weight_are_set_and_lifted(ops: Any, shop: Any) -> None:
    shop.lane("acme")
    assert ops("lanes", shop.queue, "acme", "--limit", "5", "--json").json["limit"] == 5
    assert shop.raw.execute("HGET", shop.keys.glimit, ACME) == b"5"
    assert ops("lanes", shop.queue, "acme", "--weight", "3").code == 0
    assert shop.raw.execute("HGET", shop.keys.gweight, ACME) == b"3"
    assert ops("lanes", shop.queue, "acme", "--limit", "none").code == 0
    assert shop.raw.execute("HGET", shop.keys.glimit, ACME) is None


@pytest.mark.parametrize(
    "words",
    [("--limit", "0"), ("--limit", "x"), ("--weight", "0"), ("--pause", "--resume"), ("--drain", "--limit", "1")],
)
def test_what_is_written_wrongly_changes_nothing(words: tuple[str, ...], ops: Any, shop: Any) -> None:
    shop.lane("acme")
    assert ops("lanes", shop.queue, "acme", "--yes", *words).code == 2
    assert ops("lanes", shop.queue, "acme", "--json").json["lanes"][0]["depth"] == 1
    assert shop.raw.execute("EXISTS", shop.keys.glimit, shop.keys.gweight, shop.keys.paused) == 0


def test_an_action_needs_a_lane_that_exists_unless_it_may_be_new(ops: Any, shop: Any) -> None:
    shop.lane("acme")
    said = ops("lanes", shop.queue, "--pause")
    assert (said.code, f"echomq lanes {shop.queue} LANE --pause" in said.err) == (2, True)
    said = ops("lanes", shop.queue, "acne", "--limit", "3")
    assert said.err == f"echomq: queue '{shop.queue}' has no lane 'acne'; nearest: 'acme'\n"
    assert ops("lanes", shop.queue, "newcomer", "--limit", "3", "--new").code == 0
    new = by_text(ops("lanes", shop.queue, "--json").json)["newcomer"]
    assert (new["lane"], new["limit"], new["depth"]) == (lanes.lane_id("newcomer"), 3, 0)
    assert ops("lanes", shop.queue, "").code == 2


def test_a_drained_lane_leaves_its_siblings_and_what_is_in_hand(ops: Any, shop: Any) -> None:
    shop.lane("acme")
    held = shop.run(jobs.claim(shop.queue))
    assert held is not None
    doomed = [shop.lane("acme") for _ in range(3)]
    sibling = shop.lane("zeta")
    said = ops("lanes", shop.queue, "acme", "--drain", answer="no\n")
    assert (said.code, "Delete 3 jobs of lane acme for good?" in said.err) == (1, True)
    assert shop.members(shop.keys.lane(ACME)) == doomed
    assert ops("lanes", shop.queue, "acme", "--drain", "--json", "--yes").json["jobs"] == 3
    assert shop.members(shop.keys.lane(ACME)) == []
    assert shop.members(shop.keys.active) == [held.id]
    assert shop.members(shop.keys.lane(lanes.lane_id("zeta"))) == [sibling]


def test_many_lanes_are_read_in_steps(ops: Any, shop: Any) -> None:
    for n in range(1_300):
        shop.raw.send("HSET", shop.keys.gweight, lanes.lane_id(f"tenant {n}"), 2)
        shop.raw.receive()
    shop.forget_calls()
    told = ops("lanes", shop.queue, "--json").json
    assert (told["total"], len(told["lanes"])) == (1_300, 50)
    assert shop.calls().get("evalsha", 0) < 10


def test_a_queue_without_lanes(ops: Any, shop: Any) -> None:
    shop.put()
    assert ops("lanes", shop.queue).lines == [f"0 listed, of 0 lanes in queue {shop.queue} with 0 jobs waiting"]
    said = ops("lanes", shop.queue, "acme")
    assert said.err == f"echomq: queue '{shop.queue}' has no lane 'acme'; nearest: none at all\n"
