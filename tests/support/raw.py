"""A blocking client that sends words and returns replies: the tests' own eye on a server.

It shares nothing with `echomq.wire`, so a fault there cannot hide itself.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

import hiredis

Word = str | bytes | int | float


class ReplyError(Exception):
    """The server answered with an error; its text is the message."""


class RawClient:
    """One connection, RESP2, bytes as they come."""

    def __init__(self, address: str | tuple[str, int], timeout: float = 10.0) -> None:
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.settimeout(timeout)
        self._reader = hiredis.Reader(replyError=ReplyError, protocolError=ReplyError)
        try:
            self._socket.connect(address)
        except BaseException:
            self._socket.close()
            raise

    def send(self, *words: Word) -> None:
        """Send a command without waiting for its reply."""
        self._socket.sendall(_packed(words))

    def send_all(self, commands: Iterable[Iterable[Word]]) -> None:
        """Send many commands at once, without waiting for their replies."""
        self._socket.sendall(b"".join(map(_packed, commands)))

    def receive(self) -> Any:
        """The next reply; an error is returned, not raised."""
        while (reply := self._reader.gets()) is False:
            data = self._socket.recv(65536)
            if not data:
                raise ConnectionError("the server closed the connection")
            self._reader.feed(data)
        return reply

    def execute(self, *words: Word) -> Any:
        """Send a command and return its reply, or raise `ReplyError`."""
        self.send(*words)
        reply = self.receive()
        if isinstance(reply, ReplyError):
            raise reply
        return reply

    def execute_all(self, commands: Iterable[Iterable[Word]]) -> list[Any]:
        """Send many commands in one flight and return their replies, errors among them."""
        count = 0
        for words in commands:
            self.send(*words)
            count += 1
        return [self.receive() for _ in range(count)]

    def now_ms(self) -> int:
        """The server's clock."""
        seconds, micros = self.execute("TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    def calls(self) -> dict[str, int]:
        """How often the server has run each command, for clients and in their scripts."""
        lines = self.execute("INFO", "commandstats").decode().splitlines()
        pairs = (line[8:].split(":", 1) for line in lines if line.startswith("cmdstat_"))
        return {name: int(stats.partition("calls=")[2].split(",")[0]) for name, stats in pairs}

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _packed(words: Iterable[Word]) -> bytes:
    texts = [w if isinstance(w, bytes) else str(w).encode() for w in words]
    return b"*%d\r\n" % len(texts) + b"".join(b"$%d\r\n%b\r\n" % (len(t), t) for t in texts)
