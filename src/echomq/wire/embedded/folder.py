"""The folder an embedded server lives in: where it is, what it holds, and whether it may be used."""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import stat
import sys
from dataclasses import dataclass
from pathlib import Path

from echomq.protocol.errors import EmbeddedServerError
from echomq.wire.embedded import supervisor

__all__ = ["FOLDER_NAME", "HOME_VARIABLE", "Folder", "find_home", "locate", "open_folder"]

HOME_VARIABLE = "ECHOMQ_HOME"
FOLDER_NAME = ".echomq"
SOCKET_NAME = "server.sock"
SOCKET_LIMIT = 107 if sys.platform == "linux" else 103
"""Bytes that a Unix socket's path may have."""
SHORT_ROOT = "/tmp"  # noqa: S108 - not $TMPDIR: every user of a folder must find the same socket
PROJECT_FILE = "pyproject.toml"

logger = logging.getLogger("echomq")
_said: set[Path] = set()


@dataclass(frozen=True, slots=True)
class Folder:
    """The files of one embedded server; `home` is the folder's real path."""

    home: Path
    socket: str

    @property
    def data(self) -> Path:
        """The server's append-only file, in a folder of its own."""
        return self.home / supervisor.DATA

    @property
    def start_lock(self) -> Path:
        """Held exclusively by the folder's supervisor."""
        return self.home / supervisor.START_LOCK

    @property
    def users_lock(self) -> Path:
        """Held, shared, by every user of the server."""
        return self.home / supervisor.USERS_LOCK

    @property
    def server_log(self) -> Path:
        """The server's own log."""
        return self.home / supervisor.SERVER_LOG

    @property
    def supervisor_log(self) -> Path:
        """What the supervisor did, and what the server said before it had a log."""
        return self.home / supervisor.SUPERVISOR_LOG

    @property
    def server_pid(self) -> Path:
        """The server's process, while it runs."""
        return self.home / supervisor.SERVER_PID

    @property
    def supervisor_pid(self) -> Path:
        """The supervisor's process and host, while it runs."""
        return self.home / supervisor.SUPERVISOR_PID


def find_home(explicit: str | os.PathLike[str] | None = None) -> Path:
    """The folder to use: the one named, else `$ECHOMQ_HOME`, else `.echomq` here or above.

    Going up from the working directory, the first directory decides that holds an `.echomq` of ours or a
    `pyproject.toml`; without one it is `./.echomq`. Nothing is created.
    """
    named = os.fspath(explicit) if explicit is not None else os.environ.get(HOME_VARIABLE, "")
    if not isinstance(named, str):
        raise EmbeddedServerError(f"embedded server: the folder must be text or a Path, not bytes: {named!r:.200}")
    if "\0" in named:
        raise EmbeddedServerError(f"embedded server: the folder {named!r} holds a NUL character; name another one")
    try:
        if named:
            return without_tilde(named, "the folder").absolute()
        here = Path.cwd()
    except FileNotFoundError:
        raise EmbeddedServerError(
            f"embedded server: the working directory is gone; change to another one or set {HOME_VARIABLE}"
        ) from None
    for directory in (here, *here.parents):
        if _is_our_directory(directory / FOLDER_NAME) or (directory / PROJECT_FILE).is_file():
            return directory / FOLDER_NAME
    return here / FOLDER_NAME


def without_tilde(named: str, what: str) -> Path:
    """`~/x` and `~user/x` as the path that they mean."""
    try:
        return Path(named).expanduser()
    except RuntimeError:
        user = named.partition("/")[0]
        raise EmbeddedServerError(
            f"embedded server: {what} is {named}, and {user} has no home directory here; write the whole path"
        ) from None


