"""`echomq server`: the embedded server in the foreground."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Adds the command to the program."""
    app.command("server")(server)


def server(
    home: Annotated[
        Path | None,
        typer.Option(help="The server's folder. Default: $ECHOMQ_HOME, else .echomq in the project.", metavar="FOLDER"),
    ] = None,
    durable: Annotated[
        bool, typer.Option("--durable", help="Ask for an fsync on every write, not one a second.")
    ] = False,
) -> None:
    """Run the server that comes with EchoMQ.

    In the foreground, until SIGINT or SIGTERM. Programs start it by themselves when they need it; run it here to watch
    it, or to keep it running.

    Exit codes: 0 it was stopped, 1 it cannot run, ended by itself, or the folder has one that runs, 2 a wrong argument.

    \b
    Examples:
      echomq server
      echomq server --home /var/lib/echomq --durable
    """
    from echomq.wire.embedded import serve

    serve(home, durable=durable)
