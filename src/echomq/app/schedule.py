"""A recurrence by its name, whoever registered it: what it says, what became of it, and what can be done with it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from echomq.app.handles import Job
from echomq.app.inspect import name_in
from echomq.app.registering import look, pause, resume, run_now
from echomq.identity.errors import InvalidInputError
from echomq.protocol import cron, survey_repeats
from echomq.protocol.call import Plan
from echomq.protocol.recurring import Definition, Entry, Kind, definition_of, history_of

if TYPE_CHECKING:
    from echomq.app.echomq import EchoMQ

_PAGE: Final = 500


@dataclass(frozen=True, slots=True)
class ScheduleInfo:
    """A recurrence as it stood when it was asked for. Datetimes are in UTC, by the server's clock; None: not known.

    A plain period of `every` keeps no record of its runs, so that other clients understand it (protocol §2): of that
    one only `next_run` and `overdue` are known.
    """

    name: str
    queue: str
    kind: Kind
    """`REPEAT` for a plain period, `CRON` for what says more than that."""
    job: str | None
    """The name of its job; None when its template is not an app's."""
    every: timedelta | None
    line: str | None
    """Its five cron fields."""
    tz: str | None
    paused: bool
    over: bool
    """It has come to its end, or to its last run."""
    next_run: datetime | None
    next_slot: datetime | None
    """The slot that the next run is for: it differs by the jitter."""
    last_run: datetime | None
    last_slot: datetime | None
    lateness: timedelta | None
    """How long after it was due the last occurrence was admitted."""
    overdue: timedelta
    """How long its next run has been due; zero while it is not."""
    runs: int | None
    """Occurrences so far, those of `run_now` left out."""
    skipped: int
    """Occurrences that overlap or a deduplication key kept out."""
    last_id: str | None
    """The id of its last occurrence."""
    declared_by: str | None
    """The package whose code declares it with `@mq.job(schedule=...)`."""
    definition: Definition | None = field(repr=False)
    """All that it says, in the protocol's words; None when its record cannot be read."""


class Schedule:
    """The recurrence of a name in a queue. Nothing is sent before one of its methods is called."""

    def __init__(self, mq: EchoMQ, name: str, queue: str) -> None:
        if not isinstance(name, str) or not name:
            raise InvalidInputError(f"the name of a recurrence must be text, at least one character, not {name!r:.200}")
        self.mq = mq
        self.name = name
        self._queue = queue

    @property
    def queue(self) -> str:
        """The queue that it is in."""
        return self.mq.placed(self._queue)

    @property
    def _ahead(self) -> int:
        return self.mq.ahead_ms() or 0

    def __repr__(self) -> str:
        return f"<schedule {self.name} in {self.queue}>"

    def info(self) -> ScheduleInfo | None:
        """How it stands now: next run, last run, lateness; None when there is none of that name."""
        self.mq.warn_on_a_loop("info")
        return self.mq.run(_info(self.mq.asked(self.queue), self.name, self._ahead))

    async def ainfo(self) -> ScheduleInfo | None:
        """`info`, awaited."""
        return await self.mq.arun(_info(self.mq.asked(self.queue), self.name, self._ahead))

    def cancel(self) -> bool:
        """Ends it; False when there was none of that name. Occurrences that were admitted stay."""
        self.mq.warn_on_a_loop("cancel")
        return self.mq.run(cron.cancel(self.mq.asked(self.queue), self.name))

    async def acancel(self) -> bool:
        """`cancel`, awaited."""
        return await self.mq.arun(cron.cancel(self.mq.asked(self.queue), self.name))

    def pause(self) -> bool:
        """No occurrence until `resume`, whoever registers it again; False when there is none of that name."""
        self.mq.warn_on_a_loop("pause")
        return self.mq.run(pause(self.mq.asked(self.queue), self.name, self._ahead))

    async def apause(self) -> bool:
        """`pause`, awaited."""
        return await self.mq.arun(pause(self.mq.asked(self.queue), self.name, self._ahead))

    def resume(self) -> bool:
        """Goes on at the first slot after now; False when there is none of that name.

        What passed while it was paused is not caught up with. Where it is not paused nothing changes.
        """
        self.mq.warn_on_a_loop("resume")
        return self.mq.run(resume(self.mq.asked(self.queue), self.name, self._ahead))

    async def aresume(self) -> bool:
        """`resume`, awaited."""
        return await self.mq.arun(resume(self.mq.asked(self.queue), self.name, self._ahead))

    def run_now(self) -> Job[object]:
        """Admits an occurrence at once, also while it is paused; its next run stays, and it does not count as a run.
        `overlap` does not hold for it: three calls in a row give three jobs.

        Its arguments and options are the recurrence's, its slot is now; with a deduplication key it may be the living
        job (`duplicate`). `InvalidInputError` when there is none of that name.
        """
        self.mq.warn_on_a_loop("run_now")
        job_id, job, held = self.mq.run(_run(self.mq.asked(self.queue), self.name, self._ahead))
        return Job(job_id, job, self.queue, held, self.mq)

    async def arun_now(self) -> Job[object]:
        """`run_now`, awaited."""
        job_id, job, held = await self.mq.arun(_run(self.mq.asked(self.queue), self.name, self._ahead))
        return Job(job_id, job, self.queue, held, self.mq)


