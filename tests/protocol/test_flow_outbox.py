"""Flows across queues (protocol §8): the outbox, however often it is delivered, and whatever lies in it."""

from __future__ import annotations

from typing import Any

import pytest

from echomq.protocol import admin, flows, jobs
from echomq.protocol.errors import InvalidInputError
from echomq.protocol.flows import OnDeath
from echomq.protocol.replies import Admission, Completion, State
from support.flowing import DEATHS, add, begun, claimed, deliver, die, finish, node, outbox, state
from support.runner import Scene

JOB_ID = "JOB0NgWEfAEJfs"

# What is left in the outbox


@pytest.mark.parametrize("result", [b"", b"r", b"\0", b"a\0b\0c\0d\0e\0f\0g", b"\xff\0", b"\0fail\0"])
def test_a_result_goes_through_the_outbox_whatever_bytes_it_holds(scene: Scene, other: Scene, result: bytes) -> None:
    child = node(other)
    root = node(scene, child)
    assert add(scene, root) == [Admission.ADMITTED] * 2
    assert other.row(child.id)[b"parent_queue"] == scene.queue.encode()
    claimed(other)
    assert other.run(jobs.complete_many(other.queue, [jobs.Finished(child.id, 1, result)])) == (Completion.SIGNALLED,)
    assert outbox(other) == [b"\0".join((scene.queue.encode(), root.id.encode(), child.id.encode(), result))]
    assert state(scene, root) is State.AWAITING_CHILDREN
    scene.drop_tokens()
    assert deliver(other) == 1
    assert scene.run(flows.children_values(scene.queue, root.id)) == {child.id: result}
    assert (state(scene, root), scene.tokens(), outbox(other)) == (State.PENDING, 1, [])


@pytest.mark.parametrize("dies", OnDeath)
@pytest.mark.parametrize("error", ["", "e", "a\0b\0c\0d\0e\0f\0g", "ü\0"])
def test_a_death_goes_through_the_outbox_with_its_policy(scene: Scene, other: Scene, dies: OnDeath, error: str) -> None:
    child = node(other, dies=dies)
    root = begun(scene, child, at=other)
    die(other, child, error)
    words = (
        b"",
        b"fail",
        scene.queue.encode(),
        root.id.encode(),
        child.id.encode(),
        dies.value.encode(),
        error.encode(),
    )
    assert outbox(other) == [b"\0".join(words)]
    deliver(other)
    if dies is OnDeath.IGNORE:
        assert scene.run(flows.ignored_failures(scene.queue, root.id)) == {child.id: error.encode()}
        assert state(scene, root) is State.PENDING
    else:
        assert scene.run(flows.failures(scene.queue, root.id)) == {child.id: error.encode()}
        assert state(scene, root) is State.DEAD
        assert scene.row(root.id)[b"last_error"] == f"child {child.id} failed: {error}".encode()


def test_a_release_and_a_death_go_up_over_three_queues(scene: Scene, other: Scene, third: Scene) -> None:
    for dies in (False, True):
        leaf = node(third)
        middle = node(other, leaf)
        root = node(scene, node(scene, middle))
        assert add(scene, root) == [Admission.ADMITTED] * 4
        claimed(third)
        (die if dies else finish)(third, leaf)
        assert deliver(third) == 1
        if not dies:
            assert list(claimed(other)) == [middle.id]
            finish(other, middle)
        assert deliver(other) == 1
        top = root.children[0]
        assert state(scene, top) is (State.DEAD if dies else State.PENDING)
        assert state(scene, root) is (State.DEAD if dies else State.AWAITING_CHILDREN)
        if not dies:
            claimed(scene)
            finish(scene, top)
            claimed(scene)
            finish(scene, root)


def test_a_parent_in_the_same_queue_may_be_signalled_through_the_outbox(scene: Scene) -> None:
    child = node(scene)
    root = node(scene, child)
    add(scene, root)
    scene.execute("HSET", scene.keys.job(child.id), "parent_queue", scene.queue)
    claimed(scene)
    finish(scene, child, b"r")
    assert state(scene, root) is State.AWAITING_CHILDREN
    assert deliver(scene) == 1
    assert state(scene, root) is State.PENDING


@pytest.mark.parametrize("how", ["stalled", "removed", "cancelled", "drained"])
def test_every_death_leaves_a_signal(scene: Scene, other: Scene, how: str) -> None:
    child = node(other)
    root = begun(scene, child, at=other)
    DEATHS[how](other, child)
    assert deliver(other) == 1
    assert state(scene, root) is State.DEAD
    (error,) = scene.run(flows.failures(scene.queue, root.id)).values()
    assert how.encode() in error


def test_a_result_that_is_cut_short_by_nobody(scene: Scene, other: Scene) -> None:
    child = node(other)
    root = begun(scene, child, at=other)
    result = bytes(range(256)) * 4_000
    finish(other, child, result)
    deliver(other)
    assert scene.run(flows.children_values(scene.queue, root.id)) == {child.id: result}


# Delivered more than once


