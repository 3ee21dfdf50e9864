"""What a recurrence says and what has become of it, as its record in a registry holds them (protocol §9, ours).

docs/additions.md lists the fields of a `cron` record.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from echomq.identity.branded import check
from echomq.identity.errors import InvalidInputError
from echomq.protocol.call import Reply
from echomq.protocol.checks import MAX_MS
from echomq.protocol.replies import as_bytes, as_list, as_text

MAX_CATCH_UP: Final = 1_000
"""The most missed slots that one turn makes up for: a vector inside Lua (protocol §5)."""

_NUMBERS: Final = ("every_ms", "anchor_ms", "start_ms", "end_ms", "max_runs", "expires_in_ms")
_TEXTS: Final = ("line", "tz", "group", "lane", "dedup", "owner")


class Kind(Enum):
    """The registry that a recurrence is in."""

    REPEAT = "repeat"
    CRON = "cron"


@dataclass(frozen=True, slots=True)
class Definition:
    """What a recurrence is to do. Exactly one of `every_ms` and `line` (five cron fields, in the zone `tz`).

    `anchor_ms`: a slot of the grid; without one the grid goes through the next slot. `start_ms`, `end_ms`: the first
    and the last instant that may be a slot. `jitter_ms`: the most that an occurrence is put off. `catch_up`: `skip`,
    `one` or `all`, the last with a limit. `overlap`: `allow` or `skip`. `group`, `lane`, `dedup`, `dedup_ms` (0: until
    its job ends) and `dedup_way` (`keep`, `replace`): how each occurrence is admitted. `expires_in_ms`: how late after
    its slot it may start. `owner`: whose code declares it.
    """

    template: bytes
    every_ms: int | None = None
    line: str = ""
    tz: str = ""
    anchor_ms: int | None = None
    start_ms: int | None = None
    end_ms: int | None = None
    jitter_ms: int = 0
    catch_up: str = "one"
    catch_up_limit: int | None = None
    overlap: str = "allow"
    max_runs: int | None = None
    expires_in_ms: int | None = None
    group: str = ""
    lane: str = ""
    dedup: str = ""
    dedup_ms: int = 0
    dedup_way: str = "keep"
    owner: str = ""

    @property
    def is_plain(self) -> bool:
        """Whether it says a period and a template and nothing else: then it belongs in `repeat`."""
        return self == Definition(self.template, every_ms=self.every_ms)

    @property
    def grid(self) -> tuple[object, ...]:
        """What its slots depend on, but for their first and last."""
        return (self.every_ms, self.anchor_ms, self.line, self.tz)

    def fields(self) -> dict[str, str | bytes]:
        """The record's fields; what says nothing is left out."""
        out: dict[str, str | bytes] = {"template": self.template}
        for name in _NUMBERS:
            value: int | None = getattr(self, name)
            if value is not None:
                out[name] = str(value)
        for name in _TEXTS:
            if text := getattr(self, name):
                out[name] = text
        if self.jitter_ms:
            out["jitter_ms"] = str(self.jitter_ms)
        if self.catch_up != "one":
            out["catch_up"] = self.catch_up if self.catch_up_limit is None else f"all:{self.catch_up_limit}"
        if self.overlap != "allow":
            out["overlap"] = self.overlap
        if self.dedup and self.dedup_ms:
            out["dedup_ms"] = str(self.dedup_ms)
        if self.dedup and self.dedup_way != "keep":
            out["dedup_way"] = self.dedup_way
        return out


@dataclass(frozen=True, slots=True)
class History:
    """What has become of a recurrence: Unix ms on the server's clock, each None before the first time.

    `slot_ms`: its next slot; None when there is none. `last_late_ms`: how long after it was due the last occurrence
    was admitted. `runs` counts occurrences, `skipped` those that overlap or a deduplication key kept out.
    """

    slot_ms: int | None = None
    last_slot_ms: int | None = None
    last_run_ms: int | None = None
    last_late_ms: int | None = None
    last_id: str = ""
    runs: int = 0
    skipped: int = 0
    paused: bool = False


