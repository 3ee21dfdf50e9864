"""Recurrence (protocol §9): a registration that mints a fresh job for every occurrence.

Register, due and advance use the host's wall clock; *fire* holds every score against the server's.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from hashlib import sha1

from echomq.protocol.call import Arg, Call, Reply
from echomq.protocol.checks import any_name, check_job, integer, milliseconds, name_of, payload_of, span
from echomq.protocol.errors import InvalidInputError
from echomq.protocol.keys import keys
from echomq.protocol.replies import as_bytes, as_flag, as_int, as_list, as_text, unexpected
from echomq.protocol.scripts import script

__all__ = [
    "Due",
    "Fired",
    "Firing",
    "Registration",
    "advance",
    "cancel",
    "count",
    "due",
    "fire",
    "register",
    "upsert",
]

_REGISTER = script("register")
_UPSERT = script("upsert")
_CANCEL = script("cancel")
_DUE = script("due")
_ADVANCE = script("advance")
_FIRE = script("fire")


class Registration(Enum):
    """What an upsert did to the recurrence of that name."""

    REGISTERED = "registered"
    UPDATED = "updated"
    UNCHANGED = "unchanged"


class Firing(Enum):
    """What *fire* did.

    LOST: another pump was first, or the name is gone. EARLY: not yet by the server's clock. DUPLICATE: the id was
    taken, so mint another. UNREADABLE: the record is none of ours to read; the recurrence was dropped, its record kept.
    """

    FIRED = "fired"
    LOST = "lost"
    EARLY = "early"
    DUPLICATE = "duplicate"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Due:
    """A recurrence whose next run has come. `score` goes back to *fire* as it is.

    `every_ms` is 0 for a record that cannot be read; *fire* drops it and says so.
    """

    name: str
    score: str
    every_ms: int
    template: bytes


@dataclass(frozen=True, slots=True)
class Fired:
    """The verdict of a *fire*, and the score that the recurrence has now (None when it has none)."""

    verdict: Firing
    next_ms: int | None
    ids: tuple[str, ...] = field(default=(), compare=False)
    """The occurrence, when it was admitted."""


def _record(queue: str, name: str) -> tuple[str, str]:
    """The keys of a recurrence. Only a new name has to be printable: any other client's can be fired and cancelled."""
    k = keys(queue)
    any_name("recurrence name", name)
    return k.repeat, k.repeat_record(name)


def _definition(name: str, every_ms: int, template: bytes | str) -> tuple[Arg, ...]:
    return name_of("recurrence name", name), integer("every_ms", every_ms, least=1), payload_of(template)


def register(queue: str, name: str, *, every_ms: int, template: bytes | str, first_run_ms: int) -> Call[bool]:
    """A recurrence under a new name, first due at `first_run_ms` (Unix ms); False when the name lives."""
    args = (*_definition(name, every_ms, template), milliseconds("first_run_ms", first_run_ms))
    return Call("register", _record(queue, name), args, as_flag, _REGISTER, subject=name)


def _registration(reply: Reply) -> Registration:
    return Registration(as_text(reply))


def upsert(
    queue: str,
    name: str,
    *,
    every_ms: int,
    template: bytes | str,
    first_run_ms: int | None = None,
    first_in_ms: int | None = None,
) -> Call[Registration]:
    """The recurrence of that name as given; its next run stays unless the period changes.

    It is first due at `first_run_ms` (Unix ms on the caller's clock) or `first_in_ms` after the server's now: exactly
    one of the two.
    """
    if (first_run_ms is None) == (first_in_ms is None):
        raise InvalidInputError("give exactly one of first_run_ms (Unix ms) and first_in_ms (from the server's now)")
    first = (
        ("at", milliseconds("first_run_ms", first_run_ms))
        if first_run_ms is not None
        else ("in", span("first_in_ms", first_in_ms or 0))
    )
    args = (*_definition(name, every_ms, template), *first)
    return Call("upsert", _record(queue, name), args, _registration, _UPSERT, subject=name)


def cancel(queue: str, name: str) -> Call[bool]:
    """Ends a recurrence; False when there was none. Occurrences that were admitted stay."""
    return Call("cancel", _record(queue, name), (name,), as_flag, _CANCEL, subject=name)


def dues_of(reply: Reply) -> tuple[Due, ...]:
    """Decodes what is due in `repeat`."""
    items = as_list(reply)
    if len(items) % 4:
        raise unexpected(reply, "recurrences")
    found: list[Due] = []
    for i in range(0, len(items), 4):
        try:
            name = as_bytes(items[i]).decode()
        except UnicodeDecodeError:
            continue  # another client's: ours cannot say it, and it must not hide the others
        found.append(Due(name, as_text(items[i + 1]), as_int(items[i + 2]), as_bytes(items[i + 3])))
    return tuple(found)


def due(queue: str, *, now_ms: int, limit: int = 100) -> Call[tuple[Due, ...]]:
    """The recurrences that are due at `now_ms`, oldest first, with their records."""
    args = (milliseconds("now_ms", now_ms), integer("limit", limit, least=1, most=100_000))
    return Call("due", (keys(queue).repeat,), args, dues_of, _DUE, subject=queue)


def advance(queue: str, name: str, *, next_run_ms: int) -> Call[bool]:
    """Sets the next run, as the original's pump does after its enqueue; False when the record is gone."""
    args = (name, milliseconds("next_run_ms", next_run_ms))
    return Call("advance", _record(queue, name), args, as_flag, _ADVANCE, subject=name)


def _fired(reply: Reply) -> Fired:
    verdict, score = as_list(reply)
    at = as_int(score)
    return Fired(Firing(as_text(verdict)), at if at >= 0 else None)


def fire(
    queue: str, name: str, *, score: str, job_id: str, payload: bytes | None = None, template: bytes = b""
) -> Call[Fired]:
    """Admits the occurrence of the slot `score` under a fresh id and moves the recurrence on, or does neither.

    With the template as its payload; or with `payload`, made of `template`: LOST when there is another one by now.
    """
    k = keys(queue)
    if not isinstance(score, str) or not score:
        raise InvalidInputError(f"score must be the text that due gave, not {score!r}")
    made: tuple[Arg, ...] = ()
    if payload is not None:
        made = (payload_of(payload), sha1(template, usedforsecurity=False).hexdigest())

    def decode(reply: Reply) -> Fired:
        fired = _fired(reply)
        return replace(fired, ids=(job_id,)) if fired.verdict is Firing.FIRED else fired

    return Call(
        "fire",
        (*_record(queue, name), k.job(check_job(job_id)), k.pending),
        (name, score, job_id, *made),
        decode,
        _FIRE,
        subject=f"{name} as {job_id}",
    )


def count(queue: str) -> Call[int]:
    """How many recurrences there are."""
    return Call("count", (keys(queue).repeat,), (), as_int, command="ZCARD", subject=queue)
