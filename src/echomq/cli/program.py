"""The `echomq` program: its commands, and how it ends when something is wrong.

One clear sentence on stderr and no traceback: exit code 2 for what was written wrongly, 1 for a server that cannot
be reached and for everything else that EchoMQ itself reports.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Annotated, Final

import typer

import echomq

COMMANDS: Final = (
    *("worker", "server", "demo", "conformance"),
    *("ops_queues", "ops_jobs", "ops_job", "ops_dead", "ops_lanes"),
    *("ops_repeats", "ops_workers", "ops_health", "ops_audit", "ops_control"),
)
"""Each is a module of `echomq.cli` with `register(app)`, and imports what it needs when it runs."""


def build() -> typer.Typer:
    """The program with its commands."""
    app = typer.Typer(
        name="echomq",
        help="Jobs that run on time, on Valkey or Redis.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    def echomq_(
        version: Annotated[
            bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_version)
        ] = False,
    ) -> None:
        pass

    for name in COMMANDS:
        import_module(f"echomq.cli.{name}").register(app)
    return app


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"echomq {echomq.__version__}")
        raise typer.Exit


def run() -> None:
    """Runs the program with the arguments of this process."""
    try:
        build()()
    except echomq.InvalidInputError as error:
        fail(str(error), 2)
    except echomq.EchoMQError as error:
        fail(str(error), 1)
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except BrokenPipeError:
        # Whoever read our output has gone; keep the interpreter from saying so again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None


def fail(sentence: str, code: int) -> None:
    """Says what is wrong and ends the process."""
    print(f"echomq: {sentence}", file=sys.stderr)
    raise SystemExit(code)
