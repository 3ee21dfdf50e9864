"""What a registration does to the recurrence of its name: read where it stands, decide, write if it still stands so."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from echomq.app.timing import Timing
from echomq.identity.errors import EchoMQError, InvalidInputError
from echomq.identity.minter import mint
from echomq.protocol import cron
from echomq.protocol.call import Plan
from echomq.protocol.recurring import Definition, Entry, History, Kind, Standing
from echomq.protocol.repeat import Registration

_TRIES: Final = 100
"""Others that were first, in a row, which no race explains."""


@dataclass(frozen=True, slots=True)
class Registered:
    """What a registration did, when it runs next (UTC, None when it is paused or over), and whether that was so before.

    The next run is kept unless the timing has changed: the period or the line, the zone, the anchor; or jitter, start,
    end or `max_runs` so that it no longer fits.
    """

    verdict: Registration
    next_run: datetime | None
    kept: bool


@dataclass(frozen=True, slots=True)
class Place:
    """Where a recurrence is to stand: its next slot, when that is due, and whether it is paused."""

    slot_ms: int | None
    due_ms: int | None
    paused: bool


def register(queue: str, name: str, definition: Definition, timing: Timing, ahead_ms: int = 0) -> Plan[Registered]:
    """Makes the recurrence of a name be what `definition` says.

    `InvalidInputError` for a new one without a slot from now on; what code declares, which has an owner, may have come
    to its end. `ahead_ms`: how far the clock of recurrences is ahead of the server's, in a test that has moved it.
    """
    for _ in range(_TRIES):
        standing: Standing = yield from look(queue, name, ahead_ms)
        old = standing.entry
        place = place_of(standing, name, definition, timing)
        if old is None and place.slot_ms is None and not definition.owner:
            raise _never(name, definition, standing.now_ms)
        next_ms = None if place.paused else place.due_ms
        kept = old is not None and next_ms is not None and next_ms == old.next_ms
        if old is not None and _stands(standing, old, definition, place):
            return Registered(Registration.UNCHANGED, _moment(next_ms), kept)
        due_ms = None if place.due_ms is None else place.due_ms - ahead_ms
        written: bool = yield cron.put(
            queue, name, definition, standing, slot_ms=place.slot_ms, due_ms=due_ms, paused=place.paused
        )
        if written:
            verdict = Registration.REGISTERED if old is None else Registration.UPDATED
            return Registered(verdict, _moment(next_ms), kept)
    raise _restless(name)


def look(queue: str, name: str, ahead_ms: int) -> Plan[Standing]:
    """Where a name stands on the clock of recurrences."""
    standing: Standing = yield cron.look(queue, name)
    if not ahead_ms:
        return standing
    repeat, entry = (_later(each, ahead_ms) for each in (standing.repeat, standing.cron))
    return Standing(standing.now_ms + ahead_ms, repeat, entry)


def _later(entry: Entry | None, ahead_ms: int) -> Entry | None:
    if entry is None or entry.next_ms is None:
        return entry
    return replace(entry, score=str(entry.next_ms + ahead_ms))


def pause(queue: str, name: str, ahead_ms: int = 0) -> Plan[bool]:
    """No occurrence until it is resumed; False when there is none of that name, `InvalidInputError` when its record
    cannot be read."""
    if not ahead_ms:
        return (yield from _paused(queue, name))
    for _ in range(_TRIES):
        standing = yield from look(queue, name, ahead_ms)
        entry = standing.entry
        if entry is None or entry.kind is Kind.CRON or entry.definition is None:
            return (yield from _paused(queue, name))
        # The script would take its score for its slot.
        written: bool = yield cron.put(
            queue, name, entry.definition, standing, slot_ms=entry.next_ms, due_ms=None, paused=True
        )
        if written:
            return True
    raise _restless(name)


def _paused(queue: str, name: str) -> Plan[bool]:
    done: cron.Paused = yield cron.pause(queue, name)
    if done is cron.Paused.ABSENT:
        standing: Standing = yield cron.look(queue, name)
        if standing.entry is not None:
            raise _unreadable(queue, name)
    return done is not cron.Paused.ABSENT


def resume(queue: str, name: str, ahead_ms: int = 0) -> Plan[bool]:
    """Lets a paused recurrence go on at its first slot after now; False when there is none of that name,
    `InvalidInputError` when its record cannot be read."""
    for _ in range(_TRIES):
        standing = yield from look(queue, name, ahead_ms)
        old = standing.entry
        if old is None:
            return False
        if old.definition is None:
            raise _unreadable(queue, name)
        if not old.history.paused:
            return True
        place = place_of(standing, name, old.definition, Timing(old.definition, paused=False))
        due_ms = None if place.due_ms is None else place.due_ms - ahead_ms
        written: bool = yield cron.put(queue, name, old.definition, standing, slot_ms=place.slot_ms, due_ms=due_ms)
        if written:
            return True
    raise _restless(name)


def run_now(queue: str, name: str, ahead_ms: int = 0) -> Plan[tuple[str, bytes, bool]]:
    """Admits an occurrence beside the timetable; gives its id, the template, and whether that is a living job with
    the same key."""
    from echomq.runtime.slotted import slotted

    for _ in range(_TRIES):
        standing = yield from look(queue, name, ahead_ms)
        entry = standing.entry
        if entry is None:
            raise InvalidInputError(f"recurrence {name!r} of queue {queue!r} is not registered: register it first")
        if entry.definition is None:
            raise _unreadable(queue, name)
        definition = entry.definition
        payload = slotted(definition.template, standing.now_ms, definition.expires_in_ms) or definition.template
        verdict, job_id = yield cron.run(queue, entry, mint(), payload)
        if verdict in (cron.Ran.ADMITTED, cron.Ran.HELD):
            return job_id, definition.template, verdict is cron.Ran.HELD
    raise _restless(name)


def place_of(standing: Standing, name: str, definition: Definition, timing: Timing) -> Place:
    """Where the recurrence of a name goes: where it is, unless its timing has changed."""
    from echomq.runtime.timetable import timetable

    old, now_ms = standing.entry, standing.now_ms
    history = History() if old is None else _history(old)
    paused = history.paused if timing.paused is None else timing.paused
    if definition.max_runs is not None and history.runs >= definition.max_runs:
        return Place(None, None, paused)
    slot_ms = history.slot_ms
    if old is None or not _fits(old, definition, slot_ms, now_ms):
        goes_on = old is not None and old.definition is not None and old.definition.grid == definition.grid
        slot_ms = _first_slot(name, definition, timing, now_ms, _last_slot(old, now_ms), goes_on=goes_on)
    elif history.paused and not paused and slot_ms is not None and slot_ms <= now_ms:
        slot_ms = timetable(name, definition, slot_ms).following(now_ms)
    if slot_ms is None:
        return Place(None, None, paused)
    if old is not None and old.next_ms is not None and _due_stays(old, definition, slot_ms):
        return Place(slot_ms, old.next_ms, paused)
    return Place(slot_ms, timetable(name, definition, slot_ms).due_ms(slot_ms), paused)


def _first_slot(
    name: str, definition: Definition, timing: Timing, now_ms: int, last_ms: int | None, *, goes_on: bool
) -> int | None:
    """The first slot of a timing: after now, and after every slot that there was."""
    from echomq.runtime.timetable import timetable

    base_ms, after_ms = timing.base_ms, max(now_ms, -1 if last_ms is None else last_ms)
    if definition.every_ms is not None and base_ms is None:
        if last_ms is None or not goes_on:
            first_ms = now_ms + (timing.first_in_ms or 0)
            if timing.first_in_ms is None and last_ms is not None:
                first_ms = last_ms + definition.every_ms
            slot_ms = max(first_ms, after_ms)
            return None if definition.end_ms is not None and slot_ms > definition.end_ms else slot_ms
        base_ms = last_ms
    return timetable(name, definition, base_ms or 0).following(after_ms)


def _last_slot(old: Entry | None, now_ms: int) -> int | None:
    """The last slot that a recurrence had; that of a plain one is a period before its next, where it can have been."""
    if old is None:
        return None
    history, before = _history(old), old.definition
    if history.last_slot_ms is not None or history.slot_ms is None or before is None or before.every_ms is None:
        return history.last_slot_ms
    last_ms = history.slot_ms - before.every_ms
    return last_ms if last_ms <= now_ms < history.slot_ms else None


def _history(old: Entry) -> History:
    if old.kind is Kind.CRON:
        return old.history
    return History(slot_ms=old.next_ms)


def _fits(old: Entry, new: Definition, slot_ms: int | None, now_ms: int) -> bool:
    """Whether the next slot of a recurrence is one of its new timing, too."""
    before = old.definition
    if before is None or slot_ms is None or old.score is None or before.grid != new.grid:
        return False
    if new.start_ms != before.start_ms:
        if new.every_ms is not None and new.anchor_ms is None:
            return new.start_ms is None  # the grid goes through its start
        if slot_ms > now_ms:
            return False  # an earlier slot may be among the new ones
    last = slot_ms if new.end_ms is None else new.end_ms
    return (slot_ms if new.start_ms is None else new.start_ms) <= slot_ms <= last


def _due_stays(old: Entry, new: Definition, slot_ms: int) -> bool:
    return (
        old.definition is not None
        and old.definition.jitter_ms == new.jitter_ms
        and old.definition.grid == new.grid
        and _history(old).slot_ms == slot_ms
    )


def _stands(standing: Standing, old: Entry, definition: Definition, place: Place) -> bool:
    kind = Kind.REPEAT if definition.is_plain and not place.paused else Kind.CRON
    return (
        old.kind is kind
        and old.definition == definition
        and (standing.repeat is None or standing.cron is None)
        and old.score is not None
        and _history(old).slot_ms == place.slot_ms
        and old.history.paused == place.paused
    )


def _moment(at_ms: int | None) -> datetime | None:
    from echomq.runtime.calendar import instant

    return None if at_ms is None else instant(at_ms)


def _never(name: str, definition: Definition, now_ms: int) -> InvalidInputError:
    end, now = _moment(definition.end_ms), _moment(now_ms)
    if end is None or now is None:
        return InvalidInputError(
            f"recurrence {name!r} would never run: no slot follows its start; give an earlier start"
        )
    why = "has passed" if end < now else "comes before its first slot"
    return InvalidInputError(
        f"recurrence {name!r} would never run: its end, {end.isoformat()}, {why} (it is {now.isoformat()} on the "
        "server's clock); give a later end, or leave it out"
    )


def _unreadable(queue: str, name: str) -> InvalidInputError:
    return InvalidInputError(
        f"recurrence {name!r} of queue {queue!r} has a record that cannot be read: register it anew, or cancel it"
    )


def _restless(name: str) -> EchoMQError:
    return EchoMQError(f"recurrence {name!r} changed {_TRIES} times while it was read: is something re-registering it?")
