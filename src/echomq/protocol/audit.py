"""Audit (protocol §12.1): every breach of a queue's invariants, and the mending of a lane's books."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from echomq.protocol.call import Arg, Call, Plan, Reply
from echomq.protocol.checks import check_job
from echomq.protocol.errors import InvalidInputError
from echomq.protocol.keys import Keys, keys
from echomq.protocol.kin import unreleasable
from echomq.protocol.replies import as_bytes, as_int, as_list
from echomq.protocol.scripts import script
from echomq.protocol.walks import scan

__all__ = ["Breach", "audit"]

_TYPES = script("audit_types")
_IDS = script("audit_ids")
_BOOKS = script("audit_books")

_PAGE = 1_000
_PART = 500

_OF_QUEUE = {
    **dict.fromkeys(("pending", "active", "schedule", "dead", "repeat", "cron", "workers"), "zset"),
    **dict.fromkeys(("ring", "wake", "flow:outbox", "flow:rejected", "owed"), "list"),
    **dict.fromkeys(("glimit", "gactive", "gweight", "lanes", "meta", "workers:info"), "hash"),
    **dict.fromkeys(("metrics:completed", "metrics:failed"), "hash"),
    **dict.fromkeys(("metrics:completed:data", "metrics:failed:data"), "list"),
    **dict.fromkeys(("limiter", "turn"), "string"),
    "paused": "set",
}
"""The keys of a queue whose name is fixed, and the type of each (protocol §2)."""


@dataclass(frozen=True, slots=True)
class Breach:
    """One invariant that does not hold. `subject` is a job id, or the queue for its books."""

    subject: str
    what: str


def _text(reply: Reply) -> str:
    return as_bytes(reply).decode("utf-8", "backslashreplace")


@dataclass(frozen=True, slots=True)
class _Looked:
    """What one call of the audit has seen of a part of the ids."""

    breaches: tuple[Breach, ...]
    held: dict[bytes, int]
    """Parents that wait, and for how many children."""
    awaited_of: tuple[bytes, ...]
    """The parent of each child in this queue that it still waits for."""


def _looked(reply: Reply) -> _Looked:
    found, held, kin = (as_list(part) for part in as_list(reply))
    return _Looked(
        tuple(Breach(_text(found[i]), _text(found[i + 1])) for i in range(0, len(found), 2)),
        {as_bytes(held[i]): as_int(held[i + 1]) for i in range(0, len(held), 2)},
        tuple(as_bytes(parent) for parent in kin),
    )


def _texts(reply: Reply) -> tuple[str, ...]:
    return tuple(_text(item) for item in as_list(reply))


def _members_page(key: bytes, cursor: bytes, queue: str) -> Call[tuple[bytes, tuple[bytes, ...]]]:
    def decode(reply: Reply) -> tuple[bytes, tuple[bytes, ...]]:
        following, items = as_list(reply)
        return as_bytes(following), tuple(as_bytes(item) for item in as_list(items)[::2])

    args = (key, cursor, "COUNT", _PAGE)
    return Call("audit", (), args, decode, command="ZSCAN", subject=queue, home=keys(queue).base)


def _members(key: bytes, queue: str) -> Plan[set[bytes]]:
    found: set[bytes] = set()
    cursor = b"0"
    while True:
        cursor, members = yield _members_page(key, cursor, queue)
        found.update(members)
        if cursor == b"0":
            return found


def _matching(k: Keys, pattern: str) -> Plan[set[bytes]]:
    found: set[bytes] = set()
    cursor = b"0"
    while True:
        cursor, names = yield scan(k, pattern, cursor)
        found.update(names)
        if cursor == b"0":
            return found


def _wrong_types(k: Keys, kinds: Iterable[tuple[bytes, str]]) -> Plan[dict[bytes, Breach]]:
    """Which keys, by what follows the queue's base, hold another type than theirs."""

    def decode(reply: Reply) -> dict[bytes, Breach]:
        words = [as_bytes(word) for word in as_list(reply)]
        return {
            name: Breach(k.queue, f"wrong type: {k.base}{_text(name)} is a {_text(seen)}, not a {_text(kind)}")
            for name, seen, kind in zip(words[::3], words[1::3], words[2::3], strict=True)
        }

    found: dict[bytes, Breach] = {}
    pairs = list(kinds)
    for start in range(0, len(pairs), _PART):
        args: tuple[Arg, ...] = tuple(word for pair in pairs[start : start + _PART] for word in pair)
        found |= yield Call("audit types", (k.pending,), args, decode, _TYPES, subject=k.queue)
    return found


