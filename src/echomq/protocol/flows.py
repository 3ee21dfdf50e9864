"""Flows (protocol §8): parents that are held until their children are done, in one queue or across queues.

A flow is a tree of `Node`s. `add` is a `Plan`: one atomic call when all nodes lie in one queue, else level by level,
a call a queue, parents first; a part that fails leaves the parent held, and adding the same flow again goes on from
there. An id that another job has is refused before anything is written: its end would never reach the parent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from echomq.protocol.call import Arg, Call, Plan, Reply
from echomq.protocol.checks import check_job, integer, payload_of
from echomq.protocol.errors import InvalidInputError, StateError, from_reply
from echomq.protocol.keys import check_queue, keys
from echomq.protocol.replies import (
    Admission,
    admissions,
    as_blobs,
    as_bytes,
    as_flag,
    as_int,
    as_list,
    as_text,
    as_texts,
)
from echomq.protocol.scripts import script

__all__ = [
    "MAX_LEVELS",
    "Doubted",
    "Node",
    "OnDeath",
    "Relayed",
    "add",
    "add_bulk",
    "children_values",
    "deliver",
    "failures",
    "ignored_failures",
    "offer",
    "outbox",
    "outstanding",
    "reject",
    "rejected",
    "settle",
    "withdraw",
]

MAX_LEVELS = 8

_STEP = 1_000
"""Nodes in one call of a flow that spans queues."""

_ADD = script("flow_add")
_DELIVER = script("flow_deliver")
_RECORDED = script("flow_recorded")
_REJECT = script("flow_reject")
_STRANGERS = script("flow_strangers")
_THERE = script("flow_there")
_WITHDRAW = script("flow_withdraw")


class OnDeath(Enum):
    """What a child's death means to its parent."""

    FAIL_PARENT = "fp"
    IGNORE = "id"


@dataclass(frozen=True, slots=True)
class Node:
    """A job of a flow, and the jobs it waits for."""

    queue: str
    id: str
    payload: bytes | str
    children: tuple[Node, ...] = ()
    on_death: OnDeath = field(default=OnDeath.FAIL_PARENT)


_Placed = tuple[Node, Node | None]
"""A node and its parent."""


def _checked(node: Node) -> Node:
    if not isinstance(node, Node):
        raise InvalidInputError(f"a flow is made of Nodes, not {type(node).__name__}: {node!r:.200}")
    check_queue(node.queue)
    check_job(node.id)
    payload_of(node.payload)
    if not isinstance(node.children, tuple):
        raise InvalidInputError(f"children of {node.id} must be a tuple of Nodes, not {type(node.children).__name__}")
    if not isinstance(node.on_death, OnDeath):
        raise InvalidInputError(f"on_death of {node.id} must be an OnDeath, not {node.on_death!r}")
    return node


def _levels(root: Node, seen: set[str]) -> list[list[_Placed]]:
    """The flow, checked, level by level; a cycle shows as an id that comes twice."""
    levels: list[list[_Placed]] = []
    level: list[_Placed] = [(root, None)]
    while level:
        if len(levels) == MAX_LEVELS:
            raise InvalidInputError(f"flow {root.id} is deeper than {MAX_LEVELS} levels, at {level[0][0].id}")
        following: list[_Placed] = []
        for node, parent in level:
            if _checked(node).id in seen:
                raise _again(root, node, parent, levels)
            seen.add(node.id)
            following += [(child, node) for child in node.children]
        levels.append(level)
        level = following
    if not root.children:
        raise InvalidInputError(f"flow {root.id} has no child: a parent waits for at least one; use enqueue")
    return levels


def _again(root: Node, node: Node, parent: Node | None, levels: Sequence[Sequence[_Placed]]) -> InvalidInputError:
    above = {each.id: its for level in levels for each, its in level}
    way = [node.id]
    while parent is not None:
        way.insert(0, parent.id)
        if parent.id == node.id:
            return InvalidInputError(
                f"flow {root.id} has a cycle: {node.id} is below itself ({' > '.join(way)}), and would wait for its "
                "own end; give the lower node an id of its own"
            )
        parent = above.get(parent.id)
    return InvalidInputError(f"flow {root.id} names {node.id} twice: every node is a job of its own, with its own id")


def _step(queue: str, nodes: Sequence[_Placed]) -> Call[tuple[Admission, ...]]:
    args: list[Arg] = []
    for node, parent in nodes:
        link = ""
        if parent:
            link = node.on_death.value + (parent.queue if parent.queue != queue else "")
        args += (node.id, payload_of(node.payload), parent.id if parent else "", link, len(node.children))
    return Call("flow add", (keys(queue).pending,), tuple(args), admissions, _ADD, subject=nodes[0][0].id)


