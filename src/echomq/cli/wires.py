"""`--wire` on the command line: scripts, native commands, or whichever of them a server has (protocol §5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

if TYPE_CHECKING:
    from echomq.wire.dialect import Wire

__all__ = ["WireText", "wire_of"]

WireText: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--wire",
        metavar="4|6|auto",
        help="4 evaluates scripts, 6 sends native commands and demands them, auto uses those that there are.",
        show_default=False,
    ),
]


def wire_of(text: str | None) -> Wire | None:
    """The wire that was asked for, or None; `InvalidInputError` names what is allowed."""
    from echomq.wire.dialect import check_wire

    return None if text is None else check_wire(text, "--wire ")
