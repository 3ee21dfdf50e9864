"""Flows in one queue (protocol §8): held parents, fan-in, and adding again."""

from __future__ import annotations

from echomq.conformance.desk import FAR_MS, Desk
from echomq.conformance.scenario import BreachError, scenario
from echomq.protocol import flows, jobs
from echomq.protocol.errors import InvalidInputError
from echomq.protocol.flows import Node, OnDeath
from echomq.protocol.replies import Admission

_DAY_MS = 86_400_000


def family(desk: Desk, children: int = 1, *, on_death: OnDeath = OnDeath.FAIL_PARENT) -> tuple[str, list[str]]:
    """A parent and its children in the desk's queue, added."""
    parent, *ids = desk.mint_many(children + 1)
    nodes = tuple(Node(desk.queue, child, b"c", on_death=on_death) for child in ids)
    desk.run(flows.add(Node(desk.queue, parent, b"p", nodes)))
    return parent, ids


def finish(desk: Desk, child: str, result: bytes = b"") -> None:
    """Claims the child, which has to be the next, and completes it with a result."""
    job = desk.claim()
    desk.expect("the claimed child", job.id, child)
    desk.run(jobs.complete(desk.queue, child, job.token, result=result))


def die(desk: Desk, child: str, error: str = "fatal") -> None:
    """Claims the child, which has to be the next, and buries it."""
    job = desk.claim()
    desk.expect("the claimed child", job.id, child)
    desk.run(jobs.retry(desk.queue, child, job.token, delay_ms=0, max_attempts=job.attempts, error=error))


@scenario(
    "flow_add", "A parent is held, in no set, waiting for its children, which can be claimed; it carries no group."
)
def _flow_add(desk: Desk) -> None:
    parent, (a, b) = family(desk, 2)
    desk.expect("the parent", desk.row(parent), {"state": b"awaiting_children", "attempts": b"0", "payload": b"p"})
    desk.expect("its places", desk.places(parent), [])
    desk.expect("its count", desk.raw("GET", desk.row_key(parent, ":dependencies")), b"2")
    row = {"state": b"pending", "attempts": b"0", "payload": b"c", "parent": parent.encode(), "parent_policy": b"fp"}
    desk.expect("a child", desk.row(a), row)
    desk.expect("pending", desk.members(desk.keys.pending), [a, b])
    desk.expect("the wake tokens", desk.tokens(), 2)


@scenario(
    "flow_bad", "A parent without a child, a repeated id and a ninth level are refused before anything is written."
)
def _flow_bad(desk: Desk) -> None:
    ids = desk.mint_many(9)
    chain = Node(desk.queue, ids[8], b"p")
    for job_id in ids[7::-1]:
        chain = Node(desk.queue, job_id, b"p", (chain,))
    twice = Node(desk.queue, ids[1], b"p", (Node(desk.queue, ids[0], b"p"),))
    for root in (Node(desk.queue, ids[0], b"p"), Node(desk.queue, ids[0], b"p", (twice,)), chain):
        try:
            desk.run(flows.add(root))
        except InvalidInputError:
            continue
        raise BreachError("a flow that cannot be was taken")
    desk.expect("the keys", desk.present(), [])


@scenario("flow_fanin", "The last child's completion releases the parent, and each child counts once.")
def _flow_fanin(desk: Desk) -> None:
    parent, (a, b) = family(desk, 2)
    finish(desk, a)
    desk.stands(parent, "awaiting_children", "")
    desk.expect("its count", desk.run(flows.outstanding(desk.queue, parent)), 1)
    desk.run(flows.deliver(f"{desk.queue}\0{parent}\0{a}\0".encode()))
    desk.expect("its count, once more", desk.run(flows.outstanding(desk.queue, parent)), 1)
    desk.drop_tokens()
    finish(desk, b)
    desk.stands(parent, "pending", "pending")
    desk.expect("the wake tokens", desk.tokens(), 1)
    desk.expect("its count", desk.run(flows.outstanding(desk.queue, parent)), 0)
    desk.expect("the next claim", desk.claim().id, parent)


