"""`echomq pause | resume | drain | obliterate | set`: the verbs that act on a whole queue (protocol §7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from echomq.cli.ops_common import (
    Fence,
    Json,
    New,
    NotNowError,
    Queue,
    Url,
    WireText,
    Yes,
    confirm,
    counted,
    known_queue,
    must_say_yes,
    opened,
    told,
    typed,
)

if TYPE_CHECKING:
    from echomq.app.inspect import Overview
    from echomq.wire import Connector

_PAGE: Final = 1_000
"""Dead jobs that are read in a call."""


def register(app: typer.Typer) -> None:
    """Adds the commands to the program."""
    for command in (pause, resume, drain, obliterate):
        app.command(command.__name__)(command)
    app.command("set")(set_)


def pause(
    queue: Queue, new: New = False, url: Url = None, fence: Fence = None, wire: WireText = None, json: Json = False
) -> None:
    """Let no job of a queue start.

    Jobs in hand go on, and new ones are taken in, until echomq resume.

    Exit codes: 0 done, 1 the server cannot be reached, 2 something is written wrongly, or there is no such queue.

    \b
    Examples:
      echomq pause mail
      echomq pause mail --new     # before its first job
    """
    from echomq.protocol import admin

    with opened(url, fence, wire) as conn:
        conn.run(admin.pause_queue(known_queue(conn, queue, new=new)))
    told(
        {"queue": queue, "outcome": "paused"},
        f"queue {queue} is paused: echomq resume {queue} lets its jobs start again",
        json=json,
    )


def resume(queue: Queue, url: Url = None, fence: Fence = None, wire: WireText = None, json: Json = False) -> None:
    """Let the jobs of a paused queue start again.

    Exit codes: 0 done, 1 the server cannot be reached, 2 something is written wrongly, or there is no such queue.

    \b
    Examples:
      echomq resume mail
    """
    from echomq.protocol import admin

    with opened(url, fence, wire) as conn:
        conn.run(admin.resume_queue(known_queue(conn, queue)))
    told({"queue": queue, "outcome": "resumed"}, f"queue {queue} is served", json=json)


def drain(
    queue: Queue,
    scheduled: Annotated[bool, typer.Option("--scheduled", help="Delete the jobs for later, too.")] = False,
    yes: Yes = False,
    url: Url = None,
    fence: Fence = None,
    wire: WireText = None,
    json: Json = False,
) -> None:
    """Delete the jobs of a queue that wait.

    After a question. Jobs in hand, in lanes and in the morgue stay. The lanes of a queue are drained one by one:
    echomq lanes QUEUE LANE --drain.

    Exit codes: 0 done; 1 nobody said yes, or the server cannot be reached; 2 something is written wrongly, or there is
    no such queue.

    \b
    Examples:
      echomq drain mail
      echomq drain mail --scheduled --yes
    """
    from echomq.protocol import admin, survey

    must_say_yes(json=json, yes=yes)
    with opened(url, fence, wire) as conn:
        seen = conn.run(survey.queue(known_queue(conn, queue)))
        doomed = seen.pending + (seen.scheduled if scheduled else 0)
        if doomed:
            confirm(f"Delete {counted(doomed, 'job')} of queue {queue} for good?", yes=yes)
        drained = conn.run(admin.drain(queue, scheduled=scheduled))
    told(
        {"queue": queue, "outcome": "drained", "jobs": drained},
        f"{counted(drained, 'job')} of queue {queue} deleted",
        json=json,
    )


def obliterate(
    queue: Queue,
    force: Annotated[bool, typer.Option("--force", help="Even though jobs are in hand: their work is lost.")] = False,
    yes: Yes = False,
    url: Url = None,
    fence: Fence = None,
    wire: WireText = None,
    json: Json = False,
) -> None:
    """Delete a queue with all that is in it.

    Jobs, lanes, recurrences, settings and numbers, after its name was typed. The queue must be paused, and without
    --force no job may be in hand.

    Exit codes: 0 done; 1 the queue is not paused or not idle, nobody typed its name, or the server cannot be reached; 2
    something is written wrongly, or there is no such queue.

    \b
    Examples:
      echomq pause mail && echomq obliterate mail
      echomq obliterate mail --force --yes
    """
    from echomq.app.inspect import overview
    from echomq.protocol import admin
    from echomq.protocol.errors import StateError

    must_say_yes(json=json, yes=yes)
    with opened(url, fence, wire) as conn:
        each = conn.run(overview(known_queue(conn, queue)))
        if not each.seen.paused:
            raise NotNowError(f"queue {queue!r} is not paused: echomq pause {queue}, then try again")
        if each.seen.active and not force:
            raise NotNowError(
                f"queue {queue!r} has {counted(each.seen.active, 'job')} in hand: wait for them, or give --force, and "
                "their work is lost"
            )
        typed(f"{_all_of(each)} will be deleted for good.", queue, yes=yes)
        try:
            conn.run(admin.obliterate(queue, force=force))
        except StateError as error:
            raise NotNowError(f"queue {queue!r} came to life again meanwhile: {error}") from error
    told({"queue": queue, "outcome": "obliterated"}, f"queue {queue} is gone", json=json)


def _all_of(each: Overview) -> str:
    seen = each.seen
    jobs = each.pending + seen.active + seen.scheduled + seen.dead
    return f"Queue {each.queue} with {counted(jobs, 'job')} and {counted(seen.repeats + seen.crons, 'recurrence')}"


def set_(
    queue: Queue,
    ceiling: Annotated[
        str | None, typer.Option("--ceiling", metavar="N", help="At most so many jobs in hand at once; none lifts it.")
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option("--rate", metavar="N/PERIOD", help="At most so many starts, as in 10/s; none lifts it."),
    ] = None,
    keep_dead: Annotated[
        str | None, typer.Option("--keep-dead", metavar="N", help="How many dead jobs are kept; none keeps all.")
    ] = None,
    keep_dead_for: Annotated[
        str | None,
        typer.Option("--keep-dead-for", metavar="SPAN", help="How long, as in 7d; none keeps them for ever."),
    ] = None,
    yes: Yes = False,
    new: New = False,
    url: Url = None,
    fence: Fence = None,
    wire: WireText = None,
    json: Json = False,
) -> None:
    """Show or change the settings of a queue.

    They hold for all workers, at once. The workers delete what the morgue may not keep, the oldest first: where that
    is something now, it is done after a question.

    Exit codes: 0 done; 1 nobody said yes, or the server cannot be reached; 2 something is written wrongly, or there is
    no such queue.

    \b
    Examples:
      echomq set mail
      echomq set mail --ceiling 20 --rate 100/1m
      echomq set mail --keep-dead 10000 --keep-dead-for 7d
      echomq set mail --rate none
    """
    from echomq.app.inspect import overview
    from echomq.cli import ops_overview, ops_text, ops_view
    from echomq.protocol import admin

    # All is read before the first is written: a wrong one leaves the others as they are.
    most = None if ceiling is None else ops_text.number_or_none("--ceiling", ceiling, least=1)
    pace = None if rate is None else ops_text.rate(rate)
    number = None if keep_dead is None else ops_text.number_or_none("--keep-dead", keep_dead, least=0)
    age_ms = None
    if keep_dead_for not in (None, "none"):
        age_ms = ops_text.span_ms("--keep-dead-for", keep_dead_for or "")
    with opened(url, fence, wire) as conn:
        each = conn.run(overview(known_queue(conn, queue, new=new)))
        kept = each.seen.setting("dead_max") if keep_dead is None else number
        kept_ms = each.seen.setting("dead_age_ms") if keep_dead_for is None else age_ms
        retains = keep_dead is not None or keep_dead_for is not None
        if retains and (doomed := _doomed(conn, each, kept, kept_ms)):
            must_say_yes(json=json, yes=yes)
            some = f"{doomed:,} of {counted(each.seen.dead, 'dead job')}"
            confirm(f"Let the workers delete {some} of queue {queue} for good?", yes=yes)
        if ceiling is not None:
            conn.run(admin.set_ceiling(queue, most))
        if rate is not None:
            conn.run(admin.set_rate(queue, pace[0] if pace else None, period_ms=pace[1] if pace else None))
        if retains:
            conn.run(admin.set_retention(queue, dead_max=kept, dead_age_ms=kept_ms))
        each = conn.run(overview(queue))
    if json:
        ops_view.document({"queue": queue, "settings": ops_overview.settings_json(each)})
    else:
        ops_view.facts([("queue", queue), *ops_overview.settings_text(each)])


def _doomed(conn: Connector, each: Overview, most: int | None, age_ms: int | None) -> int:
    """How many dead jobs the workers delete for new limits of their number and their age; 0 for those that hold."""
    from echomq.protocol import survey

    if (most, age_ms) == (each.seen.setting("dead_max"), each.seen.setting("dead_age_ms")):
        return 0
    over = 0 if most is None else max(each.seen.dead - most, 0)
    if age_ms is None:
        return over
    looked_at = doomed = 0
    after = ""
    while True:
        page = conn.run(survey.dead_after(each.queue, after, count=_PAGE, cut=20))
        for job in page.jobs:
            looked_at += 1
            doomed += looked_at <= over or (job.died_ms is not None and job.died_ms <= page.now_ms - age_ms)
        if len(page.jobs) < _PAGE:
            return doomed
        after = page.jobs[-1].id
