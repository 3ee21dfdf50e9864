"""Flows (protocol §8): parents that are held until their children are done, in one queue or across queues.

A flow is a tree of `Node`s. `add` is a `Plan`: one atomic call when all nodes lie in one queue, else parents first,
each node on its own slot; a part that fails leaves the parent held, and adding the same flow again goes on from there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from echomq.protocol.call import Arg, Call, Plan, Reply
from echomq.protocol.checks import check_job, payload_of
from echomq.protocol.errors import InvalidInputError
from echomq.protocol.keys import check_queue, keys
from echomq.protocol.replies import Admission, as_bytes, as_int, as_list, as_text
from echomq.protocol.scripts import script

__all__ = [
    "MAX_LEVELS",
    "Node",
    "OnDeath",
    "add",
    "children_values",
    "deliver",
    "failures",
    "ignored_failures",
    "outbox",
    "outstanding",
    "reject",
    "settle",
]

MAX_LEVELS = 8

_ADD = script("flow_add")
_DELIVER = script("flow_deliver")
_RECORDED = script("flow_recorded")
_REJECT = script("flow_reject")


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


def _walk(root: Node) -> Iterator[tuple[Node, Node | None]]:
    """Every node with its parent, parents first, checked."""
    seen: set[str] = set()
    level: list[tuple[Node, Node | None]] = [(root, None)]
    for depth in range(1, MAX_LEVELS + 2):
        if not level:
            return
        if depth > MAX_LEVELS:
            raise InvalidInputError(f"flow {root.id} is deeper than {MAX_LEVELS} levels, at {level[0][0].id}")
        following: list[tuple[Node, Node | None]] = []
        for node, parent in level:
            check_queue(node.queue)
            if check_job(node.id) in seen:
                raise InvalidInputError(f"flow {root.id} names {node.id} twice: every node is a job of its own")
            seen.add(node.id)
            payload_of(node.payload)
            yield node, parent
            following += [(child, node) for child in node.children]
        level = following


def _admissions(reply: Reply) -> tuple[Admission, ...]:
    return tuple(Admission.ADMITTED if as_int(item) else Admission.DUPLICATE for item in as_list(reply))


def _step(queue: str, nodes: list[tuple[Node, Node | None]]) -> Call[tuple[Admission, ...]]:
    args: list[Arg] = []
    for node, parent in nodes:
        link = node.on_death.value if parent else ""
        if parent and parent.queue != node.queue:
            link += ":" + parent.queue
        args += (node.id, payload_of(node.payload), parent.id if parent else "", link, len(node.children))
    return Call("flow add", (keys(queue).pending,), tuple(args), _admissions, _ADD, subject=nodes[0][0].id)


def add(root: Node) -> Plan[Mapping[str, Admission]]:
    """Adds a flow; gives each node's admission by id. What was there already is left alone and answers DUPLICATE.

    `InvalidInputError` before anything is written: no child at all, an id twice, more than 8 levels.
    """
    nodes = list(_walk(root))
    if not root.children:
        raise InvalidInputError(f"flow {root.id} has no child: a parent waits for at least one; use enqueue")
    if len({node.queue for node, _ in nodes}) == 1:
        verdicts = yield _step(root.queue, nodes)
        return dict(zip((node.id for node, _ in nodes), verdicts, strict=True))
    given: dict[str, Admission] = {}
    for node, parent in nodes:
        known = parent and parent.queue != node.queue and given[parent.id] is Admission.DUPLICATE
        if parent and known and (yield _recorded(parent, node.id)):
            given[node.id] = Admission.DUPLICATE
            continue
        (given[node.id],) = yield _step(node.queue, [(node, parent)])
    return given


def _recorded(parent: Node, child: str) -> Call[bool]:
    row = keys(parent.queue).job(parent.id)

    def decode(reply: Reply) -> bool:
        return as_int(reply) == 1

    return Call(
        "flow recorded",
        (row, row + ":processed", row + ":failed", row + ":unsuccessful"),
        (child,),
        decode,
        _RECORDED,
        subject=child,
    )


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


def _entries(reply: Reply) -> tuple[bytes, ...]:
    return tuple(as_bytes(entry) for entry in as_list(reply))


def outbox(queue: str, *, limit: int = 100) -> Call[tuple[bytes, ...]]:
    """The oldest signals that wait to be delivered to parents in other queues, as stored."""
    return Call("flow outbox", (keys(queue).outbox,), (0, limit - 1), _entries, command="LRANGE", subject=queue)


def deliver(entry: bytes) -> Call[int]:
    """The call that brings an outbox entry to its parent; safe to repeat. `InvalidInputError` when malformed."""
    fields = entry.split(b"\0", 3)
    try:
        if entry.startswith(b"\0fail\0"):
            _, _, queue, parent, child, policy, error = entry.split(b"\0", 6)
            if policy not in (b"fp", b"id"):
                raise InvalidInputError(f"unknown policy {policy!r}")
            args: tuple[Arg, ...] = ("fail", parent, child, error, policy)
        else:
            queue, parent, child, result = fields
            args = ("done", parent, child, result, "")
        name = check_queue(queue.decode())
        row = keys(name).job(check_job(parent.decode()))
        check_job(child.decode())
    except (ValueError, UnicodeDecodeError) as error_:
        raise InvalidInputError(f"outbox entry {entry[:200]!r} is malformed: {error_}") from error_
    return Call("flow deliver", (row,), args, as_int, _DELIVER, subject=parent.decode())


def settle(queue: str, entry: bytes) -> Call[int]:
    """Removes a delivered entry by value; 0 when another pump already did."""
    return Call("flow settle", (keys(queue).outbox,), (1, entry), as_int, command="LREM", subject=queue)


def reject(queue: str, entry: bytes) -> Call[int]:
    """Sets a malformed entry aside; 0 when another pump already did."""
    k = keys(queue)
    return Call("flow reject", (k.outbox, k.rejected), (entry,), as_int, _REJECT, subject=queue)
