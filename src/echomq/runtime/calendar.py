"""The slots of a recurrence: a grid of equal periods, or the instants that a cron line names in a time zone.

Instants are Unix ms. A cron line follows Debian cron (architecture.md): where it begins with `*` in minute or hour, it
runs at every real minute whose wall clock it names; else a time that a spring forward leaves out runs at the first
instant after the gap, and one that an autumn repeats runs the first time only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Final

from cronsim import CronSim, CronSimError

from echomq.identity.errors import InvalidInputError

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)
_SECOND: Final = timedelta(seconds=1)
_DAY: Final = timedelta(days=1)

_WORDS: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_FIELDS: Final = (
    ("minute", "0 to 59, as in 30, */5 or 0,30"),
    ("hour", "0 to 23, as in 2, */4 or 9-17"),
    ("day of the month", "1 to 31, as in 1, 1-7 or L for the last"),
    ("month", "1 to 12 or JAN to DEC"),
    ("weekday", "0 to 7 or SUN to SAT, as in MON-FRI or MON#1"),
)
_VALUES: Final = (60, 24, 31, 12, 7)
"""How many values each field has."""
_PERIODS: Final = ("every(minutes={})", "every(hours={})", "every(days={})", "every(...)", "every(weeks=...)")
_STEP: Final = re.compile(r"/(\d+)")
_RANGE_OF_ONE: Final = re.compile(r"(?<!\w)(\w+)-\1/\d+")
_NO_ZONES: Final = frozenset({"localtime", "posixrules", "Factory"})
_SAMPLE: Final = 200
_SAMPLED_FROM: Final = datetime(2026, 1, 1, tzinfo=UTC)


@lru_cache(maxsize=1_024)
def _checked(said: str) -> str:
    fields = said.upper().split()
    if len(fields) != len(_FIELDS):
        raise InvalidInputError(
            f"cron line {said!r:.200} has {len(fields)} fields; it takes five (minute, hour, day of the month, month, "
            f"weekday) or one of {', '.join(_WORDS)}; for seconds use every(seconds=...)"
        )
    for place, (name, allowed) in enumerate(_FIELDS):
        alone = ["*"] * len(_FIELDS)
        alone[place] = fields[place]
        if not re.fullmatch(r"[0-9A-Z*,/#-]{1,300}", fields[place]) or not _parses(" ".join(alone)):
            raise InvalidInputError(f"cron line {said!r:.200} has {said.split()[place]!r:.80} as its {name}: {allowed}")
    # cronsim takes 5-5/3 for 5/3, which goes on to the end.
    line = _RANGE_OF_ONE.sub(r"\1", " ".join(fields))
    if not _parses(line) or _first(line, _EPOCH.replace(tzinfo=None)) is None:
        raise InvalidInputError(
            f"cron line {said!r:.200} never comes: no month of those has such a day; L is the last day of each month"
        )
    return line


def cron_line(text: str) -> str:
    """The five fields that `text` says, an `@` word spelt out; `InvalidInputError` for what never comes or is none."""
    if not isinstance(text, str):
        raise InvalidInputError(
            f"a cron line must be text such as '30 2 * * *', not {type(text).__name__}: {text!r:.80}"
        )
    said = text.strip()
    if said.startswith("@"):
        if line := _WORDS.get(said.lower()):
            return line
        raise InvalidInputError(f"cron line {said!r:.80} is none of {', '.join(_WORDS)}")
    return _checked(said)


def new_line(text: str) -> str:
    """`cron_line` for a line that is being written: a step beyond its field, which never comes, is refused, too.

    A line of that kind that is registered already goes on.
    """
    line = cron_line(text)
    for (name, _), values, period, field in zip(_FIELDS, _VALUES, _PERIODS, line.split(), strict=True):
        for step in map(int, _STEP.findall(field)):
            if step > values:
                raise InvalidInputError(
                    f"cron line {text.strip()!r:.200} has {field!r:.80} as its {name}: a step is from 1 to {values}, "
                    f"as in */{values}; for a longer period use {period.format(step)}"
                )
    return line


def zone(name: str) -> tzinfo:
    """The time zone of an IANA name; `InvalidInputError` with the nearest ones for another."""
    if not isinstance(name, str):
        raise InvalidInputError(
            f"tz must be the IANA name of a zone, such as 'Europe/Berlin', not {type(name).__name__}: {name!r:.80}"
        )
    found = _zone(name)
    if found is None:
        raise InvalidInputError(_no_zone(name))
    return found


@lru_cache(maxsize=256)
def _zone(name: str) -> tzinfo | None:
    from zoneinfo import ZoneInfo

    if name == "UTC":
        return UTC
    if name in _NO_ZONES or name.startswith(("posix/", "right/")):
        return None
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return None


@lru_cache(maxsize=64)
def _no_zone(name: str) -> str:
    from difflib import get_close_matches
    from zoneinfo import available_timezones

    known = {each.lower(): each for each in available_timezones() if _zone(each) is not None}
    if not known:
        return f"tz {name!r:.80} cannot be looked up: this machine has no time-zone data; pip install tzdata"
    asked = name.lower().replace(" ", "_")
    near = get_close_matches(asked, known, 3)
    near += [key for key in known if "/" in key and key.rsplit("/", 1)[1] == asked.rsplit("/", 1)[-1]]
    offered = ", ".join(dict.fromkeys(known[key] for key in near)) or "UTC, Europe/Berlin, America/New_York and so on"
    return f"tz {name!r:.80} is no IANA time zone; nearest: {offered}"


def instant(ms: int) -> datetime:
    """Unix ms as an aware datetime in UTC; the last one there is for what lies beyond."""
    try:
        return _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Grid:
    """Slots `base_ms + n * every_ms`, for every whole n."""

    every_ms: int
    base_ms: int

    def after(self, at_ms: int) -> int:
        """The first slot after an instant."""
        return self.base_ms + ((at_ms - self.base_ms) // self.every_ms + 1) * self.every_ms

    def shortest_ms(self) -> int:
        """The least distance of two slots."""
        return self.every_ms


@dataclass(frozen=True, slots=True)
class Cron:
    """The slots of a cron line (five fields) on the wall clock of a zone."""

    line: str
    zone: tzinfo

    def after(self, at_ms: int) -> int | None:
        """The first slot after an instant; None when there is none within fifty years."""
        at = instant(at_ms)
        try:
            found = self._wild(at) if self._is_wild else self._fixed(at)
        except (OverflowError, ValueError):
            return None  # beyond the calendar's last year
        return None if found is None else (found - _EPOCH) // _MS

    def shortest_ms(self) -> int:
        """The least distance of two slots, the days left out on which clocks change."""
        at, least = (_SAMPLED_FROM - _EPOCH) // _MS, 0
        plain = Cron(self.line, UTC)
        last = plain.after(at)
        for _ in range(_SAMPLE):
            following = None if last is None else plain.after(last)
            if last is None or following is None:
                break
            least = min(least, following - last) if least else following - last
            last = following
        return least

    @property
    def _is_wild(self) -> bool:
        return any(field.startswith("*") for field in self.line.split()[:2])

    def _fixed(self, at: datetime) -> datetime | None:
        for found in CronSim(self.line, at.astimezone(self.zone)):
            # Near a fold it answers instants that have passed.
            if (candidate := found.astimezone(UTC)) > at:
                return candidate
        return None

    def _wild(self, at: datetime) -> datetime | None:
        """From one change of the clocks to the next: by itself cronsim steps by hours over changes of half an hour."""
        offset = self._offset(at)
        while True:
            local = _first(self.line, (at + offset).replace(tzinfo=None))
            if local is None:
                return None
            candidate = local.replace(tzinfo=UTC) - offset
            changed = self._change(at, candidate, offset)
            if changed is None:
                return candidate
            at, offset = changed - _SECOND, self._offset(changed)

    def _change(self, at: datetime, until: datetime, offset: timedelta) -> datetime | None:
        """The first instant after `at`, up to `until`, with another offset."""
        if self.zone is UTC:
            return None
        low = at
        while low < until:
            high = min(low + _DAY, until)
            if self._offset(high) != offset:
                while high - low > _SECOND:
                    middle = low + (high - low) // 2
                    low, high = (middle, high) if self._offset(middle) == offset else (low, middle)
                return high.replace(microsecond=0)
            low = high
        return None

    def _offset(self, at: datetime) -> timedelta:
        return at.astimezone(self.zone).utcoffset() or timedelta(0)


def _parses(line: str) -> bool:
    try:
        CronSim(line, _EPOCH.replace(tzinfo=None))
    except (CronSimError, ValueError, AssertionError):
        return False
    return True


def _first(line: str, local: datetime) -> datetime | None:
    return next(CronSim(line, local), None)
