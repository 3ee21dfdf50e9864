"""A flow that is added again (protocol §8): nothing runs twice, and nothing is held for an end that was."""

from __future__ import annotations

from echomq.protocol import admin, flows, jobs
from echomq.protocol.flows import Node, OnDeath
from echomq.protocol.replies import Admission, State
from support.flowing import SUBKEYS, add, begun, claimed, complete, die, everything, node, state, waits_for
from support.runner import Scene


def again_changes_nothing(scene: Scene, root: Node) -> None:
    before = everything(scene)
    assert set(add(scene, root)) == {Admission.DUPLICATE}
    assert everything(scene) == before


def test_adding_again_at_any_time_changes_nothing(scene: Scene) -> None:
    leaves = [node(scene), node(scene)]
    middle = node(scene, leaves[1])
    root = node(scene, leaves[0], middle)
    add(scene, root)
    again_changes_nothing(scene, root)
    claimed(scene)
    again_changes_nothing(scene, root)
    for each in (*leaves, middle, root):
        complete(scene, each, result=b"r")
        again_changes_nothing(scene, root)
        claimed(scene)
        again_changes_nothing(scene, root)


def test_adding_again_after_a_death_changes_nothing(scene: Scene) -> None:
    leaves = [node(scene), node(scene), node(scene, dies=OnDeath.IGNORE)]
    middle = node(scene, leaves[1], leaves[2])
    root = begun(scene, leaves[0], middle)
    for step in (
        lambda: die(scene, leaves[2]),
        lambda: scene.run(admin.remove_job(scene.queue, leaves[2].id)),
        lambda: die(scene, leaves[0]),
        lambda: scene.run(admin.remove_job(scene.queue, leaves[0].id)),
        lambda: complete(scene, leaves[1]),
        lambda: claimed(scene),
        lambda: complete(scene, middle),
        lambda: scene.run(admin.reprocess_job(scene.queue, root.id)),
    ):
        step()
        again_changes_nothing(scene, root)


def test_a_kept_result_outlives_the_books_and_the_flow_does_not_run_again(scene: Scene) -> None:
    child = node(scene)
    root = begun(scene, child)
    complete(scene, child)
    claimed(scene)
    scene.run(jobs.complete(scene.queue, root.id, 1, result_ttl_ms=60_000))
    for name in SUBKEYS:
        scene.execute("DEL", f"{scene.keys.job(root.id)}:{name}")
    again_changes_nothing(scene, root)


def test_a_parent_that_was_removed_and_is_added_again_counts_what_has_ended_meanwhile(scene: Scene) -> None:
    done, dead, alive = node(scene), node(scene, dies=OnDeath.IGNORE), node(scene)
    middle = node(scene, node(scene))
    root = begun(scene, done, dead, alive, middle)
    scene.run(admin.remove_job(scene.queue, root.id))
    scene.run(jobs.complete(scene.queue, done.id, 1, result=b"r", result_ttl_ms=60_000))
    die(scene, dead)
    complete(scene, middle.children[0])
    claimed(scene)
    complete(scene, middle)
    assert add(scene, root) == [Admission.ADMITTED, *[Admission.DUPLICATE] * 5]
    assert waits_for(scene, root) == 1
    assert scene.run(flows.children_values(scene.queue, root.id)) == {done.id: b"r", middle.id: b""}
    assert scene.run(flows.ignored_failures(scene.queue, root.id)) == {dead.id: b"boom"}
    complete(scene, alive)
    assert state(scene, root) is State.PENDING


def test_a_parent_that_is_added_again_over_a_dead_child_dies_of_it(scene: Scene) -> None:
    child = node(scene)
    root = begun(scene, child)
    die(scene, child)
    scene.run(admin.remove_job(scene.queue, root.id))
    assert add(scene, root) == [Admission.ADMITTED, Admission.DUPLICATE]
    assert state(scene, root) is State.DEAD
