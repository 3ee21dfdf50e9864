"""Audit where a key holds another type than its own, and of a parent that was never told (protocol §2, §8, §12.1)."""

from __future__ import annotations

import pytest

from echomq.protocol import admin, flows, jobs, lanes
from echomq.protocol.audit import Breach
from echomq.protocol.flows import Node
from support.placing import admitted as enqueue
from support.placing import found
from support.runner import Scene

A, B = (lanes.lane_id(name) for name in "ab")

pytestmark = pytest.mark.strays("keys of another type on purpose")


def spoil(scene: Scene, name: str) -> str:
    """The key of that name holds a string of nobody's, or a list where a string belongs; gives its kind."""
    key = scene.keys.base + name
    scene.execute("DEL", key)
    if name in ("limiter", "turn") or name.endswith(":dependencies"):
        scene.execute("RPUSH", key, "x")
        return "list"
    scene.execute("SET", key, "x")
    return "string"


OF_QUEUE = {
    "zset": ("pending", "active", "schedule", "dead", f"g:{A}:pending", "repeat", "cron", "workers"),
    "list": ("ring", "wake", "flow:outbox", "flow:rejected", "owed", "metrics:failed:data"),
    "hash": ("glimit", "gactive", "gweight", "lanes", "meta", "workers:info", "metrics:completed"),
    "set": ("paused",),
    "string": ("limiter", "turn"),
}


@pytest.mark.parametrize(("name", "kind"), [(name, kind) for kind, names in OF_QUEUE.items() for name in names])
def test_a_key_of_another_type_is_named_and_the_rest_is_looked_at(scene: Scene, name: str, kind: str) -> None:
    enqueue(scene)
    enqueue(scene, A)
    enqueue(scene, B)
    assert scene.run(jobs.claim(scene.queue)) is not None
    held = scene.mint()
    scene.finish(flows.add(Node(scene.queue, held, b"p", (Node(scene.queue + "2", scene.mint(), b"c"),))))
    assert found(scene) == []
    is_now = spoil(scene, name)
    ghost = scene.ghost("dead" if name == "pending" else "pending") if name != "dead" else ""
    scene.execute("SET", scene.keys.job(held) + ":dependencies", 2)
    for mend in (False, True):
        seen = found(scene, mend=mend)
        assert Breach(scene.queue, f"wrong type: {scene.keys.base}{name} is a {is_now}, not a {kind}") in seen
        assert not ghost or ghost in {breach.subject for breach in seen}
        assert Breach(held, "held for good: it waits for 2 children, and 1 of them exist") in seen
    assert scene.execute("TYPE", scene.keys.base + name) in (is_now, is_now.encode())


def test_other_lanes_are_mended_beside_one_of_another_type(scene: Scene) -> None:
    for group in (A, B):
        enqueue(scene, group)
    spoil(scene, f"g:{A}:pending")
    scene.execute("DEL", scene.keys.ring)
    assert Breach(scene.queue, f"lane {B} is serviceable, on the ring 0 times") in found(scene, mend=True)
    assert [scene.execute("LRANGE", scene.keys.ring, 0, -1)] == [[B.encode()]]


def test_a_row_of_another_type_that_no_set_names_is_found(scene: Scene) -> None:
    job_id = scene.mint()
    spoil(scene, f"job:{job_id}")
    assert found(scene) == [Breach(job_id, "wrong type: its row is a string, not a hash")]


def family(scene: Scene) -> tuple[str, str]:
    parent, child = scene.mint(), scene.mint()
    scene.finish(flows.add(Node(scene.queue, parent, b"p", (Node(scene.queue, child, b"c"),))))
    return parent, child


@pytest.mark.parametrize("book", ["dependencies", "processed", "failed", "unsuccessful"])
def test_a_book_of_another_type_is_its_parents_breach(scene: Scene, book: str) -> None:
    parent, _ = family(scene)
    is_now = spoil(scene, f"job:{parent}:{book}")
    kind = "string" if book == "dependencies" else "hash"
    assert found(scene) == [Breach(parent, f"wrong type: its :{book} is a {is_now}, not a {kind}")]


def die_untold(scene: Scene, child: str) -> None:
    scene.execute("ZREM", scene.keys.pending, child)
    scene.execute("ZADD", scene.keys.dead, 0, child)
    scene.execute("HSET", scene.keys.job(child), "state", "dead")


def test_a_parent_that_was_never_told_of_a_death_is_found(scene: Scene) -> None:
    parent, child = family(scene)
    assert found(scene) == []
    die_untold(scene, child)
    assert found(scene) == [Breach(parent, f"held, and was never told that its child {child} is dead")]


@pytest.mark.parametrize("book", ["processed", "failed", "unsuccessful"])
def test_a_parent_that_has_the_death_on_record_was_told(scene: Scene, book: str) -> None:
    parent, child = family(scene)
    die_untold(scene, child)
    scene.execute("HSET", scene.keys.job(parent) + f":{book}", child, "e")
    assert [breach.what for breach in found(scene) if "never told" in breach.what] == []


def test_a_signal_that_may_lie_in_the_outbox_is_waited_for(scene: Scene) -> None:
    _, child = family(scene)
    scene.execute("HSET", scene.keys.job(child), "parent_queue", scene.queue)
    die_untold(scene, child)
    assert found(scene) == []


def test_a_death_that_ours_told_is_no_breach(scene: Scene) -> None:
    parent, child = family(scene)
    job = scene.run(jobs.claim(scene.queue))
    assert job is not None
    scene.run(jobs.retry(scene.queue, child, job.token, delay_ms=0, max_attempts=1, error="e"))
    assert found(scene) == []
    scene.run(admin.reprocess_job(scene.queue, parent))
    assert found(scene) == []
