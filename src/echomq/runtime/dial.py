"""How a loop reaches its server: every loop opens connectors of its own, so that none waits behind another."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field

from echomq.wire import AsyncConnector, Connector, Source, Wire, aconnect, connect
from echomq.wire.options import FENCE, TIMEOUT_S


@dataclass(frozen=True, slots=True)
class Dial:
    """A server, and how to speak to it.

    `where` is a URL, a function that gives a fresh `Source` for each connector, or None for the embedded server. `wire`
    is that of its connectors: scripts, native commands, or what they find (protocol §5); None is the URL's, or else 4.
    """

    where: str | Callable[[], Source] | None = None
    fence: str = FENCE
    timeout: float = TIMEOUT_S
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    wire: Wire | None = None

    def _source(self) -> str | Source | None:
        return self.where() if callable(self.where) else self.where

    async def aconnect(self, role: str, *, lease_node: bool = False) -> AsyncConnector:
        """An open awaited connector; `role` shows in the server's CLIENT LIST."""
        return await aconnect(
            self._source(),
            fence=self.fence,
            timeout=self.timeout,
            tls=self.tls,
            wire=self.wire,
            name=_visible(role),
            lease_node=lease_node,
        )

    def connect(self, role: str) -> Connector:
        """An open blocking connector, for a thread of its own, which cannot bear a long silence."""
        return connect(
            self._source(),
            fence=self.fence,
            timeout=self.timeout,
            tls=self.tls,
            wire=self.wire,
            name=_visible(role),
            lease_node=False,
            call_timeout=self.timeout,
        )


def _visible(role: str) -> str:
    """What CLIENT SETNAME takes."""
    return "".join(char if "!" <= char <= "~" else "_" for char in role)