@pytest.mark.parametrize("dies", [None, *OnDeath])
def test_a_signal_that_comes_again_has_no_effect(scene: Scene, other: Scene, dies: OnDeath | None) -> None:
    child = node(other, dies=dies or OnDeath.FAIL_PARENT)
    begun(scene, child, node(other), at=other)
    die(other, child) if dies else finish(other, child)
    (entry,) = outbox(other)
    assert scene.run(flows.deliver(entry)) is None
    before = scene.dump()
    for _ in range(3):
        scene.run(flows.deliver(entry))
    assert scene.dump() == before
    assert [scene.run(flows.settle(other.queue, entry)) for _ in range(3)] == [1, 0, 0]


@pytest.mark.parametrize("dies", [None, *OnDeath])
def test_a_signal_to_a_parent_that_is_finished_or_gone_is_dropped(
    scene: Scene, other: Scene, dies: OnDeath | None
) -> None:
    child = node(other, dies=dies or OnDeath.FAIL_PARENT)
    root = begun(scene, child, at=other)
    die(other, child) if dies else finish(other, child)
    (entry,) = outbox(other)
    deliver(other)
    if dies is OnDeath.FAIL_PARENT:
        scene.run(admin.remove_job(scene.queue, root.id))
    else:
        claimed(scene)
        finish(scene, root)
    before = scene.dump()
    scene.run(flows.deliver(entry))
    scene.run(flows.deliver(entry.replace(child.id.encode(), other.mint().encode())))
    assert scene.dump() == before


def test_a_child_that_died_and_then_succeeds_counts_across_queues(scene: Scene, other: Scene) -> None:
    child, rest = node(other), node(other)
    root = begun(scene, child, rest, at=other)
    die(other, child)
    deliver(other)
    scene.run(admin.reprocess_job(scene.queue, root.id))
    scene.run(admin.reprocess_job(other.queue, child.id))
    claimed(other)
    finish(other, rest)
    finish(other, child, token=2)
    deliver(other)
    assert state(scene, root) is State.PENDING
    assert scene.run(flows.failures(scene.queue, root.id)) == {}


# Malformed entries

MALFORMED = [
    b"",
    b"x",
    b"\0",
    b"\0\0\0",
    b"\0fail",
    b"\0fail\0q",
    b"\0fail\0q\0" + JOB_ID.encode(),
    b"\0fail\0q\0%b\0%b\0xx\0e" % (JOB_ID.encode(), JOB_ID.encode()),
    b"\0fail\0q\0%b\0%b\0fp" % (JOB_ID.encode(), JOB_ID.encode()),
    b"\0fail\0\0%b\0%b\0fp\0e" % (JOB_ID.encode(), JOB_ID.encode()),
    b"q\0" + JOB_ID.encode(),
    b"q\0%b\0%b" % (JOB_ID.encode(), JOB_ID.encode()),
    b"a b\0%b\0%b\0r" % (JOB_ID.encode(), JOB_ID.encode()),
    b"\xff\0%b\0%b\0r" % (JOB_ID.encode(), JOB_ID.encode()),
    b"q\0ORD0NgWEfAEJfs\0%b\0r" % JOB_ID.encode(),
    b"q\0%b\0\xff\0r" % JOB_ID.encode(),
    b"q{}\0%b\0%b\0r" % (JOB_ID.encode(), JOB_ID.encode()),
]


@pytest.mark.parametrize("entry", MALFORMED)
def test_a_malformed_entry_is_set_aside_and_does_not_block(scene: Scene, entry: bytes) -> None:
    child = node(scene)
    root = node(scene, child)
    add(scene, root)
    scene.execute("RPUSH", scene.keys.outbox, entry, entry)
    scene.execute("HSET", scene.keys.job(child.id), "parent_queue", scene.queue)
    claimed(scene)
    finish(scene, child)
    for each in scene.run(flows.outbox(scene.queue)):
        if each == entry:
            with pytest.raises(InvalidInputError, match="malformed"):
                flows.deliver(each)
            assert scene.run(flows.reject(scene.queue, each)) == 1
        else:
            scene.run(flows.deliver(each))
            scene.run(flows.settle(scene.queue, each))
    assert scene.run(flows.reject(scene.queue, entry)) == 0
    assert scene.run(flows.rejected(scene.queue)) == (entry, entry)
    assert (outbox(scene), state(scene, root)) == ([], State.PENDING)


def test_the_newest_thousand_malformed_entries_are_kept(scene: Scene) -> None:
    scene.execute("RPUSH", scene.keys.outbox, *range(1_002))
    for n in range(1_002):
        scene.run(flows.reject(scene.queue, b"%d" % n))
    kept = scene.run(flows.rejected(scene.queue, limit=5_000))
    assert kept == tuple(b"%d" % n for n in range(1_001, 1, -1))


@pytest.mark.parametrize("entry", [None, "x", 5, ["x"]])
def test_an_entry_that_is_no_bytes(entry: Any) -> None:
    with pytest.raises(InvalidInputError):
        flows.deliver(entry)


def test_a_read_of_nothing_is_refused() -> None:
    for build in (flows.outbox, flows.rejected):
        with pytest.raises(InvalidInputError):
            build("q", limit=0)
