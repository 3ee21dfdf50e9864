"""What the demo's jobs leave behind: one line for every time one ran, in a file that is only appended to.

The queue alone cannot tell how often a file was hashed; this file can, also when a worker died in between.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

import msgspec

__all__ = ["Kind", "Record", "RecordReader", "RecordWriter", "carried", "hash_once", "path_of"]


class Kind(Enum):
    """What a job found. The first four end a file's job, each file's once."""

    HASHED = "hashed"
    RAN = "ran"
    """A job that shows something and has no file, because the folder has too few."""
    GONE = "gone"
    UNREADABLE = "unreadable"
    FAILED = "failed"
    SNOOZED = "snoozed"
    TICK = "tick"

    @property
    def final(self) -> bool:
        """Whether the job is done with its file."""
        return self in (Kind.HASHED, Kind.RAN, Kind.GONE, Kind.UNREADABLE)


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """One run of a job. `target` is a carried path, or a name without `/` for a job that has no file."""

    kind: Kind
    target: str
    start_ms: int
    """When the job's code began, on this host's clock."""
    due_ms: int = 0
    """When it was to begin, on the same clock; 0 for work that was due at once."""
    sha256: str = ""
    size: int = 0
    mtime_ns: int = 0
    error: str = ""


def carried(path: str) -> str:
    """A path as a text that JSON takes, whatever bytes it holds."""
    return os.fsencode(path).decode("latin-1")


def path_of(target: str) -> str:
    """The path that `carried` made `target` of."""
    return os.fsdecode(target.encode("latin-1"))


def hash_once(target: str, start_ms: int, due_ms: int = 0) -> Record:
    """Hash one file. What stands in the way of reading it is in the record, not raised."""
    try:
        # A pipe that took the file's place must not hold the worker, and a link is not followed.
        handle = os.open(path_of(target), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                return Record(Kind.GONE, target, start_ms, due_ms, error="no longer a regular file")
            with os.fdopen(handle, "rb", buffering=0, closefd=False) as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        finally:
            os.close(handle)
    except OSError as error:
        gone = error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO)
        kind = Kind.GONE if gone else Kind.UNREADABLE
        return Record(kind, target, start_ms, due_ms, error=error.strerror or type(error).__name__)
    return Record(Kind.HASHED, target, start_ms, due_ms, digest, size=status.st_size, mtime_ns=status.st_mtime_ns)


class RecordWriter:
    """Appends records, each in one write, so that threads and processes may share the file."""

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write(self, record: Record) -> None:
        """Append one record; `OSError` when the disk does not take it whole."""
        line = msgspec.json.encode(record) + b"\n"
        if os.write(self._handle, line) != len(line):
            raise OSError(errno.ENOSPC, "a record of the demo was cut short")

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)


class RecordReader:
    """Reads records while they are being written."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._rest = b""

    def new(self) -> Iterator[Record]:
        """The records that came since the last call."""
        lines = (self._rest + self._file.read()).split(b"\n")
        self._rest = lines.pop()
        for line in lines:
            yield msgspec.json.decode(line, type=Record)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
