"""`echomq worker`: runs the jobs of an app."""

from __future__ import annotations

import logging
from datetime import timedelta
from functools import partial
from typing import Annotated, Final

import typer

from echomq.cli.logs import Format, Level
from echomq.cli.numbers import seconds, size, whole
from echomq.cli.wires import WireText, wire_of
from echomq.identity.errors import EchoMQError, InvalidInputError

log: Final = logging.getLogger("echomq.worker")


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
        typer.Option(
            "--queue",
            "-q",
            metavar="NAME[=WEIGHT]",
            help="Serve this queue, with this share of the slots; may be repeated. Default: all, alike.",
        ),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Serve a --queue only while those before it have nothing to claim.")
    ] = False,
    processes: Annotated[
        int,
        typer.Option(
            *("--processes", "-p"),
            parser=whole(1, 1_000),
            metavar="N",
            help="Worker processes, each with its own --concurrency; one that dies is replaced.",
        ),
    ] = 1,
    pool: Annotated[
        int | None,
        typer.Option(
            *("--pool",),
            parser=whole(1, 100_000),
            metavar="N",
            help="Processes in each worker for jobs with process=True. Default: as many as processors.",
        ),
    ] = None,
    burst: Annotated[
        bool, typer.Option("--burst", help="End when nothing is left to claim; jobs for later are not waited for.")
    ] = False,
    max_jobs: Annotated[
        int | None,
        typer.Option(parser=whole(1), metavar="N", help="Replace a worker process once it has claimed so many jobs."),
    ] = None,
    max_rss: Annotated[
        int | None,
        typer.Option(
            parser=size, metavar="SIZE", help="Replace a worker process with more memory than this: 512M, 2G."
        ),
    ] = None,
    reload: Annotated[
        bool,
        typer.Option("--reload", help="For development: start anew when a Python file below this folder changes."),
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
    log_format: Annotated[
        Format | None,
        typer.Option(help="How to log: text, or json, an object a line. Default: text, or the app's own set-up."),
    ] = None,
    log_payloads: Annotated[
        bool, typer.Option("--log-payloads", help="Log the arguments of jobs, too, which may be secrets.")
    ] = False,
    prune_schedules: Annotated[
        bool,
        typer.Option("--prune-schedules", help="End the schedules that the app's code declared once, and no more."),
    ] = False,
) -> None:
    """Run the jobs of an app.

    One process claims, retries, recurs and recovers, with no scheduler beside it.

    The first SIGTERM or SIGINT ends it gracefully: no new jobs, --grace seconds for the running ones, then they are
    handed back with no attempt spent. A second signal hands them back at once. While it still connects one is enough.

    With --processes, --max-jobs, --max-rss or --reload a supervisor keeps the workers: one that dies is started again,
    ever more slowly while that goes on, and signals are handed on. SIGHUP replaces the workers one after another.

    Exit codes: 0 stopped, also while it connects, or the burst is over; 1 the server cannot be reached to begin with,
    or a worker had to be killed; 2 something is written wrongly.

    \b
    Examples:
      echomq worker tasks:mq
      echomq worker shop.tasks:mq --queue mail=3 --queue images --concurrency 50
      echomq worker tasks:mq --queue urgent --queue other --strict
      echomq worker tasks:mq --processes 4 --max-rss 512M
      echomq worker tasks:mq --reload
      echomq worker tasks:mq --burst --url valkey://localhost:6379/0
    """
    from echomq.app.address import Address
    from echomq.app.supervise import Supervisor
    from echomq.app.worker import Worker, WorkerWords
    from echomq.cli.logs import configure

    try:
        asked = wire_of(wire)
        address = Address(
            target,
            server=(url, asked) if url is not None or asked is not None else None,
            prepare=partial(configure, log_level, log_format),
        )
        shares = _queues(queue) if queue else None
        if strict:
            _check_strict(shares)
        options = WorkerWords(
            queues=shares,
            order="strict" if strict else "shares",
            concurrency=concurrency,
            burst=burst,
            grace=_seconds(grace),
            max_jobs=max_jobs,
            max_rss=max_rss,
            pool=pool,
            log_payloads=log_payloads,
            prune_schedules=prune_schedules,
        )
        if burst and reload:
            raise InvalidInputError("--burst ends when nothing is left and --reload never ends: leave one of them out")
        if processes > 1 or reload or max_jobs is not None or max_rss is not None:
            configure(log_level, log_format)
            Supervisor(address, processes=processes, reload=reload, **options).run()
        else:
            Worker(address.load(), address=address, **options).run()
    except EchoMQError as error:
        if log_format is not Format.JSON:
            raise
        configure(log_level, log_format)
        log.critical("%s", error)
        raise typer.Exit(2 if isinstance(error, InvalidInputError) else 1) from None


def _queues(words: list[str]) -> dict[str, int]:
    """The weights by queue. What looks like a weight is one: a name that ends so is given one, as in `a=1=1`."""
    out: dict[str, int] = {}
    for word in words:
        name, equals, weight = word.rpartition("=")
        if not equals:
            name, weight = word, "1"
        if not (weight.isascii() and weight.isdigit()):
            raise InvalidInputError(
                f"--queue {word!r:.200}: {weight!r:.100} is no weight; a whole number, from 1, is one"
            )
        if name in out:
            raise InvalidInputError(f"--queue {word!r:.200}: {name!r:.200} is named twice; name it once")
        out[name] = int(weight[:10])
    return out


def _check_strict(shares: dict[str, int] | None) -> None:
    if shares is None:
        raise InvalidInputError(
            "--strict serves queues in the order in which they are named: give --queue NAME for each in the order"
        )
    for name, weight in shares.items():
        if weight != 1:
            raise InvalidInputError(
                f"--strict goes by the order of the queues, not by weights: write --queue {name:.200}, or leave out "
                "--strict"
            )


def _seconds(grace: float) -> timedelta:
    try:
        return timedelta(seconds=grace)
    except (ValueError, OverflowError):
        raise InvalidInputError(f"--grace is {grace}; a number of seconds, 0 or more, is allowed") from None
