"""The checker of the invariants finds each breach of protocol §12.1, or every other test here would prove nothing."""

from __future__ import annotations

import pytest

from echomq.protocol import jobs
from support.invariants import check_queue_invariants, queues_on
from support.runner import Scene

A = "LAN00000000001"

# Each breaks one rule by one plain command on a sound queue; `job`, `lane`, `held`, `late` are ids in their places.
BREACHES = {
    "two places": ("ZADD dead 0 {job}", "in 2 places"),
    "two lanes": ("ZADD g:LAN00000000002:pending 0 {lane}", "in 2 places"),
    "a member without a row": ("ZADD active 5 JOB00000000001", "has no row"),
    "a row without a place": ("ZREM pending {job}", "is in no place"),
    "a state that names another place": ("HSET job:{job} state active", "its row says"),
    "no state": ("HDEL job:{late} state", "its row says"),
    "a grouped job in the flat set": ("HSET job:{job} group " + A, "lies in flat pending"),
    "a job in a lane not its own": ("HSET job:{lane} group LAN00000000002", "its row says group"),
    "a score in pending": ("ZADD pending 1 {job}", "score 1.0 in pending"),
    "a score in a lane": ("ZADD g:" + A + ":pending 2 {lane}", "score 2.0 in lane"),
    "a run-at that is no integer": ("ZADD schedule 1.5 {late}", "not an integer"),
    "a run-at that is infinite": ("ZADD schedule inf {late}", "not an integer"),
    "a negative deadline": ("ZADD active -1 {held}", "not an integer"),
    "no attempts": ("HDEL job:{job} attempts", "has no attempts"),
    "attempts that are no count": ("HSET job:{job} attempts 01", "not a canonical count"),
    "negative failures": ("HSET job:{job} failures -1", "not a canonical count"),
    "stalled that is no count": ("HSET job:{job} stalled 1.0", "not a canonical count"),
    "gactive too high": ("HSET gactive " + A + " 2", "gactive of"),
    "gactive missing": ("DEL gactive", "gactive of"),
    "gactive of zero left over": ("HSET gactive LAN00000000002 0", "gactive of"),
    "gactive below zero": ("HSET gactive LAN00000000002 -1", "gactive of"),
    "a lane twice on the ring": ("RPUSH ring " + A, "on the ring 2 times"),
    "a lane missing on the ring": ("DEL ring", "can be served and is not on the ring"),
    "an empty lane on the ring": ("RPUSH ring LAN00000000002", "on the ring and cannot be served"),
    "a paused lane on the ring": ("SADD paused " + A, "on the ring and cannot be served"),
    "a full lane on the ring": ("HSET glimit " + A + " 1", "on the ring and cannot be served"),
    "65 tokens": ("RPUSH wake " + " 1" * 65, "more than 64"),
    "a token that is none": ("RPUSH wake 2", "no token"),
}


@pytest.mark.strays
@pytest.mark.parametrize("breach", BREACHES)
def test_a_breach_is_found_and_named(scene: Scene, breach: str) -> None:
    job, lane, held, late = scene.minter.mint_many(4)
    scene.into_lane(A, held)
    scene.run(jobs.claim(scene.queue))
    scene.into_lane(A, lane)
    scene.run(jobs.enqueue(scene.queue, job, b"p"))
    scene.drop_tokens()
    scene.run(jobs.enqueue_in(scene.queue, late, b"p", delay_ms=60_000))
    scene.drop_tokens()
    assert check_queue_invariants(scene.execute, scene.queue) == []

    command, text = BREACHES[breach]
    words = command.format(job=job, lane=lane, held=held, late=late).split()
    scene.execute(words[0], scene.keys.base + words[1], *words[2:])
    found = check_queue_invariants(scene.execute, scene.queue)
    assert [line for line in found if text in line], found


@pytest.mark.strays
def test_a_held_parent_lies_in_no_place_and_is_no_breach(scene: Scene) -> None:
    job_id = scene.mint()
    scene.execute("HSET", scene.keys.job(job_id), "state", "awaiting_children", "attempts", 0, "payload", "p")
    assert check_queue_invariants(scene.execute, scene.queue) == []


def test_a_queue_is_found_by_any_of_its_keys(scene: Scene) -> None:
    assert queues_on(scene.execute) == set()
    scene.execute("HSET", scene.keys.meta, "paused", 1)
    assert queues_on(scene.execute) == {scene.queue}


@pytest.mark.parametrize("name", ["a*", "[ab]", "a?", "\\", "ä", "a:b"])
def test_a_queue_is_found_whatever_its_name(scene: Scene, name: str) -> None:
    other = Scene(scene.runner, name)
    other.run(jobs.enqueue(name, other.mint(), b"p"))
    assert name in queues_on(scene.execute)
    assert check_queue_invariants(scene.execute, name) == []
    other.execute("DEL", other.keys.pending)
    assert len(check_queue_invariants(scene.execute, name)) == 1
    other.execute("FLUSHALL")
