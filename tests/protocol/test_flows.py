"""Flows in one queue (protocol §8): held parents, children that count once, deaths, and adding again."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from echomq.identity.errors import IdError
from echomq.protocol import admin, flows, jobs, metrics, morgue
from echomq.protocol.errors import InvalidInputError, KindError, QueueNameError
from echomq.protocol.flows import Node, OnDeath
from echomq.protocol.replies import Admission, Claimed, Completion, State
from support.runner import Scene, with_args

DAY_MS = 86_400_000
SUBKEYS = ("dependencies", "processed", "failed", "unsuccessful")


def node(scene: Scene, *children: Node, dies: OnDeath = OnDeath.FAIL_PARENT, payload: str = "p") -> Node:
    return Node(scene.queue, scene.mint(), payload, children, dies)


def add(scene: Scene, root: Node) -> list[Admission]:
    """The answers in the order of the walk, parents first."""
    return list(scene.finish(flows.add(root)).values())


def claimed(scene: Scene) -> dict[str, Claimed]:
    return {job.id: job for job in scene.run(jobs.claim_many(scene.queue, 1_000)).jobs}


def state(scene: Scene, each: Node) -> State:
    return scene.run(metrics.state(scene.queue, each.id))


def waits_for(scene: Scene, each: Node) -> int:
    return scene.run(flows.outstanding(scene.queue, each.id))


def complete(scene: Scene, each: Node, token: int = 1, result: bytes = b"") -> None:
    done = jobs.Finished(each.id, token, result)
    assert scene.run(jobs.complete_many(scene.queue, [done])) == (Completion.RETIRED,)


def die(scene: Scene, each: Node, token: int = 1, error: str = "boom") -> None:
    scene.run(jobs.retry(scene.queue, each.id, token, delay_ms=0, max_attempts=token, error=error))


def subkeys(scene: Scene, each: Node) -> dict[str, int]:
    """The parent's subkeys that exist, with their TTL in ms, -1 for none."""
    ttls = {name: scene.execute("PTTL", f"{scene.keys.job(each.id)}:{name}") for name in SUBKEYS}
    return {name: ttl for name, ttl in ttls.items() if ttl != -2}


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
    root = node(scene, *children)
    add(scene, root)
    claimed(scene)
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
    root = node(scene, *children)
    add(scene, root)
    claimed(scene)
    results = [b"", b'{"a": 1}', b"\0any\0byte\xff"]
    for child, result in zip(children, results, strict=True):
        complete(scene, child, result=result)
    values = scene.run(flows.children_values(scene.queue, root.id))
    assert values == dict(zip((child.id for child in children), results, strict=True))
    assert scene.run(flows.failures(scene.queue, root.id)) == {}
    assert scene.run(flows.ignored_failures(scene.queue, root.id)) == {}


def test_a_single_completion_keeps_its_result_too(scene: Scene) -> None:
    child = node(scene)
    root = node(scene, child)
    add(scene, root)
    claimed(scene)
    scene.run(jobs.complete(scene.queue, child.id, 1, result="r", result_ttl_ms=60_000))
    assert scene.run(flows.children_values(scene.queue, root.id)) == {child.id: b"r"}
    assert scene.execute("GET", scene.keys.job(child.id) + ":result") == b"r"


def test_a_child_counts_when_its_first_holder_completes_it_after_a_lapse(scene: Scene) -> None:
    child, other = node(scene), node(scene)
    root = node(scene, child, other)
    add(scene, root)
    claimed(scene)
    scene.lapse(child.id)
    scene.run(jobs.reap(scene.queue))
    complete(scene, child)
    assert (waits_for(scene, root), state(scene, child)) == (1, State.ABSENT)


def test_a_finished_parent_leaves_its_books_for_a_day(scene: Scene) -> None:
    child = node(scene)
    root = node(scene, child, node(scene, dies=OnDeath.IGNORE))
    add(scene, root)
    claimed(scene)
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


# Children that die


@pytest.mark.parametrize("dies", OnDeath)
def test_a_death_by_its_policy(scene: Scene, dies: OnDeath) -> None:
    child, other = node(scene, dies=dies), node(scene)
    root = node(scene, child, other)
    add(scene, root)
    claimed(scene)
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


def deep(scene: Scene, levels: int) -> list[Node]:
    """A flow of one node a level, the deepest first."""
    chain = [node(scene)]
    while len(chain) < levels:
        chain.append(node(scene, chain[-1]))
    return chain


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
    root = node(scene, top)
    add(scene, root)
    claimed(scene)
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


