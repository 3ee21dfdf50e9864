"""The embedded server as a connector's source: hold the lock, have it run, say where it is."""

from __future__ import annotations

import os
import time
from pathlib import Path

from echomq.wire.embedded import locks
from echomq.wire.embedded.folder import find_home, locate, open_folder
from echomq.wire.embedded.launch import START_S, ensure_running
from echomq.wire.url import Target

__all__ = ["EmbeddedSource"]


class EmbeddedSource:
    """The server in a folder, shared by every process that names the same one.

    `durable` asks for an fsync on every write instead of one a second. `start_s` is how long the server may
    take to answer. Usable from any thread; in a forked child it takes a hold of its own.
    """

    def __init__(
        self, home: str | os.PathLike[str] | None = None, *, durable: bool = False, start_s: float = START_S
    ) -> None:
        self._home = find_home(home)
        self._durable = durable
        self._start_s = start_s
        self._holder = object()

    def __repr__(self) -> str:
        return f"EmbeddedSource({str(self._home)!r}, durable={self._durable})"

    @property
    def home(self) -> Path:
        """The folder."""
        return self._home

    def prepare(self) -> Target:
        """The running server, started if need be; the folder's users' lock is held from here to `release`."""
        folder = open_folder(self._home)
        deadline = time.monotonic() + self._start_s
        locks.hold(folder, self._holder, deadline=deadline)
        ensure_running(folder, durable=self._durable, deadline=deadline)
        return Target(path=folder.socket)

    def release(self) -> None:
        """Use the server no longer; it goes by itself once nobody does."""
        locks.drop(locate(self._home), self._holder)
