"""The default name of a job: the same text in the process that enqueues and in the worker that runs it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Final

_SCRIPT: Final = ("__main__", "__mp_main__")
"""The names under which a program's own file is imported; no worker imports it under these."""


def job_name(function: Callable[..., object]) -> str:
    """`module.function`, with the module's name as a worker would import it."""
    module = str(getattr(function, "__module__", None) or "__main__")
    if module in _SCRIPT:
        module = script_module(sys.modules.get(module)) or "__main__"
    # A dotted path of its own, so a nested function is told from its neighbours.
    return f"{module}.{getattr(function, '__qualname__', '')}"


def script_module(main: ModuleType | None) -> str | None:
    """What `import` calls the running program: from `sys.path`, else the current folder, else its stem.

    `python -m pkg.tasks` says it itself. For `python pkg/tasks.py` the folder of the script, which Python
    puts on the path for it, does not count.
    """
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return str(spec.name)
    file = getattr(main, "__file__", None)
    if not isinstance(file, str):
        return None
    script = Path(file).resolve()
    folders = [Path(entry).resolve() for entry in sys.path if entry]
    importable = [folder for folder in folders if folder in script.parents and folder != script.parent]
    for folder in sorted(importable, key=lambda each: len(each.parts), reverse=True):
        if dotted := _dotted(script, folder):
            return dotted
    return _dotted(script, Path.cwd()) or script.stem


def _dotted(script: Path, folder: Path) -> str | None:
    if folder not in script.parents:
        return None
    parts = script.relative_to(folder).with_suffix("").parts
    return ".".join(parts) if all(part.isidentifier() for part in parts) else None
