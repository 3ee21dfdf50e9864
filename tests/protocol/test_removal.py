"""Removing a job (protocol §7): wherever it lies, with all that is its, unless a worker says that it holds it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from echomq.protocol import admin, jobs, metrics, workers
from echomq.protocol.errors import LockedError
from echomq.protocol.replies import Counts
from support.placing import HOUR, PLACES, in_hand
from support.runner import Scene
from support.servers import wait_until


@pytest.mark.parametrize("place", PLACES)
def test_a_job_is_removed_wherever_it_lies_with_all_that_is_its(scene: Scene, place: str) -> None:
    job_id = PLACES[place](scene)
    scene.run(admin.add_log(scene.queue, job_id, "line"))
    assert scene.run(admin.remove_job(scene.queue, job_id)) is True
    assert not [key for key in scene.dump() if job_id.encode() in key]
    assert scene.places(job_id) == []
    assert scene.run(admin.remove_job(scene.queue, job_id)) is False


def test_a_holder_finds_a_removed_job_gone(scene: Scene) -> None:
    job_id = in_hand(scene)
    scene.run(admin.remove_job(scene.queue, job_id))
    assert scene.run(jobs.complete(scene.queue, job_id, 1)).value == "gone"
    assert scene.run(metrics.counts(scene.queue)) == Counts(0, 0, 0, 0, 0, 0)


@pytest.mark.parametrize("place", ["pending", "active", "schedule", "dead"])
def test_a_ghost_is_dropped_by_its_removal(scene: Scene, place: str) -> None:
    ghost = scene.ghost(place, 5 if place in ("active", "schedule") else 0)
    assert scene.run(admin.remove_job(scene.queue, ghost)) is False
    assert scene.places(ghost) == []


def knows_field_ttl(scene: Scene) -> bool:
    names = scene.execute("COMMAND", "INFO", "HPEXPIRE")
    return bool(names) and names[0] is not None


@pytest.mark.parametrize("field", [False, True])
def test_a_job_that_its_worker_keeps_is_not_removed_until_the_marker_ends(scene: Scene, field: bool) -> None:
    job_id = in_hand(scene)
    scene.run(workers.keep(scene.queue, [(job_id, 1)], lease_ms=HOUR, field=field))
    refusal = scene.refusal(admin.remove_job(scene.queue, job_id))
    assert isinstance(refusal, LockedError)
    assert refusal.reply == "EMQLOCK job is locked"
    scene.run(workers.keep(scene.queue, [(job_id, 1)], lease_ms=20, field=field))
    wait_until(lambda: scene.outcome(admin.remove_job(scene.queue, job_id)) is True)


def test_the_lock_field_counts_where_the_server_can_end_it(scene: Scene) -> None:
    job_id = in_hand(scene)
    scene.run(workers.keep(scene.queue, [(job_id, 1)], lease_ms=HOUR, field=True))
    if knows_field_ttl(scene):
        (ttl,) = scene.execute("HPTTL", scene.keys.job(job_id), "FIELDS", 1, "lock")
        assert 2 * HOUR - 10_000 < ttl <= 2 * HOUR
        assert scene.row(job_id)[b"lock"] == b"1"
        scene.execute("DEL", scene.keys.job(job_id) + ":lock")
        assert isinstance(scene.refusal(admin.remove_job(scene.queue, job_id)), LockedError)
    else:
        assert b"lock" not in scene.row(job_id)
        scene.execute("DEL", scene.keys.job(job_id) + ":lock")
        scene.execute("HSET", scene.keys.job(job_id), "lock", "1")
        assert scene.run(admin.remove_job(scene.queue, job_id)) is True


ENDS_OF_HOLD: dict[str, Callable[[Scene, str], Any]] = {
    "release": lambda scene, job_id: scene.run(jobs.release(scene.queue, job_id, 1)),
    "delay": lambda scene, job_id: scene.run(jobs.delay(scene.queue, job_id, 1, delay_ms=HOUR)),
    "retry": lambda scene, job_id: scene.run(
        jobs.retry(scene.queue, job_id, 1, delay_ms=HOUR, max_attempts=9, error="e")
    ),
    "bury": lambda scene, job_id: scene.run(jobs.retry(scene.queue, job_id, 1, delay_ms=0, max_attempts=1, error="e")),
    "sweep": lambda scene, job_id: (scene.lapse(job_id), scene.run(jobs.sweep(scene.queue, max_stalled=5))),
    "reap": lambda scene, job_id: (scene.lapse(job_id), scene.run(jobs.reap(scene.queue))),
}


@pytest.mark.parametrize("end", ENDS_OF_HOLD)
def test_the_lock_ends_with_the_hold(scene: Scene, end: str) -> None:
    job_id = in_hand(scene)
    scene.run(workers.keep(scene.queue, [(job_id, 1)], lease_ms=HOUR, field=True))
    ENDS_OF_HOLD[end](scene, job_id)
    assert b"lock" not in scene.row(job_id)
    assert scene.run(admin.remove_job(scene.queue, job_id)) is True
