"""Make sure that a folder's server runs: start a supervisor if nobody has, and wait for an answer."""

from __future__ import annotations

import logging
import os
import select
import subprocess
import sys
import time
from pathlib import Path

from echomq.protocol.errors import EmbeddedServerError
from echomq.wire.embedded import explain, locks, probe, supervisor
from echomq.wire.embedded.binary import find_binary
from echomq.wire.embedded.descriptors import open_lifted
from echomq.wire.embedded.folder import Folder, unusable
from echomq.wire.module import find_module

__all__ = ["IDLE_VARIABLE", "START_S", "ensure_running", "idle_s"]

START_S = 60.0
"""How long a server may take until it answers, the reading of its file included."""
IDLE_VARIABLE = "ECHOMQ_IDLE_SECONDS"
_TRIES = 3
_PROGRESS_S = 2.0

logger = logging.getLogger("echomq")


def idle_s() -> float:
    """How long a server stays that nobody uses: `$ECHOMQ_IDLE_SECONDS`, else ten seconds."""
    text = os.environ.get(IDLE_VARIABLE, "")
    if not text:
        return supervisor.IDLE_S
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < 1e9:
        raise EmbeddedServerError(f"{IDLE_VARIABLE}={text!r}: it must be a number of seconds above 0")
    return seconds


def ensure_running(folder: Folder, *, durable: bool, deadline: float) -> None:
    """Return once the server answers; the caller holds the users' lock, so it stays.

    Whoever gets the start lock hands it to a new supervisor; everybody else just waits for the socket.
    """
    start = _Start(folder, durable=durable)
    pause = 0.001
    told = time.monotonic()
    try:
        while (found := start.look()) is not probe.Reach.UP:
            now = time.monotonic()
            if now > deadline:
                raise EmbeddedServerError(explain.late(folder, found, ours=start.ours))
            if found is probe.Reach.LOADING and now - told > _PROGRESS_S:
                told = now
                logger.info("embedded server: %s", explain.progress(folder))
            start.wait(pause)
            pause = min(pause * 1.5, 0.02)
    except OSError as error:
        raise unusable(folder.home, error) from None
    finally:
        start.close()
    if durable:
        _make_durable(folder)


class _Start:
    """One user's way to an answering server, over as many supervisors as it takes."""

    def __init__(self, folder: Folder, *, durable: bool) -> None:
        self._folder = folder
        self._durable = durable
        self._report: _Report | None = None
        self._lost = 0
        self._module = find_module()
        if self._module is None:
            logger.debug("embedded server: the native module was not built here; the server runs without it")

    @property
    def ours(self) -> bool:
        """Whether the supervisor is one that was started here."""
        return self._report is not None

    def look(self) -> probe.Reach:
        """Start a supervisor unless there is one, and see whether the server answers."""
        if self._report is None:
            start_fd = locks.try_start_lock(self._folder)
            if start_fd is not None:
                self._report = _launch(self._folder, start_fd, durable=self._durable, module=self._module)
        if self._report is not None and not self._report.started:
            return probe.Reach.ABSENT  # what may still answer is an older server on its way out
        return probe.reach(self._folder.socket)

    def wait(self, pause_s: float) -> None:
        """Wait a moment; raise when our supervisor has ended and another would end alike."""
        report = self._report
        if report is None:
            time.sleep(pause_s)
        elif report.ended_within(pause_s):
            self._lost += 1
            if self._module is not None and (explain.blames_module(report.text) or self._lost >= _TRIES):
                logger.warning("embedded server: %s", explain.without_module(report.binary, self._module, report.text))
                self._module = None
                self._lost = 0
            elif report.fatal or self._lost >= _TRIES:
                raise EmbeddedServerError(explain.not_started(self._folder, report.binary, report.text))
            self.close()

    def close(self) -> None:
        """Let the supervisor be."""
        if self._report is not None:
            self._report.close()
            self._report = None


class _Report:
    """What a supervisor tells its starter, over a pipe that ends with it."""

    def __init__(self, fd: int, binary: str, log: Path, log_offset: int) -> None:
        self.binary = binary
        self._fd = fd
        self._log = log
        self._log_offset = log_offset
        self._bytes = b""

    def ended_within(self, timeout_s: float) -> bool:
        """Read what comes in that time; True once the supervisor has gone."""
        poller = select.poll()
        poller.register(self._fd, select.POLLIN)
        if not poller.poll(timeout_s * 1000):
            return False
        piece = os.read(self._fd, 8192)
        self._bytes += piece
        return not piece

    @property
    def started(self) -> bool:
        """Whether the server was launched and any older one is gone."""
        return self._bytes.startswith(supervisor.STARTED.encode())

    @property
    def fatal(self) -> bool:
        """Whether another start would end the same way."""
        return self._last().startswith(supervisor.FATAL.encode())

    @property
    def text(self) -> str:
        """Why there is no server, with what the program itself said where it had no log yet."""
        words = self._last().partition(b"\n")[2].decode("utf-8", "replace").strip()
        if "its log says" in words:
            return words
        said = supervisor.log_tail(str(self._log), self._log_offset)
        return "\n".join(part for part in (words or "its supervisor ended without a word", said) if part)

    def close(self) -> None:
        """Stop listening."""
        os.close(self._fd)

    def _last(self) -> bytes:
        return self._bytes.removeprefix(supervisor.STARTED.encode() + b"\n")


def _launch(folder: Folder, start_fd: int, *, durable: bool, module: Path | None) -> _Report:
    """Start the supervisor, which takes the start lock over, and leave it to itself."""
    writer = reader = -1
    try:
        binary = find_binary()
        program = [_python(), "-I", "-S", supervisor.__file__]
        reader, writer = locks.remembered_pipe()
        supervisor.keep_short(str(folder.supervisor_log))
        log_fd = open_lifted(str(folder.supervisor_log), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        with os.fdopen(log_fd, "ab") as log:
            offset = log.seek(0, os.SEEK_END)
            words = [str(folder.home), folder.socket, binary, str(start_fd), str(writer)]
            with subprocess.Popen(
                [*program, *words, repr(idle_s()), str(int(durable)), str(module or "")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,
                pass_fds=(start_fd, writer),
            ):
                pass  # it forks and ends at once; the supervisor proper is nobody's child
    except BaseException as error:
        if reader >= 0:
            os.close(reader)
        if isinstance(error, OSError):
            raise unusable(folder.home, error) from None
        raise
    finally:
        locks.close(start_fd)
        if writer >= 0:
            locks.close(writer)
    return _Report(reader, binary, folder.supervisor_log, offset)


def _python() -> str:
    """This Python's program; inside another program, `sys.executable` may be that one."""
    roots = (sys.prefix, sys.base_prefix)
    for path in (Path(sys.executable or ""), *(Path(root, "bin", "python3") for root in roots)):
        if path.name.lower().startswith(("python", "pypy")) and os.access(path, os.X_OK):
            return str(path)
    raise EmbeddedServerError(
        f"embedded server: no Python program was found to run its supervisor (sys.executable is"
        f" {sys.executable!r}); run `echomq server` on this folder, or give EchoMQ the URL of a server"
    )


def _make_durable(folder: Folder) -> None:
    """Another user may have started the server for an fsync a second; this one asks for one a write."""
    try:
        answer = probe.ask(folder.socket, "CONFIG", "SET", "appendfsync", "always", timeout_s=10.0)
    except OSError as error:
        words = str(error)
    else:
        if answer.startswith(b"+OK"):
            return
        words = answer.decode("utf-8", "replace").strip()
    raise EmbeddedServerError(f"embedded server: {folder.socket} did not take appendfsync=always: {words}")
