"""What a recurrence of the `cron` registry does next: its slots, when each is due, and which missed ones still run.

Instants are Unix ms on the server's clock (protocol §4, §9).
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from echomq.identity.errors import InvalidInputError
from echomq.protocol.checks import MAX_MS
from echomq.protocol.recurring import Definition
from echomq.runtime.calendar import Cron, Grid, cron_line, zone

_ATTENDED_MS: Final = 2_000
"""A pump that is never further behind than this misses nothing: two beats."""

_ON_TIME_MS: Final = 60_000
"""However long the period, a slot is missed when it is later than this (and a tenth of the period, if that is less)."""

_LOOK_BACK_MS: Final = 60_000


@dataclass(frozen=True, slots=True)
class Timetable:
    """The slots of one recurrence between its start and its end, and the jitter that puts each off."""

    name: str
    slots: Grid | Cron
    start_ms: int | None = None
    end_ms: int | None = None
    jitter_ms: int = 0

    def following(self, after_ms: int) -> int | None:
        """The first slot after an instant; None when its time is over."""
        if self.start_ms is not None:
            after_ms = max(after_ms, self.start_ms - 1)
        slot = self.slots.after(max(after_ms, -1))
        last = MAX_MS if self.end_ms is None else self.end_ms
        return None if slot is None or slot > last else slot

    def due_ms(self, slot_ms: int) -> int:
        """When the occurrence of a slot is due: the slot and its jitter, never later than the next slot."""
        put_off = spread_ms(self.name, slot_ms, self.jitter_ms)
        if not put_off:
            return slot_ms
        following = self.slots.after(slot_ms)
        return slot_ms + put_off if following is None else min(slot_ms + put_off, following)

    def passed(self, slot_ms: int, now_ms: int, most: int) -> list[int]:
        """The last `most` slots that are due by now, `slot_ms` being the first of all and due whatever its time."""
        until = now_ms if self.end_ms is None else min(now_ms, self.end_ms)
        found = self._between(slot_ms, until, most + 1)
        if len(found) > 1 and self.due_ms(found[-1]) > now_ms:
            found.pop()
        return found[-most:]

    def _between(self, first: int, last: int, most: int) -> list[int]:
        if last <= first:
            return [first]
        if isinstance(self.slots, Grid):
            every_ms = self.slots.every_ms
            count = (self.slots.after(last) - self.slots.after(first)) // every_ms
            newest = self.slots.after(last)
            found = [newest - n * every_ms for n in range(min(count, most), 0, -1)]
            return found if count >= most else [first, *found]
        # Backwards in leaps that double, so that a long absence costs few steps.
        leap = _LOOK_BACK_MS
        while True:
            low = max(first, last - leap)
            found = [first] if low == first else []
            at = self.slots.after(low)
            while at is not None and at <= last:
                found.append(at)
                at = self.slots.after(at)
            if low == first or len(found) >= most:
                return found[-most:]
            leap *= 2


@dataclass(frozen=True, slots=True)
class Turn:
    """What a due recurrence is to do: admit an occurrence for each of `slots`, and go on to `next_ms` (None: ends)."""

    slots: tuple[int, ...]
    next_ms: int | None


def is_sound(definition: Definition) -> bool:
    """Whether it has a period or a line that can come."""
    try:
        return definition.every_ms is not None or bool(cron_line(definition.line))
    except InvalidInputError:
        return False


def timetable(name: str, definition: Definition, slot_ms: int) -> Timetable:
    """The timetable of a recurrence that stands at `slot_ms`; `InvalidInputError` for a zone that this host lacks."""
    slots: Grid | Cron
    if definition.every_ms is not None:
        base = definition.anchor_ms if definition.anchor_ms is not None else slot_ms
        slots = Grid(definition.every_ms, base)
    else:
        slots = Cron(cron_line(definition.line), zone(definition.tz))
    return Timetable(name, slots, definition.start_ms, definition.end_ms, definition.jitter_ms)


def turn(table: Timetable, definition: Definition, slot_ms: int, due_ms: int, now_ms: int, runs: int) -> Turn:
    """The turn of a recurrence whose slot `slot_ms` was due at `due_ms`, by its `catch_up` and `max_runs`."""
    most = definition.catch_up_limit or 1
    passed = table.passed(slot_ms, now_ms, most)
    latest = passed[-1]
    following = table.following(latest)
    if definition.catch_up == "skip" and now_ms - due_ms > _ATTENDED_MS:
        beyond = table.slots.after(latest)
        tenth = _ON_TIME_MS if beyond is None else (beyond - latest) // 10
        late_ms = now_ms - (due_ms if latest == slot_ms else table.due_ms(latest))
        if late_ms > min(tenth, _ON_TIME_MS):
            passed = []
    if definition.max_runs is not None:
        passed = passed[: max(definition.max_runs - runs, 0)]
    return Turn(tuple(passed), following)


def spread_ms(name: str, slot_ms: int, jitter_ms: int) -> int:
    """From 0 to `jitter_ms`, the same for a name and a slot wherever it is asked for."""
    if not jitter_ms:
        return 0
    digest = sha256(f"{name}\0{slot_ms}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") % (jitter_ms + 1)
