"""Watching Python files, for `--reload`; `watchfiles` does it, an extra: `pip install 'echomq[reload]'`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from echomq.identity.errors import InvalidInputError


def watch(folder: Path, changed: Callable[[list[str]], None]) -> Callable[[], None]:
    """Calls `changed` with names, in a thread, when Python files below `folder` have changed; gives what ends that."""
    try:
        from watchfiles import PythonFilter
        from watchfiles import watch as changes
    except ImportError:
        raise InvalidInputError("--reload needs watchfiles: pip install 'echomq[reload]'") from None
    end = threading.Event()

    def run() -> None:
        for found in changes(folder, watch_filter=PythonFilter(), stop_event=end, raise_interrupt=False):
            changed(sorted({_short(Path(name), folder) for _, name in found}))

    threading.Thread(target=run, name="echomq reload", daemon=True).start()
    return end.set


def _short(path: Path, folder: Path) -> str:
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)
