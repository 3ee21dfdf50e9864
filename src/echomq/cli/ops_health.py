"""`echomq health`: a line a queue and an exit code, for whoever keeps a deployment running."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import typer

from echomq.cli.numbers import seconds
from echomq.cli.ops_common import Fence, Json, Url, WireText, counted, known_queues, opened, queue_name

if TYPE_CHECKING:
    from echomq.app.inspect import Overview

HEALTHY: Final = 0
BROKEN: Final = 1
UNSERVED: Final = 3
LATE: Final = 4

LAPSED_MS: Final = 5_000
"""How long a lapsed lease may lie, in ms: a live worker takes the job back a second after it lapsed."""


def register(app: typer.Typer) -> None:
    """Adds the command to the program."""
    app.command("health")(health)


def health(
    queues: Annotated[
        list[str] | None, typer.Argument(metavar="QUEUE", help="Default: all.", show_default=False, callback=queue_name)
    ] = None,
    late: Annotated[
        float, typer.Option("--late", metavar="SECONDS", parser=seconds(0), help="How long something may be overdue.")
    ] = 60,
    silence: Annotated[
        float,
        typer.Option(
            "--silence", metavar="SECONDS", parser=seconds(0.001), help="How long a live worker may be silent."
        ),
    ] = 60,
    url: Url = None,
    fence: Fence = None,
    wire: WireText = None,
    json: Json = False,
) -> None:
    """Say whether queues are served; ends with a code.

    A line a queue, and an exit code for an orchestrator. Overdue is what the schedule, a recurrence or a lapsed lease
    shows. A queue that somebody paused is left in peace. What is held, and why, is named.

    \b
    Exit codes:
      0  healthy
      1  the server cannot be reached, or a queue cannot be read
      2  something is written wrongly: an option, or a queue that does not exist
      3  jobs wait and no live worker serves their queue
      4  something has been overdue for longer than --late, or a lease lapsed 5 seconds ago
    Of several queues, 1 goes before 3 and 3 before 4.

    \b
    Examples:
      echomq health
      echomq health mail images --late 30
      echomq health --url valkey://localhost:6379/0 --json
    """
    from echomq.cli import ops_overview, ops_view

    with opened(url, fence, wire) as conn:
        found, broken = ops_overview.read(conn, known_queues(conn, queues or []), live_ms=round(silence * 1_000))
    verdicts = [_verdict(each, round(late * 1_000)) for each in found]
    verdicts += [Verdict(name, BROKEN, f"cannot be read: {why}") for name, why in broken]
    codes = {verdict.code for verdict in verdicts}
    code = next((each for each in (BROKEN, UNSERVED, LATE) if each in codes), HEALTHY)
    if json:
        ops_view.document(
            {
                "healthy": code == HEALTHY,
                "exit_code": code,
                "queues": [
                    {
                        "queue": verdict.queue,
                        "healthy": verdict.code == HEALTHY,
                        "code": verdict.code,
                        "says": verdict.says,
                    }
                    for verdict in verdicts
                ],
            }
        )
    elif not verdicts:
        ops_view.say("healthy: no queue is on this server")
    else:
        for verdict in verdicts:
            ops_view.say(f"{verdict.queue}: {'healthy' if verdict.code == HEALTHY else 'UNHEALTHY'}, {verdict.says}")
    raise typer.Exit(code)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to be said of one queue."""

    queue: str
    code: int
    says: str


def _verdict(each: Overview, late_ms: int) -> Verdict:
    from echomq.cli.ops_overview import held, lapse
    from echomq.cli.ops_text import shown_span

    seen = each.seen
    workers = counted(seen.workers_alive, "live worker")
    waiting = counted(each.pending, "job")
    oldest = f", the oldest {shown_span(each.oldest_age_ms)} old" if each.oldest else ""
    oldest += "".join(f", {each}" for each in held(each))
    lapsed = f", {lapse(each)}" if each.lapsed_ms else ""
    if seen.paused:
        return Verdict(each.queue, HEALTHY, f"paused by somebody; {waiting} waiting{oldest}{lapsed}, {workers}")
    if each.unserved:
        due = f"{waiting} waiting{oldest}{lapsed}" if each.servable else lapsed[2:] or "something is due"
        return Verdict(each.queue, UNSERVED, f"no live worker serves it and {due}")
    if each.late_ms > late_ms:
        return Verdict(each.queue, LATE, f"what should have begun {shown_span(each.late_ms)} ago has not; {workers}")
    if each.lapsed_ms > min(late_ms, LAPSED_MS):
        return Verdict(each.queue, LATE, f"{lapse(each)} and that nobody took back; {workers}")
    return Verdict(each.queue, HEALTHY, f"{waiting} waiting{oldest}, {seen.active:,} in hand, {workers}")
