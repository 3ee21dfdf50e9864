"""Deaths in a flow of one queue (protocol §8): by their policy, up through every level, and another life."""

from __future__ import annotations

from itertools import pairwise

import pytest

from echomq.protocol import admin, flows, jobs, metrics, morgue
from echomq.protocol.flows import OnDeath
from echomq.protocol.replies import State
from support.flowing import DEATHS, add, begun, claimed, complete, deep, die, node, state, subkeys, waits_for
from support.runner import Scene

# Children that die


@pytest.mark.parametrize("dies", OnDeath)
def test_a_death_by_its_policy(scene: Scene, dies: OnDeath) -> None:
    child, other = node(scene, dies=dies), node(scene)
    root = begun(scene, child, other)
    die(scene, child, error="no\0way")
    if dies is OnDeath.IGNORE:
        assert (state(scene, root), waits_for(scene, root)) == (State.AWAITING_CHILDREN, 1)
        assert scene.run(flows.ignored_failures(scene.queue, root.id)) == {child.id: b"no\0way"}
        complete(scene, other)
        assert state(scene, root) is State.PENDING
    else:
        assert (state(scene, root), waits_for(scene, root)) == (State.DEAD, 2)
        assert scene.run(flows.failures(scene.queue, root.id)) == {child.id: b"no\0way"}
        row = scene.row(root.id)
        assert row[b"last_error"] == f"child {child.id} failed: no\0way".encode()
        assert abs(int(row[b"died_ms"]) - scene.now_ms()) < 10_000
        assert scene.run(metrics.counts(scene.queue)).failed == 2


def test_a_death_goes_up_through_eight_levels(scene: Scene) -> None:
    chain = deep(scene, 8)
    add(scene, chain[-1])
    claimed(scene)
    die(scene, chain[0])
    assert {state(scene, each) for each in chain} == {State.DEAD}
    for below, above in pairwise(chain):
        assert list(scene.run(flows.failures(scene.queue, above.id))) == [below.id]
    assert scene.row(chain[-1].id)[b"last_error"].endswith(b"failed: boom")
    assert scene.run(metrics.counts(scene.queue)).failed == 8


def test_a_death_stops_where_it_is_ignored(scene: Scene) -> None:
    leaf = node(scene)
    middle = node(scene, leaf, dies=OnDeath.IGNORE)
    top = node(scene, middle)
    root = begun(scene, top)
    die(scene, leaf)
    states = [state(scene, each) for each in (leaf, middle, top, root)]
    assert states == [State.DEAD, State.DEAD, State.PENDING, State.AWAITING_CHILDREN]


def test_completions_go_up_through_eight_levels(scene: Scene) -> None:
    chain = deep(scene, 8)
    add(scene, chain[-1])
    for each in chain:
        assert list(claimed(scene)) == [each.id]
        complete(scene, each)
    assert scene.run(metrics.counts(scene.queue)).completed == 8


@pytest.mark.parametrize("how", DEATHS)
@pytest.mark.parametrize("dies", OnDeath)
def test_every_death_reaches_the_parent(scene: Scene, how: str, dies: OnDeath) -> None:
    child, other = node(scene, dies=dies), node(scene)
    root = begun(scene, child, other)
    DEATHS[how](scene, child)
    if dies is OnDeath.IGNORE:
        assert (state(scene, root), waits_for(scene, root)) == (State.AWAITING_CHILDREN, 1)
        assert list(scene.run(flows.ignored_failures(scene.queue, root.id))) == [child.id]
    else:
        assert state(scene, root) is State.DEAD
        (error,) = scene.run(flows.failures(scene.queue, root.id)).values()
        assert how.split()[0].encode() in error or how in ("retry", "drained from the schedule")


# One child, one count


def test_a_child_that_was_ignored_counts_no_more_when_it_succeeds_later(scene: Scene) -> None:
    child, other = node(scene, dies=OnDeath.IGNORE), node(scene)
    root = begun(scene, child, other)
    die(scene, child)
    scene.run(admin.reprocess_job(scene.queue, child.id))
    claimed(scene)
    complete(scene, child, token=2)
    assert (waits_for(scene, root), state(scene, root)) == (1, State.AWAITING_CHILDREN)
    assert scene.run(flows.children_values(scene.queue, root.id)) == {}


def test_a_parent_that_failed_waits_again_until_its_child_succeeds(scene: Scene) -> None:
    child, other = node(scene), node(scene)
    root = begun(scene, child, other)
    die(scene, child)
    complete(scene, other)
    assert scene.run(admin.reprocess_job(scene.queue, root.id)) is True
    assert (state(scene, root), waits_for(scene, root)) == (State.AWAITING_CHILDREN, 1)
    assert b"last_error" not in scene.row(root.id)
    scene.run(admin.reprocess_job(scene.queue, child.id))
    claimed(scene)
    complete(scene, child, token=2, result=b"r")
    assert state(scene, root) is State.PENDING
    assert scene.run(flows.failures(scene.queue, root.id)) == {}
    assert scene.run(flows.children_values(scene.queue, root.id)) == {child.id: b"r", other.id: b""}


