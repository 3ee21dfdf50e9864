"""Flows in one queue (protocol §8): held parents, children that count once, and what is no flow."""

from __future__ import annotations

from typing import Any

import pytest

from echomq.identity.errors import IdError
from echomq.protocol import flows, jobs
from echomq.protocol.errors import InvalidInputError, KindError, QueueNameError
from echomq.protocol.flows import Node, OnDeath
from echomq.protocol.replies import Admission, State
from support.flowing import add, begun, claimed, complete, deep, die, node, state, subkeys, waits_for
from support.runner import Scene, with_args

DAY_MS = 86_400_000

# Adding


def test_a_flow_is_held_and_its_leaves_are_claimable(scene: Scene) -> None:
    leaves = [node(scene), node(scene)]
    middle = node(scene, leaves[1])
    root = node(scene, leaves[0], middle)
    assert add(scene, root) == [Admission.ADMITTED] * 4
    assert scene.row(root.id) == {b"state": b"awaiting_children", b"attempts": b"0", b"payload": b"p"}
    assert scene.row(middle.id) == {
        b"state": b"awaiting_children",
        b"attempts": b"0",
        b"payload": b"p",
        b"parent": root.id.encode(),
        b"parent_policy": b"fp",
    }
    assert scene.row(leaves[1].id) == {
        b"state": b"pending",
        b"attempts": b"0",
        b"payload": b"p",
        b"parent": middle.id.encode(),
        b"parent_policy": b"fp",
    }
    assert [waits_for(scene, each) for each in (root, middle)] == [2, 1]
    assert [scene.places(each.id) for each in (root, middle, *leaves)] == [[], [], ["pending"], ["pending"]]
    assert state(scene, root) is State.AWAITING_CHILDREN
    assert scene.tokens() == 2
    assert subkeys(scene, root) == {"dependencies": -1}


def test_a_flow_of_a_thousand_children_leaves_no_more_tokens_than_allowed(scene: Scene) -> None:
    root = node(scene, *(node(scene) for _ in range(1_000)))
    assert set(add(scene, root)) == {Admission.ADMITTED}
    assert (waits_for(scene, root), scene.tokens(), scene.run(jobs.pending_size(scene.queue))) == (1_000, 64, 1_000)


def test_many_flows_of_one_queue_are_one_call(scene: Scene) -> None:
    roots = [node(scene, node(scene), node(scene)) for _ in range(3)]
    plan = flows.add_bulk(roots)
    call = next(plan)
    with pytest.raises(StopIteration) as end:
        plan.send(scene.run(call))
    assert [list(given) for given in end.value.value] == [[r.id, *(c.id for c in r.children)] for r in roots]
    assert [waits_for(scene, root) for root in roots] == [2, 2, 2]
    again = scene.finish(flows.add_bulk(roots))
    assert {verdict for given in again for verdict in given.values()} == {Admission.DUPLICATE}


def test_no_flow_is_no_call(scene: Scene) -> None:
    assert scene.finish(flows.add_bulk([])) == ()


# Children that end well


@pytest.mark.parametrize("in_one_call", [True, False])
def test_the_last_child_releases_its_parent_with_one_token(scene: Scene, in_one_call: bool) -> None:
    children = [node(scene) for _ in range(3)]
    root = begun(scene, *children)
    scene.drop_tokens()
    if in_one_call:
        scene.run(jobs.complete_many(scene.queue, [(child.id, 1) for child in children]))
    else:
        for left, child in ((2, children[0]), (1, children[1]), (0, children[2])):
            assert state(scene, root) is State.AWAITING_CHILDREN
            complete(scene, child)
            assert waits_for(scene, root) == left
    assert (state(scene, root), scene.tokens()) == (State.PENDING, 1)
    assert subkeys(scene, root) == {"dependencies": -1, "processed": -1}
    assert scene.places(root.id) == ["pending"]
    assert list(claimed(scene)) == [root.id]


def test_a_parent_reads_what_its_children_have_left(scene: Scene) -> None:
    children = [node(scene) for _ in range(3)]
    root = begun(scene, *children)
    results = [b"", b'{"a": 1}', b"\0any\0byte\xff"]
    for child, result in zip(children, results, strict=True):
        complete(scene, child, result=result)
    values = scene.run(flows.children_values(scene.queue, root.id))
    assert values == dict(zip((child.id for child in children), results, strict=True))
    assert scene.run(flows.failures(scene.queue, root.id)) == {}
    assert scene.run(flows.ignored_failures(scene.queue, root.id)) == {}


