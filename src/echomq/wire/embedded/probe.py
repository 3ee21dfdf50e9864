"""A few plain words with a server, before there is a connector: does it answer, is it loading?"""

from __future__ import annotations

import enum
import errno
import socket
from dataclasses import dataclass

__all__ = ["Answer", "Loading", "Reach", "ask", "loading", "reach"]

_ANSWER_S = 1.0


class Reach(enum.Enum):
    """What a server's socket says to a PING."""

    ABSENT = "absent"
    """Nobody listens."""
    SILENT = "silent"
    """Somebody listens and does not answer in time."""
    LOADING = "loading"
    """The server reads its file."""
    UP = "up"


@dataclass(frozen=True, slots=True)
class Loading:
    """How far a server is with its file; zero when it does not say."""

    percent: float
    eta_s: int


Answer = bytes


def ask(path: str, *words: str, timeout_s: float = _ANSWER_S) -> Answer:
    """One command's first answer, raw; OSError (also for a timeout) when there is none."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.settimeout(timeout_s)
        peer.connect(path)
        peer.sendall(" ".join(words).encode() + b"\r\n")
        answer = peer.recv(65_536)
        while answer and not _is_whole(answer):
            more = peer.recv(65_536)
            if not more:
                break
            answer += more
        if not answer:
            raise ConnectionResetError(f"{path} closed the connection")
        return answer


def reach(path: str) -> Reach:
    """Whether the server answers now."""
    try:
        answer = ask(path, "PING")
    except (TimeoutError, BlockingIOError):  # the latter when too many wait to be accepted
        return Reach.SILENT
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise  # that is about this process
        return Reach.ABSENT
    return Reach.LOADING if answer.startswith(b"-LOADING") else Reach.UP


def loading(path: str) -> Loading:
    """How far a loading server is, by its own INFO."""
    try:
        lines = ask(path, "INFO", "persistence").decode("utf-8", "replace").split("\r\n")
    except OSError:
        return Loading(0.0, 0)
    facts = dict(line.split(":", 1) for line in lines if ":" in line)
    try:
        return Loading(float(facts.get("loading_loaded_perc", 0)), int(float(facts.get("loading_eta_seconds", 0))))
    except ValueError:
        return Loading(0.0, 0)


def _is_whole(answer: bytes) -> bool:
    head, found, rest = answer.partition(b"\r\n")
    if not found:
        return False
    if head.startswith(b"$") and head[1:].isdigit():
        return len(rest) >= int(head[1:]) + 2
    return True