def test_a_dead_parent_is_not_released_but_its_count_goes_on(scene: Scene) -> None:
    child, other = node(scene), node(scene)
    root = begun(scene, child, other)
    die(scene, child)
    scene.run(admin.reprocess_job(scene.queue, child.id))
    claimed(scene)
    complete(scene, child, token=2)
    complete(scene, other)
    assert (state(scene, root), waits_for(scene, root)) == (State.DEAD, 0)
    scene.run(admin.reprocess_job(scene.queue, root.id))
    assert (state(scene, root), scene.places(root.id)) == (State.PENDING, ["pending"])


def test_a_child_that_dies_again_kills_the_held_parent_again(scene: Scene) -> None:
    child = node(scene)
    root = begun(scene, child)
    die(scene, child, error="first")
    scene.run(admin.reprocess_job(scene.queue, root.id))
    scene.run(admin.reprocess_job(scene.queue, child.id))
    claimed(scene)
    die(scene, child, token=2, error="second")
    assert state(scene, root) is State.DEAD
    assert scene.run(flows.failures(scene.queue, root.id)) == {child.id: b"second"}


@pytest.mark.parametrize("how", ["removed", "purged", "purged by hand"])
def test_what_becomes_of_a_dead_child_does_not_change_the_record(scene: Scene, how: str) -> None:
    child = node(scene)
    root = begun(scene, child)
    die(scene, child)
    if how == "removed":
        scene.run(admin.remove_job(scene.queue, child.id))
    elif how == "purged by hand":
        scene.run(morgue.purge(scene.queue, [child.id]))
    else:
        scene.run(admin.set_retention(scene.queue, dead_max=1, dead_age_ms=None))
        scene.run(admin.retain(scene.queue))
    assert state(scene, child) is State.ABSENT
    assert scene.run(flows.failures(scene.queue, root.id)) == {child.id: b"boom"}
    assert scene.run(metrics.counts(scene.queue)).failed == 2


@pytest.mark.parametrize("how", ["removed", "purged", "purged by hand"])
def test_a_held_parent_does_not_wait_for_a_dead_child_that_is_gone(scene: Scene, how: str) -> None:
    child = node(scene)
    root = begun(scene, child)
    die(scene, child)
    scene.run(admin.reprocess_job(scene.queue, root.id))
    if how == "removed":
        scene.run(admin.remove_job(scene.queue, child.id))
    elif how == "purged by hand":
        scene.run(morgue.purge(scene.queue, [child.id]))
    else:
        scene.run(admin.set_retention(scene.queue, dead_max=0, dead_age_ms=None))
        scene.run(admin.retain(scene.queue, budget=1))
    assert state(scene, root) is State.DEAD
    assert list(scene.run(flows.failures(scene.queue, root.id)).values()) == [how.split()[0].encode()]


def test_a_signal_to_a_parent_that_is_gone_is_dropped(scene: Scene) -> None:
    children = [node(scene), node(scene), node(scene, dies=OnDeath.IGNORE)]
    root = node(scene, *children)
    add(scene, root)
    assert scene.run(admin.remove_job(scene.queue, root.id)) is True
    assert subkeys(scene, root) == {}
    claimed(scene)
    complete(scene, children[0])
    die(scene, children[1])
    die(scene, children[2])
    assert not [key for key in scene.dump() if root.id.encode() in key]


def test_a_signal_to_a_job_that_only_took_the_parents_id_is_dropped(scene: Scene) -> None:
    child = node(scene)
    root = node(scene, child)
    add(scene, root)
    scene.run(admin.remove_job(scene.queue, root.id))
    scene.run(jobs.enqueue(scene.queue, root.id, b"another"))
    claimed(scene)
    complete(scene, child)
    assert subkeys(scene, root) == {}
    complete(scene, root)


def test_removing_a_held_parent_is_a_death_to_its_own(scene: Scene) -> None:
    middle = node(scene, node(scene))
    root = node(scene, middle)
    add(scene, root)
    scene.run(admin.remove_job(scene.queue, middle.id))
    assert (state(scene, middle), state(scene, root)) == (State.ABSENT, State.DEAD)
    assert scene.run(flows.failures(scene.queue, root.id)) == {middle.id: b"removed"}


def test_cancelling_a_held_parent_buries_it_and_its_children_go_on(scene: Scene) -> None:
    child = node(scene)
    root = node(scene, child)
    add(scene, root)
    assert scene.run(admin.cancel_job(scene.queue, root.id)) is admin.Cancellation.DEAD
    claimed(scene)
    complete(scene, child)
    assert (state(scene, root), waits_for(scene, root)) == (State.DEAD, 0)
