"""The operator's verbs (protocol §7): pause, drain, remove, reprocess, settings, progress, logs, cancel."""

from __future__ import annotations

from enum import Enum
from typing import Final

from echomq.protocol.call import Arg, Call, Plan, Reply
from echomq.protocol.checks import (
    MAX_PERIOD_MS,
    check_job,
    encoded,
    error_of,
    integer,
    milliseconds,
    name_of,
    payload_of,
)
from echomq.protocol.errors import InvalidInputError
from echomq.protocol.keys import keys
from echomq.protocol.replies import as_bytes, as_done, as_flag, as_int, as_list, as_text
from echomq.protocol.scripts import script
from echomq.protocol.walks import drained, scan

__all__ = [
    "KEEP_LINES",
    "Cancellation",
    "add_log",
    "cancel_job",
    "drain",
    "gate",
    "is_paused",
    "logs",
    "obliterate",
    "pause_queue",
    "rate_ttl",
    "remove_job",
    "reprocess_job",
    "resume_queue",
    "retain",
    "set_ceiling",
    "set_rate",
    "set_retention",
    "update_data",
    "update_progress",
]

_RESUME = script("resume_queue")
_SETTINGS = script("settings")
_DRAIN = script("drain")
_OBLITERATE = script("obliterate")
_OBLITERATE_REST = script("obliterate_rest")
_UPDATE_DATA = script("update_data")
_UPDATE_PROGRESS = script("update_progress")
_ADD_LOG = script("add_log")
_REMOVE = script("remove")
_REPROCESS = script("reprocess")
_GATE = script("gate")
_RATE_TTL = script("rate_ttl")
_CANCEL = script("cancel_job")
_RETAIN = script("retain")

KEEP_LINES: Final = 1_000
"""Lines of a job's log that are kept, unless told otherwise."""

BURIED: Final = b"buried"
"""What the server says of a job that this very call has buried; one that was dead before is `dead`."""


class Cancellation(Enum):
    """What a wish to cancel did."""

    DEAD = "dead"
    REQUESTED = "requested"
    GONE = "gone"


def _set(queue: str, verb: str, **fields: int | None) -> Call[None]:
    args: list[Arg] = []
    for field, value in fields.items():
        args += (field, "" if value is None else value)
    return Call(verb, (keys(queue).meta,), tuple(args), as_done, _SETTINGS, subject=queue)


def pause_queue(queue: str) -> Call[None]:
    """No claim is served until `resume_queue`; admissions and jobs in hand go on."""
    return _set(queue, "pause queue", paused=1)


def resume_queue(queue: str) -> Call[None]:
    """Serves claims again."""
    return Call("resume queue", (keys(queue).meta,), (), as_done, _RESUME, subject=queue)


def is_paused(queue: str) -> Call[bool]:
    """Whether the queue is paused (any value counts)."""
    return Call("is paused", (keys(queue).meta,), ("paused",), as_flag, command="HEXISTS", subject=queue)


def set_ceiling(queue: str, n: int | None) -> Call[None]:
    """At most `n` jobs of the queue in hand at once, over all workers; None lifts the ceiling."""
    return _set(queue, "set ceiling", concurrency=None if n is None else integer("ceiling", n, least=1))


def set_rate(queue: str, n: int | None, *, period_ms: int | None = None) -> Call[None]:
    """At most `n` claims in `period_ms` (1 to 2^46), a window opening with its first (server's clock).

    None lifts it.
    """
    if n is None:
        return _set(queue, "set rate", max=None, period_ms=None)
    if period_ms is None:
        raise InvalidInputError("a rate needs period_ms: n claims in how many milliseconds")
    return _set(
        queue,
        "set rate",
        max=integer("n", n, least=1),
        period_ms=integer("period_ms", period_ms, least=1, most=MAX_PERIOD_MS),
    )


def set_retention(queue: str, *, dead_max: int | None, dead_age_ms: int | None) -> Call[None]:
    """How many dead jobs the morgue keeps and how long; None keeps all. The pump applies it (`retain`)."""
    return _set(
        queue,
        "set retention",
        dead_max=None if dead_max is None else integer("dead_max", dead_max, least=0),
        dead_age_ms=None if dead_age_ms is None else milliseconds("dead_age_ms", dead_age_ms),
    )


def _retained(reply: Reply) -> tuple[int, str]:
    purged, after = as_list(reply)
    return as_int(purged), as_text(after)


def retain(queue: str, *, after: str = "", budget: int = 100) -> Call[tuple[int, str]]:
    """Purges what the morgue may not keep, one bounded step: how many, and where to go on ("": the end)."""
    k = keys(queue)
    args = (after and check_job(after), integer("budget", budget, least=1, most=10_000))
    return Call("retain", (k.dead, k.meta), args, _retained, _RETAIN, subject=queue)


def drain(queue: str, *, scheduled: bool = False, budget: int = 1_000) -> Plan[int]:
    """Deletes the flat claimable jobs, and the scheduled ones when asked; gives how many.

    Jobs in hand, lanes and recurrences stay. A flow's child dies by its policy, and a parent that this releases is
    drained as well. `budget` bounds one call.
    """
    k = keys(queue)
    names = (k.pending, k.pending, k.schedule) if scheduled else (k.pending, k.pending)
    most = integer("budget", budget, least=1, most=100_000)
    return drained(Call("drain", names, (most,), as_int, _DRAIN, subject=queue), most)


