"""The detached process that owns the embedded server, which dies with it.

It runs by path with `python -I -S` and imports nothing of echomq and little of the standard library (so no
pathlib), to start in a few milliseconds; the names of the folder's files live here for that reason.
What stays true:

* `start.lock` is held from before the supervisor exists (its starter hands the lock over) until it has gone.
* `server.lock` is inherited by the server itself, so it is held as long as any server has the files open,
  supervised or not. Two servers never write one folder.
* The server is stopped for idleness only while `users.lock` is held exclusively, so nobody can arrive at a
  server that is leaving.
* Nothing of the user's data is ever deleted.
"""

# ruff: noqa: PTH105, PTH108, PTH112, PTH116, PTH118, PTH121, PTH123

from __future__ import annotations

import fcntl
import os
import select
import signal
import sys
import time
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

START_LOCK = "start.lock"
USERS_LOCK = "users.lock"
SERVER_LOCK = "server.lock"
SUPERVISOR_PID = "supervisor.pid"
SERVER_PID = "server.pid"
SERVER_LOG = "server.log"
SUPERVISOR_LOG = "supervisor.log"
DATA = "data"

STARTED = "started"
"""The report's first line: the server was launched, and nothing of an older one is left."""
FATAL = "fatal"
"""The server refused to run and would refuse again; the text after it says why."""
LOST = "lost"
"""The server was stopped or killed from outside; another start may do better."""

IDLE_S = 10.0
"""How long nobody must use the server before it is stopped."""
LOG_LIMIT = 4_000_000
_OLD_SERVER_TERM_S = 1.0
_OLD_SERVER_KILL_S = 10.0
_OLD_SERVER_GIVE_UP_S = 20.0
_STOP_S = 60.0
_BIND_S = 10.0
_PR_SET_PDEATHSIG = 1
_NOISE = (
    "Memory overcommit",
    "Transparent Huge Pages",
    "maximum open files",
    "oO0OoO0OoO0Oo",
    "Redis version=",
    "Valkey version=",
    "Configuration loaded",
    "Server initialized",
)


def server_arguments(home: str, socket: str, *, durable: bool, module: str = "") -> list[str]:
    """The server's settings, on its command line; it quotes them itself."""
    settings = {
        "port": "0",
        "unixsocket": socket,
        "unixsocketperm": "700",
        "daemonize": "no",
        "dir": os.path.join(home, DATA),
        "logfile": os.path.join(home, SERVER_LOG),
        "appendonly": "yes",
        "appendfsync": "always" if durable else "everysec",
        "aof-load-truncated": "yes",
        "save": "",
        "maxmemory-policy": "noeviction",
        "hash-max-listpack-value": "1024",
        "enable-debug-command": "no",
        **({"loadmodule": module} if module else {}),
    }
    return [word for name, value in settings.items() for word in (f"--{name}", value)]


def write_whole(path: str, text: str) -> None:
    """Replace a small file in one step, so that a reader never sees half of it."""
    new = f"{path}.{os.getpid()}"
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(fd, text.encode("utf-8", "replace"))
    finally:
        os.close(fd)
    os.replace(new, path)


def read_pid(path: str) -> int | None:
    """The number in a pid file's first line; None when there is none or it is not a pid."""
    try:
        with open(path, "rb") as file:
            word = file.read(64).split(b"\n", 1)[0].strip()
    except OSError:
        return None
    return int(word) if word.isdigit() and 1 < int(word) < 2**31 else None


