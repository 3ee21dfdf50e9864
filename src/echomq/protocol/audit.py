"""Audit (protocol §12.1): every breach of a queue's invariants, and the mending of a lane's books."""

from __future__ import annotations

from dataclasses import dataclass

from echomq.protocol.call import Call, Plan, Reply
from echomq.protocol.checks import check_job
from echomq.protocol.errors import InvalidInputError
from echomq.protocol.keys import keys
from echomq.protocol.replies import as_bytes, as_list
from echomq.protocol.scripts import script

__all__ = ["Breach", "audit"]

_IDS = script("audit_ids")
_BOOKS = script("audit_books")


@dataclass(frozen=True, slots=True)
class Breach:
    """One invariant that does not hold. `subject` is a job id, or the queue for its books."""

    subject: str
    what: str


def _text(reply: Reply) -> str:
    return as_bytes(reply).decode("utf-8", "replace")


def _breaches(reply: Reply) -> tuple[Breach, ...]:
    items = as_list(reply)
    return tuple(Breach(_text(items[i]), _text(items[i + 1])) for i in range(0, len(items), 2))


def _texts(reply: Reply) -> tuple[str, ...]:
    return tuple(_text(item) for item in as_list(reply))


def _page(key: str, cursor: bytes, verb: str, *, match: str = "") -> Call[tuple[bytes, tuple[str, ...]]]:
    def decode(reply: Reply) -> tuple[bytes, tuple[str, ...]]:
        following, items = as_list(reply)
        step = 1 if match else 2
        return as_bytes(following), tuple(_text(item) for item in as_list(items)[::step])

    args = ("MATCH", match, "COUNT", 1_000) if match else ("COUNT", 1_000)
    if match:
        return Call(verb, (), (cursor, *args), decode, command="SCAN", home=key)
    return Call(verb, (key,), (cursor, *args), decode, command="ZSCAN")


def _is_job(text: str) -> bool:
    try:
        check_job(text)
    except InvalidInputError:
        return False
    return True


def _scan(key: str, *, match: str = "") -> Plan[tuple[str, ...]]:
    found: dict[str, None] = {}
    cursor = b"0"
    while True:
        cursor, items = yield _page(key, cursor, "audit scan", match=match)
        found.update(dict.fromkeys(items))
        if cursor == b"0":
            return tuple(found)


def audit(queue: str, *, mend: bool = False) -> Plan[tuple[Breach, ...]]:
    """Every breach of §12.1, each looked at in one instant, so that a queue in use shows no false ones.

    With `mend`, `gactive` and the ring are set right. It reads every row of the queue and walks the server's keys
    (SCAN), in steps that hold nobody up.
    """
    k = keys(queue)
    ids: dict[str, None] = {}
    for key in (k.pending, k.active, k.schedule, k.dead):
        ids.update(dict.fromkeys((yield from _scan(key))))
    glob = "".join(f"\\{char}" if char in "*?[]\\^-" else char for char in k.base)
    for key in (yield from _scan(k.pending, match=glob + "g:*:pending")):
        ids.update(dict.fromkeys((yield from _scan(key))))
    for key in (yield from _scan(k.pending, match=glob + "job:*")):
        name = key[len(k.job_prefix) :]
        if _is_job(name):
            ids[name] = None
    breaches: list[Breach] = []
    pending = list(ids)
    for start in range(0, len(pending), 500):
        part = tuple(pending[start : start + 500])
        breaches += yield Call("audit ids", (k.pending,), part, _breaches, _IDS, subject=queue)
    books = Call("audit books", (k.pending,), ("mend" if mend else "",), _texts, _BOOKS, subject=queue)
    breaches += [Breach(queue, what) for what in (yield books)]
    return tuple(breaches)
