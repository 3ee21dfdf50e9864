"""Flows across queues (protocol §8): the outbox, its delivery, and what cannot be delivered."""

from __future__ import annotations

from echomq.conformance.desk import Desk
from echomq.conformance.scenario import BreachError, scenario
from echomq.conformance.scenarios.flows import die, finish
from echomq.protocol import admin, flows, jobs
from echomq.protocol.audit import audit
from echomq.protocol.errors import InvalidInputError
from echomq.protocol.flows import Node, OnDeath
from echomq.protocol.replies import Admission, Completion


def _across(
    desk: Desk, children: int = 1, *, on_death: OnDeath = OnDeath.FAIL_PARENT
) -> tuple[Desk, Node, str, list[str]]:
    """A parent at the desk and its children at a neighbour's, added."""
    other = desk.neighbour()
    (parent,) = desk.mint_many(1)
    ids = other.mint_many(children)
    nodes = tuple(Node(other.queue, child, b"c", on_death=on_death) for child in ids)
    flow = Node(desk.queue, parent, b"p", nodes)
    desk.run(flows.add(flow))
    return other, flow, parent, ids


def _pump(desk: Desk) -> int:
    """Delivers what lies in the desk's outbox, as a pump does; how many entries."""
    entries = desk.run(flows.outbox(desk.queue))
    for entry in entries:
        desk.run(flows.deliver(entry))
        desk.run(flows.settle(desk.queue, entry))
    return len(entries)


@scenario(
    "flow_cross_queue", "A child in another queue leaves a signal in its own outbox, delivered by the sweep, once."
)
def _flow_cross_queue(desk: Desk) -> None:
    other, _flow, parent, (child,) = _across(desk)
    desk.expect("the child's parent", other.field(child, "parent_queue"), desk.queue.encode())
    finish(other, child, b"a\0b\xff")
    entry = f"{desk.queue}\0{parent}\0{child}\0a\0b".encode() + b"\xff"
    desk.expect("the outbox", other.raw("LRANGE", other.keys.outbox, 0, -1), [entry])
    desk.stands(parent, "awaiting_children", "")
    desk.expect("delivered", _pump(other), 1)
    desk.stands(parent, "pending", "pending")
    desk.expect(":processed", desk.hash(desk.row_key(parent, ":processed")), {child: b"a\0b\xff"})
    before = desk.dump()
    desk.run(flows.deliver(entry))
    desk.unwritten("a second delivery", before)
    desk.expect("the outbox then", other.items(other.keys.outbox), [])


@scenario("flow_cross_death", "A death crosses queues as a signal with its policy, and goes on up from there.")
def _flow_cross_death(desk: Desk) -> None:
    other, _flow, parent, (child,) = _across(desk)
    die(other, child, "lost\0it")
    entry = f"\0fail\0{desk.queue}\0{parent}\0{child}\0fp\0lost\0it".encode()
    desk.expect("the outbox", other.raw("LRANGE", other.keys.outbox, 0, -1), [entry])
    _pump(other)
    desk.stands(parent, "dead", "dead")
    desk.expect(":failed", desk.hash(desk.row_key(parent, ":failed")), {child: b"lost\0it"})
    third, _flow, ignoring, (ignored,) = _across(desk, on_death=OnDeath.IGNORE)
    die(third, ignored)
    _pump(third)
    desk.stands(ignoring, "pending", "pending")


@scenario("flow_cross_levels", "A tree over three queues is released, and fails, through every one of them.")
def _flow_cross_levels(desk: Desk) -> None:
    low, middle = desk.neighbour(), desk.neighbour()
    for dies in (False, True):
        root, branch, leaf = desk.mint_many(1)[0], middle.mint_many(1)[0], low.mint_many(1)[0]
        tree = Node(desk.queue, root, b"r", (Node(middle.queue, branch, b"m", (Node(low.queue, leaf, b"l"),)),))
        desk.run(flows.add(tree))
        (die if dies else finish)(low, leaf)
        _pump(low)
        if not dies:
            finish(middle, branch)
        _pump(middle)
        place = ("dead", "dead") if dies else ("pending", "pending")
        desk.stands(root, *place)


@scenario(
    "flow_cross_readd", "A flow across queues that was added in part goes on from there; done children stay done."
)
def _flow_cross_readd(desk: Desk) -> None:
    other, flow, parent, (a, b) = _across(desk, 2)
    other.raw("DEL", other.row_key(b))
    other.raw("ZREM", other.keys.pending, b)
    finish(other, a)
    _pump(other)
    verdicts = desk.run(flows.add(flow))
    old, new = Admission.DUPLICATE, Admission.ADMITTED
    desk.expect("the verdicts", verdicts, {parent: old, a: old, b: new})
    desk.expect("the parent's count", desk.run(flows.outstanding(desk.queue, parent)), 1)
    finish(other, b)
    _pump(other)
    desk.stands(parent, "pending", "pending")


@scenario(
    "flow_cross_stranger",
    "A flow across queues of which an id is another job's is refused before anything is written.",
)
def _flow_cross_stranger(desk: Desk) -> None:
    other = desk.neighbour()
    taken, free = other.job(), other.mint()
    root = Node(desk.queue, desk.mint(), b"p", (Node(other.queue, free, b"c"), Node(other.queue, taken, b"c")))
    before = other.dump()
    desk.refused_plan(flows.add(root), f"EMQSTATE flow add {taken} not of this flow")
    other.unwritten("a flow that names another's job", before)