@scenario("flow_children_values", "The results of the children are kept beside the parent by child id, whatever bytes.")
def _flow_children_values(desk: Desk) -> None:
    parent, (a, b) = family(desk, 2)
    finish(desk, a, b"one\0\xff")
    finish(desk, b)
    desk.expect(":processed", desk.hash(desk.row_key(parent, ":processed")), {a: b"one\0\xff", b: b""})
    desk.expect("the read", desk.run(flows.children_values(desk.queue, parent)), {a: b"one\0\xff", b: b""})


@scenario("flow_grandchild", "A flow of three levels is released from below, a level at a time.")
def _flow_grandchild(desk: Desk) -> None:
    root, middle, leaf = desk.mint_many(3)
    tree = Node(desk.queue, root, b"r", (Node(desk.queue, middle, b"m", (Node(desk.queue, leaf, b"l"),)),))
    desk.run(flows.add(tree))
    desk.expect("pending", desk.members(desk.keys.pending), [leaf])
    finish(desk, leaf)
    desk.stands(middle, "pending", "pending")
    desk.stands(root, "awaiting_children", "")
    finish(desk, middle)
    desk.stands(root, "pending", "pending")


@scenario("flow_deep", "A flow may be 8 levels deep.")
def _flow_deep(desk: Desk) -> None:
    ids = desk.mint_many(8)
    node = Node(desk.queue, ids[7], b"p")
    for job_id in ids[6::-1]:
        node = Node(desk.queue, job_id, b"p", (node,))
    desk.run(flows.add(node))
    for job_id in ids[::-1]:
        finish(desk, job_id)
    desk.expect("completed", desk.count("completed"), 8)


@scenario("flow_add_bulk", "Many flows can be added in a row, and a parent of hundreds waits for them all.")
def _flow_add_bulk(desk: Desk) -> None:
    parents = desk.mint_many(3)
    trees = [
        Node(desk.queue, parent, b"p", tuple(Node(desk.queue, i, b"c") for i in desk.mint_many(2)))
        for parent in parents
    ]
    verdicts = desk.run(flows.add_bulk(trees))
    desk.expect("admitted", [set(each.values()) for each in verdicts], [{Admission.ADMITTED}] * 3)
    counts = [desk.run(flows.outstanding(desk.queue, parent)) for parent in parents]
    desk.expect("what each waits for", counts, [2, 2, 2])
    big, ids = family(desk, 400)
    desk.expect("what the big one waits for", desk.run(flows.outstanding(desk.queue, big)), 400)
    claims = desk.run(jobs.claim_many(desk.queue, 500)).jobs
    desk.expect("claimed", len(claims), 406)
    desk.run(jobs.complete_many(desk.queue, [(job.id, job.token) for job in claims]))
    desk.expect("the released", desk.members(desk.keys.pending), [*parents, big])
    desk.expect("recorded", desk.raw("HLEN", desk.row_key(big, ":processed")), len(ids))


@scenario("flow_readd", "Adding a flow again leaves rows alone, skips children already recorded, and says so.")
def _flow_readd(desk: Desk) -> None:
    parent, a, b = desk.mint_many(3)
    flow = Node(desk.queue, parent, b"p", (Node(desk.queue, a, b"a"), Node(desk.queue, b, b"b")))
    verdicts = desk.run(flows.add(flow))
    desk.expect("the first verdicts", set(verdicts.values()), {Admission.ADMITTED})
    finish(desk, a, b"done")
    before = desk.dump()
    again = desk.run(flows.add(flow))
    desk.expect("the second verdicts", again, dict.fromkeys((parent, a, b), Admission.DUPLICATE))
    desk.unwritten("adding a flow again", before)
    finish(desk, b)
    finish(desk, parent)
    before = desk.dump()
    desk.expect("once finished", set(desk.run(flows.add(flow)).values()), {Admission.DUPLICATE})
    desk.unwritten("adding a finished flow again", before)


