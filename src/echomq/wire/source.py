"""Where a connector's server comes from: a URL, or a server that has to be started first."""

from __future__ import annotations

from typing import Protocol

from echomq.protocol.errors import ConnectError, EchoMQError
from echomq.wire.url import Target, parse_url


class Source(Protocol):
    """Gives a connector its server. One source serves one connector, from its opening to its close.

    Both methods block; the awaited face calls them in a thread. They may be called from several threads,
    one after another, and in a forked child, where the source has to begin anew.
    """

    def prepare(self) -> Target:
        """The server to connect to now; called before every connect and reconnect.

        It may take seconds: it starts, or starts again, what has to run. It raises `ConnectError` (or
        `EmbeddedServerError`) that says what to do.
        """
        ...

    def release(self) -> None:
        """The connector is closed and needs the server no longer; called once, also if never prepared."""
        ...


class FixedSource:
    """A server that is simply there."""

    def __init__(self, target: Target) -> None:
        self.target = target

    def __repr__(self) -> str:
        return f"FixedSource({self.target!r})"

    def prepare(self) -> Target:
        """The same target each time."""
        return self.target

    def release(self) -> None:
        """Nothing to do."""


def resolve(where: str | Source | None) -> Source:
    """The source for a URL, or for the embedded server (`None`); a source is returned as it is."""
    if where is None:
        # Imported when used: most deployments name their server.
        from echomq.wire.embedded.source import EmbeddedSource

        return EmbeddedSource(None)
    if isinstance(where, str):
        return FixedSource(parse_url(where))
    return where


def prepared(source: Source) -> Target:
    """`source.prepare()`, with whatever it raises as an `EchoMQError`."""
    try:
        return source.prepare()
    except EchoMQError:
        raise
    except Exception as error:
        raise ConnectError(f"the server could not be prepared: {error!r}") from error