def _run(queue: str, name: str, ahead_ms: int) -> Plan[tuple[str, str, bool]]:
    job_id, template, held = yield from run_now(queue, name, ahead_ms)
    return job_id, name_in(template, len(template)) or "", held


def _info(queue: str, name: str, ahead_ms: int) -> Plan[ScheduleInfo | None]:
    standing = yield from look(queue, name, ahead_ms)
    entry = standing.entry
    if entry is None:
        return None
    template = b"" if entry.definition is None else entry.definition.template
    return info_of(queue, entry, standing.now_ms, name_in(template, len(template)))


def schedules(queues: Iterable[str], ahead_ms: int = 0) -> Plan[list[ScheduleInfo]]:
    """Every recurrence of some queues, by queue, the next to run first."""
    found: list[ScheduleInfo] = []
    for queue in queues:
        own: list[ScheduleInfo] = []
        for kind in Kind:
            own += yield from _all_of(queue, kind, ahead_ms)
        own.sort(key=lambda each: (each.next_run is None, each.next_run, each.name))
        found += own
    return found


def _all_of(queue: str, kind: Kind, ahead_ms: int) -> Plan[list[ScheduleInfo]]:
    found: list[ScheduleInfo] = []
    while True:
        page: survey_repeats.Recurrences = yield survey_repeats.recurrences(
            queue, cron=kind is Kind.CRON, first=len(found), count=_PAGE
        )
        found += [seen_info(queue, kind, each, page.now_ms, ahead_ms) for each in page.recurrences]
        if len(page.recurrences) < _PAGE:
            return found


def seen_info(queue: str, kind: Kind, seen: survey_repeats.Recurrence, now_ms: int, ahead_ms: int = 0) -> ScheduleInfo:
    """What an operator's survey has seen."""
    fields = {name.encode(): value.encode() for name, value in seen.record.items()} | {b"template": seen.template}
    score = None if seen.next_ms is None else str(seen.next_ms + ahead_ms)
    entry = Entry(kind, seen.name, score, "", definition_of(fields), history_of(fields))
    return info_of(queue, entry, now_ms + ahead_ms, name_in(seen.template, seen.template_bytes))


def info_of(queue: str, entry: Entry, now_ms: int, job: str | None) -> ScheduleInfo:
    """An entry in the words of the app."""
    from echomq.runtime.calendar import instant

    def moment(at_ms: int | None) -> datetime | None:
        return None if at_ms is None else instant(at_ms)

    definition, history, next_ms = entry.definition, entry.history, entry.next_ms
    plain = entry.kind is Kind.REPEAT
    return ScheduleInfo(
        name=entry.name,
        queue=queue,
        kind=entry.kind,
        job=job,
        every=None
        if definition is None or definition.every_ms is None
        else timedelta(milliseconds=definition.every_ms),
        line=(definition.line or None) if definition else None,
        tz=(definition.tz or None) if definition else None,
        paused=history.paused,
        over=definition is not None
        and not plain
        and not history.paused
        and history.slot_ms is None
        and next_ms is None,
        next_run=moment(next_ms),
        next_slot=moment(next_ms if plain else history.slot_ms),
        last_run=moment(history.last_run_ms),
        last_slot=moment(history.last_slot_ms),
        lateness=None if history.last_late_ms is None else timedelta(milliseconds=history.last_late_ms),
        overdue=timedelta(milliseconds=0 if next_ms is None else max(now_ms - next_ms, 0)),
        runs=None if plain else history.runs,
        skipped=history.skipped,
        last_id=history.last_id or None,
        declared_by=(definition.owner or None) if definition else None,
        definition=definition,
    )