def _flags(reply: Reply) -> tuple[bool, ...]:
    return tuple(as_flag(item) for item in as_list(reply))


def _there(queue: str, nodes: Sequence[tuple[Node, Node]]) -> Call[tuple[bool, ...]]:
    args: list[Arg] = []
    for node, parent in nodes:
        args += (node.id, parent.id, parent.queue)
    return Call("flow there", (keys(queue).outbox,), tuple(args), _flags, _THERE, subject=nodes[0][0].id)


class Need(Enum):
    """What a parent's queue says of a child."""

    WAITS = 0
    SETTLED = 1
    NO_PARENT = 2


def _needs(reply: Reply) -> tuple[Need, ...]:
    return tuple(Need(as_int(item)) for item in as_list(reply))


def _recorded(parent: Node, children: Sequence[str]) -> Call[tuple[Need, ...]]:
    row = keys(parent.queue).job(parent.id)
    subkeys = (":processed", ":failed", ":unsuccessful", ":dependencies", ":result")
    names = (row, *(row + subkey for subkey in subkeys))
    return Call("flow recorded", names, tuple(children), _needs, _RECORDED, subject=parent.id)


def _strangers(queue: str, nodes: Sequence[_Placed]) -> Call[tuple[str, ...]]:
    args: list[Arg] = []
    for node, parent in nodes:
        elsewhere = parent.queue if parent and parent.queue != queue else ""
        args += (node.id, parent.id if parent else "", elsewhere, len(node.children))
    return Call("flow strangers", (keys(queue).pending,), tuple(args), as_texts, _STRANGERS, subject=nodes[0][0].id)


def _needed(placed: _Placed, above: Mapping[str, Node | None]) -> Plan[bool]:
    """Whether a node is still to be added: it is not when a parent on the way up is finished or has recorded it."""
    node, parent = placed
    while parent is not None:
        (need,) = yield _recorded(parent, [node.id])
        if need is not Need.NO_PARENT:
            return need is Need.WAITS
        node, parent = parent, above.get(parent.id)
    return True


def _unclaimed(levels: Iterable[Sequence[_Placed]]) -> Plan[None]:
    """Refuses, with nothing written, a flow of which an id is another job's; its parts are added by several calls."""
    whole = [placed for level in levels for placed in level]
    above = {node.id: parent for node, parent in whole}
    for queue in dict.fromkeys(node.queue for node, _ in whole):
        mine = [placed for placed in whole if placed[0].queue == queue]
        for start in range(0, len(mine), _STEP):
            nodes = mine[start : start + _STEP]
            for placed, why in zip(nodes, (yield _strangers(queue, nodes)), strict=True):
                if why and (yield from _needed(placed, above)):
                    job_id = placed[0].id
                    raise from_reply(f"EMQSTATE flow add {job_id} {why}", verb="flow add", subject=job_id)


def _added(queue: str, nodes: Sequence[_Placed], given: Mapping[str, Admission]) -> Plan[dict[str, Admission]]:
    """One call of an add. `StateError` for an id that another job has taken meanwhile, and what is held for it."""
    try:
        verdicts = yield _step(queue, nodes)
    except StateError as error:
        parent = next((parent for node, parent in nodes if parent and node.id in error.reply), None)
        if parent is None or parent.id not in given:
            raise
        raise StateError(
            f"{error}; the flow is added in part, and {parent.id} in queue {parent.queue} is held for ever: "
            "remove_job that one, or free the id and add the same flow again",
            reply=error.reply,
        ) from error
    return dict(zip((node.id for node, _ in nodes), verdicts, strict=True))


def _known(queue: str, nodes: Sequence[_Placed], given: Mapping[str, Admission]) -> Plan[set[str]]:
    """The nodes whose parent lies elsewhere, was there before, and needs them no more.

    First the child's queue, then the parent's: a signal that is on its way is seen in one of them.
    """
    asked = [
        (node, parent)
        for node, parent in nodes
        if parent and parent.queue != queue and given[parent.id] is Admission.DUPLICATE
    ]
    if not asked:
        return set()
    there = yield _there(queue, asked)
    known = {node.id for (node, _), yes in zip(asked, there, strict=True) if yes}
    missing: dict[str, tuple[Node, list[str]]] = {}
    for node, parent in asked:
        if node.id not in known:
            missing.setdefault(parent.id, (parent, []))[1].append(node.id)
    for parent, children in missing.values():
        needs = yield _recorded(parent, children)
        known |= {child for child, need in zip(children, needs, strict=True) if need is not Need.WAITS}
    return known


