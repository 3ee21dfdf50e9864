"""How a server is reached by a blocking socket, and what both faces ask of a TCP one."""

from __future__ import annotations

import socket
import ssl
from contextlib import suppress
from typing import Final, Protocol

from echomq.wire.url import Target

_IDLE_S: Final = 60
_EACH_S: Final = 15
_PROBES: Final = 3


class Tunable(Protocol):
    """A socket, or what uvloop shows of one."""

    def setsockopt(self, level: int, option: int, value: int, /) -> None:
        """Set one option."""
        ...


def tune(sock: Tunable) -> None:
    """No delay for small calls; a peer that vanished is noticed within two minutes, also on an idle socket."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", _IDLE_S), ("TCP_KEEPINTVL", _EACH_S), ("TCP_KEEPCNT", _PROBES)):
        option = getattr(socket, name, None)
        if isinstance(option, int):
            with suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, option, value)


def reach(target: Target, tls: ssl.SSLContext | None, timeout_s: float) -> socket.socket:
    """A connected socket with that timeout; `tls` goes before what the target says. Raises `OSError`."""
    if target.path is not None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(timeout_s)
            sock.connect(target.path)
        except BaseException:
            sock.close()
            raise
        return sock
    sock = socket.create_connection((target.host, target.port), timeout=timeout_s)
    try:
        tune(sock)
        context = tls or (target.tls.context() if target.tls is not None else None)
        return sock if context is None else context.wrap_socket(sock, server_hostname=target.host)
    except BaseException:
        sock.close()
        raise
