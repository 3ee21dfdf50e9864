"""A real server whose clock a test sets: what it answers to everybody, scripts and commands alike, is that instant."""

from __future__ import annotations

import mmap
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from support.servers import Kind, Server

_SOURCE = Path(__file__).with_name("clock.c")


class FrozenClock:
    """The time of day of every server that is started with its `environment`, until it is set again."""

    def __init__(self, folder: Path) -> None:
        library, file = folder / "clock.so", folder / "clock"
        compiler = os.environ.get("CC") or next(filter(shutil.which, ("cc", "gcc", "clang")))
        words = ("-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", str(library), str(_SOURCE), "-ldl")
        subprocess.run((*compiler.split(), *words), check=True, timeout=60)
        file.write_bytes(bytes(8))
        with file.open("r+b") as opened:
            self._page = mmap.mmap(opened.fileno(), 8)
        self.environment = {"LD_PRELOAD": str(library), "ECHOMQ_CLOCK": str(file)}

    def set(self, now_ms: int) -> None:
        """From here on it is that instant, in Unix ms."""
        self._page[:] = (now_ms * 1000).to_bytes(8, "little")

    def server(self, kind: Kind, **settings: Any) -> Server:
        """A server that goes by this clock; it is not started yet. No time-out of its own can end anything."""
        options = ("--repl-timeout", "2000000000", "--repl-diskless-sync-delay", "0", *settings.pop("options", ()))
        return Server(kind, options=options, environment=self.environment, **settings)