def _spread(levels: Sequence[Sequence[_Placed]]) -> Plan[Mapping[str, Admission]]:
    """Adds a flow that spans queues: level by level, so that a parent is held before its first child can end."""
    given: dict[str, Admission] = {}
    for level in levels:
        for queue in dict.fromkeys(node.queue for node, _ in level):
            mine = [placed for placed in level if placed[0].queue == queue]
            for start in range(0, len(mine), _STEP):
                nodes = mine[start : start + _STEP]
                known = yield from _known(queue, nodes, given)
                given |= dict.fromkeys(known, Admission.DUPLICATE)
                rest = [placed for placed in nodes if placed[0].id not in known]
                if rest:
                    given |= yield from _added(queue, rest, given)
    return given


def _flat(levels: Iterable[Iterable[_Placed]]) -> Iterator[_Placed]:
    for level in levels:
        yield from level


def _together(flows: Sequence[list[list[_Placed]]]) -> Plan[tuple[Mapping[str, Admission], ...]]:
    given: dict[str, Admission] = {}
    whole: dict[str, list[_Placed]] = {}
    spread: list[list[list[_Placed]]] = []
    for levels in flows:
        queues = {node.queue for node, _ in _flat(levels)}
        if len(queues) == 1:
            whole.setdefault(queues.pop(), []).extend(_flat(levels))
        else:
            spread.append(levels)
    if spread or len(whole) > 1:
        # The first call of all refuses by itself with nothing written: of a flow alone, that is its root's.
        first = 1 if len(flows) == 1 else 0
        yield from _unclaimed(level for levels in flows for level in levels[first:])
    for queue, nodes in whole.items():
        given |= yield from _added(queue, nodes, {})
    for levels in spread:
        given |= yield from _spread(levels)
    return tuple({node.id: given[node.id] for node, _ in _flat(levels)} for levels in flows)


def add_bulk(roots: Iterable[Node]) -> Plan[tuple[Mapping[str, Admission], ...]]:
    """Adds flows, each as `add` would; those that lie in one queue share one atomic call a queue.

    All are checked before anything is written, and no id may come twice in the whole of them. Raises as `add` does.
    """
    seen: set[str] = set()
    return _together([_levels(root, seen) for root in roots])


def _only(plan: Plan[tuple[Mapping[str, Admission], ...]]) -> Plan[Mapping[str, Admission]]:
    (given,) = yield from plan
    return given


def add(root: Node) -> Plan[Mapping[str, Admission]]:
    """Adds a flow; gives each node's admission by id. What was there already is left alone and answers DUPLICATE.

    `InvalidInputError` before anything is written: no child at all, an id twice, more than 8 levels. `StateError`,
    also with nothing written: an id has another job's row, alone or of another flow. Only when that job came while
    a flow across queues was being added is a parent held, and the error says which and what to do (`remove_job`).
    """
    return _only(add_bulk([root]))


def _by_child(reply: Reply) -> dict[str, bytes]:
    if isinstance(reply, dict):
        return {as_text(child): as_bytes(value) for child, value in reply.items()}
    items = as_list(reply)
    return {as_text(items[i]): as_bytes(items[i + 1]) for i in range(0, len(items), 2)}


def _record(queue: str, job_id: str, kind: str) -> Call[dict[str, bytes]]:
    name = f"{keys(queue).job(check_job(job_id))}:{kind}"
    return Call(f"flow {kind}", (name,), (), _by_child, command="HGETALL", subject=job_id)


def children_values(queue: str, job_id: str) -> Call[dict[str, bytes]]:
    """The results of a parent's children that are done, by child id."""
    return _record(queue, job_id, "processed")


def failures(queue: str, job_id: str) -> Call[dict[str, bytes]]:
    """The errors of the children that failed this parent, by child id."""
    return _record(queue, job_id, "failed")


def ignored_failures(queue: str, job_id: str) -> Call[dict[str, bytes]]:
    """The errors of the children whose death counts as done, by child id."""
    return _record(queue, job_id, "unsuccessful")


def outstanding(queue: str, job_id: str) -> Call[int]:
    """How many children a parent still waits for."""

    def decode(reply: Reply) -> int:
        return 0 if reply is None else as_int(reply)

    name = keys(queue).job(check_job(job_id)) + ":dependencies"
    return Call("flow outstanding", (name,), (), decode, command="GET", subject=job_id)


