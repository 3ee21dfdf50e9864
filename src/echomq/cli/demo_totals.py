"""The demo's result: what was promised, what came, for a person or for a machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from echomq.cli.demo_listing import Listing, shown
from echomq.cli.demo_records import Kind
from echomq.cli.demo_tally import Tally

__all__ = ["Buried", "Ended", "Jobs", "LatenessTotals", "Totals", "sum_up"]

FEW = 10
"""How many names a person is shown of each kind; a machine gets them all."""


class Buried(msgspec.Struct, frozen=True):
    """A job in the morgue."""

    job: str
    failures: int
    error: str


class Jobs(msgspec.Struct, frozen=True):
    """How the queue's jobs ended, by the server's counts and by the jobs' own records."""

    done: int
    dead: int
    failures: int
    snoozes: int
    occurrences: int


class LatenessTotals(msgspec.Struct, frozen=True):
    """How late the timed jobs began, in milliseconds of this host's clock."""

    jobs: int
    median: int
    worst: int
    earliest: int


class Ended(msgspec.Struct, frozen=True):
    """What the run itself knows at its end."""

    queue: str
    seconds: float
    done: int
    dead: int
    left: int
    """Jobs that were pending, scheduled or in hand when the demo stopped waiting."""
    morgue: tuple[Buried, ...]
    trouble: tuple[str, ...] = ()


class Totals(msgspec.Struct, frozen=True):
    """All of it; `--json` prints this."""

    ok: bool
    problems: tuple[str, ...]
    folder: str
    queue: str
    seconds: float
    jobs_per_second: float
    files: int
    bytes: int
    hashed: int
    hashed_once: int
    compared: int
    missing: tuple[str, ...]
    repeated: tuple[str, ...]
    differing: tuple[str, ...]
    changed: tuple[str, ...]
    vanished: tuple[str, ...]
    unreadable: tuple[str, ...]
    links: int
    special: int
    left_out: tuple[str, ...]
    jobs: Jobs
    morgue: tuple[Buried, ...]
    lateness_ms: LatenessTotals | None

    def json(self) -> str:
        """One object on one line."""
        return msgspec.json.encode(self).decode()

    def lines(self) -> Iterator[str]:
        """For a person."""
        yield f"{self.files:,} files ({self.bytes / 2**20:,.1f} MiB) below {self.folder}"
        yield f"  hashed exactly once        {self.hashed_once:,}"
        yield f"  hashes compared, all equal {self.compared - len(self.differing):,} of {self.compared:,}"
        yield f"  jobs done                  {self.jobs.done:,}, {self.jobs_per_second:,.0f} a second on average"
        yield f"  failed and tried again     {self.jobs.failures:,} failures"
        yield f"  delayed in hand            {self.jobs.snoozes:,}"
        yield f"  occurrences, one a second  {self.jobs.occurrences:,}"
        yield f"  in the morgue              {len(self.morgue):,}"
        for buried in self.morgue[:FEW]:
            yield f"    {buried.job}, {buried.failures} failures: {shown(buried.error)}"
        if late := self.lateness_ms:
            when = f"{late.median} ms late (median), {late.worst} ms at worst"
            yield f"  timed jobs                 {late.jobs:,}, {when}"
        if self.links or self.special:
            yield f"  not followed, not opened   {self.links:,} links, {self.special:,} pipes, sockets and devices"
        for heading, names in (
            ("not entered, the server's own folder", self.left_out),
            ("unreadable", self.unreadable),
            ("gone before it was hashed", self.vanished),
            ("changed before it was hashed", self.changed),
            ("NOT HASHED", self.missing),
            ("HASHED MORE THAN ONCE", self.repeated),
            ("HASHED WRONG", self.differing),
        ):
            yield from _few(heading, names)
        if self.ok:
            what = "every file that could be read was" if self.unreadable or self.vanished else "every file was"
            yield f"ok: {what} hashed exactly once, in {self.seconds:.1f} s"
        else:
            yield f"failed: {'; '.join(self.problems)}"


def _few(heading: str, names: Sequence[str]) -> Iterator[str]:
    if names:
        yield f"  {heading}: {len(names):,}"
        for name in names[:FEW]:
            yield f"    {name}"
        if len(names) > FEW:
            yield f"    ... and {len(names) - FEW:,} more"


def sum_up(listing: Listing, tally: Tally, ended: Ended) -> Totals:
    """Hold what came against what was listed."""
    compared, differing = tally.compare()
    missing, repeated = tally.missing(), tally.repeated()
    hashed = sum(1 for ends in tally.ends.values() if ends[0].kind is Kind.HASHED)
    once = sum(1 for ends in tally.ends.values() if len(ends) == 1 and ends[0].kind is Kind.HASHED)
    expected = len(tally.ends) + tally.runs[Kind.TICK]
    problems = [
        *ended.trouble,
        *_if(missing, f"{len(missing):,} of {len(tally.casting.targets):,} jobs did not come to their end"),
        *_if(repeated, f"{len(repeated):,} files were hashed more than once"),
        *_if(differing, f"{len(differing):,} hashes are wrong"),
        *_if(ended.dead != 1, f"{ended.dead} jobs are in the morgue instead of 1"),
        *_if(ended.left, f"{ended.left:,} jobs were left in the queue"),
        *_if(ended.done != expected, f"the server counts {ended.done:,} jobs done, the jobs themselves {expected:,}"),
        *_if(tally.runs[Kind.SNOOZED] != 1, f"{tally.runs[Kind.SNOOZED]} delays in hand instead of 1"),
        *_if(not tally.runs[Kind.TICK], "the recurrence never fired"),
    ]
    late = tally.lateness
    return Totals(
        ok=not problems,
        problems=tuple(problems),
        folder=shown(listing.root),
        queue=ended.queue,
        seconds=round(ended.seconds, 3),
        jobs_per_second=round(ended.done / ended.seconds, 1) if ended.seconds > 0 else 0.0,
        files=len(listing.files),
        bytes=listing.size,
        hashed=hashed,
        hashed_once=once,
        compared=compared,
        missing=tuple(missing),
        repeated=tuple(repeated),
        differing=tuple(differing),
        changed=tuple(tally.changed()),
        vanished=tuple(tally.ended_as(Kind.GONE)),
        unreadable=(*listing.unreadable, *tally.ended_as(Kind.UNREADABLE)),
        links=listing.links,
        special=listing.special,
        left_out=tuple(shown(folder) for folder in listing.left_out),
        jobs=Jobs(ended.done, ended.dead, tally.runs[Kind.FAILED], tally.runs[Kind.SNOOZED], tally.runs[Kind.TICK]),
        morgue=ended.morgue,
        lateness_ms=LatenessTotals(late.jobs, late.median_ms, late.worst_ms, late.earliest_ms) if late else None,
    )


def _if(condition: object, problem: str) -> list[str]:
    return [problem] if condition else []