def obliterate(queue: str, *, force: bool = False, budget: int = 1_000, unreachable: bool = True) -> Plan[None]:
    """Deletes every key of a paused queue; `StateError` unless it is paused and, without `force`, idle.

    `budget` bounds one call. `unreachable` also walks the server's keys (SCAN) for what no set of the queue names:
    held parents whose children lie elsewhere, the guards of finished ones, kept results, orphan deduplication keys.
    The pause goes last, so that a plan that was cut short can be run again. Workers that live register again at their
    next beat.
    """
    k = keys(queue)
    use = "force" if force else ""
    most = integer("budget", budget, least=1, most=100_000)

    def step(hold: str) -> Call[int]:
        return Call("obliterate", (k.meta, k.pending), (use, most, hold), as_int, _OBLITERATE, subject=queue)

    def plan() -> Plan[None]:
        if unreachable:
            while (yield step("hold")):
                pass
            kept = (k.meta.encode(), f"{k.base}stream:".encode())
            cursor = b"0"
            while True:
                cursor, found = yield scan(k, "*", cursor)
                names = [key[len(k.base.encode()) :] for key in found if not key.startswith(kept)]
                if names:
                    yield Call("obliterate", (k.meta,), (use, *names), as_int, _OBLITERATE_REST, subject=queue)
                if cursor == b"0":
                    break
        while (yield step("")):
            pass

    return plan()


def update_data(queue: str, job_id: str, payload: bytes | str) -> Call[bool]:
    """Another payload for a job that has a row; False when it has none."""
    names = (keys(queue).job(check_job(job_id)),)
    return Call("update payload", names, (payload_of(payload),), as_flag, _UPDATE_DATA, subject=job_id)


def _text(what: str, value: str) -> bytes:
    if not isinstance(value, str):
        raise InvalidInputError(f"{what} must be text, not {type(value).__name__}: {value!r:.200}")
    return encoded(what, value)


def update_progress(queue: str, job_id: str, value: str) -> Call[bool]:
    """A job's progress, kept in its row and published; False when it has no row."""
    k = keys(queue)
    args = (_text("progress", value), job_id, k.base)
    return Call("progress", (k.job(check_job(job_id)),), args, as_flag, _UPDATE_PROGRESS, subject=job_id)


def add_log(queue: str, job_id: str, line: str, *, keep: int | None = None) -> Call[int | None]:
    """Adds a line to a job's log, the newest `keep` kept; gives how many lines there are, None without a row."""
    row = keys(queue).job(check_job(job_id))

    def decode(reply: Reply) -> int | None:
        lines = as_int(reply)
        return lines if lines >= 0 else None

    args = (_text("a log line", line), "" if keep is None else integer("keep", keep, least=1))
    return Call("add log", (row, row + ":logs"), args, decode, _ADD_LOG, subject=job_id)


def _lines(reply: Reply) -> tuple[str, ...]:
    return tuple(as_bytes(line).decode("utf-8", "replace") for line in as_list(reply))


def logs(queue: str, job_id: str) -> Call[tuple[str, ...]]:
    """A job's log, oldest line first."""
    row = keys(queue).job(check_job(job_id))
    return Call("logs", (row + ":logs",), (0, -1), _lines, command="LRANGE", subject=job_id)


def remove_job(queue: str, job_id: str, *, dedup: str = "") -> Call[bool]:
    """Deletes a job wherever it lies; False without a row, `LockedError` while a worker says that it holds it.

    Our workers say so of every job that they have had in hand for a moment (about 250 ms), and renew it with the lease.
    `dedup` is the deduplication key to free when it names this job (its own, kept in the row, is freed anyway).
    """
    k = keys(queue)
    key = "" if dedup == "" else name_of("deduplication key", dedup)
    names = (k.job(check_job(job_id)), k.pending, k.active, k.schedule, k.dead, f"{k.base}de:{key}")
    args = (job_id, key)
    return Call("remove job", names, args, as_flag, _REMOVE, subject=job_id)


def reprocess_job(queue: str, job_id: str) -> Call[bool]:
    """Gives a dead job another life, failures and lapses at 0; False without a row, `StateError` unless dead."""
    k = keys(queue)
    names = (k.job(check_job(job_id)), k.dead, k.pending)
    return Call("reprocess job", names, (job_id,), as_flag, _REPROCESS, subject=job_id)


def gate(queue: str) -> Call[None]:
    """`RateError` when a claim would find the queue at its ceiling."""
    k = keys(queue)
    return Call("gate", (k.meta, k.active), (), as_done, _GATE, subject=queue)


def rate_ttl(queue: str, *, n: int = 0) -> Call[int]:
    """How many ms the rate budget of `n` (0: the queue's own) stays spent; 0 when there is room."""
    k = keys(queue)
    return Call("rate TTL", (k.limiter, k.meta), (integer("n", n, least=0),), as_int, _RATE_TTL, subject=queue)


def cancel_job(queue: str, job_id: str, *, reason: str = "cancelled") -> Call[Cancellation]:
    """Buries a job that is not in hand; one in hand learns of the wish, also after its worker's restart."""
    text = error_of(reason)
    if not text.startswith(b"cancelled"):
        text = b"cancelled: " + text

    def decode(reply: Reply) -> Cancellation:
        if isinstance(reply, int):
            return Cancellation.GONE
        return Cancellation.DEAD if reply == BURIED else Cancellation(as_text(reply))

    names = (keys(queue).job(check_job(job_id)),)
    return Call("cancel job", names, (job_id, text), decode, _CANCEL, subject=job_id)
