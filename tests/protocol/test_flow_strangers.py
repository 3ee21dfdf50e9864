"""A flow whose id another job has (protocol §8): refused before anything is written, for its end would tell nobody."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from echomq.protocol import admin, audit, flows, jobs
from echomq.protocol.audit import Breach
from echomq.protocol.errors import StateError
from echomq.protocol.flows import Node
from echomq.protocol.replies import Admission, State
from support.flowing import add, add_in_part, beside, claimed, complete, deliver, die, everything, finish, node, state
from support.placing import HOUR, dead, enqueue, held, in_hand, in_lane, later
from support.runner import Scene


def pending(scene: Scene) -> str:
    return enqueue(scene)[0]


def of_another_parent(scene: Scene) -> str:
    child = node(scene)
    add(scene, node(scene, child))
    return child.id


def dead_of_another_parent(scene: Scene) -> str:
    child = node(scene)
    add(scene, node(scene, child))
    claimed(scene)
    die(scene, child)
    return child.id


def of_a_parent_in_another_queue(scene: Scene) -> str:
    child = node(scene)
    add(scene, node(beside(scene, "-far"), child))
    return child.id


OTHERS: list[Callable[[Scene], str]] = [
    pending,
    later,
    in_lane,
    in_hand,
    dead,
    of_another_parent,
    dead_of_another_parent,
    of_a_parent_in_another_queue,
    held,
]


def refused(scene: Scene, work: Any, job_id: str, why: str = "not of this flow") -> StateError:
    """The refusal, which names the job and has written nothing."""
    before = scene.dump()
    with pytest.raises(StateError) as caught:
        scene.finish(work)
    assert scene.dump() == before
    assert caught.value.reply == f"EMQSTATE flow add {job_id} {why}"
    assert job_id in str(caught.value)
    assert "an id of its own" in str(caught.value)
    return caught.value


@pytest.mark.parametrize("make", OTHERS)
@pytest.mark.parametrize("deep", [False, True])
def test_another_job_is_no_child(scene: Scene, make: Callable[[Scene], str], deep: bool) -> None:
    child = Node(scene.queue, make(scene), b"mine")
    below = node(scene, child, node(scene)) if deep else child
    refused(scene, flows.add(node(scene, node(scene), below)), child.id)


@pytest.mark.parametrize("make", OTHERS)
@pytest.mark.parametrize("deep", [False, True])
def test_another_job_is_no_child_in_another_queue(
    scene: Scene, other: Scene, third: Scene, make: Callable[[Scene], str], deep: bool
) -> None:
    child = Node(other.queue, make(other), b"mine")
    below = node(third, child, node(third)) if deep else child
    refused(scene, flows.add(node(scene, node(other), node(scene), below)), child.id)


@pytest.mark.parametrize("make", OTHERS)
def test_another_job_is_no_parent_within_a_flow(scene: Scene, other: Scene, make: Callable[[Scene], str]) -> None:
    for desk in (scene, other):
        middle = Node(desk.queue, make(desk), b"mine", (node(desk),))
        refused(scene, flows.add(node(scene, middle)), middle.id)


@pytest.mark.parametrize("make", OTHERS[:-1])
def test_a_job_that_waits_for_nothing_is_no_root(scene: Scene, other: Scene, make: Callable[[Scene], str]) -> None:
    for desk in (scene, other):
        root = Node(scene.queue, make(scene), b"mine", (node(desk),))
        refused(scene, flows.add(root), root.id, "not a parent")


def test_a_leaf_is_no_parent_when_it_is_added_again_with_children(scene: Scene) -> None:
    leaf, root = node(scene), scene.mint()
    add(scene, Node(scene.queue, root, "p", (leaf,)))
    grown = Node(scene.queue, leaf.id, "p", (node(scene),))
    refused(scene, flows.add(Node(scene.queue, root, "p", (grown,))), leaf.id, "not a parent")


@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("n", [1, 3])
def test_a_parent_with_another_number_of_children_is_not_that_parent(
    scene: Scene, other: Scene, far: bool, deep: bool, done: bool, n: int
) -> None:
    desk = other if far else scene
    parent = node(scene, node(desk), node(desk))
    root = node(scene, parent) if deep else parent
    add(scene, root)
    if done:
        claimed(desk)
        finish(desk, parent.children[0])
        deliver(desk)
    children = (*parent.children, node(desk))[:n] if n > 1 else (node(desk),)
    changed = Node(scene.queue, parent.id, "p", children)
    again = Node(scene.queue, root.id, "p", (changed,)) if deep else changed
    refused(scene, flows.add(again), parent.id, "has other children")


def test_children_under_fresh_ids_are_not_those_that_a_parent_waits_for(scene: Scene) -> None:
    first = node(scene, node(scene), node(scene))
    add(scene, first)
    refused(
        scene,
        flows.add(Node(scene.queue, first.id, "p", (node(scene), node(scene)))),
        first.id,
        "has other children",
    )
    assert sorted(claimed(scene)) == sorted(child.id for child in first.children)


def test_a_child_that_another_client_has_lost_comes_back_when_its_flow_is_added_again(scene: Scene) -> None:
    lost, kept = node(scene), node(scene)
    root = node(scene, lost, kept)
    add(scene, root)
    scene.execute("DEL", scene.keys.job(lost.id))
    scene.execute("ZREM", scene.keys.pending, lost.id)
    assert add(scene, root) == [Admission.DUPLICATE, Admission.ADMITTED, Admission.DUPLICATE]
    for child in claimed(scene):
        finish(scene, Node(scene.queue, child, "p"))
    assert state(scene, root) is State.PENDING


def test_none_of_many_flows_is_added(scene: Scene, other: Scene, third: Scene) -> None:
    taken = pending(third)
    for wrong in (node(third, Node(third.queue, taken, "p")), node(scene, Node(third.queue, taken, "p"))):
        refused(scene, flows.add_bulk([node(scene, node(scene)), node(other, node(scene)), wrong]), taken)
    root = Node(third.queue, taken, "p", (node(third),))
    refused(scene, flows.add_bulk([node(scene, node(scene)), root]), taken, "not a parent")


def test_a_key_of_another_type_is_no_child(scene: Scene) -> None:
    child = node(scene)
    scene.execute("SET", scene.keys.job(child.id), "x")
    refused(scene, flows.add(node(scene, child)), child.id)
    scene.execute("DEL", scene.keys.job(child.id))


def test_a_flow_may_be_added_once_the_other_job_is_gone(scene: Scene, other: Scene) -> None:
    for desk in (scene, other):
        child = Node(desk.queue, pending(desk), "p")
        root = node(scene, child)
        refused(scene, flows.add(root), child.id)
        desk.run(admin.remove_job(desk.queue, child.id))
        assert add(scene, root) == [Admission.ADMITTED] * 2


# Taken while the flow is being added


@pytest.mark.parametrize("again", [False, True])
def test_a_job_that_comes_between_two_calls_leaves_the_parent_held_and_the_error_says_so(
    scene: Scene, other: Scene, again: bool
) -> None:
    child, sibling = node(other), node(other)
    root = node(scene, child, sibling)
    plan = flows.add(root)
    call = next(plan)
    while call.verb != "flow add" or call.subject != child.id:
        call = plan.send(scene.run(call))
    other.run(jobs.enqueue(other.queue, child.id, b"alone"))
    before = scene.dump()
    refusal = other.outcome(call)
    assert isinstance(refusal, StateError)
    with pytest.raises(StateError, match=f"{root.id} in queue {scene.queue} is held.*remove_job") as caught:
        plan.throw(refusal)
    assert caught.value.reply == f"EMQSTATE flow add {child.id} not of this flow"
    assert scene.dump() == before
    assert scene.finish(audit.audit(scene.queue)) == (
        Breach(root.id, "held for good: it waits for 2 children, and 0 of them exist"),
    )
    refused(scene, flows.add(root), child.id)
    if again:
        other.run(admin.remove_job(other.queue, child.id))
        assert add(scene, root) == [Admission.DUPLICATE, Admission.ADMITTED, Admission.ADMITTED]
        assert scene.finish(audit.audit(scene.queue)) == ()
    else:
        assert scene.run(admin.remove_job(scene.queue, root.id))
        assert [key for key in scene.dump() if root.id.encode() in key] == []


def test_a_job_that_ends_before_the_flow_goes_on_counts_at_once(scene: Scene, other: Scene) -> None:
    for desk in (scene, other):
        child = node(desk)
        root = node(scene, child, node(other))
        add_in_part(scene, root, 1)
        desk.run(jobs.enqueue(desk.queue, child.id, b"alone"))
        claimed(desk)
        desk.run(jobs.complete(desk.queue, child.id, 1, result=b"r", result_ttl_ms=HOUR))
        assert add(scene, root)[:2] == [Admission.DUPLICATE] * 2
        deliver(other)
        assert scene.run(flows.children_values(scene.queue, root.id)) == {child.id: b"r"}
        claimed(other)
        finish(other, root.children[1])
        deliver(other)
        assert list(claimed(scene)) == [root.id]
        finish(scene, root)


def test_a_parent_that_is_added_again_in_part_counts_its_dead_children_later(scene: Scene, other: Scene) -> None:
    for desk in (scene, other):
        child = node(desk)
        root = node(scene, child, node(other))
        add(scene, root)
        claimed(desk)
        scene.run(admin.remove_job(scene.queue, root.id))
        die(desk, child)
        deliver(other)
        add_in_part(scene, root, 1)
        assert state(scene, root) is State.AWAITING_CHILDREN
        assert set(add(scene, root)) == {Admission.DUPLICATE}
        deliver(other)
        assert state(scene, root) is State.DEAD
        assert scene.run(flows.failures(scene.queue, root.id)) == {child.id: b"boom"}


# The same flow again, when a child's id has become another job's


def ids_taken(*desks: tuple[Scene, Node]) -> None:
    for desk, each in desks:
        assert desk.run(jobs.enqueue(desk.queue, each.id, b"alone")) is Admission.ADMITTED


def test_a_child_that_is_recorded_may_have_given_its_id_away(scene: Scene, other: Scene) -> None:
    near, far, rest = node(scene), node(other), node(other)
    root = node(scene, near, far, rest)
    add(scene, root)
    claimed(scene)
    claimed(other)
    complete(scene, near)
    finish(other, far)
    deliver(other)
    ids_taken((scene, near), (other, far))
    before = everything(scene)
    assert set(add(scene, root)) == {Admission.DUPLICATE}
    assert everything(scene) == before


@pytest.mark.parametrize("guards", ["root and middle", "root alone"])
def test_so_may_all_of_a_flow_that_is_finished(scene: Scene, other: Scene, guards: str) -> None:
    near, leaf = node(scene), node(other)
    middle = node(other, leaf)
    root = node(scene, near, middle)
    add(scene, root)
    for each in (leaf, near, middle, root):
        claimed(scene)
        claimed(other)
        finish(scene if each in (near, root) else other, each)
        deliver(other)
    ids_taken((scene, near), (other, leaf))
    if guards == "root alone":
        for name in ("dependencies", "processed"):
            assert other.execute("DEL", f"{other.keys.job(middle.id)}:{name}") == 1
    before = everything(scene)
    assert set(add(scene, root)) == {Admission.DUPLICATE}
    assert everything(scene) == before
