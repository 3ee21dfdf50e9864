"""`echomq demo`: real files, a real server and a real worker, and a check that nothing was lost or done twice."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from echomq.identity.errors import InvalidInputError

if TYPE_CHECKING:
    from echomq.cli.demo_listing import Listing

INTERRUPTED = 130


def register(app: typer.Typer) -> None:
    """Adds the command to the program."""
    app.command("demo")(demo)


def demo(
    folder: Annotated[
        str | None,
        typer.Argument(metavar="FOLDER", help="Default: the standard library of this Python.", show_default=False),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the totals for a machine, and nothing else.")] = False,
) -> None:
    """Hash files by jobs, and check each was hashed once.

    One job a file, for every file below FOLDER. Among them are a job that fails twice, one that always fails, one
    that puts itself off, some for later, and a recurrence. It uses the server that comes with EchoMQ and leaves
    nothing on it.

    Exit codes: 0 every file was hashed once, 1 something is missing or wrong, 2 FOLDER cannot be used.

    \b
    Examples:
      echomq demo
      echomq demo ~/pictures
      echomq demo --json
    """
    from echomq.cli.demo_listing import BUILT, default_folder, list_files, shown
    from echomq.cli.demo_run import run_demo
    from echomq.cli.demo_view import view_for
    from echomq.cli.ops_view import prepare
    from echomq.wire.embedded import find_home

    prepare()
    home = find_home()
    own = [str(home.resolve())]
    try:
        listing = list_files(default_folder(), without=BUILT, own=own) if folder is None else _listed(folder, own)
        if not json:
            print(f"{len(listing.files):,} files below {shown(listing.root)}; server in {shown(str(home))}", flush=True)
        with view_for(machine=json) as view:
            totals = run_demo(listing, home, view)
    except KeyboardInterrupt:
        print("echomq: interrupted; the demo has taken its queues off the server", file=sys.stderr)
        raise typer.Exit(INTERRUPTED) from None
    if json:
        print(totals.json())
    else:
        for line in totals.lines():
            print(line)
    raise typer.Exit(0 if totals.ok else 1)


def _listed(named: str, own: list[str]) -> Listing:
    """The files below a folder that the user named, or `InvalidInputError` with the reason."""
    from echomq.cli.demo_listing import list_files, shown

    if not named:
        raise InvalidInputError("an empty text names no folder")
    try:
        return list_files(named, own=own)
    except FileNotFoundError:
        raise InvalidInputError(f"there is no folder {shown(named)}") from None
    except NotADirectoryError:
        raise InvalidInputError(f"{shown(named)} is not a folder") from None
    except OSError as error:
        raise InvalidInputError(f"the folder {shown(named)} cannot be listed: {error.strerror}") from None
