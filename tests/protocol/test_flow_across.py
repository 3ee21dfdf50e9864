"""A flow across queues that is added again, or goes on where its caller died (protocol §8)."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from echomq.protocol import admin, flows, jobs, metrics
from echomq.protocol.call import Call, Plan
from echomq.protocol.flows import Node, OnDeath
from echomq.protocol.replies import Admission, State
from support.flowing import add, add_in_part, begun, claimed, deliver, die, everything, finish, node, state
from support.runner import Scene


def test_adding_again_at_any_time_runs_nothing_again(scene: Scene, other: Scene) -> None:
    leaves = [node(other), node(other), node(scene)]
    middle = node(other, leaves[1])
    root = node(scene, leaves[0], middle, leaves[2])
    add(scene, root)

    def again_changes_nothing() -> None:
        before = everything(scene)
        assert set(add(scene, root)) == {Admission.DUPLICATE}
        assert everything(scene) == before

    again_changes_nothing()
    claimed(other)
    claimed(scene)
    again_changes_nothing()
    for step in (
        lambda: finish(other, leaves[0]),
        lambda: deliver(other),
        lambda: die(other, leaves[1]),
        lambda: deliver(other),
        lambda: scene.run(admin.remove_job(other.queue, leaves[1].id)),
        lambda: scene.run(admin.remove_job(other.queue, middle.id)),
        lambda: deliver(other),
        lambda: finish(scene, leaves[2]),
    ):
        step()
        again_changes_nothing()
    assert state(scene, root) is State.DEAD


def test_adding_again_when_all_is_done_runs_nothing_again(scene: Scene, other: Scene) -> None:
    leaf = node(other)
    middle = node(other, leaf)
    root = node(scene, middle)
    add(scene, root)
    for each in (leaf, middle):
        claimed(other)
        finish(other, each)
        assert set(add(scene, root)) == {Admission.DUPLICATE}
        deliver(other)
    claimed(scene)
    finish(scene, root)
    assert set(add(scene, root)) == {Admission.DUPLICATE}
    assert scene.run(jobs.pending_size(other.queue)) == 0


def test_a_kept_result_of_the_parent_keeps_the_whole_flow_from_running_again(scene: Scene, other: Scene) -> None:
    child = node(other)
    root = begun(scene, child, at=other)
    finish(other, child)
    deliver(other)
    claimed(scene)
    scene.run(jobs.complete(scene.queue, root.id, 1, result_ttl_ms=60_000))
    for name in ("dependencies", "processed"):
        assert scene.execute("DEL", f"{scene.keys.job(root.id)}:{name}") == 1
    before = everything(scene)
    assert add(scene, root) == [Admission.DUPLICATE] * 2
    assert everything(scene) == before


@pytest.mark.parametrize("calls", range(1, 4))
def test_a_flow_that_was_added_in_part_goes_on_from_there(scene: Scene, other: Scene, third: Scene, calls: int) -> None:
    leaf = node(third)
    middle = node(other, leaf)
    near, far = node(scene), node(other)
    root = node(scene, near, middle, far)
    add_in_part(scene, root, calls)
    early = {**claimed(scene), **claimed(other)}
    for each in (near, far):
        if each.id in early:
            finish(scene if each is near else other, each)
    assert state(scene, root) is State.AWAITING_CHILDREN
    given = scene.finish(flows.add(root))
    assert given[root.id] is Admission.DUPLICATE
    assert {given[each] for each in early} <= {Admission.DUPLICATE}
    for _ in range(4):
        for desk in (third, other, scene):
            for job in claimed(desk).values():
                finish(desk, Node(desk.queue, job.id, ""))
            deliver(desk)
    assert state(scene, root) is State.ABSENT
    assert scene.run(metrics.counts(scene.queue)).completed == 2
    assert scene.run(metrics.counts(other.queue)).completed == 2
    assert scene.run(metrics.counts(third.queue)).completed == 1


def test_a_wide_flow_is_added_in_a_few_calls(scene: Scene, other: Scene) -> None:
    root = node(scene, *(node(other) for _ in range(2_500)))
    calls: list[Call[Any]] = []

    def counted() -> Plan[None]:
        plan, answer = flows.add(root), None
        with suppress(StopIteration):
            while True:
                calls.append(plan.send(answer))
                answer = yield calls[-1]

    scene.finish(counted())
    assert [call.verb for call in calls] == ["flow strangers"] * 3 + ["flow add"] * 4
    assert scene.run(jobs.pending_size(other.queue)) == 2_500


def test_a_parent_that_was_removed_and_is_added_again_counts_what_has_ended_elsewhere(
    scene: Scene, other: Scene
) -> None:
    done, dead, alive = node(other), node(other, dies=OnDeath.IGNORE), node(other)
    root = begun(scene, done, dead, alive, at=other)
    scene.run(admin.remove_job(scene.queue, root.id))
    other.run(jobs.complete(other.queue, done.id, 1, result=b"r", result_ttl_ms=60_000))
    die(other, dead)
    deliver(other)
    assert add(scene, root) == [Admission.ADMITTED, *[Admission.DUPLICATE] * 3]
    deliver(other)
    assert scene.run(flows.outstanding(scene.queue, root.id)) == 1
    assert scene.run(flows.children_values(scene.queue, root.id)) == {done.id: b"r"}
    finish(other, alive)
    deliver(other)
    assert state(scene, root) is State.PENDING
