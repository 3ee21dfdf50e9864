"""`echomq worker`: runs the jobs of an app."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

from echomq.cli.logs import Level
from echomq.cli.numbers import seconds, whole
from echomq.cli.wires import WireText, wire_of
from echomq.identity.errors import InvalidInputError


def register(app: typer.Typer) -> None:
    """Adds the command to the program."""
    app.command("worker")(worker)


def worker(
    target: Annotated[str, typer.Argument(metavar="MODULE:OBJECT", help="The app, an EchoMQ, as in tasks:mq.")],
    concurrency: Annotated[
        int,
        typer.Option(
            "--concurrency", "-c", parser=whole(1, 100_000), metavar="N", help="Jobs that run at once, over all queues."
        ),
    ] = 10,
    queue: Annotated[
        list[str] | None,
        typer.Option("--queue", "-q", metavar="NAME", help="Serve this queue; may be repeated. Default: all."),
    ] = None,
    burst: Annotated[
        bool, typer.Option("--burst", help="End when nothing is left to claim; jobs for later are not waited for.")
    ] = False,
    grace: Annotated[
        float,
        typer.Option(
            parser=seconds(0), metavar="SECONDS", help="How long running jobs may go on after a first signal."
        ),
    ] = 30.0,
    url: Annotated[
        str | None, typer.Option(metavar="URL", help="The server, instead of the one that the app names.")
    ] = None,
    wire: WireText = None,
    log_level: Annotated[
        Level | None,
        typer.Option(help="How much to log on stderr; info is a line a job. Default: info, or the app's own set-up."),
    ] = None,
) -> None:
    """Run the jobs of an app: one process claims, retries, recurs and recovers, with no scheduler beside it.

    The first SIGTERM or SIGINT ends it gracefully: no new jobs, --grace seconds for the running ones, then they are
    handed back with no attempt spent. A second signal hands them back at once. While it still connects one is enough.

    Exit codes: 0 stopped, also while it connects, or the burst is over; 1 the server cannot be reached; 2 something is
    written wrongly.

    \b
    Examples:
      echomq worker tasks:mq
      echomq worker shop.tasks:mq --queue mail --queue images --concurrency 50
      echomq worker tasks:mq --burst --url valkey://localhost:6379/0
    """
    from echomq.app.worker import Worker
    from echomq.cli.logs import configure
    from echomq.app.target import load

    asked = wire_of(wire)
    mq = load(target)
    configure(log_level)
    if url is not None or asked is not None:
        mq.use_server(url, wire=asked)
    Worker(mq, queues=queue or None, concurrency=concurrency, burst=burst, grace=_seconds(grace)).run()


def _seconds(grace: float) -> timedelta:
    try:
        return timedelta(seconds=grace)
    except (ValueError, OverflowError):
        raise InvalidInputError(f"--grace is {grace}; a number of seconds, 0 or more, is allowed") from None
