"""Which queues are on a server, and what is where: found in bounded steps, never by KEYS (protocol §2, ours)."""

from __future__ import annotations

from echomq.protocol.call import Call, Plan, Reply
from echomq.protocol.checks import check_job
from echomq.protocol.errors import QueueNameError
from echomq.protocol.keys import check_queue, keys
from echomq.protocol.replies import as_int, as_list
from echomq.protocol.walks import escaped, page

__all__ = ["clock", "exists", "held", "holds", "queues"]

# Rows are the many; every queue has keys beside them, except one that holds nothing but flow parents that wait.
_BESIDE_ROWS = ("emq:{*}:[^j]*", "")
_OF_PARENTS = ("emq:{*}:job:*:dependencies", "string")


def queue_of(key: bytes) -> str | None:
    """The queue that a key belongs to; None for a key that is none of a queue's."""
    head, brace, _ = key.partition(b"}:")
    if not brace or not head.startswith(b"emq:{"):
        return None
    try:
        return check_queue(head[5:].decode())
    except (QueueNameError, UnicodeDecodeError):
        return None


def queues() -> Plan[tuple[str, ...]]:
    """The names of the queues that have a key on the server, sorted.

    It walks the server's keys twice, a thousand a step, and is sent few of them: a queue in use is not held up.
    """
    found: set[str] = set()
    for pattern, kind in (_BESIDE_ROWS, _OF_PARENTS):
        cursor = b"0"
        while True:
            cursor, names = yield page("discover", cursor, pattern, kind=kind)
            found.update(name for name in map(queue_of, names) if name is not None)
            if cursor == b"0":
                break
    return tuple(sorted(found))


def _any(reply: Reply) -> bool:
    return as_int(reply) > 0


def exists(queue: str) -> Call[bool]:
    """Whether the queue has a key of its own; one with nothing but waiting flow parents is seen by `queues` only."""
    k = keys(queue)
    names = (
        *(k.pending, k.active, k.schedule, k.dead, k.ring, k.paused, k.glimit, k.gactive, k.gweight, k.lanes),
        *(k.wake, k.meta, k.metrics_completed, k.metrics_failed, k.repeat, k.cron, k.outbox, k.rejected, k.workers),
    )
    return Call("exists", names, (), _any, command="EXISTS", subject=queue)


def holds(queue: str, job_id: str) -> Call[bool]:
    """Whether the queue knows a job: by its row, or by the result that it left."""
    row = keys(queue).job(check_job(job_id))
    return Call("holds", (row, row + ":result"), (), _any, command="EXISTS", subject=job_id)


def held(queue: str, *, limit: int) -> Plan[tuple[str, ...]]:
    """Up to `limit` ids of flow parents that may be waiting for children: in no set, so it walks the server's keys."""
    k = keys(queue)
    pattern = escaped(k.job_prefix) + "*:dependencies"
    found: dict[str, None] = {}
    cursor = b"0"
    while True:
        cursor, names = yield page("discover", cursor, pattern, kind="string")
        for name in names:
            text = name.decode("utf-8", "replace")
            found[text[len(k.job_prefix) : -len(":dependencies")]] = None
        if cursor == b"0" or len(found) >= limit:
            return tuple(found)[:limit]


def _now_ms(reply: Reply) -> int:
    seconds, microseconds = as_list(reply)
    return as_int(seconds) * 1_000 + as_int(microseconds) // 1_000


def clock(queue: str = "") -> Call[int]:
    """The server's clock, Unix ms; in a cluster that of the node which has the queue."""
    return Call("clock", (), (), _now_ms, command="TIME", home=keys(queue).base if queue else "emq")
