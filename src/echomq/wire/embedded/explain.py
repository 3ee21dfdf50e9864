"""Why there is no server, in the words a user needs: what happened, and the line that mends it."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

from echomq.wire.embedded import probe, supervisor
from echomq.wire.embedded.binary import BINARY_VARIABLE, mend_command
from echomq.wire.embedded.folder import Folder

__all__ = ["blames_module", "late", "not_started", "progress", "without_module"]

_DAMAGED_LOG = re.compile(r"the append only file ([^\s:]+)")
_DAMAGED_DUMP = re.compile(r"loading the DB|\brdb\b|\bRDB\b")
_MODULE = re.compile(r"load ?module|was killed by signal (4|6|7|8|10|11)\b|exit status 1\Z")
"""What a server says of a module or of a setting for one, what it dies of inside it, or its silence before its log."""


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


def blames_module(text: str) -> bool:
    """Whether a server that was to load the native module may have ended for that; `text` is what was said."""
    return _MODULE.search(text) is not None


def without_module(binary: str, module: Path, text: str) -> str:
    """A server that does not take the module, and runs without it."""
    why = " ".join(text.split())
    return f"{binary} does not take the native module {module} and runs without it, by scripts: {why}"


def progress(folder: Folder) -> str:
    """How far a loading server is."""
    state = probe.loading(folder.socket)
    return f"reading the files in {folder.data}: {state.percent:.0f} %, about {state.eta_s} s left"


def late(folder: Folder, found: probe.Reach, *, ours: bool) -> str:
    """A server that did not answer in time, though somebody owns its folder; `ours`: a supervisor that we started."""
    match found:
        case probe.Reach.LOADING:
            return f"embedded server: still {progress(folder)}; it goes on, try again in a moment"
        case probe.Reach.SILENT:
            return f"embedded server: {folder.socket} takes connections and does not answer; see {folder.server_log}"
        case _:
            return f"embedded server: {_absent(folder, ours=ours)}. See {folder.supervisor_log}"


def _absent(folder: Folder, *, ours: bool) -> str:
    """Why nobody listens, by who wrote its name into the folder."""
    pid, host = _supervisor(folder)
    here = os.uname().nodename
    name = f"supervisor {pid}" if pid else "a supervisor"
    if ours or (host == here and pid and _is_alive(pid)):
        return (
            f"{name} is here and its server does not listen on {folder.socket} yet, so this machine may be very busy;"
            f" it goes on, try again in a moment"
        )
    if host and host != here:
        return (
            f"{folder.start_lock} is held, its {name} runs on {host!r} and this is {here!r}: a folder serves one"
            f" machine or container; name another one here, or share a server by its URL"
        )
    return (
        f"{folder.start_lock} is held ({name}), yet nobody answers on {folder.socket}; does another machine or"
        f" container use this folder over a shared disk?"
    )


def _supervisor(folder: Folder) -> tuple[int | None, str]:
    """The pid and the host of the supervisor that came last, as far as they are written."""
    try:
        host = folder.supervisor_pid.read_text("utf-8", "replace").partition("\n")[2].strip()
    except OSError:
        host = ""
    return supervisor.read_pid(str(folder.supervisor_pid)), host


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return True