@scenario(
    "flow_stranger",
    "A node whose id another job has, alone or of another flow, is refused before anything is written, and names it.",
)
def _flow_stranger(desk: Desk) -> None:
    alone, middle = desk.job(), desk.job()
    other, (foreign,) = family(desk)
    for taken in (alone, foreign, other):
        leaves = (Node(desk.queue, desk.mint(), b"c"), Node(desk.queue, taken, b"c"))
        low = Node(desk.queue, desk.mint(), b"m", leaves)
        desk.refused_plan(
            flows.add(Node(desk.queue, desk.mint(), b"p", (low,))), f"EMQSTATE flow add {taken} not of this flow"
        )
    root = Node(desk.queue, middle, b"p", (Node(desk.queue, desk.mint(), b"c"),))
    desk.refused_plan(flows.add(root), f"EMQSTATE flow add {middle} not a parent")


@scenario(
    "flow_other_children",
    "A parent that was added with other children is refused, nothing written: a fresh child would release it early.",
)
def _flow_other_children(desk: Desk) -> None:
    parent, ids = family(desk, 2)
    fresh = [Node(desk.queue, job_id, b"c") for job_id in desk.mint_many(2)]
    there = [Node(desk.queue, job_id, b"c") for job_id in ids]
    for children in (fresh, fresh[:1], [*there, *fresh[:1]]):
        root = Node(desk.queue, parent, b"p", tuple(children))
        desk.refused_plan(flows.add(root), f"EMQSTATE flow add {parent} has other children")
    other = desk.neighbour()
    far = Node(desk.queue, parent, b"p", (Node(other.queue, other.mint(), b"c"),))
    desk.refused_plan(flows.add(far), f"EMQSTATE flow add {parent} has other children")
    desk.expect("the neighbour's keys", other.present(), [])


@scenario("flow_readd_taken", "Adding a flow again is safe where a recorded child's id has become another job's.")
def _flow_readd_taken(desk: Desk) -> None:
    parent, a, b = desk.mint_many(3)
    flow = Node(desk.queue, parent, b"p", (Node(desk.queue, a, b"a"), Node(desk.queue, b, b"b")))
    desk.run(flows.add(flow))
    finish(desk, a)
    desk.run(jobs.enqueue(desk.queue, a, b"another"))
    before = desk.dump()
    desk.expect("the verdicts", set(desk.run(flows.add(flow)).values()), {Admission.DUPLICATE})
    desk.unwritten("adding a flow again", before)


@scenario("flow_guard", "A finished parent's subkeys stay one day by TTL, as guards against redelivery.")
def _flow_guard(desk: Desk) -> None:
    parent, (child,) = family(desk)
    finish(desk, child, b"r")
    finish(desk, parent)
    desk.expect("the row", desk.row(parent), {})
    for subkey in (":processed", ":dependencies"):
        left = desk.raw("PTTL", desk.row_key(parent, subkey))
        desk.between(f"the PTTL of {subkey}", left, _DAY_MS - 60_000, _DAY_MS)
    before = desk.dump()
    desk.run(flows.deliver(f"{desk.queue}\0{parent}\0{child}\0again".encode()))
    desk.unwritten("a redelivery to a finished parent", before)


@scenario("flow_unleased", "A child counts when its row is retired, leased or not, and only a held parent is released.")
def _flow_unleased(desk: Desk) -> None:
    parent, (child,) = family(desk)
    desk.claim()
    desk.lapse(child)
    desk.run(jobs.reap(desk.queue))
    desk.run(jobs.complete(desk.queue, child, 1))
    desk.stands(parent, "pending", "pending")
    late, (first, second) = family(desk, 2)
    desk.expect("the claimed job", desk.claim().id, parent)
    die(desk, first)
    desk.stands(late, "dead", "dead")
    finish(desk, second)
    desk.stands(late, "dead", "dead")


@scenario("flow_retry_delay", "A child that is retried or put off does not count.")
def _flow_retry(desk: Desk) -> None:
    parent, (child,) = family(desk)
    desk.run(jobs.retry(desk.queue, child, desk.claim().token, delay_ms=FAR_MS, max_attempts=9, error="e"))
    desk.fall_due(child)
    desk.run(jobs.promote(desk.queue))
    desk.run(jobs.delay(desk.queue, child, desk.claim().token, delay_ms=FAR_MS))
    desk.stands(parent, "awaiting_children", "")
    desk.expect("its count", desk.run(flows.outstanding(desk.queue, parent)), 1)
