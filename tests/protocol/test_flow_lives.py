"""Deaths across queues that are heard again when child and parent have another life (protocol §8) do no harm."""

from __future__ import annotations

import pytest

from echomq.protocol import admin, flows, jobs
from echomq.protocol.flows import Doubted, Node, OnDeath
from echomq.protocol.replies import State
from support.flowing import begun, claimed, deliver, die, finish, node, outbox, state
from support.runner import Scene


def revived(scene: Scene, other: Scene) -> tuple[Node, Node, bytes]:
    """A parent that is held again and its child that lives again, and the death that was delivered between."""
    child = node(other)
    root = begun(scene, child, at=other)
    die(other, child)
    (entry,) = outbox(other)
    scene.run(flows.deliver(entry))
    scene.run(admin.reprocess_job(scene.queue, root.id))
    scene.run(admin.reprocess_job(other.queue, child.id))
    return root, child, entry


def pump(scene: Scene, other: Scene) -> None:
    """What is in the outbox of the children is delivered as a pump does it, which asks."""
    for entry in outbox(other):
        answer = scene.run(flows.offer(entry))
        if isinstance(answer, Doubted):
            if other.run(flows.withdraw(other.queue, entry, answer.child)):
                continue
            scene.run(flows.deliver(entry))
        other.run(flows.settle(other.queue, entry))


def test_a_child_that_lives_again_takes_its_death_out_of_the_outbox(scene: Scene, other: Scene) -> None:
    root, child, entry = revived(scene, other)
    assert outbox(other) == []
    claimed(other)
    finish(other, child, token=2)
    assert entry not in outbox(other)
    deliver(other)
    assert state(scene, root) is State.PENDING


@pytest.mark.parametrize("dies", OnDeath)
def test_a_death_that_was_not_delivered_is_void_when_the_child_lives_again(
    scene: Scene, other: Scene, dies: OnDeath
) -> None:
    child, twin = node(other, dies=dies), node(other)
    root = begun(scene, child, twin, at=other)
    die(other, twin, "a death of its own")
    die(other, child)
    other.run(admin.reprocess_job(other.queue, child.id))
    assert len(outbox(other)) == 1
    other.run(admin.reprocess_job(other.queue, twin.id))
    assert deliver(other) == 0
    for each in claimed(other):
        finish(other, next(one for one in (child, twin) if one.id == each), token=2)
    deliver(other)
    assert state(scene, root) is State.PENDING
    assert scene.run(flows.failures(scene.queue, root.id)) == {}


@pytest.mark.strays("the outbox holds what no client of the protocol writes")
def test_a_child_lives_again_whatever_lies_at_the_outbox(scene: Scene, other: Scene) -> None:
    child = node(other)
    begun(scene, child, at=other)
    die(other, child)
    other.execute("DEL", other.keys.outbox)
    other.execute("SET", other.keys.outbox, "abc")
    assert other.run(admin.reprocess_job(other.queue, child.id)) is True


@pytest.mark.parametrize("lies", ["there", "settled"])
def test_a_death_that_comes_again_in_another_life_changes_nothing(scene: Scene, other: Scene, lies: str) -> None:
    root, child, entry = revived(scene, other)
    if lies == "there":
        other.execute("RPUSH", other.keys.outbox, entry)  # reprocessed by a client that leaves it there
    before = scene.dump()
    assert scene.run(flows.offer(entry)) == Doubted(child.id)
    assert scene.dump() == before
    assert other.run(flows.withdraw(other.queue, entry, child.id)) is True
    assert outbox(other) == []
    assert state(scene, root) is State.AWAITING_CHILDREN
    claimed(other)
    finish(other, child, token=2)
    pump(scene, other)
    assert state(scene, root) is State.PENDING


def test_a_child_that_dies_again_of_the_same_kills_the_parent_again(scene: Scene, other: Scene) -> None:
    root, child, entry = revived(scene, other)
    claimed(other)
    die(other, child, token=2)
    assert outbox(other) == [entry]
    pump(scene, other)
    assert (state(scene, root), outbox(other)) == (State.DEAD, [])


def test_a_child_that_dies_again_without_being_claimed_kills_the_parent_again(scene: Scene, other: Scene) -> None:
    root, child, _ = revived(scene, other)
    for _ in range(2):
        other.run(admin.cancel_job(other.queue, child.id, reason="no"))
        pump(scene, other)
        assert state(scene, root) is State.DEAD
        scene.run(admin.reprocess_job(scene.queue, root.id))
        other.run(admin.reprocess_job(other.queue, child.id))
    assert state(scene, root) is State.AWAITING_CHILDREN


def test_a_frozen_pump_settles_nothing_of_a_later_death(scene: Scene, other: Scene) -> None:
    root, child, entry = revived(scene, other)
    assert scene.run(flows.offer(entry)) == Doubted(child.id)
    assert other.run(flows.withdraw(other.queue, entry, child.id)) is True
    claimed(other)
    die(other, child, token=2)
    assert outbox(other) == [entry]
    pump(scene, other)
    assert state(scene, root) is State.DEAD


def test_a_dead_child_that_is_removed_ends_a_parent_that_is_held_again(scene: Scene, other: Scene) -> None:
    child = node(other)
    root = begun(scene, child, at=other)
    die(other, child)
    pump(scene, other)
    scene.run(admin.reprocess_job(scene.queue, root.id))
    other.run(admin.remove_job(other.queue, child.id))
    pump(scene, other)
    assert state(scene, root) is State.DEAD
    assert scene.run(flows.failures(scene.queue, root.id)) == {child.id: b"removed"}


@pytest.mark.parametrize("end", ["done", *OnDeath])
def test_what_a_parent_has_not_on_record_is_delivered_by_an_offer(
    scene: Scene, other: Scene, end: str | OnDeath
) -> None:
    child = node(other, dies=end if isinstance(end, OnDeath) else OnDeath.FAIL_PARENT)
    root = begun(scene, child, at=other)
    finish(other, child) if end == "done" else die(other, child)
    (entry,) = outbox(other)
    for _ in range(2):
        assert scene.run(flows.offer(entry)) is None
        assert state(scene, root) is (State.DEAD if end is OnDeath.FAIL_PARENT else State.PENDING)


def test_an_offer_gives_the_death_that_goes_on_from_there(scene: Scene, other: Scene, third: Scene) -> None:
    leaf = node(third)
    middle = node(other, leaf)
    begun(scene, middle, at=third)
    die(third, leaf)
    (entry,) = outbox(third)
    relayed = other.run(flows.offer(entry))
    assert isinstance(relayed, flows.Relayed)
    assert (relayed.queue, [relayed.entry]) == (other.queue, outbox(other))


def test_a_job_without_a_parent_has_nothing_in_the_outbox_to_take_out(scene: Scene) -> None:
    job_id = scene.mint()
    scene.run(jobs.enqueue(scene.queue, job_id, b"p"))
    scene.run(admin.cancel_job(scene.queue, job_id))
    scene.execute("RPUSH", scene.keys.outbox, "x")
    scene.run(admin.reprocess_job(scene.queue, job_id))
    assert outbox(scene) == [b"x"]
