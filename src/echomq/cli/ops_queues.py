"""`echomq queues` and `echomq stats`: what is on a server, and how it goes."""

from __future__ import annotations

from typing import Annotated

import typer

from echomq.cli.numbers import seconds, whole
from echomq.cli.ops_common import Fence, Json, Url, WireText, known_queues, opened, queue_name
from echomq.identity.errors import EchoMQError, InvalidInputError


def register(app: typer.Typer) -> None:
    """Adds the commands to the program."""
    app.command("queues")(queues)
    app.command("stats")(stats)


def queues(url: Url = None, fence: Fence = None, wire: WireText = None, json: Json = False) -> None:
    """List the queues of a server.

    What waits, runs, is put off and died, and who serves it. "oldest" is the age of the oldest job that could be
    claimed; "late" is how long the first entry of the schedule or of the recurrences has been due; the notes say what
    waits and cannot be claimed, and why.

    Exit codes: 0 done, 1 the server cannot be reached, 2 something is written wrongly.

    \b
    Examples:
      echomq queues
      echomq queues --url valkey://localhost:6379/0
      echomq queues --json | jq '.queues[] | select(.dead > 0) | .queue'
    """
    from echomq.cli import ops_overview, ops_view

    with opened(url, fence, wire) as conn:
        found, broken = ops_overview.read(conn, known_queues(conn, ()))
    warnings = ops_overview.warnings(found) + ops_overview.unreadable(broken)
    if json:
        ops_view.document({"queues": [ops_overview.as_json(each) for each in found], "warnings": warnings})
        return
    if not found:
        ops_view.say("no queue is on this server")
    else:
        ops_view.table(ops_overview.HEADINGS, [ops_overview.row(each) for each in found])
    for warning in warnings:
        ops_view.warn(warning)


def stats(
    queue: Annotated[
        str | None, typer.Argument(metavar="QUEUE", help="One queue.", show_default=False, callback=queue_name)
    ] = None,
    watch: Annotated[
        float | None,
        typer.Option(
            "--watch", "-w", metavar="SECONDS", parser=seconds(0.1), help="Read again so often, and show the speed."
        ),
    ] = None,
    times: Annotated[
        int | None,
        typer.Option("--times", metavar="N", parser=whole(1), help="With --watch: end after so many readings."),
    ] = None,
    url: Url = None,
    fence: Fence = None,
    wire: WireText = None,
    json: Json = False,
) -> None:
    """Show the numbers of queues, live with --watch.

    One queue is shown with its settings; all of them with their sum.

    With --watch and --json it prints one document a line, a line a reading.

    Exit codes: 0 done, 1 the server cannot be reached, 2 something is written wrongly, or there is no such queue.

    \b
    Examples:
      echomq stats
      echomq stats mail
      echomq stats --watch 2
      echomq stats mail --watch 60 --json >> mail.jsonl
    """
    from echomq.cli import ops_overview, ops_view

    if times is not None and watch is None:
        raise InvalidInputError("--times counts the readings of --watch: give --watch SECONDS, too")
    with opened(url, fence, wire) as conn:
        named = known_queues(conn, [queue] if queue else [])
        if watch is not None:
            from echomq.cli.ops_watch import Watch

            Watch(conn, queue, named, watch, times).run(json=json)
            return
        found, broken = ops_overview.read(conn, named)
    if queue and broken:
        raise EchoMQError(*ops_overview.unreadable(broken))
    if json:
        ops_view.document(ops_overview.stats_json(found) | {"warnings": ops_overview.unreadable(broken)})
    elif queue and found:
        ops_view.facts(ops_overview.facts_of(found[0]))
    elif found:
        ops_view.table(
            ops_overview.HEADINGS, [*(ops_overview.row(each) for each in found), ops_overview.total_row(found)]
        )
    elif not broken:
        ops_view.say("no queue is on this server")
    for warning in ops_overview.unreadable(broken):
        ops_view.warn(warning)
