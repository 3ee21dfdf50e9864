"""The folder's locks as a user sees them: a shared hold on the server, the start lock to hand over.

`flock` belongs to the open file, and a fork shares it. So every file opened here is remembered and closed in
a forked child, which takes a hold of its own when it needs one; a program started by exec never gets them. All lie
above the standard files, whose numbers are free in a program that has closed those.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from echomq.protocol.errors import EmbeddedServerError
from echomq.wire.embedded.descriptors import lifted_pipe, open_lifted
from echomq.wire.embedded.folder import Folder, unusable

__all__ = ["close", "drop", "hold", "is_held", "remembered_pipe", "try_start_lock"]


@dataclass(slots=True)
class _Hold:
    fd: int
    holders: set[object] = field(default_factory=set[object])


_guard = threading.RLock()  # held for moments only: a fork waits for it
_open: set[int] = set()
_holds: dict[Path, _Hold] = {}


def hold(folder: Folder, holder: object, *, deadline: float) -> None:
    """Hold the users' lock for `holder` until `drop`; asking again changes nothing.

    One lock serves a process, however many hold it. It waits while a supervisor that leaves has it alone.
    """
    pause = 0.001
    while True:
        with _guard:
            current = _holds.get(folder.home)
            if current is not None and _is_path(current.fd, folder.users_lock):
                current.holders.add(holder)
                return
            taken = _try(folder, folder.users_lock, fcntl.LOCK_SH)
            if taken is not None:
                if current is not None:  # the folder was replaced under us
                    _close(current.fd)
                holders = current.holders if current is not None else set[object]()
                holders.add(holder)
                _holds[folder.home] = _Hold(taken, holders)
                return
        if time.monotonic() > deadline:
            raise EmbeddedServerError(
                f"embedded server: {folder.users_lock} stayed locked: the server that had the folder before"
                f" does not stop; see {folder.supervisor_log}"
            )
        time.sleep(pause)
        pause = min(pause * 2, 0.02)


def drop(folder: Folder, holder: object) -> None:
    """End `holder`'s hold; the last one of a process frees the lock."""
    with _guard:
        current = _holds.get(folder.home)
        if current is None:
            return
        current.holders.discard(holder)
        if not current.holders:
            del _holds[folder.home]
            _close(current.fd)


def try_start_lock(folder: Folder) -> int | None:
    """The start lock, to be handed to a supervisor and then closed here; None when a supervisor has it."""
    with _guard:
        return _try(folder, folder.start_lock, fcntl.LOCK_EX)


def close(fd: int) -> None:
    """Close a lock's file here; a process it was handed to keeps the lock."""
    with _guard:
        _close(fd)


def remembered_pipe() -> tuple[int, int]:
    """A pipe whose writing end is closed in a forked child, too, so that it ends when it should."""
    with _guard:
        reader, writer = lifted_pipe()
        _open.add(writer)
        return reader, writer


def is_held(folder: Folder, path: Path, *, shared: bool) -> bool:
    """Whether somebody holds that lock so that a shared (or else an exclusive) one cannot be had now."""
    try:
        fd = open_lifted(str(path), os.O_RDWR)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise unusable(folder.home, error) from None
    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _try(folder: Folder, path: Path, kind: int) -> int | None:
    try:
        fd = open_lifted(str(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    except OSError as error:
        raise unusable(folder.home, error) from None
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    except OSError as error:
        os.close(fd)
        raise unusable(folder.home, error) from None
    if not _is_path(fd, path):  # removed between the two steps
        os.close(fd)
        return None
    _open.add(fd)
    return fd


def _is_path(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except OSError:
        return False


def _close(fd: int) -> None:
    _open.discard(fd)
    os.close(fd)


def _in_child() -> None:
    global _guard
    _guard = threading.RLock()
    for fd in _open:
        os.close(fd)  # closing frees nothing: the parent has the file open too
    _open.clear()
    _holds.clear()


def _before_fork() -> None:
    _guard.acquire()


def _in_parent() -> None:
    _guard.release()


os.register_at_fork(before=_before_fork, after_in_parent=_in_parent, after_in_child=_in_child)
