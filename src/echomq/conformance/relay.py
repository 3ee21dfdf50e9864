"""A relay between a client and its server that counts round trips: what is said after the other has spoken."""

from __future__ import annotations

import select
import socket
import ssl
import tempfile
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from echomq.wire import Source
from echomq.wire.options import TIMEOUT_S
from echomq.wire.sockets import reach
from echomq.wire.source import resolve
from echomq.wire.url import Target

_CHUNK: Final = 1 << 16
_STEP_MS: Final = 100


class Relay:
    """A source (`echomq.wire.Source`) for one connector; it is reached by a Unix socket, without TLS."""

    def __init__(self, where: str | Source | None, tls: ssl.SSLContext | None) -> None:
        self._source = resolve(where)
        self._tls = tls
        self._folder = tempfile.TemporaryDirectory(prefix="echomq-relay-")
        self._ended = threading.Event()
        self._carriers: list[threading.Thread] = []
        self.trips = 0
        """How often the client has spoken after the server had, or for the first time."""

    def prepare(self) -> Target:
        """A fresh way to the server."""
        target = self._source.prepare()
        path = str(Path(self._folder.name) / f"{len(self._carriers)}.sock")
        door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        door.bind(path)
        door.listen(1)
        carrier = threading.Thread(target=self._serve, args=(door, target), name="echomq-relay", daemon=True)
        self._carriers.append(carrier)
        carrier.start()
        return replace(target, path=path, tls=None)

    def release(self) -> None:
        """Ends the way."""
        self._ended.set()
        for carrier in self._carriers:
            carrier.join()
        self._source.release()
        self._folder.cleanup()

    def _serve(self, door: socket.socket, target: Target) -> None:
        with door, suppress(OSError):
            while not select.select((door,), (), (), _STEP_MS / 1_000)[0]:
                if self._ended.is_set():
                    return
            client, _ = door.accept()
            with client, reach(target, self._tls, TIMEOUT_S) as server:
                self._carry(client, server)

    def _carry(self, client: socket.socket, server: socket.socket) -> None:
        answered = True
        while not self._ended.is_set():
            asked, said = _heard(client), _heard(server)
            if b"" in (asked, said):
                return
            if asked:
                self.trips += answered
                answered = False
                server.sendall(asked)
            if said:
                answered = True
                client.sendall(said)
            if not asked and not said:
                select.select((client, server), (), (), _STEP_MS / 1_000)


def _heard(sock: socket.socket) -> bytes | None:
    """What has come by now: None is nothing, b"" the end."""
    sock.setblocking(False)
    try:
        return sock.recv(_CHUNK)
    except (BlockingIOError, ssl.SSLWantReadError):
        return None
    finally:
        sock.setblocking(True)
