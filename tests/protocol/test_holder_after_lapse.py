"""The table of protocol §5: what a holder may still do after its lease was lost and nobody has claimed since."""

from __future__ import annotations

from typing import Any

import pytest

from echomq.protocol import jobs, metrics
from echomq.protocol.call import Call
from echomq.protocol.errors import StateError
from echomq.protocol.replies import Completion, Retried
from support.runner import Scene

LANE = "LAN00000000001"


def verb_call(verb: str, queue: str, job_id: str) -> Call[Any]:
    return {
        "complete": jobs.complete(queue, job_id, 1),
        "retry": jobs.retry(queue, job_id, 1, delay_ms=60_000, max_attempts=9, error="late"),
        "bury": jobs.retry(queue, job_id, 1, delay_ms=0, max_attempts=1, error="late"),
        "extend": jobs.extend(queue, job_id, 1),
        "delay": jobs.delay(queue, job_id, 1, delay_ms=0),
        "release": jobs.release(queue, job_id, 1),
    }[verb]


def lost(scene: Scene, place: str, group: str = "") -> str:
    """A job whose first holder still has the right token, and which now lies in `place`."""
    job_id = scene.mint()
    if group:
        scene.into_lane(group, job_id)
    else:
        scene.run(jobs.enqueue(scene.queue, job_id, b"p"))
    assert scene.run(jobs.claim(scene.queue)) is not None
    if place == "pending":
        scene.lapse(job_id)
        assert scene.run(jobs.sweep(scene.queue, max_stalled=9)).recovered == (job_id,)
    elif place == "schedule":
        scene.run(jobs.retry(scene.queue, job_id, 1, delay_ms=60_000, max_attempts=9, error="e"))
    elif place == "dead":
        scene.lapse(job_id)
        assert scene.run(jobs.sweep(scene.queue, max_stalled=1)).dead == (job_id,)
    elif place == "held":
        scene.execute("ZREM", scene.keys.active, job_id)
        scene.execute("HSET", scene.keys.job(job_id), "state", "awaiting_children")
    scene.drop_tokens()
    return job_id


groups = pytest.mark.parametrize("group", ["", LANE], ids=["flat", "lane"])


@groups
def test_pending_a_completion_retires_it(scene: Scene, group: str) -> None:
    job_id = lost(scene, "pending", group)
    assert scene.run(verb_call("complete", scene.queue, job_id)) is Completion.RETIRED
    assert scene.row(job_id) == {}
    assert scene.places(job_id) == []
    assert scene.run(metrics.counts(scene.queue)).completed == 1
    assert scene.run(jobs.claim(scene.queue)) is None


def test_pending_many_completions_retire_them(scene: Scene) -> None:
    flat, grouped = scene.minter.mint_many(2)
    scene.run(jobs.enqueue(scene.queue, flat, b"p"))
    scene.into_lane(LANE, grouped)
    assert len(scene.run(jobs.claim_many(scene.queue, 2)).jobs) == 2
    scene.lapse(flat, grouped)
    assert scene.run(jobs.sweep(scene.queue, max_stalled=9)).recovered == (flat, grouped)
    answers = scene.run(jobs.complete_many(scene.queue, [(flat, 1), (grouped, 1)]))
    assert answers == (Completion.RETIRED, Completion.RETIRED)
    assert scene.run(jobs.claim(scene.queue)) is None


@groups
def test_pending_a_retry_moves_it_as_usual(scene: Scene, group: str) -> None:
    job_id = lost(scene, "pending", group)
    assert scene.run(verb_call("retry", scene.queue, job_id)) is Retried.SCHEDULED
    assert scene.places(job_id) == ["schedule"]
    assert scene.row(job_id)[b"failures"] == b"1"
    assert scene.run(jobs.claim(scene.queue)) is None


@groups
def test_pending_a_retry_at_the_cap_buries_it(scene: Scene, group: str) -> None:
    job_id = lost(scene, "pending", group)
    assert scene.run(verb_call("bury", scene.queue, job_id)) is Retried.DEAD
    assert scene.places(job_id) == ["dead"]
    assert scene.run(jobs.claim(scene.queue)) is None


@groups
@pytest.mark.parametrize("verb", ["extend", "delay", "release"])
def test_pending_what_needs_the_lease_is_refused(scene: Scene, verb: str, group: str) -> None:
    job_id = lost(scene, "pending", group)
    refusal = scene.refusal(verb_call(verb, scene.queue, job_id))
    assert isinstance(refusal, StateError)
    assert refusal.reply == f"EMQSTATE {verb} not active"


@pytest.mark.parametrize(
    ("place", "group"),
    # A parent, the only job that is held, never carries a group (protocol §8).
    [("schedule", ""), ("schedule", LANE), ("dead", ""), ("dead", LANE), ("held", "")],
)
@pytest.mark.parametrize("verb", ["complete", "retry", "bury", "extend", "delay", "release"])
def test_anywhere_else_every_move_is_refused(scene: Scene, verb: str, place: str, group: str) -> None:
    job_id = lost(scene, place, group)
    refusal = scene.refusal(verb_call(verb, scene.queue, job_id))
    assert isinstance(refusal, StateError)
    assert refusal.reply == f"EMQSTATE {'retry' if verb == 'bury' else verb} not active"


@groups
def test_extend_many_names_what_is_not_in_hand(scene: Scene, group: str) -> None:
    job_id = lost(scene, "pending", group)
    before = scene.dump()
    assert scene.run(jobs.extend_many(scene.queue, [(job_id, 1)])) == (job_id,)
    assert scene.dump() == before


@groups
def test_once_it_was_claimed_again_the_first_holder_has_nothing(scene: Scene, group: str) -> None:
    job_id = lost(scene, "pending", group)
    claimed = scene.run(jobs.claim(scene.queue))
    assert claimed is not None
    assert claimed.attempts == 2
    for verb in ("complete", "retry", "extend", "delay", "release"):
        refusal = scene.refusal(verb_call(verb, scene.queue, job_id))
        assert refusal.reply == f"EMQSTALE {verb} token mismatch"
    assert scene.run(jobs.complete(scene.queue, job_id, 2)) is Completion.RETIRED