def _is_job(name: bytes) -> bool:
    try:
        check_job(name.decode())
    except (InvalidInputError, UnicodeDecodeError):
        return False
    return True


def audit(queue: str, *, mend: bool = False) -> Plan[tuple[Breach, ...]]:
    """Every breach of §12.1, each looked at in one instant, so that a queue in use shows no false ones.

    A key of another type than its own is a breach by its name; the rest is looked at without it, so that its jobs lie
    in no place then. With `mend`, `gactive` and the ring are set right. It reads every row of the queue and walks the
    server's keys (SCAN), in steps that hold nobody up. A parent that waits for children outside the queue has the rows
    and outboxes of all queues read too; one that waits for more than there are on this server is a breach (protocol
    §8), and so is one that was never told of a child's death in this queue. While a flow across queues is being added,
    its parent looks like the former for the moment between two calls.
    """
    return _audit(keys(queue), mend=mend)


def _audit(k: Keys, *, mend: bool) -> Plan[tuple[Breach, ...]]:
    lanes_of: dict[bytes, tuple[bytes, ...]] = {}
    base = k.base.encode()
    wrong = yield from _wrong_types(k, ((name.encode(), kind) for name, kind in _OF_QUEUE.items()))
    for place in (b"pending", b"active", b"schedule", b"dead"):
        if place not in wrong:
            lanes_of |= dict.fromkeys((yield from _members(base + place, k.queue)), ())
    groups: list[bytes] = []
    lanes = sorted((yield from _matching(k, "g:*:pending")))
    wrong |= yield from _wrong_types(k, ((lane[len(base) :], "zset") for lane in lanes))
    for lane in lanes:
        if lane[len(base) :] in wrong:
            continue
        group = lane[len(base) + len("g:") : -len(":pending")]
        groups.append(group)
        for member in (yield from _members(lane, k.queue)):
            lanes_of[member] = (*lanes_of.get(member, ()), group)
    for row in (yield from _matching(k, "job:*")):
        name = row[len(k.job_prefix.encode()) :]
        if _is_job(name):
            lanes_of.setdefault(name, ())
    breaches: list[Breach] = list(wrong.values())
    held: dict[bytes, int] = {}
    awaited: Counter[bytes] = Counter()
    ids = sorted(lanes_of)
    for start in range(0, len(ids), _PART):
        args: list[Arg] = []
        for each in ids[start : start + _PART]:
            args += (each, len(lanes_of[each]), *lanes_of[each])
        seen = yield Call("audit ids", (k.pending,), tuple(args), _looked, _IDS, subject=k.queue)
        breaches += seen.breaches
        held |= seen.held
        awaited.update(seen.awaited_of)
    suspects = [parent for parent, waits in held.items() if awaited[parent] < waits and _is_job(parent)]
    for parent, (waits, there) in (yield from unreleasable(k, suspects)).items():
        what = f"held for good: it waits for {waits} children, and {there} of them exist"
        breaches.append(Breach(parent.decode(), what))
    words = ("mend" if mend else "", *groups)
    books = Call("audit books", (k.pending,), words, _texts, _BOOKS, subject=k.queue)
    breaches += [Breach(k.queue, what) for what in (yield books)]
    return tuple(breaches)
