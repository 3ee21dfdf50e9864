"""What only tests do to a server: move what waits for a time nearer, and remove whole queues (ours)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from echomq.protocol.call import Call, Plan, Reply
from echomq.protocol.checks import integer
from echomq.protocol.discover import queue_of
from echomq.protocol.keys import VERSION, keys
from echomq.protocol.replies import as_int, as_list
from echomq.protocol.scripts import script
from echomq.protocol.walks import escaped, page

__all__ = ["MAX_HASTE_MS", "Hastened", "hasten", "unfence", "wipe"]

MAX_HASTE_MS: Final = 20 * 366 * 86_400_000
"""Twenty years: no score of a job that waits now comes near zero by that."""

_HASTEN = script("hasten")


@dataclass(frozen=True, slots=True)
class Hastened:
    """How many were moved: jobs on the schedule, and recurrences in both registries."""

    jobs: int
    recurrences: int


def _hastened(reply: Reply) -> Hastened:
    schedule, repeat, cron = as_list(reply)
    return Hastened(as_int(schedule), as_int(repeat) + as_int(cron))


def hasten(queue: str, span_ms: int) -> Call[Hastened]:
    """Takes `span_ms` from every score of the schedule and of both registries of recurrences, at one instant."""
    k = keys(queue)
    args = (integer("span_ms", span_ms, least=1, most=MAX_HASTE_MS),)
    return Call("hasten", (k.schedule, k.repeat, k.cron), args, _hastened, _HASTEN, subject=queue)


def wipe(beginning: str = "") -> Plan[int]:
    """Removes the keys of every queue whose name begins so, without a look at what they are; gives how many."""
    gone = 0
    pattern = f"emq:{{{escaped(beginning)}*"
    cursor = b"0"
    while True:
        cursor, found = yield page("wipe", cursor, pattern)
        queues: dict[str, list[bytes]] = {}
        for key in found:
            if (queue := queue_of(key)) is not None and queue.startswith(beginning):
                queues.setdefault(queue, []).append(key)
        for queue, members in queues.items():
            gone += yield Call("wipe", (), tuple(members), as_int, command="UNLINK", home=keys(queue).base)
        if cursor == b"0":
            return gone


def unfence() -> Call[int]:
    """Removes the version that the server's data has (protocol §11): the next that connects says its own."""
    return Call("unfence", (VERSION,), (), as_int, command="DEL")
