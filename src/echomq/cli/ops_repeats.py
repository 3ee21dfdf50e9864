"""`echomq repeats`: the recurrences of a queue, their next runs, and what can be done with one."""

from __future__ import annotations

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
    from echomq.protocol.survey_repeats import Recurrence
    from echomq.wire import Connector

_PAGE: Final = 500

HEADINGS: Final = ("name", "every", "next run", ">in", ">late", "job")


def register(app: typer.Typer) -> None:
    """Adds the command to the program."""
    app.command("repeats")(repeats)


def repeats(
    queue: Queue,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="One recurrence, by its name.", show_default=False)
    ] = None,
    now: Annotated[bool, typer.Option("--now", help="Admit one occurrence at once; its next run stays.")] = False,
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
    take it out there, too.

    \b
    Examples:
      echomq repeats mail
      echomq repeats mail digest --json
      echomq repeats mail digest --now
      echomq repeats mail digest --cancel
    """
    from echomq.protocol import discover

    action = choose({"--now": now, "--cancel": cancel})
    if action and name is None:
        raise InvalidInputError(f"{action} acts on one recurrence: echomq repeats {queue} NAME {action}")
    with opened(url, fence, wire, mints=now) as conn:
        known_queue(conn, queue)
        if action and name is not None:
            outcome, sentence = (_fire_now if now else _cancel)(conn, queue, name)
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
        shown = [_as_json(each, cron, now_ms, payload=payload) for each, cron in found]
        ops_view.document({"queue": queue, "now_ms": now_ms, "total": total, "repeats": shown})
        return
    if found:
        headings = [*HEADINGS, "template"] if payload else HEADINGS
        ops_view.table(headings, [_row(each, now_ms, payload=payload) for each, _ in found])
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
    from echomq.app.patience import nearest
    from echomq.protocol import survey_repeats

    for cron in (False, True):
        if found := conn.run(survey_repeats.recurrence(queue, name, cron=cron)).recurrences:
            return found[0], cron
    _, some = _all(conn, queue, 1_000)
    names = [each.name for each, _ in some]
    raise InvalidInputError(f"queue {queue!r} has no recurrence {name!r}; nearest: {nearest(name, names)}")


def _fire_now(conn: Connector, queue: str, name: str) -> tuple[dict[str, object], str]:
    """An occurrence beside the grid: a fresh job with the template as payload."""
    from echomq.protocol import jobs, survey_repeats

    _, cron = _named(conn, queue, name)
    template = conn.run(survey_repeats.template(queue, name, cron=cron))
    if template is None:
        raise NotNowError(f"recurrence {name!r} of queue {queue!r} has no template: there is nothing to run")
    job_id = conn.mint()
    conn.run(jobs.enqueue(queue, job_id, template))
    return {"outcome": "admitted", "job": job_id}, f"recurrence {name} of queue {queue} runs now, as {job_id}"


def _cancel(conn: Connector, queue: str, name: str) -> tuple[dict[str, object], str]:
    from echomq.protocol import repeat

    _, cron = _named(conn, queue, name)
    if cron:
        raise NotNowError(f"recurrence {name!r} of queue {queue!r} says more than a period: its program cancels it")
    conn.run(repeat.cancel(queue, name))
    return {"outcome": "cancelled"}, f"recurrence {name} of queue {queue} is cancelled"


def _every(each: Recurrence) -> str:
    from echomq.cli.ops_text import shown_span

    every = each.record.get("every_ms", "")
    if every.isascii() and every.isdigit():
        return shown_span(int(every))
    return ", ".join(f"{key}={value}" for key, value in sorted(each.record.items())) or "-"


def _row(each: Recurrence, now_ms: int, *, payload: bool) -> list[str]:
    from echomq.app.inspect import name_in
    from echomq.cli.ops_rows import payload_text
    from echomq.cli.ops_text import local_and_utc, shown_span

    away = None if each.next_ms is None else each.next_ms - now_ms
    cells = [
        each.name,
        _every(each),
        local_and_utc(each.next_ms),
        shown_span(away) if away is not None and away > 0 else "-",
        shown_span(-away) if away is not None and away <= 0 else "-",
        name_in(each.template, each.template_bytes) or "-",
    ]
    return [*cells, payload_text(each.template, each.template_bytes)] if payload else cells


def _as_json(each: Recurrence, cron: bool, now_ms: int, *, payload: bool) -> dict[str, object]:
    from echomq.app.inspect import name_in
    from echomq.cli.ops_rows import payload_json

    every = each.record.get("every_ms", "")
    told: dict[str, object] = {
        "name": each.name,
        "kind": "cron" if cron else "repeat",
        "every_ms": int(every) if every.isascii() and every.isdigit() else None,
        "next_run_ms": each.next_ms,
        "late_ms": max(0, now_ms - each.next_ms) if each.next_ms is not None else None,
        "job": name_in(each.template, each.template_bytes),
        "template_bytes": each.template_bytes,
        "record": each.record,
    }
    return told | payload_json(each.template, each.template_bytes) if payload else told
