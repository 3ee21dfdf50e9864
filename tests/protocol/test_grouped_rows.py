"""Rows with a `group` on the flat verbs (protocol §6): back to their lane, with the books of the lane right.

The scenes are built with plain commands, as another client would leave them; the fixture that runs after every
test checks the ring and `gactive`.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from echomq.protocol import jobs, metrics
from echomq.protocol.call import Call
from echomq.protocol.replies import State, Sweep
from support.runner import Scene

A, B = "LAN00000000001", "USR0KHTOWnGLuC"
HOUR = 3_600_000

OUT: dict[str, Callable[[str, str, int], Call[object]]] = {
    "complete": jobs.complete,
    "complete_many": lambda q, i, t: jobs.complete_many(q, [(i, t)]),
    "retry": lambda q, i, t: jobs.retry(q, i, t, delay_ms=HOUR, max_attempts=99, error="e"),
    "bury": lambda q, i, t: jobs.retry(q, i, t, delay_ms=HOUR, max_attempts=1, error="e"),
    "delay": lambda q, i, t: jobs.delay(q, i, t, delay_ms=HOUR),
    "release": jobs.release,
}


def in_hand(scene: Scene, group: str, count: int = 1, *, limit: int | None = None) -> list[str]:
    """Jobs of one lane in hand, claimed as flat work and lanes are claimed."""
    ids = scene.minter.mint_many(count)
    if limit is not None:
        scene.execute("HSET", scene.keys.glimit, group, limit)
    scene.into_lane(group, *ids)
    claims = scene.run(jobs.claim_many(scene.queue, count))
    assert [(job.id, job.group) for job in claims.jobs] == [(i, group) for i in ids]
    scene.drop_tokens()
    return ids


def ring(scene: Scene) -> list[str]:
    return scene.snapshot().ring


def hands(scene: Scene) -> dict[str, bytes]:
    return scene.snapshot().gactive


def test_a_claim_says_the_group_and_counts_the_hand(scene: Scene) -> None:
    in_hand(scene, A, 2)
    assert hands(scene) == {A: b"2"}
    assert ring(scene) == []


@pytest.mark.parametrize("verb", OUT)
def test_every_way_out_of_hand_lowers_the_count_and_leaves_no_zero(scene: Scene, verb: str) -> None:
    first, second = in_hand(scene, A, 2)
    scene.run(OUT[verb](scene.queue, first, 1))
    assert hands(scene) == {A: b"1"}
    scene.run(OUT[verb](scene.queue, second, 1))
    assert hands(scene) == {}
    assert scene.execute("EXISTS", scene.keys.gactive) == 0


@pytest.mark.parametrize("verb", OUT)
def test_every_way_out_of_hand_brings_a_lane_at_its_limit_back_with_one_token(scene: Scene, verb: str) -> None:
    scene.run(jobs.enqueue_at(scene.queue, scene.mint(), b"p", at_ms=5))
    (held,) = in_hand(scene, A, limit=1)
    scene.into_lane(A, scene.mint())
    scene.execute("DEL", scene.keys.ring)
    assert scene.run(jobs.claim(scene.queue)) is None
    scene.run(OUT[verb](scene.queue, held, 1))
    assert ring(scene) == [A]
    assert scene.tokens() == 1
    claimed = scene.run(jobs.claim(scene.queue))
    assert claimed is not None
    assert claimed.group == A
    assert ring(scene) == []


@pytest.mark.parametrize("verb", OUT)
def test_below_its_limit_a_lane_gets_a_token_for_the_place_that_came_free(scene: Scene, verb: str) -> None:
    scene.run(jobs.enqueue_at(scene.queue, scene.mint(), b"p", at_ms=5))
    held, _ = in_hand(scene, A, 2, limit=3)
    scene.into_lane(A, *scene.minter.mint_many(3))
    scene.drop_tokens()
    scene.run(OUT[verb](scene.queue, held, 1))
    assert scene.tokens() == 1
    assert ring(scene) == [A]


@pytest.mark.parametrize("verb", ["complete", "retry", "bury", "delay"])
def test_without_a_limit_nothing_new_became_claimable_and_no_token_is_pushed(scene: Scene, verb: str) -> None:
    scene.run(jobs.enqueue_at(scene.queue, scene.mint(), b"p", at_ms=5))
    (held,) = in_hand(scene, A)
    scene.into_lane(A, scene.mint())
    scene.drop_tokens()
    scene.run(OUT[verb](scene.queue, held, 1))
    assert scene.tokens() == 0


@pytest.mark.parametrize("verb", OUT)
def test_a_paused_lane_stays_off_the_ring(scene: Scene, verb: str) -> None:
    scene.run(jobs.enqueue_at(scene.queue, scene.mint(), b"p", at_ms=5))
    (held,) = in_hand(scene, A, limit=1)
    scene.into_lane(A, scene.mint())
    scene.execute("DEL", scene.keys.ring)
    scene.execute("SADD", scene.keys.paused, A)
    scene.run(OUT[verb](scene.queue, held, 1))
    assert (ring(scene), hands(scene), scene.tokens()) == ([], {}, 0)


def test_a_lane_on_the_ring_closes_when_another_opens_and_the_token_is_pushed(scene: Scene) -> None:
    (of_b,) = in_hand(scene, B, limit=1)
    scene.into_lane(B, scene.mint())
    scene.execute("DEL", scene.keys.ring)
    (of_a,) = in_hand(scene, A)
    scene.lapse(of_a)
    scene.run(jobs.reap(scene.queue))
    assert ring(scene) == [A]
    scene.drop_tokens()
    scene.run(jobs.complete_many(scene.queue, [(of_a, 1), (of_b, 1)]))
    assert ring(scene) == [B]
    assert scene.tokens() == 1


@pytest.mark.parametrize("verb", ["promote", "release", "reap", "sweep"])
def test_every_way_back_goes_to_the_lane(scene: Scene, verb: str) -> None:
    (job_id,) = in_hand(scene, A)
    if verb == "promote":
        scene.run(jobs.delay(scene.queue, job_id, 1, at_ms=1))
        scene.drop_tokens()
        assert scene.run(jobs.promote(scene.queue)) == 1
    elif verb == "release":
        scene.run(jobs.release(scene.queue, job_id, 1))
    else:
        scene.lapse(job_id)
        if verb == "reap":
            assert scene.run(jobs.reap(scene.queue)) == 1
        else:
            assert scene.run(jobs.sweep(scene.queue, max_stalled=2)) == Sweep((job_id,), ())
    assert scene.places(job_id) == [f"g:{A}:pending"]
    assert scene.run(metrics.state(scene.queue, job_id)) is State.PENDING
    assert scene.run(jobs.pending_size(scene.queue)) == 0
    assert (ring(scene), hands(scene), scene.tokens()) == ([A], {}, 1)


def test_a_promotion_into_a_full_or_paused_lane_wakes_nobody(scene: Scene) -> None:
    first, second = in_hand(scene, A, 2, limit=2)
    third, fourth = in_hand(scene, B, 2)
    for job_id in (second, fourth):
        scene.run(jobs.delay(scene.queue, job_id, 1, at_ms=1))
    scene.execute("HSET", scene.keys.glimit, A, 1)
    scene.execute("SADD", scene.keys.paused, B)
    scene.drop_tokens()
    assert scene.run(jobs.promote(scene.queue)) == 2
    assert (ring(scene), scene.tokens()) == ([], 0)
    assert [scene.places(i) for i in (first, second, third, fourth)] == [
        ["active"],
        [f"g:{A}:pending"],
        ["active"],
        [f"g:{B}:pending"],
    ]


def test_a_lapse_at_the_cap_gives_the_lane_its_place_back(scene: Scene) -> None:
    (job_id,) = in_hand(scene, A, limit=1)
    scene.into_lane(A, scene.mint())
    scene.execute("DEL", scene.keys.ring)
    scene.lapse(job_id)
    assert scene.run(jobs.sweep(scene.queue)) == Sweep((), (job_id,))
    assert (ring(scene), hands(scene), scene.tokens()) == ([A], {}, 1)
    assert scene.places(job_id) == ["dead"]


def test_a_lapsed_job_leaves_its_lane_when_its_first_holder_completes_it(scene: Scene) -> None:
    (job_id,) = in_hand(scene, A)
    scene.lapse(job_id)
    scene.run(jobs.sweep(scene.queue, max_stalled=2))
    assert ring(scene) == [A]
    scene.run(jobs.complete(scene.queue, job_id, 1))
    assert (ring(scene), hands(scene)) == ([], {})


def test_many_due_jobs_go_each_to_its_own_place(scene: Scene) -> None:
    flat, of_a, of_b, ghost = scene.minter.mint_many(4)
    scene.run(jobs.enqueue_at(scene.queue, flat, b"p", at_ms=1))
    for group, job_id in ((A, of_a), (B, of_b)):
        scene.run(jobs.enqueue_at(scene.queue, job_id, b"p", at_ms=1))
        scene.execute("HSET", scene.keys.job(job_id), "group", group)
    scene.execute("ZADD", scene.keys.schedule, 1, ghost)
    scene.drop_tokens()
    assert scene.run(jobs.promote(scene.queue)) == 4
    assert scene.places(flat) == ["pending"]
    assert scene.places(of_a) == [f"g:{A}:pending"]
    assert scene.places(of_b) == [f"g:{B}:pending"]
    assert ring(scene) == [A, B]
    assert scene.tokens() == 3


def test_a_lane_that_another_client_left_on_the_ring_is_there_once_when_work_comes(scene: Scene) -> None:
    (job_id,) = in_hand(scene, A)
    scene.run(jobs.delay(scene.queue, job_id, 1, at_ms=1))
    scene.execute("RPUSH", scene.keys.ring, A)
    assert scene.run(jobs.promote(scene.queue)) == 1
    assert ring(scene) == [A]


def test_books_that_another_client_has_lost_do_not_go_below_zero(scene: Scene) -> None:
    (job_id,) = in_hand(scene, A)
    scene.execute("DEL", scene.keys.gactive)
    scene.run(jobs.complete(scene.queue, job_id, 1))
    assert hands(scene) == {}


def test_a_ghost_in_a_lane_is_dropped_and_the_next_is_claimed(scene: Scene) -> None:
    ghost, job_id = scene.minter.mint_many(2)
    scene.into_lane(A, ghost, job_id)
    scene.execute("DEL", scene.keys.job(ghost))
    assert [job.id for job in scene.run(jobs.claim_many(scene.queue, 9)).jobs] == [job_id]
    assert hands(scene) == {A: b"1"}


def test_a_row_without_a_payload_in_a_lane_is_buried_and_spends_no_place(scene: Scene) -> None:
    broken, job_id = scene.minter.mint_many(2)
    scene.into_lane(A, broken, job_id)
    scene.execute("HDEL", scene.keys.job(broken), "payload")
    scene.execute("HSET", scene.keys.glimit, A, 1)
    assert [job.id for job in scene.run(jobs.claim_many(scene.queue, 9)).jobs] == [job_id]
    assert scene.places(broken) == ["dead"]
    assert hands(scene) == {A: b"1"}
