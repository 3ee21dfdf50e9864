"""What the demo shows while it runs: a live table on a terminal, plain lines anywhere else, nothing for a machine."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from echomq.cli.demo_tally import Lateness

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["Speed", "View", "ViewState", "silent", "view_for"]

LINE_S = 1.0
"""How often a plain line is printed."""


@dataclass(frozen=True, slots=True)
class ViewState:
    """One instant of the demo."""

    elapsed_s: float
    pending: int
    scheduled: int
    active: int
    done: int
    dead: int
    per_second: float
    lateness: Lateness | None

    def cells(self) -> list[tuple[str, str]]:
        """The columns: heading and value."""
        late = self.lateness
        return [
            ("pending", f"{self.pending:,}"),
            ("scheduled", f"{self.scheduled:,}"),
            ("active", f"{self.active:,}"),
            ("done", f"{self.done:,}"),
            ("dead", f"{self.dead:,}"),
            ("jobs/s", f"{self.per_second:,.0f}"),
            ("late (worst)", f"{late.median_ms} ms ({late.worst_ms} ms)" if late else "-"),
        ]


class Speed:
    """Jobs per second over the last second or so."""

    def __init__(self, window_s: float = 1.0) -> None:
        self._window_s = window_s
        self._seen: deque[tuple[float, int]] = deque()

    def at(self, now_s: float, done: int) -> float:
        """The speed now that `done` are done."""
        self._seen.append((now_s, done))
        while len(self._seen) > 2 and now_s - self._seen[1][0] >= self._window_s:
            self._seen.popleft()
        since_s, before = self._seen[0]
        return (done - before) / (now_s - since_s) if now_s > since_s else 0.0


class View(Protocol):
    """Takes what is to be shown."""

    def __call__(self, state: ViewState, /) -> None:
        """Show this state."""
        ...


def silent(_: ViewState, /) -> None:
    """Shows nothing."""


class _Lines:
    """One plain line a second."""

    def __init__(self) -> None:
        self._next_s = 0.0

    def __call__(self, state: ViewState, /) -> None:
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        self._next_s = now_s + LINE_S
        cells = "  ".join(f"{name} {value}" for name, value in state.cells())
        print(f"{state.elapsed_s:5.1f} s  {cells}", flush=True)


@contextmanager
def view_for(*, machine: bool) -> Generator[View, None, None]:
    """The view that fits: `machine` asks for none, and a table needs a terminal."""
    if machine:
        yield silent
        return
    if not sys.stdout.isatty():
        yield _Lines()
        return
    from rich.console import Console

    console = Console()
    if console.is_dumb_terminal:
        yield _Lines()
        return
    from rich.live import Live

    with Live(console=console, auto_refresh=False) as live:

        def show(state: ViewState, /) -> None:
            live.update(_table(state), refresh=True)

        yield show


def _table(state: ViewState) -> Table:
    from rich.table import Table

    table = Table(title=f"echomq demo, {state.elapsed_s:.1f} s", title_justify="left")
    cells = state.cells()
    for name, _ in cells:
        table.add_column(name, justify="right", min_width=len(name), no_wrap=True)
    table.add_row(*(value for _, value in cells))
    return table
