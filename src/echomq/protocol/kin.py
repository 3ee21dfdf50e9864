"""Held parents that nothing can release (protocol §8): who waits for more children than there are, on the whole server.

A parent knows how many children it waits for, not which. Those in its own queue are seen there; of the others a row
in another queue or a signal in another outbox is all there is, so that the audit has to look at every queue.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable

from echomq.protocol.call import Arg, Call, Plan, Reply
from echomq.protocol.discover import queue_of
from echomq.protocol.keys import Keys, keys
from echomq.protocol.replies import as_blobs, as_int, as_list
from echomq.protocol.scripts import script
from echomq.protocol.walks import page

__all__ = ["unreleasable"]

_KIN = script("audit_kin")
_OUTBOX = script("audit_outbox")
_HELD = script("audit_held")

_PAGE = 1_000
_ROWS = "emq:{*}:job:JOB" + 11 * "?"
_OUTBOXES = "emq:{*}:flow:outbox"

_Pairs = tuple[tuple[bytes, bytes], ...]
"""A child and its parent."""


def _pairs(reply: Reply) -> _Pairs:
    items = as_blobs(reply)
    return tuple(zip(items[::2], items[1::2], strict=True))


def _by_queue(found: Iterable[bytes]) -> dict[str, list[bytes]]:
    out: dict[str, list[bytes]] = {}
    for key in found:
        queue = queue_of(key)
        if queue is not None:
            out.setdefault(queue, []).append(key)
    return out


def _of(k: Keys, queue: str, names: Collection[bytes]) -> Call[_Pairs]:
    start = len(keys(queue).job_prefix.encode())
    args: tuple[Arg, ...] = (k.queue, *(name[start:] for name in names))
    return Call("audit kin", (keys(queue).pending,), args, _pairs, _KIN, subject=queue)


def _signals(k: Keys, queue: str) -> Call[_Pairs]:
    return Call("audit outbox", (keys(queue).outbox,), (k.queue,), _pairs, _OUTBOX, subject=queue)


def _standing(k: Keys, parent: bytes, children: Collection[bytes]) -> Call[tuple[int, int]]:
    def decode(reply: Reply) -> tuple[int, int]:
        waits, there = as_list(reply)
        return as_int(waits), as_int(there)

    row = k.job_prefix + parent.decode()
    return Call("audit held", (row,), tuple(children), decode, _HELD, subject=parent.decode())


def unreleasable(k: Keys, suspects: Collection[bytes]) -> Plan[dict[bytes, tuple[int, int]]]:
    """Which of these held parents wait for more children than exist: for how many, and how many there are.

    First the rows of every queue, then their outboxes, then the parents: a child that ends meanwhile is seen in one.
    """
    children: defaultdict[bytes, set[bytes]] = defaultdict(set)
    for pattern in (_ROWS, _OUTBOXES) if suspects else ():
        cursor = b"0"
        while True:
            cursor, found = yield page("audit", cursor, pattern, home=k.base)
            for queue, names in _by_queue(found).items():
                for child, parent in (yield _of(k, queue, names) if pattern is _ROWS else _signals(k, queue)):
                    children[parent].add(child)
            if cursor == b"0":
                break
    out: dict[bytes, tuple[int, int]] = {}
    for parent in suspects:
        mine, waits, there = list(children[parent]), 0, 0
        for start in range(0, len(mine) or 1, _PAGE):
            waits, some = yield _standing(k, parent, mine[start : start + _PAGE])
            there += some
        if there < waits:
            out[parent] = (waits, there)
    return out
