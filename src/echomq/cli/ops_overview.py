"""Queues at a glance: read in one flight, shown as a row, told to a machine; shared by `queues`, `stats`, `health`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from echomq.app.inspect import Hold, Overview, Why, overview
from echomq.cli.ops_common import counted
from echomq.cli.ops_text import local_and_utc, shown_span
from echomq.protocol import survey
from echomq.protocol.errors import EchoMQError, ServerError

if TYPE_CHECKING:
    from echomq.protocol.survey import QueueSurvey
    from echomq.wire import Connector

__all__ = [
    "HEADINGS",
    "as_json",
    "facts_of",
    "held",
    "lapse",
    "notes",
    "read",
    "row",
    "settings_json",
    "settings_text",
    "stats_json",
    "total_row",
    "unreadable",
    "waits_for_it",
    "warnings",
]

HEADINGS: Final = (
    *("queue", ">pending", ">in lanes", ">active", ">scheduled", ">dead", ">completed", ">failed"),
    *(">workers", ">oldest", ">late", "notes"),
)


def read(
    conn: Connector, queues: Sequence[str], *, live_ms: int = survey.LIVE_MS
) -> tuple[list[Overview], list[tuple[str, str]]]:
    """The overviews of the queues, and those that cannot be read with the reason."""
    found: list[Overview] = []
    broken: list[tuple[str, str]] = []
    for name, seen in zip(queues, conn.run_many([survey.queue(q, live_ms=live_ms) for q in queues]), strict=True):
        try:
            if isinstance(seen, EchoMQError):
                raise seen
            found.append(conn.run(overview(name, seen=seen)))
        except ServerError as error:
            # Another program's key where this queue's should be: the other queues are still worth seeing.
            broken.append((name, str(error)))
    return found, broken


def next_run_ms(each: Overview) -> int | None:
    """When the first entry of the schedule or of the recurrences is due; it may lie in the past."""
    seen = each.seen
    heads = (seen.schedule_head_ms, seen.repeat_head_ms, seen.cron_head_ms)
    return min((ms for ms in heads if ms is not None), default=None)


def notes(each: Overview) -> str:
    """What is remarkable about a queue, in a few words."""
    seen = each.seen
    said = ["paused"] if seen.paused else []
    said += held(each)
    if each.unserved:
        said.append("no live worker")
    if each.lapsed_ms:
        said.append(lapse(each))
    if seen.outbox:
        said.append(f"{seen.outbox:,} in the outbox")
    if seen.rejected:
        said.append(f"{seen.rejected:,} malformed signals set aside")
    return ", ".join(said)


def held(each: Overview) -> list[str]:
    """What waits and cannot be claimed, and why, in a few words a reason."""
    return [
        f"{hold.jobs:,} held {_by(hold, each.seen)} (oldest {shown_span(each.age_ms(hold.oldest))})"
        for hold in each.holds
    ]


def _by(hold: Hold, seen: QueueSurvey) -> str:
    if hold.why is Why.LANE_PAUSED:
        return f"in {counted(hold.lanes, 'paused lane')}"
    if hold.why is Why.LANE_LIMIT:
        return f"in {counted(hold.lanes, 'lane')} at {'its' if hold.lanes == 1 else 'their'} limit"
    if hold.why is Why.CEILING:
        return f"by the ceiling of {seen.setting('concurrency') or 0:,}"
    if hold.why is Why.RATE:
        pace = f"{seen.setting('max') or 0:,} in {shown_span(seen.setting('period_ms'))}"
        return f"by the rate of {pace} for {shown_span(seen.rate_whole_in_ms)} more"
    return "by the pause"


def lapse(each: Overview) -> str:
    """The jobs in hand that are nobody's any more, and for how long the longest has been."""
    of = "whose lease lapsed" if each.seen.lapsed == 1 else "whose leases lapsed, the first"
    return f"{counted(each.seen.lapsed, 'job')} in hand {of} {shown_span(each.lapsed_ms)} ago"


def row(each: Overview) -> list[str]:
    """A row of the table."""
    seen = each.seen
    numbers = (each.pending, each.in_lanes.jobs, seen.active, seen.scheduled, seen.dead, seen.completed, seen.failed)
    oldest, late = shown_span(each.oldest_age_ms), shown_span(each.late_ms or None)
    return [each.queue, *(f"{n:,}" for n in numbers), f"{seen.workers_alive:,}", oldest, late, notes(each)]


def total_row(overviews: Sequence[Overview]) -> list[str]:
    """The row that sums the others. Workers are not summed: one may serve several queues."""
    sums = (
        sum(numbers)
        for numbers in zip(
            *(
                (
                    *(each.pending, each.in_lanes.jobs, each.seen.active, each.seen.scheduled, each.seen.dead),
                    *(each.seen.completed, each.seen.failed),
                )
                for each in overviews
            ),
            strict=True,
        )
    )
    oldest = max((each.oldest_age_ms for each in overviews if each.oldest_age_ms is not None), default=None)
    late = max((each.late_ms for each in overviews), default=0)
    return ["(all)", *(f"{n:,}" for n in sums), "", shown_span(oldest), shown_span(late or None), ""]