DEATHS: dict[str, Callable[[Scene, Node], Any]] = {
    "retry": die,
    "stalled": lambda scene, child: (scene.lapse(child.id), scene.run(jobs.sweep(scene.queue))),
    "removed": lambda scene, child: scene.run(admin.remove_job(scene.queue, child.id)),
    "cancelled": lambda scene, child: (
        scene.run(jobs.release(scene.queue, child.id, 1)),
        scene.run(admin.cancel_job(scene.queue, child.id)),
    ),
    "cancelled in hand": lambda scene, child: (
        scene.run(admin.cancel_job(scene.queue, child.id)),
        scene.run(jobs.release(scene.queue, child.id, 1)),
        scene.run(jobs.claim(scene.queue)),
    ),
    "payload missing": lambda scene, child: (
        scene.run(jobs.release(scene.queue, child.id, 1)),
        scene.execute("HDEL", scene.keys.job(child.id), "payload"),
        scene.run(jobs.claim(scene.queue)),
    ),
    "drained": lambda scene, child: (
        scene.run(jobs.release(scene.queue, child.id, 1)),
        scene.finish(admin.drain(scene.queue)),
    ),
    "drained from the schedule": lambda scene, child: (
        scene.run(jobs.delay(scene.queue, child.id, 1, delay_ms=60_000)),
        scene.finish(admin.drain(scene.queue, scheduled=True)),
    ),
}


@pytest.mark.parametrize("how", DEATHS)
@pytest.mark.parametrize("dies", OnDeath)
def test_every_death_reaches_the_parent(scene: Scene, how: str, dies: OnDeath) -> None:
    child, other = node(scene, dies=dies), node(scene)
    root = node(scene, child, other)
    add(scene, root)
    claimed(scene)
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
    root = node(scene, child, other)
    add(scene, root)
    claimed(scene)
    die(scene, child)
    scene.run(admin.reprocess_job(scene.queue, child.id))
    claimed(scene)
    complete(scene, child, token=2)
    assert (waits_for(scene, root), state(scene, root)) == (1, State.AWAITING_CHILDREN)
    assert scene.run(flows.children_values(scene.queue, root.id)) == {}


def test_a_parent_that_failed_waits_again_until_its_child_succeeds(scene: Scene) -> None:
    child, other = node(scene), node(scene)
    root = node(scene, child, other)
    add(scene, root)
    claimed(scene)
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
    root = node(scene, child, other)
    add(scene, root)
    claimed(scene)
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
    root = node(scene, child)
    add(scene, root)
    claimed(scene)
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
    root = node(scene, child)
    add(scene, root)
    claimed(scene)
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
    root = node(scene, child)
    add(scene, root)
    claimed(scene)
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


# Adding again


def everything(scene: Scene) -> dict[bytes, Any]:
    return {key: value for key, value in scene.dump().items() if not key.endswith((b":wake", b":turn"))}


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
    root = node(scene, leaves[0], middle)
    add(scene, root)
    claimed(scene)
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
    root = node(scene, child)
    add(scene, root)
    claimed(scene)
    complete(scene, child)
    claimed(scene)
    scene.run(jobs.complete(scene.queue, root.id, 1, result_ttl_ms=60_000))
    for name in SUBKEYS:
        scene.execute("DEL", f"{scene.keys.job(root.id)}:{name}")
    again_changes_nothing(scene, root)


def test_a_parent_that_was_removed_and_is_added_again_counts_what_has_ended_meanwhile(scene: Scene) -> None:
    done, dead, alive = node(scene), node(scene, dies=OnDeath.IGNORE), node(scene)
    middle = node(scene, node(scene))
    root = node(scene, done, dead, alive, middle)
    add(scene, root)
    claimed(scene)
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
    root = node(scene, child)
    add(scene, root)
    claimed(scene)
    die(scene, child)
    scene.run(admin.remove_job(scene.queue, root.id))
    assert add(scene, root) == [Admission.ADMITTED, Admission.DUPLICATE]
    assert state(scene, root) is State.DEAD


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


def test_a_cycle_is_refused(scene: Scene) -> None:
    root = node(scene, node(scene))
    object.__setattr__(root.children[0], "children", (root,))
    with pytest.raises(InvalidInputError, match=f"{root.id} twice"):
        flows.add(root)


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
