"""What the operators' commands print: a table on a terminal, aligned text elsewhere, JSON for a machine."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Sequence
from typing import Final

from echomq.cli.ops_text import clean

__all__ = ["clear", "document", "facts", "on_terminal", "prepare", "say", "table", "warn"]

RIGHT: Final = ">"
"""A heading that begins so is that of numbers: set to the right."""

_GAP: Final = 2
"""Spaces between two columns."""

_LAST: Final = 24
"""The least room for the last column, which is folded."""


def prepare() -> None:
    """A name that this terminal's encoding does not have must not end a command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def on_terminal() -> bool:
    """Whether a person looks at what is printed."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def clear() -> None:
    """An empty screen, where there is one."""
    if on_terminal():
        from rich.console import Console

        Console().clear()


def say(text: str) -> None:
    """One line."""
    print(clean(text))


def warn(text: str) -> None:
    """One line beside the output."""
    print(f"echomq: {clean(text)}", file=sys.stderr)


def document(value: object) -> None:
    """The one JSON document of a command, in ASCII: right in any encoding."""
    print(json.dumps(value, indent=2))


def _print_rich(headings: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    """Wide enough: an id or a number is never cut, and a line too long for the terminal is the terminal's to wrap."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    kept = _fitting(headings, cells, console.width)
    shown = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="bold")
    for at in kept:
        right = headings[at].startswith(RIGHT)
        shown.add_column(
            Text(headings[at].lstrip(RIGHT)),
            justify="right" if right else "left",
            no_wrap=right or at != kept[-1],
            overflow="fold",
        )
    for row in cells:
        shown.add_row(*(Text(row[at]) for at in kept))
    widths = _widths(headings, cells)
    last = widths[kept[-1]] if headings[kept[-1]].startswith(RIGHT) else min(widths[kept[-1]], _LAST)
    needed = sum(widths[at] + _GAP for at in kept[:-1]) + last
    (console if console.width >= needed else Console(width=needed)).print(shown)


def _widths(headings: Sequence[str], cells: Sequence[Sequence[str]]) -> list[int]:
    from rich.cells import cell_len

    names = [cell_len(heading.lstrip(RIGHT)) for heading in headings]
    return [max([name, *(cell_len(row[at]) for row in cells)]) for at, name in enumerate(names)]


def _fitting(headings: Sequence[str], cells: Sequence[Sequence[str]], width: int) -> list[int]:
    """The columns to show: on a narrow terminal those that say nothing are left out, the last ones first."""
    widths = _widths(headings, cells)
    kept = list(range(len(headings)))
    for at in reversed(range(1, len(headings))):
        if sum(widths[each] + _GAP for each in kept) <= width:
            break
        if cells and all(row[at] in ("", "-", "0") for row in cells):
            kept.remove(at)
    return kept


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table. A heading with RIGHT before it belongs to a column of numbers."""
    cells = [[clean(cell) for cell in row] for row in rows]
    if on_terminal():
        _print_rich(headings, cells)
        return
    names = [heading.lstrip(RIGHT).upper() for heading in headings]
    widths = _widths(headings, cells)
    for row in (names, *cells):
        print((" " * _GAP).join(map(_padded, row, widths, headings)).rstrip())


def _padded(cell: str, width: int, heading: str) -> str:
    from rich.cells import cell_len

    room = " " * (width - cell_len(cell))
    return room + cell if heading.startswith(RIGHT) else cell + room


def facts(pairs: Sequence[tuple[str, str]]) -> None:
    """Names and values, a line each."""
    width = max((len(name) for name, _ in pairs), default=0)
    for name, value in pairs:
        print(f"{name + ':':<{width + 1}}  {clean(value)}".rstrip())