@dataclass(frozen=True, slots=True)
class Entry:
    """A name in one registry. `score` is its place as the server has it; None when it lost that.

    `stamp` stands for all of it, for verbs that act only on what was read. `definition` is None for a record that is
    none of ours to read.
    """

    kind: Kind
    name: str
    score: str | None
    stamp: str
    definition: Definition | None
    history: History

    @property
    def next_ms(self) -> int | None:
        """When it is due next; None when it is paused, over or off the timetable."""
        if self.score is None or (value := float(self.score)) >= MAX_MS:
            return None
        return max(int(value), 0) if value > float("-inf") else 0


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a name stands: the server's clock, and its entry in each registry."""

    now_ms: int
    repeat: Entry | None
    cron: Entry | None

    @property
    def entry(self) -> Entry | None:
        """The one that counts."""
        return self.cron or self.repeat


_NATURAL: Final = re.compile(rb"0|[1-9][0-9]{0,15}")


@dataclass(slots=True)
class _Record:
    """The fields of a record, taken one by one; `sound` ends with the first that cannot be read."""

    fields: dict[bytes, bytes]
    sound: bool = field(default=True)

    def number(self, name: str, *, least: int = 0) -> int | None:
        raw = self.fields.get(name.encode())
        if raw is None:
            return None
        value = int(raw) if _NATURAL.fullmatch(raw) else -1
        if not least <= value <= MAX_MS:
            self.sound = False
            return None
        return value

    def text(self, name: str, default: str = "", among: tuple[str, ...] = ()) -> str:
        raw = self.fields.get(name.encode())
        if raw is None:
            return default
        value = raw.decode("utf-8", "replace")
        self.sound = self.sound and (not among or value in among)
        return value


def definition_of(fields: dict[bytes, bytes]) -> Definition | None:
    """The definition in a record; None when it is none of ours to read."""
    record = _Record(fields)
    template = fields.get(b"template")
    catch_up, _, limit = record.text("catch_up", "one").partition(":")
    counted = _limit(limit) if limit else None
    if (
        template is None
        or (b"every_ms" in fields) == (b"line" in fields)
        or (catch_up not in ("skip", "one") if not limit else catch_up != "all" or counted is None)
    ):
        return None
    found = Definition(
        template,
        every_ms=record.number("every_ms", least=1),
        line=record.text("line"),
        tz=record.text("tz"),
        anchor_ms=record.number("anchor_ms"),
        start_ms=record.number("start_ms"),
        end_ms=record.number("end_ms"),
        jitter_ms=record.number("jitter_ms") or 0,
        catch_up=catch_up,
        catch_up_limit=counted,
        overlap=record.text("overlap", "allow", ("allow", "skip")),
        max_runs=record.number("max_runs", least=1),
        expires_in_ms=record.number("expires_in_ms"),
        group=record.text("group"),
        lane=record.text("lane"),
        dedup=record.text("dedup"),
        dedup_ms=record.number("dedup_ms") or 0,
        dedup_way=record.text("dedup_way", "keep", ("keep", "replace")),
        owner=record.text("owner"),
    )
    return found if record.sound and _is_group(found.group) else None


def _is_group(text: str) -> bool:
    try:
        return not text or check(text) == text
    except InvalidInputError:
        return False


def _limit(text: str) -> int | None:
    return int(text) if re.fullmatch("[1-9][0-9]{0,3}", text) and int(text) <= MAX_CATCH_UP else None


def history_of(fields: dict[bytes, bytes]) -> History:
    """What has become of a recurrence by its record; what cannot be read counts as absent."""
    record = _Record(fields)
    return History(
        slot_ms=record.number("slot_ms"),
        last_slot_ms=record.number("last_slot_ms"),
        last_run_ms=record.number("last_run_ms"),
        last_late_ms=record.number("last_late_ms"),
        last_id=record.text("last_id"),
        runs=record.number("runs") or 0,
        skipped=record.number("skipped") or 0,
        paused=b"paused" in fields,
    )


def _fields(items: list[Reply]) -> dict[bytes, bytes]:
    return {as_bytes(items[i]): as_bytes(items[i + 1]) for i in range(0, len(items), 2)}


def entry_of(kind: Kind, name: str, reply: Reply) -> Entry | None:
    """An entry as the scripts give it; None when there is none."""
    items = as_list(reply)
    if not items:
        return None
    score, stamp, *rest = items
    fields = _fields(rest)
    return Entry(kind, name, as_text(score) or None, as_text(stamp), definition_of(fields), history_of(fields))