def _is_our_directory(path: Path) -> bool:
    """Somebody else's `.echomq` above us, say in /tmp, is not ours to use."""
    try:
        found = path.stat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def locate(home: Path) -> Folder:
    """The folder's files by name; nothing is created or checked."""
    try:
        real = home.resolve()
    except (OSError, RuntimeError, ValueError) as error:
        why = "its links lead round in a circle" if isinstance(error, RuntimeError) else error
        raise EmbeddedServerError(
            f"embedded server: cannot use the folder {str(home)!r}: {why}; set {HOME_VARIABLE} to another one"
        ) from None
    socket = real / SOCKET_NAME
    if len(os.fsencode(socket)) > SOCKET_LIMIT:
        digest = hashlib.sha256(os.fsencode(real)).hexdigest()[:24]
        socket = Path(SHORT_ROOT, f"echomq-{os.geteuid()}", f"{digest}.sock")
    return Folder(real, str(socket))


def open_folder(home: Path) -> Folder:
    """Create what is missing, and refuse a folder that cannot serve, with the reason and what to do."""
    folder = locate(home)
    try:
        _make_private(folder.home)
        _make_private(folder.data)
        if Path(folder.socket).parent != folder.home:
            _make_socket_directory(folder)
    except OSError as error:
        raise unusable(folder.home, error) from None
    if folder.home not in _said:
        _said.add(folder.home)
        logger.info("embedded server: using the folder %s", folder.home)
    return folder


def unusable(home: Path, error: OSError) -> EmbeddedServerError:
    """The one error for everything the file system refuses."""
    where = error.filename if error.filename is not None else home
    if error.errno in (errno.ENOLCK, errno.ENOTSUP):
        what = "its file system has no file locks; use a folder on a local disk"
    elif error.errno in (errno.ENOTDIR, errno.EEXIST):
        what = "a file stands where a folder is needed; move it away"
    elif error.errno in (errno.EMFILE, errno.ENFILE):
        what = "close some files, or raise the limit (ulimit -n)"
    elif error.errno in (errno.ENOSPC, errno.EDQUOT):
        what = "free some space"
    else:
        what = "it must be a folder that this user may write"
    return EmbeddedServerError(
        f"embedded server: cannot use the folder {home}: {error.strerror}: {where}; {what}, or set {HOME_VARIABLE}"
    )


def _make_private(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(0o700)
    except FileExistsError:
        pass
    else:
        if path.name == FOLDER_NAME:
            (path / ".gitignore").write_text("*\n", encoding="utf-8")
    found = path.stat()
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    if found.st_uid != os.geteuid():
        raise EmbeddedServerError(
            f"embedded server: the folder {path} belongs to user {found.st_uid}, and this process is user"
            f" {os.geteuid()}; run as its owner, or set {HOME_VARIABLE} to a folder of your own"
        )
    if found.st_mode & 0o077 and path.name == FOLDER_NAME:
        path.chmod(0o700)
    elif found.st_mode & 0o022:
        raise EmbeddedServerError(
            f"embedded server: others may write to the folder {path} (mode {stat.S_IMODE(found.st_mode):o});"
            f" run `chmod go-w {path}`, or set {HOME_VARIABLE} to another folder"
        )
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


def _make_socket_directory(folder: Folder) -> None:
    """A private directory for the socket of a folder whose path is too long for one."""
    directory = Path(folder.socket).parent
    try:
        directory.mkdir(0o700)
    except FileExistsError:
        pass
    except OSError as error:
        raise EmbeddedServerError(
            f"embedded server: the path of {folder.home} is too long for a socket ({SOCKET_LIMIT} bytes), and"
            f" {directory} cannot be made: {error.strerror};"
            f" set {HOME_VARIABLE} to a folder with a shorter path"
        ) from None
    found = directory.lstat()
    private = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
    if not private:
        raise EmbeddedServerError(
            f"embedded server: the path of {folder.home} is too long for a socket ({SOCKET_LIMIT} bytes), and"
            f" {directory} is not a directory of this user's alone (mode 700);"
            f" set {HOME_VARIABLE} to a folder with a shorter path"
        )
