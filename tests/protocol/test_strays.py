"""An id that another client has left in two sets (protocol §12.1): whoever meets it where its row says it is not, drops
it there, so that no job is in two hands."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from echomq.protocol import jobs, lanes
from echomq.protocol.replies import Completion
from support.placing import A, dead, enqueue, in_hand, later
from support.runner import Runner, Scene


def claimed(scene: Scene, n: int) -> list[tuple[str, int]]:
    return [(job.id, job.attempts) for job in scene.run(jobs.claim_many(scene.queue, n)).jobs]


def retried_by_an_original(scene: Scene) -> str:
    """Its lease had ended, and the job was pending again: the original's retry leaves it in both."""
    job_id = in_hand(scene)
    scene.execute("ZADD", scene.keys.active, 1, job_id)
    assert scene.run(jobs.reap(scene.queue)) == 1
    scene.execute("HSET", scene.keys.job(job_id), "state", "scheduled", "last_error", "e")
    scene.execute("ZADD", scene.keys.schedule, 1, job_id)
    assert scene.places(job_id) == ["pending", "schedule"]
    return job_id


def test_a_job_in_hand_is_not_promoted_into_a_second_one(scene: Scene) -> None:
    job_id = retried_by_an_original(scene)
    scene.execute("HSET", scene.keys.job(job_id), "state", "pending")
    assert claimed(scene, 9) == [(job_id, 2)]
    assert scene.run(jobs.promote(scene.queue)) == 1
    assert scene.places(job_id) == ["active"]
    assert claimed(scene, 9) == []
    assert scene.run(jobs.complete(scene.queue, job_id, 2)) is Completion.RETIRED


def test_a_job_that_is_to_run_later_is_not_run_before(scene: Scene) -> None:
    job_id = retried_by_an_original(scene)
    assert claimed(scene, 9) == []
    assert scene.places(job_id) == ["schedule"]
    assert scene.run(jobs.promote(scene.queue)) == 1
    assert claimed(scene, 9) == [(job_id, 2)]
    assert scene.places(job_id) == ["active"]


@pytest.mark.parametrize("n", [1, 9])
def test_a_job_that_lies_in_its_lane_and_flat_is_given_out_once(scene: Scene, n: int) -> None:
    job_id = scene.mint()
    scene.run(lanes.enqueue(scene.queue, job_id, b"p", A))
    scene.execute("ZADD", scene.keys.pending, 0, job_id)
    assert claimed(scene, n) + claimed(scene, n) == [(job_id, 1)]
    assert scene.execute("HGET", scene.keys.gactive, A) == b"1"
    assert scene.places(job_id) == ["active"]
    assert scene.run(jobs.complete(scene.queue, job_id, 1)) is Completion.RETIRED
    assert scene.execute("HGET", scene.keys.gactive, A) is None


@pytest.mark.parametrize(("place", "make"), [("dead", dead), ("schedule", later), ("active", in_hand)])
def test_a_stray_is_dropped_by_a_claim_and_those_behind_it_are_claimed(
    scene: Scene, place: str, make: Callable[[Scene], str]
) -> None:
    job_id = make(scene)
    scene.execute("ZADD", scene.keys.pending, 0, job_id)
    sound = enqueue(scene, 3)
    assert [each for each, _ in claimed(scene, 3)] == sound
    assert scene.places(job_id) == [place]


@pytest.mark.parametrize(("place", "make"), [("dead", dead), ("active", in_hand)])
def test_a_stray_is_dropped_by_a_promote_and_those_behind_it_are_promoted(
    scene: Scene, runner: Runner, place: str, make: Callable[[Scene], str]
) -> None:
    job_id = make(scene)
    scene.execute("ZADD", scene.keys.schedule, 1, job_id)
    (sound,) = (later(scene),)
    scene.execute("ZADD", scene.keys.schedule, 2, sound)
    scene.execute("DEL", scene.keys.wake)
    assert scene.run(jobs.promote(scene.queue)) == 2
    assert (scene.places(job_id), scene.places(sound)) == ([place], ["pending"])
    assert runner.execute("LLEN", scene.keys.wake) == 1


def test_what_its_row_alone_puts_elsewhere_is_no_stray(scene: Scene) -> None:
    (job_id,) = enqueue(scene)
    for number, state in enumerate(("scheduled", "dead", "active"), 1):
        scene.execute("HSET", scene.keys.job(job_id), "state", state)
        assert claimed(scene, 1) == [(job_id, number)]
        scene.run(jobs.release(scene.queue, job_id, number))


def test_a_set_of_another_type_makes_nothing_a_stray(scene: Scene) -> None:
    (job_id,) = enqueue(scene)
    scene.execute("HSET", scene.keys.job(job_id), "state", "scheduled")
    scene.execute("HSET", scene.keys.schedule, "a", "b")
    job = scene.run(jobs.claim(scene.queue))
    scene.execute("DEL", scene.keys.schedule)
    assert job is not None
    assert job.id == job_id
