"""What the demo holds its queue to: every file once, and the timed jobs on time."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from echomq.cli.demo_listing import Found, shown
from echomq.cli.demo_records import Kind, Record, carried, hash_once, path_of

__all__ = ["CHECK_BYTES", "Casting", "Lateness", "Tally", "cast"]

TIMED = 20
"""How many files are scheduled ahead."""
CHECK_BYTES = 256 * 1024 * 1024
"""How much the demo reads a second time, to compare hashes."""


@dataclass(frozen=True, slots=True)
class Casting:
    """Which target plays which part. A part that no file is left for is played by a job without one."""

    flaky: str
    snoozed: str
    timed: tuple[str, ...]
    plain: tuple[str, ...]

    @property
    def targets(self) -> tuple[str, ...]:
        """All of them: each has to come to its end once."""
        return (self.flaky, self.snoozed, *self.timed, *self.plain)


def cast(files: Sequence[Found]) -> Casting:
    """Give the parts to the first files."""
    targets = [carried(found.path) for found in files]
    flaky = targets.pop(0) if targets else "flaky"
    snoozed = targets.pop(0) if targets else "snoozed"
    timed = tuple(targets[:TIMED]) or ("timed",)
    return Casting(flaky, snoozed, timed, tuple(targets[TIMED:]))


@dataclass(frozen=True, slots=True)
class Lateness:
    """How late the jobs that had a time began; milliseconds on this host's clock."""

    jobs: int
    median_ms: int
    worst_ms: int
    earliest_ms: int


@dataclass(slots=True)
class Tally:
    """The records so far, held against what was listed."""

    casting: Casting
    files: dict[str, Found]
    ends: dict[str, list[Record]] = field(default_factory=dict)
    runs: dict[Kind, int] = field(default_factory=lambda: dict.fromkeys(Kind, 0))
    late_ms: list[int] = field(default_factory=list)
    moved: int = 0
    """How many runs there were, without the recurrence's, which go on whatever happens."""

    @classmethod
    def of(cls, files: Iterable[Found]) -> Tally:
        """A tally of nothing yet."""
        listed = list(files)
        return cls(cast(listed), {carried(found.path): found for found in listed})

    def add(self, record: Record) -> None:
        """Count one run."""
        self.runs[record.kind] += 1
        if record.due_ms:
            self.late_ms.append(record.start_ms - record.due_ms)
        if record.kind is Kind.TICK:
            return
        self.moved += 1
        if record.kind.final:
            self.ends.setdefault(record.target, []).append(record)

    @property
    def waiting(self) -> int:
        """How many targets have not come to their end."""
        return len(self.casting.targets) - len(self.ends)

    @property
    def lateness(self) -> Lateness | None:
        """Of the timed jobs so far, the recurrence among them."""
        if not self.late_ms:
            return None
        late = sorted(self.late_ms)
        return Lateness(len(late), late[len(late) // 2], late[-1], late[0])

    def missing(self) -> list[str]:
        """Targets whose job never came to its end."""
        return [_name(target) for target in self.casting.targets if target not in self.ends]

    def repeated(self) -> list[str]:
        """Targets whose job came to its end more than once, with how often."""
        return sorted(f"{_name(target)} ({len(ends)} times)" for target, ends in self.ends.items() if len(ends) > 1)

    def ended_as(self, kind: Kind) -> list[str]:
        """Files whose job ended so, with what stood in the way."""
        return sorted(
            f"{_name(target)}: {ends[0].error}" if ends[0].error else _name(target)
            for target, ends in self.ends.items()
            if ends[0].kind is kind
        )

    def changed(self) -> list[str]:
        """Files that were not the same any more when they were hashed."""
        return [
            _name(target)
            for target, found in self.files.items()
            for record in self.ends.get(target, ())[:1]
            if record.kind is Kind.HASHED and (record.size, record.mtime_ns) != (found.size, found.mtime_ns)
        ]

    def compare(self, limit: int = CHECK_BYTES) -> tuple[int, list[str]]:
        """Hash files here, up to `limit` bytes of them: how many were compared, and which differ.

        A file that changed since its job hashed it says nothing about the job, and is not compared.
        """
        compared, differing = 0, list[str]()
        for target, found in self.files.items():
            theirs = self.ends.get(target, [None])[0]
            if theirs is None or theirs.kind is not Kind.HASHED:
                continue
            limit -= found.size
            if limit < 0:
                break
            ours = hash_once(target, 0)
            if (ours.kind, ours.size, ours.mtime_ns) != (Kind.HASHED, theirs.size, theirs.mtime_ns):
                continue
            compared += 1
            if ours.sha256 != theirs.sha256:
                differing.append(_name(target))
        return compared, differing


def _name(target: str) -> str:
    return shown(path_of(target)) if target.startswith(os.sep) else f"({target}, without a file)"
