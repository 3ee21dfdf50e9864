"""Audit (protocol §8, §12.1): a held parent that nothing can release is found, whichever queue its children lie in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from echomq.protocol import admin, audit, jobs, morgue
from echomq.protocol.audit import Breach
from echomq.protocol.flows import Node, OnDeath
from support.flowing import add, add_in_part, begun, claimed, deliver, die, finish, node
from support.runner import Scene


def found(scene: Scene) -> list[Breach]:
    return list(scene.finish(audit.audit(scene.queue)))


def held(root: Node, waits: int, there: int) -> list[Breach]:
    return [Breach(root.id, f"held for good: it waits for {waits} children, and {there} of them exist")]


def lose(scene: Scene, each: Node) -> None:
    """A row that is gone without a word: by another client, or a restore of an old snapshot."""
    scene.execute("DEL", scene.keys.job(each.id))
    scene.execute("ZREM", scene.keys.pending, each.id)


def test_children_that_are_lost_in_the_queue(scene: Scene) -> None:
    children = [node(scene) for _ in range(3)]
    root = node(scene, *children)
    add(scene, root)
    add(scene, node(scene, node(scene)))
    lose(scene, children[0])
    assert found(scene) == held(root, 3, 2)
    lose(scene, children[1])
    lose(scene, children[2])
    assert found(scene) == held(root, 3, 0)


def test_children_that_are_lost_in_another_queue(scene: Scene, other: Scene, third: Scene) -> None:
    near, far = node(other), node(third)
    root = node(scene, near, far, node(scene))
    add(scene, root)
    assert found(scene) == []
    lose(other, near)
    assert found(scene) == held(root, 3, 2)
    lose(third, far)
    assert found(scene) == held(root, 3, 1)
    assert found(other) == found(third) == []


def test_a_queue_that_was_obliterated_with_the_children_in_it(scene: Scene, other: Scene) -> None:
    root = node(scene, node(other), node(other))
    add(scene, root)
    other.run(admin.pause_queue(other.queue))
    other.finish(admin.obliterate(other.queue))
    assert found(scene) == held(root, 2, 0)


def test_a_flow_whose_caller_died_between_two_calls(scene: Scene, other: Scene, third: Scene) -> None:
    root = node(scene, node(other), node(third))
    add_in_part(scene, root, 2)
    assert found(scene) == held(root, 2, 1)
    add(scene, root)
    assert found(scene) == []


def test_many_children(scene: Scene, other: Scene) -> None:
    children = [node(other) for _ in range(2_300)]
    root = node(scene, *children)
    add(scene, root)
    assert found(scene) == []
    lose(other, children[1_500])
    assert found(scene) == held(root, 2_300, 2_299)


def test_a_child_counts_no_more_once_it_is_recorded_whatever_its_row_does(scene: Scene, other: Scene) -> None:
    for desk in (scene, other):
        ignored, lost = node(desk, dies=OnDeath.IGNORE), node(desk)
        root = node(scene, ignored, lost)
        add(scene, root)
        claimed(desk)
        die(desk, ignored)  # its row stays in the morgue
        deliver(other)
        desk.run(jobs.release(desk.queue, lost.id, 1))
        assert found(scene) == []
        lose(desk, lost)
        assert found(scene) == held(root, 1, 0)
        scene.run(admin.remove_job(scene.queue, root.id))


def test_a_signal_in_an_outbox_stands_for_its_child(scene: Scene, other: Scene) -> None:
    done, ignored = node(other), node(other, dies=OnDeath.IGNORE)
    begun(scene, done, ignored, node(scene), at=other)
    finish(other, done, b"\0r\0")
    other.run(admin.remove_job(other.queue, ignored.id))
    assert found(scene) == []
    deliver(other)
    assert found(scene) == []


def test_a_signal_that_is_lost(scene: Scene, other: Scene) -> None:
    child = node(other)
    root = begun(scene, child, at=other)
    finish(other, child)
    other.execute("DEL", other.keys.outbox)
    assert found(scene) == held(root, 1, 0)


GONE: dict[str, Callable[[Scene, Node], Any]] = {
    "removed": lambda desk, child: desk.run(admin.remove_job(desk.queue, child.id)),
    "purged": lambda desk, child: desk.run(morgue.purge(desk.queue, [child.id])),
}


@pytest.mark.parametrize("how", GONE)
@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_parent_that_is_given_another_life_after_its_dead_child_was_removed(
    scene: Scene, other: Scene, how: str, elsewhere: bool
) -> None:
    desk = other if elsewhere else scene
    child = node(desk)
    root = begun(scene, child, at=desk)
    die(desk, child)
    deliver(other)
    scene.run(admin.reprocess_job(scene.queue, root.id))
    assert found(scene) == []  # the child may have another life too
    GONE[how](desk, child)
    deliver(other)
    assert found(scene) == []  # its second death has killed the parent again
    scene.run(admin.reprocess_job(scene.queue, root.id))
    assert found(scene) == held(root, 1, 0)
    scene.run(admin.remove_job(scene.queue, root.id))
    assert found(scene) == []


def test_a_job_that_has_taken_a_childs_id_is_none(scene: Scene) -> None:
    child = node(scene)
    root = node(scene, child)
    add(scene, root)
    lose(scene, child)
    scene.run(jobs.enqueue(scene.queue, child.id, b"alone"))
    assert found(scene) == held(root, 1, 0)


def test_parents_of_the_same_id_in_two_queues_are_two(scene: Scene, other: Scene) -> None:
    child = node(scene)
    add(scene, node(scene, child))
    root = Node(other.queue, scene.mint(), "p", (node(scene),))
    twin = Node(scene.queue, root.id, "p", (node(scene),))
    add(scene, root)
    add(scene, twin)
    assert found(scene) == found(other) == []
    lose(scene, twin.children[0])
    assert found(scene) == held(twin, 1, 0)
    assert found(other) == []


def test_a_queue_without_such_parents_looks_at_no_other(scene: Scene, other: Scene) -> None:
    add(scene, node(scene, node(scene)))
    add(scene, node(other, node(other)))
    verbs: list[str] = []
    plan = audit.audit(scene.queue)
    try:
        call = next(plan)
        while True:
            verbs.append(call.verb)
            call = plan.send(scene.run(call))
    except StopIteration:
        pass
    assert not {"audit kin", "audit outbox", "audit held"} & set(verbs)
