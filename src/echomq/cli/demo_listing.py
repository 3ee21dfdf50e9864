"""What the demo works on: the files below a folder, listed once."""

from __future__ import annotations

import os
import stat
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["BUILT", "Found", "Listing", "default_folder", "list_files", "shown"]

BUILT = frozenset({"site-packages", "__pycache__"})
"""What the default folder is listed without: it belongs to others, or changes when Python runs."""


@dataclass(frozen=True, slots=True)
class Found:
    """A regular file as it was when it was listed; `path` carries undecodable bytes as surrogates."""

    path: str
    size: int
    mtime_ns: int


@dataclass(slots=True)
class Listing:
    """The files below `root`, and what is there beside them and was left out."""

    root: str
    files: list[Found] = field(default_factory=list)
    links: int = 0
    special: int = 0
    """Pipes, sockets and devices."""
    left_out: list[str] = field(default_factory=list)
    """Folders not entered: the server's own."""
    unreadable: list[str] = field(default_factory=list)
    """Folders and files that could not be looked at, with the reason."""

    @property
    def size(self) -> int:
        """The bytes of all the files."""
        return sum(found.size for found in self.files)


def default_folder() -> Path:
    """The standard library's own folder."""
    return Path(sysconfig.get_path("stdlib"))


def shown(path: str) -> str:
    """A path as text that any terminal and any JSON reader takes, on one line."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def list_files(
    root: str | os.PathLike[str], *, without: frozenset[str] = frozenset(), own: Iterable[str] = ()
) -> Listing:
    """Every regular file below `root`, in a stable order, following no link.

    `without` are names of folders that are not entered and not mentioned, `own` real paths of folders that are not
    entered and are mentioned. `OSError` when `root` itself cannot be listed.
    """
    listing = Listing(os.path.realpath(root))
    kept_out = frozenset(own)
    with os.scandir(listing.root):
        pass  # refused here and not deep in the walk: the user named this one
    folders = [listing.root]
    while folders:
        folder = folders.pop()
        if folder in kept_out:
            listing.left_out.append(folder)
            continue
        try:
            with os.scandir(folder) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            listing.unreadable.append(f"{shown(folder)}: {error.strerror}")
            continue
        below = [entry.path for entry in found if not _take(entry, listing) and entry.name not in without]
        folders += reversed(below)
    return listing


def _take(entry: os.DirEntry[str], listing: Listing) -> bool:
    """Note an entry in the listing; False for a folder, which is to be entered."""
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError as error:
        listing.unreadable.append(f"{shown(entry.path)}: {error.strerror}")
        return True
    if stat.S_ISDIR(status.st_mode):
        return False
    if stat.S_ISREG(status.st_mode):
        listing.files.append(Found(entry.path, status.st_size, status.st_mtime_ns))
    elif stat.S_ISLNK(status.st_mode):
        listing.links += 1
    else:
        listing.special += 1
    return True
