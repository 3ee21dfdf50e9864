"""A real server that comes with the package: started on first use, gone some seconds after the last user."""

from __future__ import annotations

import sys

from echomq.protocol.errors import EmbeddedServerError

if sys.platform == "win32":
    raise EmbeddedServerError(
        "embedded server: there is none for Windows; give EchoMQ the URL of a server, or run in WSL"
    )

from echomq.wire.embedded.folder import find_home
from echomq.wire.embedded.foreground import Status, serve, status
from echomq.wire.embedded.source import EmbeddedSource

__all__ = ["EmbeddedSource", "Status", "find_home", "serve", "status"]
