"""Audit (protocol §12.1): every breach of a queue is found, nothing sound is called one, and the books are mended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from echomq.protocol import admin, audit, flows, jobs, lanes, metrics
from echomq.protocol.audit import Breach
from echomq.protocol.errors import QueueNameError
from echomq.protocol.flows import Node
from support.invariants import breaches, snapshot
from support.placing import admitted as enqueue
from support.placing import found, held, nowhere
from support.runner import Scene

HOUR = 3_600_000
A, B, C = (lanes.lane_id(name) for name in "abc")


def busy(scene: Scene) -> None:
    """A sound queue with something in every place."""
    q = scene.queue
    for group in (None, A, B, C):
        for _ in range(3):
            enqueue(scene, group)
    scene.run(jobs.claim_many(q, 5))
    for job_id in list(scene.snapshot().places["active"])[:2]:
        scene.run(jobs.retry(q, job_id, 1, delay_ms=0, max_attempts=1, error="e"))
    scene.run(jobs.enqueue_in(q, scene.mint(), b"p", delay_ms=HOUR))
    scene.run(lanes.pause(q, A))
    scene.run(lanes.limit(q, B, 1))
    scene.finish(flows.add(Node(q, scene.mint(), b"p", (Node(q, scene.mint(), b"c"),))))
    scene.finish(flows.add(Node(q, scene.mint(), b"p", (Node(q + "2", scene.mint(), b"c"),))))
    scene.run(admin.add_log(q, enqueue(scene), "line"))


def test_a_sound_queue_has_no_breach(scene: Scene) -> None:
    assert found(scene) == []
    busy(scene)
    before = scene.dump()
    assert found(scene) == found(scene, mend=True) == []
    assert scene.dump() == before


def test_a_large_queue_is_gone_through_in_steps(scene: Scene) -> None:
    scene.run(jobs.enqueue_many(scene.queue, [(i, b"p") for i in scene.minter.mint_many(3_000)]))
    ghosts = {scene.ghost("pending") for _ in range(3)}
    scene.run(jobs.claim_many(scene.queue, 1_500))
    assert {breach.subject for breach in found(scene)} == ghosts
    for ghost in ghosts:
        scene.run(admin.remove_job(scene.queue, ghost))


def rename(scene: Scene, job_id: str, place: str) -> None:
    scene.execute("ZREM", scene.keys.pending, job_id)
    scene.execute("ZADD", scene.keys.base + place, 5 if place in ("active", "schedule") else 0, job_id)


def both(scene: Scene) -> str:
    job_id = enqueue(scene)
    scene.execute("ZADD", scene.keys.active, 5, job_id)
    return job_id


def flat_and_lane(scene: Scene) -> str:
    job_id = enqueue(scene, A)
    scene.execute("ZADD", scene.keys.pending, 0, job_id)
    return job_id


def two_lanes(scene: Scene) -> str:
    job_id, _ = enqueue(scene, A), enqueue(scene, B)
    scene.execute("ZADD", scene.keys.lane(B), 0, job_id)
    return job_id


def another_lane(scene: Scene) -> str:
    job_id, _ = enqueue(scene, A), enqueue(scene, B)
    enqueue(scene, A)
    scene.execute("ZREM", scene.keys.lane(A), job_id)
    scene.execute("ZADD", scene.keys.lane(B), 0, job_id)
    return job_id


def flat_in_lane(scene: Scene) -> str:
    job_id, _ = enqueue(scene), enqueue(scene, A)
    scene.execute("ZREM", scene.keys.pending, job_id)
    scene.execute("ZADD", scene.keys.lane(A), 0, job_id)
    return job_id


def lane_in_flat(scene: Scene) -> str:
    job_id, _ = enqueue(scene, A), enqueue(scene, A)
    scene.execute("ZREM", scene.keys.lane(A), job_id)
    scene.execute("ZADD", scene.keys.pending, 0, job_id)
    return job_id


def moved(place: str) -> Callable[[Scene], str]:
    def make(scene: Scene) -> str:
        job_id = enqueue(scene)
        rename(scene, job_id, place)
        return job_id

    return make


def stateless(scene: Scene) -> str:
    job_id = enqueue(scene)
    scene.execute("HDEL", scene.keys.job(job_id), "state")
    return job_id


def ghost_in_lane(scene: Scene) -> str:
    enqueue(scene, A)
    return scene.ghost(f"g:{A}:pending")


def scored(scene: Scene) -> str:
    job_id = enqueue(scene)
    scene.execute("ZADD", scene.keys.pending, 7, job_id)
    return job_id


def childless(scene: Scene) -> str:
    job_id = held(scene)
    scene.execute("SET", scene.keys.job(job_id) + ":dependencies", 0)
    return job_id


def grouped_parent(scene: Scene) -> str:
    job_id = held(scene)
    scene.execute("HSET", scene.keys.job(job_id), "group", A)
    return job_id


def released_wrongly(scene: Scene) -> str:
    job_id = held(scene)
    scene.execute("ZADD", scene.keys.pending, 0, job_id)
    return job_id


def no_hash(scene: Scene) -> str:
    job_id = enqueue(scene)
    scene.execute("SET", scene.keys.job(job_id), "x")
    return job_id


OF_A_JOB: dict[str, tuple[Callable[[Scene], str], str]] = {
    "a ghost that waits": (lambda scene: scene.ghost("pending"), "ghost: in pending without a row"),
    "a ghost in hand": (lambda scene: scene.ghost("active", 5), "ghost: in active without a row"),
    "a ghost on the schedule": (lambda scene: scene.ghost("schedule", 5), "ghost: in schedule without a row"),
    "a dead ghost": (lambda scene: scene.ghost("dead"), "ghost: in dead without a row"),
    "a ghost in a lane": (ghost_in_lane, f"ghost: in lane {A} without a row"),
    "a row that is no hash": (no_hash, "ghost: in pending without a row"),
    "two places": (both, "in several places: pending, active"),
    "flat and a lane": (flat_and_lane, f"in several places: pending, lane {A}"),
    "two lanes": (two_lanes, "in several places: lane {}, lane {}".format(*sorted((A, B)))),
    "another's lane": (another_lane, f"carries group {A} but lies in lane {B}"),
    "a lane without a group": (flat_in_lane, f"carries no group but lies in lane {A}"),
    "flat with a group": (lane_in_flat, f"carries group {A} but lies in flat pending"),
    "a state of another place": (moved("active"), "state pending but in active"),
    "not scheduled by its row": (moved("schedule"), "state pending but in schedule"),
    "not dead by its row": (moved("dead"), "state pending but in dead"),
    "no place": (nowhere, "stray: a row in no place, its state is pending"),
    "no state": (stateless, "state missing but in pending"),
    "a score": (scored, "scores 7 in pending, not 0"),
    "held for nothing": (childless, "held, and waits for no child"),
    "held with a group": (grouped_parent, f"held, and carries group {A}"),
    "held and claimable": (released_wrongly, "state awaiting_children but in pending"),
}


@pytest.mark.strays("a breach of every kind")
@pytest.mark.parametrize("name", OF_A_JOB)
def test_a_breach_of_a_job_is_found(scene: Scene, name: str) -> None:
    busy(scene)
    make, what = OF_A_JOB[name]
    subject = make(scene)
    assert Breach(subject, what) in found(scene)
    assert {breach.subject for breach in found(scene)} <= {subject, scene.queue}


OF_THE_BOOKS: dict[str, tuple[Callable[[Scene], Any], str]] = {
    "too many hands": (
        lambda scene: scene.execute("HINCRBY", scene.keys.gactive, C, 3),
        f"gactive of {C} is 4, in hand are 1",
    ),
    "hands of nobody": (
        lambda scene: scene.execute("HSET", scene.keys.gactive, lanes.lane_id("z"), 2),
        f"gactive of {lanes.lane_id('z')} is 2, in hand are 0",
    ),
    "no hands": (lambda scene: scene.execute("DEL", scene.keys.gactive), f"gactive of {C} is missing, in hand are 1"),
    "words for a number": (
        lambda scene: scene.execute("HSET", scene.keys.gactive, C, "many"),
        f"gactive of {C} is many, in hand are 1",
    ),
    "words for no hands": (
        lambda scene: scene.execute("HSET", scene.keys.gactive, lanes.lane_id("z"), "none"),
        f"gactive of {lanes.lane_id('z')} is none, in hand are 0",
    ),
    "off the ring": (
        lambda scene: scene.execute("DEL", scene.keys.ring),
        f"lane {C} is serviceable, on the ring 0 times",
    ),
    "twice on the ring": (
        lambda scene: scene.execute("RPUSH", scene.keys.ring, C),
        f"lane {C} is serviceable, on the ring 2 times",
    ),
    "a paused lane on the ring": (
        lambda scene: scene.execute("RPUSH", scene.keys.ring, A),
        f"lane {A} is not serviceable, on the ring 1 times",
    ),
    "an empty lane on the ring": (
        lambda scene: scene.execute("RPUSH", scene.keys.ring, lanes.lane_id("z")),
        f"lane {lanes.lane_id('z')} is not serviceable, on the ring 1 times",
    ),
    "too many tokens": (
        lambda scene: scene.execute("RPUSH", scene.keys.wake, *["1"] * 70),
        "wake holds 70 tokens",
    ),
}


@pytest.mark.parametrize("name", OF_THE_BOOKS)
def test_a_breach_of_the_books_is_found_and_mended(scene: Scene, name: str) -> None:
    busy(scene)
    scene.drop_tokens()
    spoil, what = OF_THE_BOOKS[name]
    spoil(scene)
    assert Breach(scene.queue, what) in found(scene)
    assert found(scene) == found(scene, mend=True)
    left = found(scene)
    assert left == ([Breach(scene.queue, what)] if "wake" in what else [])
    assert [b for b in breaches(snapshot(scene.execute, scene.queue)) if "wake" not in b] == []
    scene.drop_tokens()


def test_a_lane_that_is_named_nowhere_any_more_is_found_by_its_key(scene: Scene) -> None:
    ids = [enqueue(scene, A) for _ in range(3)]
    scene.execute("DEL", scene.keys.ring)
    scene.drop_tokens()
    assert scene.run(jobs.claim(scene.queue)) is None
    assert found(scene, mend=True) == [Breach(scene.queue, f"lane {A} is serviceable, on the ring 0 times")]
    assert scene.tokens() == 3
    assert [job.id for job in scene.run(jobs.claim_many(scene.queue, 9)).jobs] == ids


def test_mending_leaves_the_turn_of_the_others_as_it_was(scene: Scene) -> None:
    for group in (A, B, C):
        enqueue(scene, group)
    scene.execute("LREM", scene.keys.ring, 0, B)
    found(scene, mend=True)
    assert scene.snapshot().ring == [A, C, B]


def test_a_lane_that_wrong_hands_had_closed_opens_when_they_are_mended(scene: Scene) -> None:
    scene.run(lanes.limit(scene.queue, A, 2))
    scene.execute("HSET", scene.keys.gactive, A, 2)
    job_id = enqueue(scene, A)
    assert scene.run(jobs.claim(scene.queue)) is None
    assert [breach.what for breach in found(scene, mend=True)] == [f"gactive of {A} is 2, in hand are 0"]
    assert scene.tokens() == 1
    job = scene.run(jobs.claim(scene.queue))
    assert job is not None
    assert job.id == job_id


def test_what_is_no_job_of_ours_is_left_alone(scene: Scene) -> None:
    scene.execute("HSET", scene.keys.job_prefix + "ORD0NgWEfAEJfs", "state", "pending")
    assert found(scene) == []
    scene.execute("DEL", scene.keys.job_prefix + "ORD0NgWEfAEJfs")


def test_a_name_with_every_sign_of_a_pattern_audits_itself_only(scene: Scene) -> None:
    odd = Scene(scene.runner, scene.queue + "*?[a-z]\\^")
    for each in (scene, odd):
        enqueue(each, A)
        busy(each)
    ghost = scene.ghost("pending")
    assert found(odd) == []
    assert [breach.subject for breach in found(scene)] == [ghost]
    assert odd.run(metrics.counts(odd.queue)).dead == 2
    scene.run(admin.remove_job(scene.queue, ghost))


@pytest.mark.parametrize("queue", ["", "a b", None])
def test_a_queue_that_is_none(queue: Any) -> None:
    with pytest.raises(QueueNameError):
        audit.audit(queue)
