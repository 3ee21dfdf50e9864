"""Retention (protocol §7, ours): a morgue that is bounded by age and by count, in bounded steps."""

from __future__ import annotations

from typing import Any

import pytest

from echomq.protocol import admin, flows, jobs, metrics
from echomq.protocol.errors import InvalidInputError
from echomq.protocol.flows import Node, OnDeath
from echomq.protocol.replies import State
from support.runner import Scene

HOUR = 3_600_000


def bury(scene: Scene, count: int) -> list[str]:
    """Dead jobs, oldest mint first."""
    ids = scene.minter.mint_many(count)
    scene.run(jobs.enqueue_many(scene.queue, [(i, b"p") for i in ids]))
    for job in scene.run(jobs.claim_many(scene.queue, count)).jobs:
        scene.run(jobs.retry(scene.queue, job.id, 1, delay_ms=0, max_attempts=1, error="e"))
    return ids


def died(scene: Scene, job_id: str, ago_ms: int) -> None:
    scene.execute("HSET", scene.keys.job(job_id), "died_ms", scene.now_ms() - ago_ms)


def morgue(scene: Scene) -> list[str]:
    return sorted(scene.snapshot().places["dead"])


def apply(scene: Scene, budget: int = 100) -> int:
    """As a pump does, until there is nothing to go on with; gives how many were purged."""
    total, after = 0, ""
    while True:
        purged, after = scene.run(admin.retain(scene.queue, after=after, budget=budget))
        assert purged <= 2 * budget
        total += purged
        if not after and purged < budget:
            return total


def keep(scene: Scene, most: int | None, age_ms: int | None) -> None:
    scene.run(admin.set_retention(scene.queue, dead_max=most, dead_age_ms=age_ms))


def test_without_settings_everything_is_kept(scene: Scene) -> None:
    ids = bury(scene, 5)
    for job_id in ids:
        died(scene, job_id, 100 * HOUR)
    assert apply(scene) == 0
    assert morgue(scene) == ids


@pytest.mark.parametrize(("most", "left"), [(0, 0), (3, 3), (7, 7), (9, 7)])
def test_the_newest_are_kept_by_count(scene: Scene, most: int, left: int) -> None:
    ids = bury(scene, 7)
    keep(scene, most, None)
    assert apply(scene) == 7 - left
    assert morgue(scene) == ids[7 - left :]


@pytest.mark.parametrize("budget", [1, 2, 3, 100])
def test_what_has_been_dead_for_too_long_goes_whatever_its_id(scene: Scene, budget: int) -> None:
    ids = bury(scene, 9)
    for n, job_id in enumerate(ids):
        died(scene, job_id, HOUR + 1_000 if n % 2 else HOUR - 60_000)
    keep(scene, None, HOUR)
    assert apply(scene, budget) == 4
    assert morgue(scene) == ids[::2]


def test_age_and_count_together(scene: Scene) -> None:
    ids = bury(scene, 10)
    died(scene, ids[9], 2 * HOUR)
    keep(scene, 5, HOUR)
    assert apply(scene, 3) == 6
    assert morgue(scene) == ids[5:9]


def test_one_call_is_bounded(scene: Scene) -> None:
    bury(scene, 30)
    keep(scene, 2, None)
    counts = []
    while (purged := scene.run(admin.retain(scene.queue, budget=10))[0]) > 0:
        counts.append(purged)
    assert counts == [10, 10, 8]


def test_the_age_scan_says_where_to_go_on(scene: Scene) -> None:
    ids = bury(scene, 5)
    keep(scene, None, HOUR)
    assert scene.run(admin.retain(scene.queue, budget=2)) == (0, ids[1])
    assert scene.run(admin.retain(scene.queue, budget=2, after=ids[1])) == (0, ids[3])
    assert scene.run(admin.retain(scene.queue, budget=2, after=ids[3])) == (0, "")


def test_a_dead_job_of_another_client_is_aged_from_when_it_was_first_seen(scene: Scene) -> None:
    (job_id,) = bury(scene, 1)
    scene.execute("HDEL", scene.keys.job(job_id), "died_ms")
    keep(scene, None, HOUR)
    assert apply(scene) == 0
    assert abs(int(scene.row(job_id)[b"died_ms"]) - scene.now_ms()) < 10_000
    died(scene, job_id, 2 * HOUR)
    assert apply(scene) == 1


def test_a_purged_job_leaves_nothing(scene: Scene) -> None:
    (job_id,) = bury(scene, 1)
    scene.run(admin.add_log(scene.queue, job_id, "line"))
    keep(scene, 0, None)
    apply(scene)
    assert not [key for key in scene.dump() if job_id.encode() in key]
    assert scene.run(metrics.counts(scene.queue)).failed == 1


def test_a_purged_parent_takes_its_books_with_it(scene: Scene) -> None:
    child = Node(scene.queue, scene.mint(), b"c")
    root = Node(scene.queue, scene.mint(), b"p", (child, Node(scene.queue, scene.mint(), b"c")))
    scene.finish(flows.add(root))
    scene.run(admin.cancel_job(scene.queue, child.id))
    assert scene.run(metrics.state(scene.queue, root.id)) is State.DEAD
    keep(scene, 0, None)
    apply(scene)
    assert not [key for key in scene.dump() if root.id.encode() in key]


def test_a_ghost_in_the_morgue_is_purged(scene: Scene) -> None:
    ghost = scene.ghost("dead")
    keep(scene, 0, None)
    assert apply(scene) == 1
    assert scene.places(ghost) == []


def test_a_ghost_that_the_age_scan_meets_is_dropped_and_does_not_become_a_row(scene: Scene) -> None:
    ghost = scene.ghost("dead")
    keep(scene, None, HOUR)
    assert apply(scene) == 1
    assert (scene.row(ghost), morgue(scene)) == ({}, [])


@pytest.mark.parametrize("dies", OnDeath)
def test_a_child_that_is_purged_was_counted_at_its_death(scene: Scene, dies: OnDeath) -> None:
    child = Node(scene.queue, scene.mint(), b"c", on_death=dies)
    root = Node(scene.queue, scene.mint(), b"p", (child, Node(scene.queue, scene.mint(), b"c")))
    scene.finish(flows.add(root))
    scene.run(admin.cancel_job(scene.queue, child.id))
    died(scene, child.id, 2 * HOUR)
    waits = scene.run(flows.outstanding(scene.queue, root.id))
    keep(scene, None, HOUR)
    assert apply(scene) == 1
    assert scene.run(flows.outstanding(scene.queue, root.id)) == waits


def test_settings_are_taken_back(scene: Scene) -> None:
    keep(scene, 1, HOUR)
    keep(scene, None, None)
    assert scene.execute("EXISTS", scene.keys.meta) == 0


@pytest.mark.parametrize("value", [-1, 1.5, "5", True, 2**53])
def test_a_bound_that_is_none(value: Any) -> None:
    with pytest.raises(InvalidInputError, match="dead_max"):
        admin.set_retention("q", dead_max=value, dead_age_ms=None)
    with pytest.raises(InvalidInputError, match="dead_age_ms"):
        admin.set_retention("q", dead_max=None, dead_age_ms=value)


def test_a_place_to_go_on_from_that_is_no_id() -> None:
    with pytest.raises(InvalidInputError):
        admin.retain("q", after="x")