def test_a_single_completion_keeps_its_result_too(scene: Scene) -> None:
    child = node(scene)
    root = begun(scene, child)
    scene.run(jobs.complete(scene.queue, child.id, 1, result="r", result_ttl_ms=60_000))
    assert scene.run(flows.children_values(scene.queue, root.id)) == {child.id: b"r"}
    assert scene.execute("GET", scene.keys.job(child.id) + ":result") == b"r"


def test_a_child_counts_when_its_first_holder_completes_it_after_a_lapse(scene: Scene) -> None:
    child, other = node(scene), node(scene)
    root = begun(scene, child, other)
    scene.lapse(child.id)
    scene.run(jobs.reap(scene.queue))
    complete(scene, child)
    assert (waits_for(scene, root), state(scene, child)) == (1, State.ABSENT)


def test_a_finished_parent_leaves_its_books_for_a_day(scene: Scene) -> None:
    child = node(scene)
    root = begun(scene, child, node(scene, dies=OnDeath.IGNORE))
    complete(scene, child)
    die(scene, root.children[1])
    claimed(scene)
    complete(scene, root)
    left = subkeys(scene, root)
    assert set(left) == {"dependencies", "processed", "unsuccessful"}
    assert all(DAY_MS - 60_000 < ttl <= DAY_MS for ttl in left.values())


def test_a_batch_with_one_parent_in_it_leaves_no_book_of_another(scene: Scene) -> None:
    child = node(scene)
    root = node(scene, child)
    flat = scene.mint()
    add(scene, root)
    claimed(scene)
    complete(scene, child)
    scene.run(jobs.enqueue(scene.queue, flat, b"p"))
    claimed(scene)
    scene.run(jobs.complete_many(scene.queue, [(flat, 1), (root.id, 1)]))
    assert not [key for key in scene.dump() if flat.encode() in key]
    assert set(subkeys(scene, root)) == {"dependencies", "processed"}


# Bad input


def test_a_flow_needs_a_child(scene: Scene) -> None:
    with pytest.raises(InvalidInputError, match="no child"):
        flows.add(node(scene))


def test_an_id_twice_is_refused(scene: Scene) -> None:
    child = node(scene)
    with pytest.raises(InvalidInputError, match=f"{child.id} twice"):
        flows.add(node(scene, child, node(scene, child)))
    with pytest.raises(InvalidInputError, match="twice"):
        flows.add_bulk([node(scene, child), node(scene, child)])
    with pytest.raises(InvalidInputError, match=f"{child.id} twice"):
        flows.add(node(scene, node(scene, node(scene, child)), node(scene, node(scene, child))))


def test_a_cycle_is_refused(scene: Scene) -> None:
    root = node(scene, node(scene))
    object.__setattr__(root.children[0], "children", (root,))
    around = f"cycle: {root.id} is below itself \\({root.id} > {root.children[0].id} > {root.id}\\)"
    with pytest.raises(InvalidInputError, match=around):
        flows.add(root)
    below = node(scene)
    itself = flows.Node(below.queue, below.id, below.payload, children=(below,))
    with pytest.raises(InvalidInputError, match=f"cycle: {below.id} is below itself"):
        flows.add(node(scene, node(scene), itself))


def test_nine_levels_are_refused_and_eight_are_not(scene: Scene) -> None:
    flows.add(deep(scene, 8)[-1])
    chain = deep(scene, 9)
    with pytest.raises(InvalidInputError, match=f"deeper than 8 levels, at {chain[0].id}"):
        flows.add(chain[-1])


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"queue": "a b"}, QueueNameError),
        ({"queue": None}, QueueNameError),
        ({"id": "ORD0NgWEfAEJfs"}, IdError),
        ({"id": None}, IdError),
        ({"payload": 5}, InvalidInputError),
        ({"children": None}, InvalidInputError),
        ({"children": ["x"]}, InvalidInputError),
        ({"children": ("x",)}, InvalidInputError),
        ({"on_death": "fp"}, InvalidInputError),
        ({"on_death": None}, InvalidInputError),
    ],
)
def test_a_node_that_is_none(scene: Scene, change: dict[str, Any], error: type[Exception]) -> None:
    fields: dict[str, Any] = {"queue": scene.queue, "id": scene.mint(), "payload": "p"}
    wrong = Node(**fields | change)
    with pytest.raises(error):
        flows.add(node(scene, wrong))
    with pytest.raises(InvalidInputError):
        flows.add("x")  # type: ignore[arg-type]


def test_the_server_refuses_an_id_of_another_kind_before_the_first_write(scene: Scene) -> None:
    call = next(flows.add(node(scene, node(scene), node(scene))))
    assert isinstance(scene.refusal(with_args(call, {5: "ORD0NgWEfAEJfs"})), KindError)
