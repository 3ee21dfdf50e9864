"""A script that fails midway is not rolled back: whatever lies at a key of the queue, no job leaves every place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from echomq.protocol import admission, jobs, lanes
from echomq.protocol.call import Call
from echomq.protocol.lanes import lane_id
from echomq.protocol.replies import Completion
from support.runner import Scene

pytestmark = pytest.mark.strays("a key of the queue holds what no client of the protocol writes")

LANE = lane_id("acme")
PLACES = ("pending", "active", "schedule", "dead", f"g:{LANE}:pending")
TYPES = {"list": ("RPUSH", "x"), "string": ("SET", "abc")}

# Every key of a queue that one of the flat transitions writes.
WRITTEN = (
    *PLACES,
    "ring",
    "wake",
    "gactive",
    "glimit",
    "paused",
    "limiter",
    "turn",
    "metrics:completed",
    "metrics:failed",
    "repeat",
    "de:k",
)


Verb = Callable[[Scene, list[str]], list[Call[Any]]]


def cancelled(scene: Scene, ids: list[str]) -> list[str]:
    for job_id in ids:
        scene.execute("HSET", scene.keys.job(job_id), "cancel", "cancelled")
    return ids


VERBS: dict[str, Verb] = {
    "enqueue": lambda s, ids: [jobs.enqueue(s.queue, s.minter.mint(), b"p")],
    "enqueue_many": lambda s, ids: [jobs.enqueue_many(s.queue, [(s.minter.mint(), b"p")])],
    "enqueue_in": lambda s, ids: [jobs.enqueue_in(s.queue, s.minter.mint(), b"p", delay_ms=5)],
    "enqueue to lane": lambda s, ids: [lanes.enqueue(s.queue, s.minter.mint(), b"p", LANE)],
    "admit": lambda s, ids: [admission.admit(s.queue, s.minter.mint(), b"p", group=LANE, lane_text="acme")],
    "claim": lambda s, ids: [jobs.claim_many(s.queue, 10)],
    "lane claim": lambda s, ids: [lanes.claim(s.queue)],
    "complete": lambda s, ids: [jobs.complete_many(s.queue, [(i, 1) for i in ids])],
    "retry": lambda s, ids: [jobs.retry(s.queue, i, 1, delay_ms=0, max_attempts=2, error="e") for i in ids],
    "bury": lambda s, ids: [jobs.retry(s.queue, i, 1, delay_ms=0, max_attempts=1, error="e") for i in ids],
    "delay": lambda s, ids: [jobs.delay(s.queue, i, 1, delay_ms=5) for i in ids],
    "release": lambda s, ids: [jobs.release(s.queue, i, 1) for i in ids],
    "retry of cancelled ones": lambda s, ids: [
        jobs.retry(s.queue, i, 1, delay_ms=0, max_attempts=2, error="e") for i in cancelled(s, ids)
    ],
    "delay of cancelled ones": lambda s, ids: [jobs.delay(s.queue, i, 1, delay_ms=5) for i in cancelled(s, ids)],
    "release of cancelled ones": lambda s, ids: [jobs.release(s.queue, i, 1) for i in cancelled(s, ids)],
    "sweep of cancelled ones": lambda s, ids: [jobs.sweep(s.queue, max_stalled=2) for _ in cancelled(s, ids)],
    "promote": lambda s, ids: [jobs.promote(s.queue)],
    "sweep": lambda s, ids: [jobs.sweep(s.queue, max_stalled=2)],
    "sweep to the morgue": lambda s, ids: [jobs.sweep(s.queue)],
    "reap": lambda s, ids: [jobs.reap(s.queue)],
}
IN_HAND = {"complete", "retry", "bury", "delay", "release", "sweep", "sweep to the morgue", "reap"}
IN_HAND |= {verb for verb in VERBS if verb.endswith("of cancelled ones")}


def lost(scene: Scene, damaged: str) -> list[str]:
    """Rows that lie nowhere; when the damaged key is a place, only the rows that say so are spared."""
    states = {"pending": b"pending", "active": b"active", "schedule": b"scheduled", "dead": b"dead"}
    spared = states.get(damaged, b"pending" if damaged.startswith("g:") else None)
    out = []
    for key in scene.execute("KEYS", scene.keys.job("JOB*")):
        name = key.decode().rpartition(":")[2]
        if not name.startswith("JOB"):
            continue
        held = [
            place
            for place in PLACES
            if place != damaged and scene.execute("ZSCORE", scene.keys.base + place, name) is not None
        ]
        if not held and scene.execute("HGET", key, "state") != spared:
            out.append(name)
    return out


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("key", WRITTEN)
@pytest.mark.parametrize("verb", VERBS)
def test_no_job_is_lost_when_a_key_holds_another_type(scene: Scene, verb: str, key: str, kind: str) -> None:
    flat, grouped, late = scene.minter.mint_many(2), scene.minter.mint_many(2), scene.minter.mint_many(2)
    scene.run(jobs.enqueue_many(scene.queue, [(i, b"p") for i in flat]))
    for job_id in grouped:
        scene.run(lanes.enqueue(scene.queue, job_id, b"p", LANE))
    for job_id in late:
        scene.run(jobs.enqueue_at(scene.queue, job_id, b"p", at_ms=1))
    scene.execute("HSET", scene.keys.meta, "concurrency", "100", "max", "100", "period_ms", "60000")
    scene.execute("HSET", scene.keys.job(flat[0]), "dedup", "k")
    ids = [*flat, *grouped]
    if verb in IN_HAND:
        scene.run(jobs.claim_many(scene.queue, 4))
        for job_id in ids:
            scene.execute("ZADD", scene.keys.active, "1", job_id)
    name = scene.keys.base + key
    before = {i: scene.places(i) for i in (*ids, *late)}
    scene.execute("DEL", name)
    command, value = TYPES[kind]
    scene.execute(command, name, value)
    for call in VERBS[verb](scene, ids):
        scene.outcome(call)  # refused or done: either is sound
    displaced = {i for i, places in before.items() if places == [key]}
    assert [i for i in lost(scene, key) if i not in displaced] == []


@pytest.mark.parametrize("period", ["1e30", "x", "-1", "0.5", "inf"])
def test_a_rate_without_a_period_is_no_rate(scene: Scene, period: str) -> None:
    ids = scene.minter.mint_many(3)
    scene.run(jobs.enqueue_many(scene.queue, [(i, b"p") for i in ids]))
    scene.execute("HSET", scene.keys.meta, "max", "1", "period_ms", period)
    assert [job.id for job in scene.run(jobs.claim_many(scene.queue, 3)).jobs] == ids


def test_a_spent_budget_that_is_no_number_is_opened_anew(scene: Scene) -> None:
    ids = scene.minter.mint_many(3)
    scene.run(jobs.enqueue_many(scene.queue, [(i, b"p") for i in ids]))
    scene.execute("HSET", scene.keys.meta, "max", "2", "period_ms", "60000")
    scene.execute("SET", scene.keys.limiter, "abc")
    assert [job.id for job in scene.run(jobs.claim_many(scene.queue, 3)).jobs] == ids[:2]
    assert scene.execute("GET", scene.keys.limiter) == b"2"
    assert scene.execute("PTTL", scene.keys.limiter) > 0


@pytest.mark.parametrize("key", ["schedule", "repeat", "cron"])
def test_a_claim_gives_out_what_it_took_whatever_lies_where_next_runs_are(scene: Scene, key: str) -> None:
    flat, grouped = scene.minter.mint_many(2)
    scene.run(jobs.enqueue(scene.queue, flat, b"p"))
    scene.run(lanes.enqueue(scene.queue, grouped, b"p", LANE))
    scene.execute("SET", scene.keys.base + key, "abc")
    taken = [*scene.run(jobs.claim_many(scene.queue, 1)).jobs, *scene.run(lanes.claim_weighted(scene.queue)).jobs]
    assert {job.id for job in taken} <= {flat, grouped}
    taken += scene.run(jobs.claim_many(scene.queue, 1)).jobs
    assert {job.id for job in taken} == {flat, grouped}


@pytest.mark.parametrize("key", ["paused", "glimit", "gactive"])
def test_a_due_job_stays_where_it_is_when_the_books_of_its_lane_are_no_books(scene: Scene, key: str) -> None:
    (due,) = scene.minter.mint_many(1)
    scene.run(admission.admit(scene.queue, due, b"p", group=LANE, at_ms=1))
    scene.execute("SET", scene.keys.base + key, "abc")
    assert "WRONGTYPE" in str(scene.refusal(jobs.promote(scene.queue)))
    assert scene.score("schedule", due) == 1


def test_a_job_with_half_a_parent_leaves_no_signal_and_says_so(scene: Scene) -> None:
    job_id = scene.mint()
    scene.run(jobs.enqueue(scene.queue, job_id, b"p"))
    scene.run(jobs.claim(scene.queue))
    scene.execute("HSET", scene.keys.job(job_id), "parent_queue", "elsewhere")
    assert scene.run(jobs.complete_many(scene.queue, [(job_id, 1)])) == (Completion.RETIRED,)
