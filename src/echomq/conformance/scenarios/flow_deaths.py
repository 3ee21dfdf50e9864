"""Deaths in a flow (protocol §8): what a child's end does to its parent, by its policy."""

from __future__ import annotations

from echomq.conformance.desk import Desk
from echomq.conformance.scenario import scenario
from echomq.conformance.scenarios.flows import die, family, finish
from echomq.protocol import admin, flows, jobs, lanes
from echomq.protocol.flows import Node, OnDeath


@scenario("flow_fail_parent", "A child's death records its error in :failed, and the parent dies.")
def _flow_fail_parent(desk: Desk) -> None:
    parent, (a, b) = family(desk, 2)
    die(desk, a, "it burst")
    desk.stands(parent, "dead", "dead")
    desk.expect(":failed", desk.hash(desk.row_key(parent, ":failed")), {a: b"it burst"})
    desk.expect("the read", desk.run(flows.failures(desk.queue, parent)), {a: b"it burst"})
    desk.expect("the parent's error names both", a in str(desk.field(parent, "last_error")), True)
    desk.stands(b, "pending", "pending")
    desk.expect("failed", desk.count("failed"), 2)


@scenario("flow_ignore_dep", "A child whose death is ignored is recorded in :unsuccessful and counts as done.")
def _flow_ignore_dep(desk: Desk) -> None:
    parent, (a, b) = family(desk, 2, on_death=OnDeath.IGNORE)
    desk.expect("the policy", desk.field(a, "parent_policy"), b"id")
    die(desk, a, "never mind")
    desk.stands(parent, "awaiting_children", "")
    desk.expect(":unsuccessful", desk.hash(desk.row_key(parent, ":unsuccessful")), {a: b"never mind"})
    finish(desk, b)
    desk.stands(parent, "pending", "pending")
    desk.expect("the read", desk.run(flows.ignored_failures(desk.queue, parent)), {a: b"never mind"})


@scenario("flow_grandchild_fail", "A death goes up through every level; where one level ignores it, it stops there.")
def _flow_grandchild_fail(desk: Desk) -> None:
    for policy in OnDeath:
        root, middle, leaf = desk.mint_many(3)
        low = Node(desk.queue, leaf, b"l")
        desk.run(flows.add(Node(desk.queue, root, b"r", (Node(desk.queue, middle, b"m", (low,), policy),))))
        die(desk, leaf)
        desk.stands(middle, "dead", "dead")
        if policy is OnDeath.FAIL_PARENT:
            desk.stands(root, "dead", "dead")
            desk.expect(":failed of the root", list(desk.hash(desk.row_key(root, ":failed"))), [middle])
        else:
            desk.stands(root, "pending", "pending")
            desk.expect(":unsuccessful", list(desk.hash(desk.row_key(root, ":unsuccessful"))), [middle])


@scenario(
    "flow_first_appearance",
    "A signal about a child that is recorded already, as done, failed or ignored, changes nothing.",
)
def _flow_first(desk: Desk) -> None:
    for record in (finish, die, None):
        policy = OnDeath.IGNORE if record is None else OnDeath.FAIL_PARENT
        parent, (a, b) = family(desk, 2, on_death=policy)
        (record or die)(desk, a)
        before = desk.dump()
        signals = [f"\0fail\0{desk.queue}\0{parent}\0{a}\0{word}\0again" for word in ("fp", "id")]
        if record is not die:
            signals.append(f"{desk.queue}\0{parent}\0{a}\0again")
        for signal in signals:
            desk.run(flows.deliver(signal.encode()))
            desk.unwritten(f"a second signal {signal!r}", before)
        desk.run(admin.remove_job(desk.queue, b))
        desk.drop_tokens()


@scenario("flow_child_removed", "Removing, draining or cancelling a child is a death by its policy.")
def _flow_child_removed(desk: Desk) -> None:
    removed, (a, _b) = family(desk, 2)
    desk.run(admin.remove_job(desk.queue, a))
    desk.stands(removed, "dead", "dead")
    desk.run(admin.drain(desk.queue))
    drained, _ids = family(desk)
    desk.expect("drained", desk.run(admin.drain(desk.queue)), 1)
    desk.stands(drained, "dead", "dead")
    cancelled, (c,) = family(desk)
    desk.run(admin.cancel_job(desk.queue, c))
    desk.stands(cancelled, "dead", "dead")
    ignored, (d,) = family(desk, on_death=OnDeath.IGNORE)
    desk.run(admin.remove_job(desk.queue, d))
    desk.stands(ignored, "pending", "pending")


@scenario("flow_lane_drained", "A child in a lane that is drained is a death by its policy.")
def _flow_lane_drained(desk: Desk) -> None:
    parent, (child,) = family(desk)
    group = desk.lane("drained")
    desk.raw("ZREM", desk.keys.pending, child)
    desk.raw("HSET", desk.row_key(child), "group", group)
    desk.raw("ZADD", desk.keys.lane(group), 0, child)
    desk.raw("RPUSH", desk.keys.ring, group)
    desk.run(lanes.drain(desk.queue, group))
    desk.stands(parent, "dead", "dead")


@scenario("flow_parent_removed", "Removing a held parent deletes its subkeys; a signal to it is dropped.")
def _flow_parent_removed(desk: Desk) -> None:
    parent, (a, b) = family(desk, 2)
    finish(desk, a, b"r")
    desk.expect("removed", desk.run(admin.remove_job(desk.queue, parent)), True)
    finish(desk, b)
    desk.drop_tokens()
    desk.expect("the keys left", desk.present(), ["metrics:completed"])


@scenario("flow_another_life", "A dead child that succeeds in another life counts then; its parent is held again.")
def _flow_another_life(desk: Desk) -> None:
    parent, (a, b) = family(desk, 2)
    die(desk, a)
    desk.run(admin.reprocess_job(desk.queue, parent))
    desk.stands(parent, "awaiting_children", "")
    finish(desk, b)
    desk.stands(parent, "awaiting_children", "")
    desk.run(admin.reprocess_job(desk.queue, a))
    finish(desk, a)
    desk.stands(parent, "pending", "pending")
    desk.expect("the next token of the parent", desk.claim().attempts, 1)
    desk.run(jobs.complete(desk.queue, parent, 1))
    desk.expect("completed", desk.count("completed"), 3)
