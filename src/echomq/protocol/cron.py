"""Recurrences that say more than a period: the `cron` registry, beside `repeat` (protocol §2, §9, ours).

Whoever fires computes the next slot; the scripts see to it that each slot fires once. The registry verbs here
act on a name in either registry, so that no name is left in both.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from echomq.protocol.call import Arg, Call, Reply
from echomq.protocol.checks import any_name, check_job, integer, milliseconds, name_of, payload_of
from echomq.protocol.keys import keys
from echomq.protocol.recurring import MAX_CATCH_UP, Definition, Entry, History, Kind, Standing, entry_of
from echomq.protocol.repeat import Due, Firing, dues_of
from echomq.protocol.replies import as_bytes, as_flag, as_int, as_list, as_text, as_texts
from echomq.protocol.scripts import script

__all__ = [
    "MAX_CATCH_UP",
    "CronDue",
    "CronFired",
    "Definition",
    "Dues",
    "Entry",
    "History",
    "Kind",
    "Occurrence",
    "Paused",
    "Ran",
    "Standing",
    "cancel",
    "due",
    "fire",
    "look",
    "park",
    "pause",
    "put",
    "rename",
    "run",
]

NEVER: Final = "inf"
"""The score of a recurrence that is paused or has come to its end: no claim counts it as a time."""

_DUE = script("cron_due")
_FIRE = script("cron_fire")
_PARK = script("cron_park")
_LOOK = script("cron_look")
_PUT = script("cron_put")
_RENAME = script("cron_rename")
_CANCEL = script("cron_cancel")
_PAUSE = script("cron_pause")
_RUN = script("cron_run")


@dataclass(frozen=True, slots=True)
class CronDue:
    """A recurrence of the `cron` registry that is due; `entry.score` and `entry.stamp` go back to `fire`."""

    entry: Entry
    due_ms: int


@dataclass(frozen=True, slots=True)
class Dues:
    """What is due in both registries, oldest first in each."""

    repeat: tuple[Due, ...]
    cron: tuple[CronDue, ...]


@dataclass(frozen=True, slots=True)
class Occurrence:
    """An occurrence to admit: its fresh id, its slot, when it was due, and its payload."""

    job_id: str
    slot_ms: int
    due_ms: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class CronFired:
    """The verdict of a turn: the occurrences that it admitted, and the score that the recurrence has now."""

    verdict: Firing
    next_ms: int | None
    ids: tuple[str, ...] = ()

    @property
    def admitted(self) -> int:
        """How many it admitted."""
        return len(self.ids)


class Ran(Enum):
    """What became of an occurrence beside the timetable. CHANGED: the record is not as it was read, or unreadable."""

    ADMITTED = "admitted"
    HELD = "held"
    DUPLICATE = "duplicate"
    CHANGED = "changed"


def _names(queue: str, name: str) -> tuple[str, str]:
    """The keys of a name in the `cron` registry. Any other client's name can be looked at and ended."""
    any_name("recurrence name", name)
    k = keys(queue)
    return k.cron, f"{k.cron}:{name}"


def look(queue: str, name: str) -> Call[Standing]:
    """Where a name stands in both registries, with the server's clock."""

    def decode(reply: Reply) -> Standing:
        now_ms, repeat, cron = as_list(reply)
        return Standing(as_int(now_ms), entry_of(Kind.REPEAT, name, repeat), entry_of(Kind.CRON, name, cron))

    return Call("look", _names(queue, name), (name,), decode, _LOOK, subject=name)


def put(
    queue: str,
    name: str,
    definition: Definition,
    standing: Standing,
    *,
    slot_ms: int | None,
    due_ms: int | None,
    paused: bool = False,
) -> Call[bool]:
    """Writes a recurrence into its registry and takes the name out of the other; what has become of it is kept.

    Acts only on what `standing` has seen: False, and nothing written, when the name has changed since.
    """
    name_of("recurrence name", name)
    payload_of(definition.template)
    kind = Kind.REPEAT if definition.is_plain and not paused else Kind.CRON
    fields: dict[str, str | bytes] = dict(definition.fields())
    if kind is Kind.CRON:
        if slot_ms is not None:
            fields["slot_ms"] = str(milliseconds("slot_ms", slot_ms))
        if paused:
            fields["paused"] = "1"
    score: Arg = NEVER if paused or due_ms is None else milliseconds("due_ms", due_ms)
    stamps = [each.stamp if each else "" for each in (standing.repeat, standing.cron)]
    args: list[Arg] = [name, *stamps, kind.value, score]
    for key, value in fields.items():
        args += (key, value)
    return Call("put", _names(queue, name), tuple(args), as_flag, _PUT, subject=name)


