"""Cancelling (protocol §3, §7, ours): a job that waits is buried, one in hand keeps the wish until it is minded."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from echomq.protocol import admin, admission, flows, jobs, lanes, metrics, workers
from echomq.protocol.admin import Cancellation
from echomq.protocol.errors import InvalidInputError
from echomq.protocol.replies import Admission, Completion, Retried, State
from support.placing import A, held, later, nowhere
from support.placing import admitted as enqueue
from support.runner import Scene
from support.servers import Server

HOUR = 3_600_000


def in_hand(scene: Scene, group: str | None = None) -> str:
    job_id = enqueue(scene, group)
    job = scene.run(jobs.claim(scene.queue))
    assert job is not None
    assert job.id == job_id
    return job_id


NOT_IN_HAND: dict[str, Callable[[Scene], str]] = {
    "pending": enqueue,
    "lane": lambda scene: enqueue(scene, A),
    "schedule": later,
    "held": held,
    "nowhere": nowhere,
}


@pytest.mark.parametrize("place", NOT_IN_HAND)
def test_a_job_that_is_not_in_hand_goes_to_the_morgue(server: Server, scene: Scene, place: str) -> None:
    job_id = NOT_IN_HAND[place](scene)
    with server.client() as listener:
        listener.execute("SUBSCRIBE", scene.keys.events)
        assert scene.run(admin.cancel_job(scene.queue, job_id, reason="not needed")) is Cancellation.DEAD
        event = json.loads(listener.receive()[2])
    reason = "cancelled: not needed"
    assert event == {"event": "cancelled", "job": job_id, "error": reason, "state": "dead"}
    assert (scene.places(job_id), scene.row(job_id)[b"last_error"]) == (["dead"], reason.encode())
    assert scene.run(metrics.counts(scene.queue)).failed == 1
    assert b"cancel" not in scene.row(job_id)


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        ("cancelled", "cancelled"),
        ("cancelled: by me", "cancelled: by me"),
        ("", "cancelled: "),
        ("ü\0", "cancelled: ü\0"),
    ],
)
def test_a_reason_says_that_it_is_a_cancellation(scene: Scene, reason: str, text: str) -> None:
    job_id = enqueue(scene)
    scene.run(admin.cancel_job(scene.queue, job_id, reason=reason))
    assert scene.row(job_id)[b"last_error"] == text.encode()


def test_a_dead_job_stays_as_it_died(scene: Scene) -> None:
    job_id = in_hand(scene)
    scene.run(jobs.retry(scene.queue, job_id, 1, delay_ms=0, max_attempts=1, error="boom"))
    before = scene.dump()
    assert scene.run(admin.cancel_job(scene.queue, job_id)) is Cancellation.DEAD
    assert scene.dump() == before


def test_a_job_that_is_gone_cannot_be_cancelled(scene: Scene) -> None:
    assert scene.run(admin.cancel_job(scene.queue, scene.mint())) is Cancellation.GONE
    assert scene.dump() == {}


@pytest.mark.parametrize("group", [None, A])
def test_a_job_in_hand_keeps_the_wish_and_its_holder_is_told(server: Server, scene: Scene, group: str | None) -> None:
    job_id, other = in_hand(scene, group), in_hand(scene)
    before = scene.score("active", job_id)
    with server.client() as listener:
        listener.execute("SUBSCRIBE", scene.keys.events)
        assert scene.run(admin.cancel_job(scene.queue, job_id, reason="stop")) is Cancellation.REQUESTED
        event = json.loads(listener.receive()[2])
    assert event == {"event": "cancelled", "job": job_id, "error": "cancelled: stop", "state": "active"}
    assert (scene.score("active", job_id), scene.row(job_id)[b"state"]) == (before, b"active")
    kept = scene.run(workers.keep(scene.queue, [(job_id, 1), (other, 1)]))
    assert kept == workers.Kept((), {job_id: "cancelled: stop"})


def test_a_holder_may_complete_all_the_same(scene: Scene) -> None:
    job_id = in_hand(scene)
    scene.run(admin.cancel_job(scene.queue, job_id))
    assert scene.run(jobs.complete(scene.queue, job_id, 1)) is Completion.RETIRED


BACK: dict[str, Callable[[Scene, str], Any]] = {
    "reap": lambda scene, job_id: (scene.lapse(job_id), scene.run(jobs.reap(scene.queue))),
    "another client's delay": lambda scene, job_id: (
        scene.execute("ZREM", scene.keys.active, job_id),
        scene.execute("HDEL", scene.keys.gactive, A),
        scene.execute("HSET", scene.keys.job(job_id), "state", "scheduled"),
        scene.execute("ZADD", scene.keys.schedule, 1, job_id),
        scene.run(jobs.promote(scene.queue)),
    ),
}


@pytest.mark.parametrize("way", BACK)
@pytest.mark.parametrize("group", [None, A])
def test_the_wish_outlives_the_hold_and_the_next_claim_buries(scene: Scene, way: str, group: str | None) -> None:
    job_id = in_hand(scene, group)
    scene.run(admin.cancel_job(scene.queue, job_id, reason="stop"))
    BACK[way](scene, job_id)
    behind = enqueue(scene, group)
    claims = scene.run(jobs.claim_many(scene.queue, 9))
    assert [job.id for job in claims.jobs] == [behind]
    assert (scene.places(job_id), scene.row(job_id)[b"last_error"]) == (["dead"], b"cancelled: stop")
    assert scene.row(job_id)[b"attempts"] == b"1"


ENDS: dict[str, Callable[[Scene, str], Any]] = {
    "release": lambda scene, job_id: scene.run(jobs.release(scene.queue, job_id, 1)),
    "delay": lambda scene, job_id: scene.run(jobs.delay(scene.queue, job_id, 1, delay_ms=HOUR)),
    "retry": lambda scene, job_id: scene.run(
        jobs.retry(scene.queue, job_id, 1, delay_ms=HOUR, max_attempts=9, error="e")
    ),
    "sweep": lambda scene, job_id: swept(scene, job_id, 9),
    "sweep at its last": lambda scene, job_id: swept(scene, job_id, 1),
}


def swept(scene: Scene, job_id: str, max_stalled: int) -> Retried:
    scene.lapse(job_id)
    done = scene.run(jobs.sweep(scene.queue, max_stalled=max_stalled))
    assert (done.recovered, done.dead, done.cancelled) == ((), (job_id,), {job_id: "cancelled: stop"})
    return Retried.DEAD


@pytest.mark.parametrize("way", ENDS)
@pytest.mark.parametrize("group", [None, A])
@pytest.mark.parametrize("paused", [False, True])
def test_what_would_let_it_run_another_time_buries_it(
    server: Server, scene: Scene, way: str, group: str | None, paused: bool
) -> None:
    scene.run(lanes.limit(scene.queue, A, 1))
    dedup = admission.Dedup("k")
    job_id = scene.run(admission.admit(scene.queue, scene.mint(), b"p", group=group, dedup=dedup)).id
    assert scene.run(jobs.claim(scene.queue)) is not None
    behind = enqueue(scene, A)
    if paused:
        scene.run(admin.pause_queue(scene.queue))
    scene.run(admin.cancel_job(scene.queue, job_id, reason="stop"))
    with server.client() as listener:
        listener.execute("SUBSCRIBE", scene.keys.base + "results")
        assert ENDS[way](scene, job_id) is Retried.DEAD
        assert listener.receive()[2] == job_id.encode()
    row = scene.row(job_id)
    assert (scene.places(job_id), row[b"state"], row[b"last_error"]) == (["dead"], b"dead", b"cancelled: stop")
    assert row.get(b"failures") == (b"1" if way == "retry" else None)
    assert scene.snapshot().gactive == {}
    assert scene.run(admission.admit(scene.queue, scene.mint(), b"p", dedup=dedup)).verdict is Admission.ADMITTED
    scene.run(admin.resume_queue(scene.queue))
    assert behind in [job.id for job in scene.run(jobs.claim_many(scene.queue, 9)).jobs]
    assert scene.run(metrics.counts(scene.queue)).failed == 1


@pytest.mark.parametrize("way", ENDS)
def test_its_parent_learns_of_it_as_of_a_death(scene: Scene, way: str) -> None:
    parent, child = scene.mint(), scene.mint()
    scene.finish(flows.add(flows.Node(scene.queue, parent, b"p", (flows.Node(scene.queue, child, b"c"),))))
    assert scene.run(jobs.claim(scene.queue)) is not None
    scene.run(admin.cancel_job(scene.queue, child, reason="stop"))
    ENDS[way](scene, child)
    assert scene.places(parent) == ["dead"]
    assert scene.row(parent)[b"last_error"].endswith(b"cancelled: stop")


def test_a_failure_that_is_the_end_anyway_keeps_its_own_error(scene: Scene) -> None:
    job_id = in_hand(scene)
    scene.run(admin.cancel_job(scene.queue, job_id))
    call = jobs.retry(scene.queue, job_id, 1, delay_ms=0, max_attempts=1, error="boom")
    assert scene.run(call) is Retried.DEAD
    assert scene.row(job_id)[b"last_error"] == b"boom"


def test_a_cancelled_job_spends_no_place_of_its_lane(scene: Scene) -> None:
    scene.run(lanes.limit(scene.queue, A, 1))
    job_id = in_hand(scene, A)
    scene.run(admin.cancel_job(scene.queue, job_id))
    scene.lapse(job_id)
    scene.run(jobs.reap(scene.queue))
    behind = enqueue(scene, A)
    job = scene.run(lanes.claim(scene.queue))
    assert job is not None
    assert job.id == behind
    assert scene.snapshot().gactive == {A: b"1"}


def test_another_life_begins_without_the_wish(scene: Scene) -> None:
    job_id = in_hand(scene)
    scene.run(admin.cancel_job(scene.queue, job_id))
    scene.run(jobs.retry(scene.queue, job_id, 1, delay_ms=0, max_attempts=1, error="cancelled"))
    assert scene.run(admin.reprocess_job(scene.queue, job_id)) is True
    job = scene.run(jobs.claim(scene.queue))
    assert job is not None
    assert job.id == job_id


def test_a_cancelled_job_makes_way_for_another_of_its_key(scene: Scene) -> None:
    dedup = admission.Dedup("k")
    first = scene.run(admission.admit(scene.queue, scene.mint(), b"p", dedup=dedup))
    scene.run(admin.cancel_job(scene.queue, first.id))
    assert scene.run(admission.admit(scene.queue, scene.mint(), b"p", dedup=dedup)).verdict is Admission.ADMITTED


def test_the_last_wish_is_the_one_that_is_told(scene: Scene) -> None:
    job_id = in_hand(scene)
    for reason in ("first", "second"):
        scene.run(admin.cancel_job(scene.queue, job_id, reason=reason))
    assert scene.run(workers.keep(scene.queue, [(job_id, 1)])).cancelled == {job_id: "cancelled: second"}
    assert scene.run(metrics.state(scene.queue, job_id)) is State.ACTIVE


@pytest.mark.parametrize("reason", [None, 5, b"x"])
def test_a_reason_that_is_no_text(reason: Any) -> None:
    with pytest.raises(InvalidInputError):
        admin.cancel_job("q", "JOB0NgWEfAEJfs", reason=reason)
