"""`echomq module path`: where the native module lies that a server loads to speak wire 6 (protocol §5)."""

from __future__ import annotations

import typer

_HELP = """The native module for a server of yours.

\b
Examples:
  echomq module path
  valkey-server --loadmodule "$(echomq module path)"
"""


def register(app: typer.Typer) -> None:
    """Adds the command to the program."""
    module = typer.Typer(no_args_is_help=True, help=_HELP)
    # A callback keeps `path` a word of its own, as long as it is the only one.
    module.callback()(_module)
    module.command("path")(path)
    app.add_typer(module, name="module")


def _module() -> None:
    pass


def path() -> None:
    """Print the file that a server takes with --loadmodule.

    The server that comes with EchoMQ has it already. Clients then speak to the server with --wire auto or 6.

    Exit codes: 0 it is there, 2 this EchoMQ was built without it.

    \b
    Examples:
      echomq module path
      valkey-server --loadmodule "$(echomq module path)"
    """
    from echomq.identity.errors import InvalidInputError
    from echomq.wire.module import ModuleMissingError, module_path

    try:
        print(module_path())
    except ModuleMissingError as error:
        raise InvalidInputError(str(error)) from None