@scenario(
    "flow_late_stranger",
    "An id that another job takes while a flow is added leaves the parent held; once it is free, adding goes on.",
)
def _flow_late_stranger(desk: Desk) -> None:
    other, parent = desk.neighbour(), desk.mint()
    a, b = other.mint_many(2)
    flow = Node(desk.queue, parent, b"p", (Node(other.queue, a, b"c"), Node(other.queue, b, b"c")))
    plan = flows.add(flow)
    call = next(plan)
    while call.subject != a or call.verb != "flow add":
        call = plan.send(desk.run(call))
    other.run(jobs.enqueue(other.queue, b, b"another"))
    other.refused(call, f"EMQSTATE flow add {b} not of this flow")
    plan.close()
    desk.stands(parent, "awaiting_children", "")
    desk.expect("what the audit names", [breach.subject for breach in desk.run(audit(desk.queue))], [parent])
    other.run(admin.remove_job(other.queue, b))
    desk.run(flows.add(flow))
    desk.expect("what it names then", desk.run(audit(desk.queue)), ())
    for child in (a, b):
        finish(other, child)
    _pump(other)
    desk.stands(parent, "pending", "pending")


@scenario(
    "outbox_by_value", "Two pumps at one outbox, each with its own reading, lose no entry and release a parent once."
)
def _outbox_by_value(desk: Desk) -> None:
    other, _flow, parent, ids = _across(desk, 4)
    for child in ids[:2]:
        finish(other, child)
    first, second = (list(other.run(flows.outbox(other.queue))) for _ in range(2))
    for child in ids[2:]:
        finish(other, child)
    removed: list[int] = []
    for entry in first:
        desk.run(flows.deliver(entry))
        removed.append(other.run(flows.settle(other.queue, entry)))
    for entry in second:
        desk.run(flows.deliver(entry))
        removed.append(other.run(flows.settle(other.queue, entry)))
    desk.expect("entries removed by each", removed, [1, 1, 0, 0])
    desk.expect("the outbox keeps the rest", [text.split("\0")[2] for text in other.items(other.keys.outbox)], ids[2:])
    desk.stands(parent, "awaiting_children", "")
    desk.expect("the parent's count", desk.run(flows.outstanding(desk.queue, parent)), 2)
    desk.expect("the rest", _pump(other), 2)
    desk.stands(parent, "pending", "pending")


@scenario("outbox_own_queue", "A signal's parent_queue may be the queue itself.")
def _outbox_own_queue(desk: Desk) -> None:
    parent, child = desk.mint_many(2)
    desk.run(flows.add(Node(desk.queue, parent, b"p", (Node(desk.queue, child, b"c"),))))
    desk.raw("HSET", desk.row_key(child), "parent_queue", desk.queue)
    finish(desk, child)
    desk.expect("delivered", _pump(desk), 1)
    desk.stands(parent, "pending", "pending")


@scenario(
    "outbox_rejected", "A malformed entry is set aside in flow:rejected, never blocks, and 1,000 are kept at most."
)
def _outbox_rejected(desk: Desk) -> None:
    other, _flow, parent, (child,) = _across(desk)
    junk = [b"", b"junk", b"q\0JOB", b"q\0ORD0KHTOWnGLuC\0x\0y", b"\0fail\0q\0x", b"a b\0%b\0%b\0r" % (b"J" * 14, b"J")]
    for entry in junk:
        other.raw("RPUSH", other.keys.outbox, entry)
    finish(other, child)
    for entry in other.run(flows.outbox(other.queue)):
        try:
            call = flows.deliver(entry)
        except InvalidInputError:
            desk.expect(f"{entry!r} set aside", other.run(flows.reject(other.queue, entry)), 1)
        else:
            desk.run(call)
            other.run(flows.settle(other.queue, entry))
    desk.stands(parent, "pending", "pending")
    desk.expect("the outbox", other.items(other.keys.outbox), [])
    desk.expect("set aside", other.raw("LRANGE", other.keys.rejected, 0, -1), junk[::-1])
    if other.run(flows.reject(other.queue, b"junk")) != 0:
        raise BreachError("an entry was set aside that another pump had already taken")
    other.raw("RPUSH", other.keys.rejected, *(["old"] * 1_200))
    other.raw("RPUSH", other.keys.outbox, "one more")
    other.run(flows.reject(other.queue, b"one more"))
    desk.expect("how many are kept", other.raw("LLEN", other.keys.rejected), 1_000)
    desk.expect("the newest", other.items(other.keys.rejected)[0], "one more")


@scenario("outbox_parent_gone", "A signal to a parent that is gone is dropped, and nothing is created for it.")
def _outbox_parent_gone(desk: Desk) -> None:
    parent, child = desk.mint_many(2)
    for entry in (f"{desk.queue}\0{parent}\0{child}\0r", f"\0fail\0{desk.queue}\0{parent}\0{child}\0fp\0e"):
        desk.run(flows.deliver(entry.encode()))
    desk.expect("the keys", desk.present(), [])


@scenario("outbox_batch", "A batch of completions says of each job whether it left a signal in the outbox.")
def _outbox_batch(desk: Desk) -> None:
    other, _flow, _parent, (child,) = _across(desk)
    other.claim()
    plain = other.in_hand()
    answers = other.run(jobs.complete_many(other.queue, [(child, 1), (plain.id, 1)]))
    desk.expect("the answers", answers, (Completion.SIGNALLED, Completion.RETIRED))
    desk.expect("signals", other.raw("LLEN", other.keys.outbox), 1)
    _pump(other)