def rename(queue: str, entry: Entry, name: str) -> Call[bool]:
    """Lets a recurrence of the `cron` registry go on under another name, its next run and its history with it.

    Acts only on what was read: False, and nothing written, when it has changed since, or when the new name is there.
    """
    name_of("recurrence name", name)
    args = (name, entry.name, entry.stamp)
    return Call("rename", _names(queue, name), args, as_flag, _RENAME, subject=f"{entry.name} to {name}")


def cancel(queue: str, name: str) -> Call[bool]:
    """Ends the recurrence of that name in both registries; False when there was none. Its occurrences stay."""
    return Call("cancel", _names(queue, name), (name,), as_flag, _CANCEL, subject=name)


class Paused(Enum):
    """What a pause did. ABSENT: there is none of that name, or none whose record can be read."""

    PAUSED = "paused"
    ALREADY = "already"
    ABSENT = "absent"


def _paused(reply: Reply) -> Paused:
    return (Paused.ABSENT, Paused.PAUSED, Paused.ALREADY)[as_int(reply)]


def pause(queue: str, name: str) -> Call[Paused]:
    """No occurrence until it is put back; a plain one waits in the `cron` registry until then."""
    return Call("pause", _names(queue, name), (name,), _paused, _PAUSE, subject=name)


def run(queue: str, entry: Entry, job_id: str, payload: bytes) -> Call[tuple[Ran, str]]:
    """Admits an occurrence beside the timetable, with the options of the recurrence; acts only on what was read.

    Gives the verdict and the id: that of the living job when it holds the deduplication key.
    """

    def decode(reply: Reply) -> tuple[Ran, str]:
        verdict, found = as_list(reply)
        return Ran(as_text(verdict)), as_text(found) or job_id

    args = (entry.name, entry.kind.value, entry.stamp, check_job(job_id), payload_of(payload))
    return Call("run", _names(queue, entry.name), args, decode, _RUN, subject=f"{entry.name} as {job_id}")


def _cron_dues(reply: Reply) -> tuple[CronDue, ...]:
    found: list[CronDue] = []
    for item in as_list(reply):
        name, *rest = as_list(item)
        try:
            entry = entry_of(Kind.CRON, as_bytes(name).decode(), rest)
        except UnicodeDecodeError:
            continue  # another client's: ours cannot say it, and it must not hide the others
        if entry is not None and entry.next_ms is not None:
            found.append(CronDue(entry, entry.next_ms))
    return tuple(found)


def due(queue: str, *, now_ms: int, limit: int = 100) -> Call[Dues]:
    """What is due in both registries at `now_ms`, oldest first, at most `limit` of each, with their records."""

    def decode(reply: Reply) -> Dues:
        repeat, cron = as_list(reply)
        return Dues(dues_of(repeat), _cron_dues(cron))

    args = (milliseconds("now_ms", now_ms), integer("limit", limit, least=1, most=100_000))
    k = keys(queue)
    return Call("due", (k.repeat, k.cron), args, decode, _DUE, subject=queue)


def fire(
    queue: str, entry: Entry, occurrences: tuple[Occurrence, ...], *, next_slot_ms: int | None, next_due_ms: int | None
) -> Call[CronFired]:
    """One turn: admits the occurrences, in order, and moves the recurrence on, or does nothing at all (protocol §9).

    FIRED also when there was nothing to admit, or overlap or a deduplication key kept it out. LOST: the record or its
    score is not as it was read, or cannot be read. EARLY: one of them is not due by the server's clock. DUPLICATE: an
    id was taken.
    """
    args: list[Arg] = [
        entry.name,
        entry.stamp,
        "" if next_slot_ms is None else milliseconds("next_slot_ms", next_slot_ms),
        NEVER if next_due_ms is None else milliseconds("next_due_ms", next_due_ms),
    ]
    for each in occurrences:
        args += (check_job(each.job_id), each.slot_ms, each.due_ms, payload_of(each.payload))
    ids = ", ".join(each.job_id for each in occurrences[:3])
    return Call("fire", _names(queue, entry.name), tuple(args), _fired, _FIRE, subject=f"{entry.name} as {ids}")


def _fired(reply: Reply) -> CronFired:
    verdict, score, ids = as_list(reply)
    at = as_int(score)
    return CronFired(Firing(as_text(verdict)), at if at >= 0 else None, as_texts(ids))


def park(queue: str, entry: Entry) -> Call[bool]:
    """Takes a recurrence off the timetable whose record cannot be read; the record stays. False when it has changed."""
    return Call("park", _names(queue, entry.name), (entry.name, entry.stamp), as_flag, _PARK, subject=entry.name)