def unreadable(broken: Sequence[tuple[str, str]]) -> list[str]:
    """A sentence for every queue that cannot be read."""
    return [f"queue {name} cannot be read: {why}" for name, why in broken]


def stats_json(overviews: Sequence[Overview]) -> dict[str, object]:
    """Queues and their sums for a machine."""
    names = ("pending", "active", "scheduled", "dead", "completed", "failed")
    queues = [as_json(each) for each in overviews]
    total: dict[str, object] = {"pending": sum(each.pending for each in overviews)}
    total |= {name: sum(getattr(each.seen, name) for each in overviews) for name in names[1:]}
    return {"queues": queues, "total": total}


def facts_of(each: Overview) -> list[tuple[str, str]]:
    """One queue for a person, a line a fact."""
    seen, lanes = each.seen, each.in_lanes
    in_lanes = f" ({lanes.jobs:,} in {counted(lanes.lanes, 'lane')})" if lanes.jobs else ""
    known = f" ({seen.workers_known:,} in the registry)" if seen.workers_known != seen.workers_alive else ""
    return [
        ("queue", each.queue + (" (paused)" if seen.paused else "")),
        ("pending", f"{each.pending:,}{in_lanes}"),
        ("active", f"{seen.active:,}"),
        ("scheduled", f"{seen.scheduled:,}"),
        ("dead", f"{seen.dead:,}"),
        ("completed", f"{seen.completed:,}"),
        ("failed", f"{seen.failed:,}"),
        ("recurrences", f"{seen.repeats + seen.crons:,}"),
        ("workers", f"{seen.workers_alive:,}{known}"),
        ("oldest waits", shown_span(each.oldest_age_ms)),
        ("next run", local_and_utc(next_run_ms(each))),
        ("late", shown_span(each.late_ms or None)),
        *settings_text(each),
        ("notes", notes(each) or "-"),
    ]


def warnings(overviews: Sequence[Overview]) -> list[str]:
    """A sentence for every queue whose jobs wait for nobody."""
    return [
        f"queue {each.queue}: no live worker serves it, and {waits_for_it(each)}" for each in overviews if each.unserved
    ]


def waits_for_it(each: Overview) -> str:
    """What a worker would do in a queue that has none."""
    said = [f"{counted(each.servable, 'job')} could start"] if each.servable else []
    said += [f"{lapse(each)} could run again"] if each.lapsed_ms else []
    return " and ".join(said) or "something is due"


def settings_json(each: Overview) -> dict[str, object]:
    """The queue's settings; null is none."""
    setting = each.seen.setting
    return {
        "ceiling": setting("concurrency"),
        "rate": setting("max") if setting("period_ms") else None,
        "rate_period_ms": setting("period_ms") if setting("max") else None,
        "keep_dead": setting("dead_max"),
        "keep_dead_for_ms": setting("dead_age_ms"),
    }


def settings_text(each: Overview) -> list[tuple[str, str]]:
    """The queue's settings for a person."""
    of = each.seen.setting
    ceiling, most, period, keep, age = (of(n) for n in ("concurrency", "max", "period_ms", "dead_max", "dead_age_ms"))
    rate = f"{most:,} in {shown_span(period)}" if most and period else "none"
    return [
        ("ceiling", f"{ceiling:,} in hand at once" if ceiling else "none"),
        ("rate", rate),
        ("keeps dead", "all" if keep is None else f"{keep:,}"),
        ("keeps dead for", "ever" if age is None else shown_span(age)),
    ]


def as_json(each: Overview) -> dict[str, object]:
    """A queue for a machine. Times are Unix ms on the server's clock, null where there is none."""
    seen = each.seen
    return {
        "queue": each.queue,
        "now_ms": seen.now_ms,
        "pending": each.pending,
        "pending_flat": seen.pending,
        "pending_in_lanes": each.in_lanes.jobs,
        "lanes_waiting": each.in_lanes.lanes,
        "claimable": each.claimable,
        "held": [
            {
                "why": hold.why.value,
                "jobs": hold.jobs,
                "lanes": hold.lanes,
                "oldest": hold.oldest,
                "oldest_age_ms": each.age_ms(hold.oldest),
            }
            for hold in each.holds
        ],
        "active": seen.active,
        "scheduled": seen.scheduled,
        "dead": seen.dead,
        "completed": seen.completed,
        "failed": seen.failed,
        "repeats": seen.repeats + seen.crons,
        "paused": seen.paused,
        "workers": seen.workers_alive,
        "workers_known": seen.workers_known,
        "oldest": each.oldest,
        "oldest_age_ms": each.oldest_age_ms,
        "next_run_ms": next_run_ms(each),
        "late_ms": each.late_ms,
        "lapsed": seen.lapsed,
        "lapsed_ms": each.lapsed_ms,
        "outbox": seen.outbox,
        "rejected": seen.rejected,
        "unserved": each.unserved,
        "settings": settings_json(each),
    }
