"""`echomq repeats`: the recurrences of a queue, their next runs, and what can be done with one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Final

import typer

from echomq.cli.numbers import whole
from echomq.cli.ops_common import (
    Fence,
    Json,
    NotNowError,
    Queue,
    Url,
    WireText,
    choose,
    counted,
    known_queue,
    opened,
    told,
)
from echomq.identity.errors import InvalidInputError

if TYPE_CHECKING:
    from echomq.app.schedule import ScheduleInfo
    from echomq.protocol.survey_repeats import Recurrence
    from echomq.wire import Connector

_PAGE: Final = 500

HEADINGS: Final = ("name", "every", "next run", ">in", ">late", "last run", "job")


def register(app: typer.Typer) -> None:
    """Adds the command to the program."""
    app.command("repeats")(repeats)


def repeats(
    queue: Queue,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="One recurrence, by its name.", show_default=False)
    ] = None,
    now: Annotated[bool, typer.Option("--now", help="Admit one occurrence at once; its next run stays.")] = False,
    pause: Annotated[bool, typer.Option("--pause", help="No occurrence until it is resumed.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on at the first slot after now.")] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="End it; jobs that it admitted stay.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", parser=whole(1), help="How many to list.")] = 50,
    payload: Annotated[
        bool, typer.Option("--payload", help="Show the templates, which may hold private data.")
    ] = False,
    url: Url = None,
    fence: Fence = None,
    wire: WireText = None,
    json: Json = False,
) -> None:
    """List the recurrences of a queue, or act on one.

    The next to run comes first. A program that registers its recurrences at every start brings a cancelled one back:
    take it out there, too, or pause it: that stays.

    Exit codes: 0 done; 1 the recurrence cannot be run or resumed as it is, or the server cannot be reached; 2 something
    is written wrongly, or there is no such queue or recurrence.

    \b
    Examples:
      echomq repeats mail
      echomq repeats mail digest --json
      echomq repeats mail digest --now
      echomq repeats mail digest --pause
      echomq repeats mail digest --resume
      echomq repeats mail digest --cancel
    """
    from echomq.protocol import discover

    action = choose({"--now": now, "--pause": pause, "--resume": resume, "--cancel": cancel})
    if action and name is None:
        raise InvalidInputError(f"{action} acts on one recurrence: echomq repeats {queue} NAME {action}")
    with opened(url, fence, wire, mints=now) as conn:
        known_queue(conn, queue)
        if action and name is not None:
            act = {"--now": _fire_now, "--pause": _pause, "--resume": _resume, "--cancel": _cancel}[action]
            outcome, sentence = act(conn, queue, name)
            about: dict[str, object] = {"queue": queue, "recurrence": name, "action": action[2:]}
            told(about | outcome, sentence, json=json)
            return
        total, found = _all(conn, queue, limit) if name is None else (1, [_named(conn, queue, name)])
        _list(queue, total, found, conn.run(discover.clock()), payload=payload, json=json)


def _list(
    queue: str, total: int, found: list[tuple[Recurrence, bool]], now_ms: int, *, payload: bool, json: bool
) -> None:
    from echomq.cli import ops_view

    if json:
        shown = [_as_json(each, _info(queue, each, cron, now_ms), now_ms, payload=payload) for each, cron in found]
        ops_view.document({"queue": queue, "now_ms": now_ms, "total": total, "repeats": shown})
        return
    if found:
        headings = [*HEADINGS, "template"] if payload else HEADINGS
        ops_view.table(
            headings, [_row(each, _info(queue, each, cron, now_ms), now_ms, payload=payload) for each, cron in found]
        )
    ops_view.say(f"{len(found):,} listed, of {counted(total, 'recurrence')} in queue {queue}")


def _all(conn: Connector, queue: str, limit: int) -> tuple[int, list[tuple[Recurrence, bool]]]:
    """The next `limit` recurrences of both kinds, and how many there are."""
    from echomq.protocol import survey_repeats

    total = 0
    found: list[tuple[Recurrence, bool]] = []
    for cron in (False, True):
        for first in range(0, limit, _PAGE):
            count = min(limit - first, _PAGE)
            page = conn.run(survey_repeats.recurrences(queue, cron=cron, first=first, count=count))
            found += [(each, cron) for each in page.recurrences]
            if first == 0:
                total += page.total
            if len(page.recurrences) < count:
                break
    found.sort(key=lambda kind: (kind[0].next_ms is None, kind[0].next_ms or 0))
    return total, found[:limit]


def _named(conn: Connector, queue: str, name: str) -> tuple[Recurrence, bool]:
    from echomq.app.text import nearest
    from echomq.protocol import survey_repeats

    for cron in (False, True):
        if found := conn.run(survey_repeats.recurrence(queue, name, cron=cron)).recurrences:
            return found[0], cron
    _, some = _all(conn, queue, 1_000)
    names = [each.name for each, _ in some]
    raise InvalidInputError(f"queue {queue!r} has no recurrence {name!r}; nearest: {nearest(name, names)}")


def _info(queue: str, each: Recurrence, cron: bool, now_ms: int) -> ScheduleInfo:
    from echomq.app.schedule import seen_info
    from echomq.protocol.recurring import Kind

    return seen_info(queue, Kind.CRON if cron else Kind.REPEAT, each, now_ms)


def _fire_now(conn: Connector, queue: str, name: str) -> tuple[dict[str, object], str]:
    """An occurrence beside the timetable, admitted as its own are."""
    from echomq.app.registering import run_now
    from echomq.protocol import jobs, survey_repeats

    seen, cron = _named(conn, queue, name)
    if _info(queue, seen, cron, 0).definition is not None:
        job_id, _, held = conn.run(run_now(queue, name))
        if held:
            raise NotNowError(f"recurrence {name!r} of queue {queue!r} has a job under its key that lives: {job_id}")
    else:  # what another client has put there
        template = conn.run(survey_repeats.template(queue, name, cron=cron))
        if template is None:
            raise NotNowError(f"recurrence {name!r} of queue {queue!r} has no template: there is nothing to run")
        job_id = conn.mint()
        conn.run(jobs.enqueue(queue, job_id, template))
    return {"outcome": "admitted", "job": job_id}, f"recurrence {name} of queue {queue} runs now, as {job_id}"


def _pause(conn: Connector, queue: str, name: str) -> tuple[dict[str, object], str]:
    from echomq.protocol import cron
    from echomq.protocol.cron import Paused

    _named(conn, queue, name)
    if conn.run(cron.pause(queue, name)) is Paused.ABSENT:
        raise NotNowError(f"recurrence {name!r} of queue {queue!r} has a record that cannot be read: it does not run")
    return {"outcome": "paused"}, f"recurrence {name} of queue {queue} is paused"


def _resume(conn: Connector, queue: str, name: str) -> tuple[dict[str, object], str]:
    from echomq.app.registering import resume

    _named(conn, queue, name)
    conn.run(resume(queue, name))
    found, cron = _named(conn, queue, name)
    when = _when(_info(queue, found, cron, 0), found.next_ms)
    return {"outcome": "resumed", "next_run_ms": found.next_ms}, f"recurrence {name} of queue {queue} runs next: {when}"


def _cancel(conn: Connector, queue: str, name: str) -> tuple[dict[str, object], str]:
    from echomq.protocol import cron

    _named(conn, queue, name)
    conn.run(cron.cancel(queue, name))
    return {"outcome": "cancelled"}, f"recurrence {name} of queue {queue} is cancelled"


def _timing(each: Recurrence, info: ScheduleInfo) -> str:
    """Its period or its line; of a record of another client whatever that holds."""
    from echomq.cli.ops_text import shown_span

    if info.every is not None:
        return shown_span(info.every // timedelta(milliseconds=1))
    if info.line is not None:
        return f"{info.line} {info.tz}"
    return ", ".join(f"{key}={value}" for key, value in sorted(each.record.items())) or "-"


def _when(info: ScheduleInfo, next_ms: int | None) -> str:
    from echomq.cli.ops_text import local_and_utc

    return "paused" if info.paused else "over" if info.over else local_and_utc(next_ms)


def _row(each: Recurrence, info: ScheduleInfo, now_ms: int, *, payload: bool) -> list[str]:
    from echomq.cli.ops_rows import payload_text
    from echomq.cli.ops_text import shown_span

    away = None if each.next_ms is None else each.next_ms - now_ms
    ran_ms = _ms(info.last_run)
    cells = [
        each.name,
        _timing(each, info),
        _when(info, each.next_ms),
        shown_span(away) if away is not None and away > 0 else "-",
        shown_span(-away) if away is not None and away <= 0 else "-",
        "-" if ran_ms is None else f"{shown_span(max(now_ms - ran_ms, 0))} ago",
        info.job or "-",
    ]
    return [*cells, payload_text(each.template, each.template_bytes)] if payload else cells


def _as_json(each: Recurrence, info: ScheduleInfo, now_ms: int, *, payload: bool) -> dict[str, object]:
    from echomq.cli.ops_rows import payload_json

    told: dict[str, object] = {
        "name": each.name,
        "kind": info.kind.value,
        "every_ms": None if info.every is None else info.every // timedelta(milliseconds=1),
        "line": info.line,
        "tz": info.tz,
        "paused": info.paused,
        "over": info.over,
        "next_run_ms": each.next_ms,
        "next_slot_ms": _ms(info.next_slot),
        "late_ms": max(0, now_ms - each.next_ms) if each.next_ms is not None else None,
        "last_run_ms": _ms(info.last_run),
        "last_slot_ms": _ms(info.last_slot),
        "last_late_ms": None if info.lateness is None else info.lateness // timedelta(milliseconds=1),
        "last_job": info.last_id,
        "runs": info.runs,
        "skipped": info.skipped,
        "declared_by": info.declared_by,
        "job": info.job,
        "template_bytes": each.template_bytes,
        "record": each.record,
    }
    return told | payload_json(each.template, each.template_bytes) if payload else told


def _ms(when: datetime | None) -> int | None:
    return None if when is None else (when - datetime.fromtimestamp(0, UTC)) // timedelta(milliseconds=1)
