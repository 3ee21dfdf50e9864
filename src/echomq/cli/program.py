"""The `echomq` program: its commands, and how it ends when something is wrong.

One clear sentence on stderr and no traceback: exit code 2 for what was written wrongly, 1 for a server that cannot
be reached and for everything else that EchoMQ itself reports. Asked for JSON, a command answers in JSON then, too: an
object with the sentence as `error`, on stdout.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from typing import Annotated, Final

import typer

import echomq

COMMANDS: Final = {
    "worker": "worker",
    "server": "server",
    "demo": "demo",
    "conformance": "conformance",
    "queues": "ops_queues",
    "stats": "ops_queues",
    "jobs": "ops_jobs",
    "job": "ops_job",
    "dead": "ops_dead",
    "lanes": "ops_lanes",
    "repeats": "ops_repeats",
    "workers": "ops_workers",
    "health": "ops_health",
    "audit": "ops_audit",
    "pause": "ops_control",
    "resume": "ops_control",
    "drain": "ops_control",
    "obliterate": "ops_control",
    "set": "ops_control",
    "module": "module",
}
"""The commands, each with the module of `echomq.cli` that adds it by `register(app)`, and imports what it needs when it
runs."""

_HELP: Final = """Jobs that run on time, on Valkey or Redis.

Each command says more, with examples, by --help.

Exit codes: 0 done; 1 it could not be, and one sentence says why; 2 something is written wrongly; 130 interrupted. Some
commands have more, as their help says.

\b
Examples:
  echomq demo
  echomq worker tasks:mq
  echomq queues --url valkey://localhost:6379/0
  echomq stats --watch 2
  echomq dead mail --error timeout --retry
  echomq health
"""


def build(only: str | None = None) -> typer.Typer:
    """The program with its commands; with `only`, with those of that command's module: the others cost time."""
    app = typer.Typer(
        name="echomq",
        help=_HELP,
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

    modules = [COMMANDS[only]] if only in COMMANDS else dict.fromkeys(COMMANDS.values())
    for name in modules:
        import_module(f"echomq.cli.{name}").register(app)
    return app


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"echomq {echomq.__version__}")
        raise typer.Exit


def run() -> None:
    """Runs the program with the arguments of this process."""
    machine = "--json" in _options(sys.argv[1:])
    try:
        program = build(sys.argv[1] if len(sys.argv) > 1 else None)
        raise SystemExit(program(standalone_mode=False))
    except echomq.InvalidInputError as error:
        fail(str(error), 2, error, machine=machine)
    except echomq.EchoMQError as error:
        fail(str(error), 1, error, machine=machine)
    except (KeyboardInterrupt, typer.Abort):
        raise SystemExit(130) from None
    except BrokenPipeError:
        # Whoever read our output has gone; keep the interpreter from saying so again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
    except Exception as error:
        # What the parser of the command line refuses, of a class that typer keeps to itself.
        message, code = getattr(error, "format_message", None), getattr(error, "exit_code", None)
        if message is None or not isinstance(code, int):
            raise
        if type(error).__name__ == "NoArgsIsHelpError":
            print(message(), file=sys.stderr)
            raise SystemExit(code) from None
        from echomq.cli.usage import sentence

        fail(sentence(error), code, error, machine=machine)


def _options(words: list[str]) -> list[str]:
    """What comes before a `--`."""
    return words[: words.index("--")] if "--" in words else words


def fail(sentence: str, code: int, error: Exception | None = None, *, machine: bool = False) -> None:
    """Says what is wrong and ends the process; a `machine` is told on stdout, in a line of JSON."""
    if machine:
        kind = type(error).__name__
        print(json.dumps({"error": sentence, "kind": kind, "exit_code": code}), flush=True)
    print(f"echomq: {sentence}", file=sys.stderr)
    raise SystemExit(code)
