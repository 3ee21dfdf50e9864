"""Files that stay clear of the three standard ones, in a process that was started with some of those closed."""

from __future__ import annotations

import fcntl
import os


def lifted(fd: int) -> int:
    """`fd`, moved above the three standard files: where one of those is closed, a new file gets its number.

    What is started later puts its own standard files there, over whatever lies in the place.
    """
    if fd > 2:
        return fd
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
    finally:
        os.close(fd)


def open_lifted(path: str, flags: int) -> int:
    """A private file, opened above the three standard ones."""
    return lifted(os.open(path, flags, 0o600))


def lifted_pipe() -> tuple[int, int]:
    """A pipe above the three standard files."""
    reader, writer = os.pipe()  # both first: else the second might get the number that the first has left
    return lifted(reader), lifted(writer)
