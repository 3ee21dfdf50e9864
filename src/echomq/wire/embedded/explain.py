"""Why there is no server, in the words a user needs: what happened, and the line that mends it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from echomq.wire.embedded import probe, supervisor
from echomq.wire.embedded.binary import BINARY_VARIABLE, mend_command
from echomq.wire.embedded.folder import Folder

__all__ = ["late", "not_started", "progress"]

_DAMAGED_LOG = re.compile(r"the append only file ([^\s:]+)")
_DAMAGED_DUMP = re.compile(r"loading the DB|\brdb\b|\bRDB\b")


def not_started(folder: Folder, binary: str, text: str) -> str:
    """A server that refused to run; `text` is what it or its supervisor said."""
    message = f"embedded server: the server in {folder.home} did not start: {text}"
    damaged = _DAMAGED_LOG.search(text)
    if damaged and ".base." not in damaged[1]:  # a base is a dump, which the checker would cut to nothing
        name = Path(damaged[1].rstrip(".")).name
        file = next(iter(sorted(folder.data.glob(f"*/{name}"))), folder.data)
        copy = shlex.join(["cp", "-a", str(folder.data), f"{folder.data}.copy"])
        return (
            f"{message}\n"
            f"The file {file} is damaged; nothing was changed. To keep what stands before\n"
            f"the damage, copy the folder and cut the file there (it asks first):\n"
            f"  {copy}\n"
            f"  {mend_command(binary, file)}\n"
            f"To begin anew instead, move {folder.data} aside."
        )
    if damaged or _DAMAGED_DUMP.search(text):
        return (
            f"{message}\n"
            f"Nothing was changed. If a newer server than {binary} wrote the files in {folder.data},\n"
            f"run that one ({BINARY_VARIABLE}); if they are damaged, move {folder.data} aside to begin anew."
        )
    return f"{message}\nSee {folder.server_log} and {folder.supervisor_log}."


def progress(folder: Folder) -> str:
    """How far a loading server is."""
    state = probe.loading(folder.socket)
    return f"reading the files in {folder.data}: {state.percent:.0f} %, about {state.eta_s} s left"


def late(folder: Folder, found: probe.Reach) -> str:
    """A server that did not answer in time, though somebody owns its folder."""
    match found:
        case probe.Reach.LOADING:
            return f"embedded server: still {progress(folder)}; it goes on, try again in a moment"
        case probe.Reach.SILENT:
            return f"embedded server: {folder.socket} takes connections and does not answer; see {folder.server_log}"
        case _:
            pid = supervisor.read_pid(str(folder.supervisor_pid))
            return (
                f"embedded server: {folder.start_lock} is held (supervisor {pid or 'unknown'}), yet nobody"
                f" answers on {folder.socket}; does another machine or container use this folder over a"
                f" shared disk? See {folder.supervisor_log}"
            )
