"""Counting and looking (protocol §7): reads that change nothing."""

from __future__ import annotations

from dataclasses import asdict, fields

from echomq.protocol.call import Call, Reply
from echomq.protocol.checks import check_job
from echomq.protocol.errors import InvalidInputError
from echomq.protocol.keys import keys
from echomq.protocol.replies import Counts, State, as_bytes, as_int, as_list, as_text, unexpected
from echomq.protocol.scripts import script

__all__ = ["count", "counts", "progress", "row", "state"]

_COUNTS = script("counts")
_STATE = script("state")


def _counts(reply: Reply) -> Counts:
    return Counts(*(as_int(item) for item in as_list(reply)))


def counts(queue: str) -> Call[Counts]:
    """How many jobs lie where, and how many ended how, at one instant."""
    return Call("counts", (keys(queue).pending,), (), _counts, _COUNTS, subject=queue)


def count(queue: str, name: str) -> Call[int]:
    """One of the counts by its name: pending (flat), active, schedule, dead, completed or failed."""
    names = [field.name for field in fields(Counts)]
    if name not in names:
        raise InvalidInputError(f"there is no count of {name!r}: {', '.join(names)} are counted")

    def decode(reply: Reply) -> int:
        number: int = asdict(_counts(reply))[name]
        return number

    return Call("count", (keys(queue).pending,), (), decode, _COUNTS, subject=queue)


def _state(reply: Reply) -> State:
    return State(as_text(reply))


def state(queue: str, job_id: str) -> Call[State]:
    """Where a job is."""
    return Call("state", (keys(queue).job(check_job(job_id)),), (job_id,), _state, _STATE, subject=job_id)


def _row(reply: Reply) -> dict[str, bytes]:
    if isinstance(reply, dict):
        return {as_text(name): as_bytes(value) for name, value in reply.items()}
    raise unexpected(reply, "a hash")


def row(queue: str, job_id: str) -> Call[dict[str, bytes]]:
    """The fields of a job's row (protocol §3); empty when it has none."""
    return Call("row", (keys(queue).job(check_job(job_id)),), (), _row, command="HGETALL", subject=job_id)


def _progress(reply: Reply) -> str | None:
    return None if reply is None else as_bytes(reply).decode("utf-8", "replace")


def progress(queue: str, job_id: str) -> Call[str | None]:
    """What a job has last said of its progress; None when it has said nothing, or has no row."""
    names = (keys(queue).job(check_job(job_id)),)
    return Call("read progress", names, ("progress",), _progress, command="HGET", subject=job_id)
