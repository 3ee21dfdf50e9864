"""Folders with an embedded server, and the processes that use them, for the tests that kill both."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from echomq.wire.embedded import supervisor
from echomq.wire.embedded.folder import locate
from support.raw import RawClient
from support.servers import wait_until

IDLE = "0.3"

USER = """
import os, subprocess, sys
from echomq.wire.embedded.source import EmbeddedSource

source = EmbeddedSource(sys.argv[1])
print(source.prepare().path, flush=True)
for line in sys.stdin:
    word = line.strip()
    if word == "fork-idle" or word == "fork-user":
        pid = os.fork()
        if pid == 0:
            if word == "fork-user":
                print(source.prepare().path, flush=True)
            os.close(1)
            os.read(os.open(sys.argv[2], os.O_RDONLY), 1)  # a fifo: lives until it is closed
            os._exit(0)
        if word == "fork-idle":
            print(pid, flush=True)
    elif word == "spawn":
        print(subprocess.Popen(["sleep", "60"], close_fds=False, stdout=subprocess.DEVNULL).pid, flush=True)
"""


class User:
    """A process that uses a folder's server until it is told to leave or killed."""

    def __init__(self, home: Path, *args: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", USER, str(home), *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def hear(self) -> str:
        """The next line it says."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def tell(self, word: str) -> None:
        """Say a word to it."""
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        """End it with -9."""
        self.process.kill()
        self.leave()

    def leave(self) -> None:
        """Let it end by itself."""
        self.process.communicate()


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def pid_of(home: Path, name: str) -> int:
    """The pid in a folder's pid file, waited for."""
    path = str(home / name)
    wait_until(lambda: supervisor.read_pid(path), what=f"a pid in {path}")
    pid = supervisor.read_pid(path)
    assert pid is not None
    return pid


def server_pid(home: Path) -> int:
    """The server's process, by its own word."""
    return int(info(home, "server")["process_id"])


def info(home: Path, section: str) -> dict[str, str]:
    """A section of the server's INFO."""
    lines = call(home, "INFO", section).decode().splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def call(home: Path, *words: str | bytes | int) -> Any:
    """One command to a folder's server."""
    with contextlib.closing(RawClient(locate(home).socket)) as client:
        return client.execute(*words)


def is_free(path: Path) -> bool:
    """Whether nobody holds that lock."""
    if not path.exists():
        return True
    with path.open("r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def is_gone(home: Path) -> bool:
    """Whether neither a supervisor nor a server of the folder is left."""
    return is_free(home / supervisor.START_LOCK) and is_free(home / supervisor.SERVER_LOCK)


def starts(home: Path) -> int:
    """How many servers the folder has had."""
    return (home / supervisor.SUPERVISOR_LOG).read_text().count(": started server")


def stop(home: Path) -> None:
    """End a folder's supervisor and server, whatever their state, by their pids."""
    for name, number in ((supervisor.SUPERVISOR_PID, signal.SIGTERM), (supervisor.SERVER_PID, signal.SIGKILL)):
        pid = supervisor.read_pid(str(home / name))
        if pid is not None and not is_gone(home):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGCONT)
                os.kill(pid, number)
            with contextlib.suppress(TimeoutError):
                wait_until(lambda: is_gone(home))
    wait_until(lambda: is_gone(home), what=f"the end of what ran in {home}")


@contextlib.contextmanager
def folder(name: str = "ho me ü") -> Iterator[Path]:
    """A path for a folder, short enough for a socket; at the end nothing is left of it or of its server."""
    root = Path(tempfile.mkdtemp(prefix="emq-"))
    home = root / name
    try:
        yield home
    finally:
        stop(home)
        shutil.rmtree(root, ignore_errors=True)
