"""Processes that are started by a worker or a supervisor, tied to it, and the line between the two.

A child is a fresh interpreter in a process group of its own, so what a terminal sends reaches it by its parent alone.
It ends when its parent does, however that ends: it is told so by the end of the line, and on Linux by the kernel too.
Both ends of the line speak frames of msgpack; only what a child is to do at first, which comes from its own parent, is
pickled.

Imports nothing heavy: a child is to be tied to its parent before it does anything else.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

_PR_SET_PDEATHSIG: Final = 1
_HEAD: Final = 4
_ROOT: Final = str(Path(__file__).parents[2])
_BEGIN: Final = "import sys; sys.path.insert(0, sys.argv[1]); from echomq.app.child import main; main()"

Orders = Callable[["Line"], int]
"""What a child does, given its end of the line; a function of a module, or a `partial` of one. Gives the exit code."""


class LineClosedError(Exception):
    """The other end is gone."""


class Line:
    """A blocking end of the line between a child and its parent. One thread reads, any may write."""

    def __init__(self, end: socket.socket) -> None:
        self.socket = end

    def send(self, *words: object) -> None:
        """One frame. `LineClosedError` when nobody is there to read it."""
        try:
            self.socket.sendall(framed(words))
        except OSError as error:
            raise LineClosedError(str(error)) from error

    def receive(self) -> list[Any]:
        """The next frame. `LineClosedError` at the end."""
        return unframed(self._exactly(int.from_bytes(self._exactly(_HEAD), "big")))

    def close(self) -> None:
        """The other end learns of it, and so does a thread that reads here."""
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                part = self.socket.recv(min(size - len(data), 1 << 20))
            except OSError as error:
                raise LineClosedError(str(error)) from error
            if not part:
                raise LineClosedError("the other end has gone")
            data += part
        return bytes(data)


def framed(words: tuple[object, ...]) -> bytes:
    """A frame with these words in it."""
    import msgspec

    data = msgspec.msgpack.encode(words)
    return len(data).to_bytes(_HEAD, "big") + data


def unframed(data: bytes) -> list[Any]:
    """The words of a frame, its head cut off."""
    import msgspec

    return msgspec.msgpack.decode(data, type=list[Any])


def start(orders: Orders, label: str, death: signal.Signals) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Starts a child and sends it its orders: the process, and the parent's end of the line.

    `label` shows in the list of processes. `death` is what a child on Linux gets when the thread that has called this
    ends, as it does with its process. `OSError` when the system gives no process.
    """
    ours, theirs = socket.socketpair()
    try:
        words = [sys.executable, "-c", _BEGIN, _ROOT, str(theirs.fileno()), str(os.getpid()), str(int(death)), label]
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(),), process_group=0)
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    try:
        # It is read before anything is written back, and the child is waited for by its own means.
        with suppress(LineClosedError):
            Line(ours).send(sys.path, pickle.dumps(orders))
    except BaseException:
        ours.close()
        process.kill()
        process.wait()
        raise
    return process, ours


def ended(code: int) -> str:
    """How a process has ended, in words."""
    if code >= 0:
        return f"exit code {code}"
    with suppress(ValueError):
        return signal.Signals(-code).name
    return f"signal {-code}"


def main() -> None:
    """A child's whole life; see `start` for its arguments."""
    _, _, number, parent, death, _ = sys.argv
    _die_with(int(parent), int(death))
    os.set_inheritable(int(number), False)  # what a job starts is not to hold the line
    line = Line(socket.socket(fileno=int(number)))
    try:
        sys.path[:], pickled = line.receive()
    except LineClosedError:
        sys.exit(1)
    sys.argv[1:] = []
    orders: Orders = pickle.loads(pickled)  # noqa: S301  (from the process that has started this one)
    sys.exit(orders(line))


def _die_with(parent: int, death: int) -> None:
    if sys.platform == "linux":
        with suppress(ImportError, OSError, AttributeError):
            import ctypes

            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, death, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(1)  # it has gone already