def outbox(queue: str, *, limit: int = 100) -> Call[tuple[bytes, ...]]:
    """The oldest signals that wait to be delivered to parents in other queues, as stored."""
    args = (0, integer("limit", limit, least=1) - 1)
    return Call("flow outbox", (keys(queue).outbox,), args, as_blobs, command="LRANGE", subject=queue)


@dataclass(frozen=True, slots=True)
class Relayed:
    """What the parent's own death has put into its queue's outbox, to be delivered to the next parent."""

    queue: str
    entry: bytes


@dataclass(frozen=True, slots=True)
class Doubted:
    """A death that its parent, which is held again, has on record: that one, heard again, or one of a later life."""

    child: str


def _signal(entry: bytes) -> tuple[str, str, str, tuple[Arg, ...]]:
    """What an entry says: the parent's queue, parent, child, and the arguments that bring it there."""
    if not isinstance(entry, bytes):
        raise InvalidInputError(f"an outbox entry must be bytes, not {type(entry).__name__}: {entry!r:.200}")
    try:
        if entry.startswith(b"\0fail\0"):
            _, _, queue, parent, child, policy, error = entry.split(b"\0", 6)
            if policy not in (b"fp", b"id"):
                raise InvalidInputError(f"unknown policy {policy!r}")
            args: tuple[Arg, ...] = ("fail", parent, child, error, policy)
        else:
            queue, parent, child, result = entry.split(b"\0", 3)
            args = ("done", parent, child, result, "")
        return check_queue(queue.decode()), check_job(parent.decode()), check_job(child.decode()), args
    except (ValueError, UnicodeDecodeError) as error_:
        raise InvalidInputError(f"outbox entry {entry[:200]!r} is malformed: {error_}") from error_


def deliver(entry: bytes) -> Call[Relayed | None]:
    """The call that brings an outbox entry to its parent; safe to repeat. `InvalidInputError` when malformed.

    Where the parent dies of it, and has a parent in another queue itself, it gives the signal to that one: it waits for
    the pump of the parent's queue, or for whoever delivers it, and settles it, at once.

    An entry does not say of which life of the child it is. So one that was delivered before, and comes again when child
    and parent have both been given another life, kills the parent again: `offer` asks first.
    """
    queue, parent, _, args = _signal(entry)

    def decode(reply: Reply) -> Relayed | None:
        return Relayed(queue, reply) if isinstance(reply, bytes) else None

    return Call("flow deliver", (keys(queue).job(parent),), args, decode, _DELIVER, subject=parent)


def offer(entry: bytes) -> Call[Relayed | Doubted | None]:
    """As `deliver`, but a death that its parent has on record, and is held again all the same, changes nothing.

    It is `Doubted`: it may have come again after the child was given another life. Then ask the child's queue by
    `withdraw`: an entry that is not withdrawn there is of a death that stands, to be brought by `deliver`, and settled.
    """
    queue, parent, child, args = _signal(entry)

    def decode(reply: Reply) -> Relayed | Doubted | None:
        if reply == 0:
            return Doubted(child)
        return Relayed(queue, reply) if isinstance(reply, bytes) else None

    return Call("flow offer", (keys(queue).job(parent),), (*args, "offer"), decode, _DELIVER, subject=parent)


def withdraw(queue: str, entry: bytes, child: str) -> Call[bool]:
    """Whether a doubted entry of this queue's outbox is of an earlier life of the child; if so it has left the outbox.

    It is when the child lives, or when the entry lies there no more: another pump has settled it, or `reprocess_job`
    has taken it out. There is nothing to settle then, and settling could take the equal signal of a later death.
    """
    args = (entry, check_job(child))
    return Call("flow withdraw", (keys(queue).outbox,), args, lambda reply: reply == 1, _WITHDRAW, subject=queue)


def settle(queue: str, entry: bytes) -> Call[int]:
    """Removes a delivered entry by value; 0 when another pump already did."""
    return Call("flow settle", (keys(queue).outbox,), (1, entry), as_int, command="LREM", subject=queue)


def reject(queue: str, entry: bytes) -> Call[int]:
    """Sets a malformed entry aside; 0 when another pump already did."""
    k = keys(queue)
    return Call("flow reject", (k.outbox, k.rejected), (entry,), as_int, _REJECT, subject=queue)


def rejected(queue: str, *, limit: int = 100) -> Call[tuple[bytes, ...]]:
    """The newest malformed entries that were set aside, as they came."""
    args = (0, integer("limit", limit, least=1) - 1)
    return Call("flow rejected", (keys(queue).rejected,), args, as_blobs, command="LRANGE", subject=queue)
