"""Taking the demo's queue off the server again, whoever is left to do it."""

from __future__ import annotations

from echomq import EchoMQ
from echomq.protocol.keys import keys
from echomq.protocol.replies import as_bytes, as_list

__all__ = ["remove_queues"]

BATCH = 1_000


def remove_queues(mq: EchoMQ) -> int:
    """Delete every key of the app's queues from its server; gives how many there were.

    Nobody may admit to them or serve them any more. Their names must hold no sign that means something in a pattern.
    """
    return sum(_remove(mq, queue) for queue in mq.queues)


def _remove(mq: EchoMQ, queue: str) -> int:
    conn = mq.connection()
    removed = 0
    cursor = b"0"
    while True:
        found = as_list(conn.execute("SCAN", cursor, "MATCH", f"{keys(queue).base}*", "COUNT", BATCH))
        cursor, names = as_bytes(found[0]), [as_bytes(name) for name in as_list(found[1])]
        if names:
            conn.execute("UNLINK", *names)
            removed += len(names)
        if cursor == b"0":
            return removed