def is_our_server(pid: int, home: str, socket: str) -> bool:
    """Whether that process is a server of this folder: pids are reused, so it is asked before a signal."""
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    if os.path.isdir("/proc/self"):
        try:
            return os.path.samefile(f"/proc/{pid}/cwd", os.path.join(home, DATA))
        except OSError:
            return False
    import subprocess  # costs as much as all the rest, and is needed here only

    listing = subprocess.run(["/bin/ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, check=False)
    return os.fsencode(socket) in listing.stdout  # the server writes its socket into its title


def log_tail(path: str, offset: int) -> str:
    """What a log says from `offset` on: its warnings, or else its last lines, without the usual noise."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(min(offset, size), size - 16_384))
            lines = file.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    lines = [line for line in lines if line.strip() and not any(noise in line for noise in _NOISE)]
    warnings = [line.split(" # ", 1)[1] for line in lines if " # " in line]
    return "\n".join((warnings or lines)[-6:])


def keep_short(log: str) -> None:
    """Set a long log aside, over the one before; the server opens its own anew for every line."""
    if _size(log) > LOG_LIMIT:
        os.replace(log, log + ".1")


def _fill_standard_files() -> None:
    """Nothing for those that are closed: no other file may get their numbers, and the server's words with them."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)


def _try_exclusive(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _same_file(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except OSError:
        return False


def _wake_only(number: int, frame: FrameType | None) -> None:
    """A handler that does nothing: the signal has written to the wakeup pipe, which is all it is for."""


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


class Supervisor:
    """One server's life; `run` returns when the server is gone.

    `start_fd` holds the folder's start lock. `idle_s` is None for a server that stays until it is told to go. `module`
    is the native module's path. `report_fd` is the pipe on which the starter hears of a failure.
    """

    def __init__(
        self,
        *,
        home: str,
        socket: str,
        binary: str,
        start_fd: int,
        idle_s: float | None,
        durable: bool,
        module: str = "",
        report_fd: int | None = None,
    ) -> None:
        self._home = home
        self._socket = socket
        self._binary = binary
        self._start_fd = start_fd
        self._idle_s = idle_s
        self._arguments = server_arguments(home, socket, durable=durable, module=module)
        self._report_fd = report_fd
        self._poll_s = 1.0 if idle_s is None else min(1.0, max(idle_s / 4, 0.02))
        self._users_fd = -1
        self._server_pid = 0
        self._status: int | None = None
        self._log_offset = 0
        self._told_to_stop = False
        self._bound = False
        self._started = time.monotonic()
        self._free_since: float | None = None

    def run(self) -> str:
        """Own a server until it ends; the answer is empty, or why it could not run. For the main thread."""
        _fill_standard_files()
        wake, waker = os.pipe()
        os.set_blocking(waker, False)
        os.set_blocking(wake, False)
        before_mask = signal.pthread_sigmask(signal.SIG_SETMASK, ())  # the starter's thread may have had one
        before_waker = signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        handlers: dict[signal.Signals, Callable[[int, FrameType | None], None] | signal.Handlers] = {
            signal.SIGCHLD: _wake_only,
            signal.SIGTERM: self._stop_soon,
            signal.SIGINT: self._stop_soon,
            signal.SIGHUP: self._stop_soon if self._idle_s is None else signal.SIG_IGN,
        }
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        try:
            return self._live(wake)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(before_waker)
            signal.pthread_sigmask(signal.SIG_SETMASK, before_mask)
            for fd in (wake, waker, self._users_fd):
                if fd >= 0:
                    os.close(fd)

    def _live(self, wake: int) -> str:
        failure = self._start()
        if failure:
            self._report(FATAL, failure)
            return failure
        self._report(STARTED, "")
        while self._status is None:
            select.select([wake], [], [], self._poll_s if self._bound else 0.01)
            with suppress(BlockingIOError):
                while os.read(wake, 512):
                    pass
            self._beat()
        return self._explain_end()

    def _path(self, name: str) -> str:
        return os.path.join(self._home, name)

    def _say(self, words: str) -> None:
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        with suppress(OSError):
            os.write(2, f"{stamp} supervisor {os.getpid()}: {words}\n".encode("utf-8", "replace"))

    def _stop_soon(self, *_: object) -> None:
        self._told_to_stop = True

    def _report(self, verdict: str, text: str) -> None:
        if self._report_fd is None:
            return
        with suppress(OSError):  # the starter has its server, or has gone
            os.write(self._report_fd, f"{verdict}\n{text}".encode("utf-8", "replace")[:4096])

    # Starting

    def _start(self) -> str:
        try:
            return self._start_or_explain()
        except OSError as error:
            if self._server_pid:
                self._stop(f"{error}")
            return f"{error.strerror}: {error.filename or self._home}"

    def _start_or_explain(self) -> str:
        write_whole(self._path(SUPERVISOR_PID), f"{os.getpid()}\n{os.uname().nodename}\n")
        self._users_fd = os.open(self._path(USERS_LOCK), os.O_RDWR | os.O_CREAT, 0o600)
        server_fd = os.open(self._path(SERVER_LOCK), os.O_RDWR | os.O_CREAT, 0o600)
        if not self._await_old_server(server_fd):
            pid = read_pid(self._path(SERVER_PID))
            return f"an older server (pid {pid or 'unknown'}) still holds the folder; stop it and try again"
        keep_short(self._path(SERVER_LOG))
        self._log_offset = _size(self._path(SERVER_LOG))
        if os.path.lexists(self._socket):
            os.unlink(self._socket)  # nobody listens on it: its server's lock is ours
        self._server_pid = self._launch(server_fd)
        os.close(server_fd)
        write_whole(self._path(SERVER_PID), f"{self._server_pid}\n")
        self._say(f"started server {self._server_pid} on {self._socket}")
        return ""

    def _await_old_server(self, server_fd: int) -> bool:
        """Take the server's lock; a server whose supervisor died is asked to go, then made to.

        On Linux it is on its way out already. Elsewhere nobody has told it yet.
        """
        began = time.monotonic()
        asked = 0
        while not _try_exclusive(server_fd):
            waited = time.monotonic() - began
            pid = read_pid(self._path(SERVER_PID))
            wanted = signal.SIGKILL if waited > _OLD_SERVER_KILL_S else signal.SIGTERM
            if waited > _OLD_SERVER_GIVE_UP_S:
                return False
            late = waited > _OLD_SERVER_TERM_S
            if late and wanted != asked and pid and is_our_server(pid, self._home, self._socket):
                self._say(f"server {pid} has outlived its supervisor; sending {wanted.name}")
                os.kill(pid, wanted)
                asked = wanted
            time.sleep(0.005)
        return True

    def _launch(self, server_fd: int) -> int:
        words = [self._binary, *self._arguments]
        environment = {**os.environ, "LC_ALL": "C"}  # a locale that is not installed must not matter
        prctl = None
        if sys.platform == "linux":
            import ctypes  # not in every user's process, which imports this module for its names

            prctl = ctypes.CDLL(None).prctl
        parent = os.getpid()
        pid = os.fork()
        if pid:
            return pid
        try:
            os.setsid()  # a terminal's Ctrl-C reaches the supervisor only
            os.umask(0o077)
            os.set_inheritable(server_fd, True)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGHUP, signal.SIG_DFL)
            os.chdir(self._path(DATA))
            if prctl is not None:
                # It follows this thread, the main one, which lives as long as the supervisor. SIGTERM lets
                # the server write out what it has acknowledged.
                prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
            if os.getppid() == parent:
                os.execve(self._binary, words, environment)  # noqa: S606 - a shell is not wanted
        except OSError as error:
            os.write(2, f"cannot run {self._binary}: {error.strerror}\n".encode("utf-8", "replace"))
        finally:
            os._exit(127)

    # Running

    def _beat(self) -> None:
        """Look once at everything that can end the server's life."""
        if self._reap():
            return
        if self._told_to_stop:
            self._stop("told to stop")
        elif not _same_file(self._start_fd, self._path(START_LOCK)):
            self._stop("the folder was removed or replaced")
        elif not self._look_for_socket():
            self._stop("the socket was removed, nobody can reach the server")
        else:
            keep_short(self._path(SERVER_LOG))
            if self._idle_s is not None:
                self._stop_if_idle(self._idle_s)

    def _look_for_socket(self) -> bool:
        """False once it is missing; the server makes it before it reads its file."""
        if os.path.lexists(self._socket):
            self._bound = True
            return True
        return not self._bound and time.monotonic() - self._started < _BIND_S

    def _stop_if_idle(self, idle_s: float) -> None:
        if not _try_exclusive(self._users_fd):
            self._free_since = None
            return
        now = time.monotonic()
        if self._free_since is None:
            self._free_since = now
        if now - self._free_since >= idle_s:
            self._stop(f"nobody has used the server for {idle_s:g} s")  # and keep the lock until the end
        else:
            fcntl.flock(self._users_fd, fcntl.LOCK_UN)

    def _reap(self) -> bool:
        if self._status is None:
            pid, status = os.waitpid(self._server_pid, os.WNOHANG)
            if pid:
                self._status = status
        return self._status is not None

    def _stop(self, why: str) -> None:
        """Ask the server to write its file and go, and wait; a server that hangs is killed."""
        self._told_to_stop = True
        self._say(f"{why}; stopping server {self._server_pid}")
        os.kill(self._server_pid, signal.SIGTERM)
        deadline = time.monotonic() + _STOP_S
        while not self._reap():
            if time.monotonic() > deadline:
                self._say("it does not stop; killing it")
                os.kill(self._server_pid, signal.SIGKILL)
                deadline += _STOP_S
            time.sleep(0.005)

    def _explain_end(self) -> str:
        assert self._status is not None
        code = os.waitstatus_to_exitcode(self._status)
        for name in (SERVER_PID, SUPERVISOR_PID):
            with suppress(OSError):
                os.unlink(self._path(name))
        if self._told_to_stop or code == 0:
            self._say("the server has stopped")
            self._report(LOST, "it was stopped")
            return ""
        manner = f"was killed by signal {-code}" if code < 0 else f"ended with exit status {code}"
        text = f"the server {manner}"
        words = log_tail(self._path(SERVER_LOG), self._log_offset)
        if words:
            text = f"{text}; its log says:\n{words}"
        self._say(text)
        self._report(LOST if code < 0 else FATAL, text)
        return text


def main(words: list[str]) -> None:
    """Detach, then supervise: HOME SOCKET BINARY START_FD REPORT_FD IDLE_S DURABLE MODULE, which may be empty."""
    home, socket, binary, start_fd, report_fd, idle_s, durable, module = words
    for fd in (int(start_fd), int(report_fd)):
        os.set_inheritable(fd, False)
    if os.fork():
        os._exit(0)  # the supervisor proper is nobody's child, so it leaves no zombie in the user's process
    os.umask(0o077)
    supervisor = Supervisor(
        home=home,
        socket=socket,
        binary=binary,
        start_fd=int(start_fd),
        report_fd=int(report_fd),
        idle_s=float(idle_s),
        durable=durable == "1",
        module=module,
    )
    sys.exit(1 if supervisor.run() else 0)


if __name__ == "__main__":
    main(sys.argv[1:])
