"""How a connector behaves, as one checked value."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeAlias, TypedDict

from echomq.identity.errors import InvalidInputError
from echomq.protocol.backoff import Exponential, Jitter
from echomq.wire.dialect import Wire, check_wire

FENCE: Final = "echomq:4.0.0"
"""The version string of deployments of ours (protocol §11)."""

TIMEOUT_S: Final = 5.0
CALL_TIMEOUT_S: Final = 30.0
MAX_PENDING: Final = 10_000


RECONNECT: Final = Jitter(Exponential(base=50, cap=2_000))
"""Milliseconds before the next connect, by the number of those that failed in a row."""


class Limit(Enum):
    """A limit that was not given."""

    DEFAULT = "default"


DEFAULT: Final = Limit.DEFAULT
"""The same, without the look-up that every call would pay for."""

Timeout: TypeAlias = float | Limit | None
"""Seconds to wait for an answer: a number, None for as long as it takes, or the connector's own."""


def _default_name() -> str:
    return f"python-{os.getpid()}"


class OptionWords(TypedDict, total=False):
    """The fields of `Options` as keyword arguments."""

    fence: str
    max_pending: int
    timeout: float
    call_timeout: float
    name: str
    lease_node: bool
    tls: ssl.SSLContext | None
    wire: Wire | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What `connect` and `aconnect` take besides the server; `InvalidInputError` names a value that is not allowed.

    `fence`: the version string that the deployment must have (protocol §11).
    `timeout`: seconds for a connect with its handshake, and for a call to wait for a reconnect.
    `call_timeout`: seconds for an answer; a server that lets one pass is taken for frozen, and the connection is
    dropped. `max_pending`: calls without an answer on one connector, beyond which it refuses more.
    `name`: what CLIENT LIST shows after `echomq:`. `lease_node`: lease the minter's node from the server.
    `tls`: a context of your own, used instead of what the URL says.
    `wire`: 4 evaluates scripts, 6 sends native commands and refuses a server without them, `"auto"` asks at every
    connect and uses those that the server has (protocol §5); without one it is what the URL says, and else 4.
    """

    fence: str = FENCE
    max_pending: int = MAX_PENDING
    timeout: float = TIMEOUT_S
    call_timeout: float = CALL_TIMEOUT_S
    name: str = field(default_factory=_default_name)
    lease_node: bool = True
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    wire: Wire | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.fence, str) or not self.fence:
            raise InvalidInputError(f"fence={self.fence!r}: a text such as {FENCE!r} is allowed")
        if not isinstance(self.max_pending, int) or isinstance(self.max_pending, bool) or self.max_pending < 1:
            raise InvalidInputError(f"max_pending={self.max_pending!r}: an int of 1 or more is allowed")
        for what in ("timeout", "call_timeout"):
            check_seconds(what, getattr(self, what))
        if not isinstance(self.name, str) or not self.name or not all("!" <= char <= "~" for char in self.name):
            raise InvalidInputError(f"name={self.name!r}: printable ASCII characters without spaces are allowed")
        if self.wire is not None:
            object.__setattr__(self, "wire", check_wire(self.wire))

    def seconds(self, timeout: Timeout) -> float | None:
        """`timeout` with the connector's own filled in."""
        if timeout is DEFAULT:
            return self.call_timeout
        return None if timeout is None else check_seconds("timeout", timeout)


def check_seconds(what: str, value: object) -> float:
    """`value` as seconds, or `InvalidInputError`."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e9:
        raise InvalidInputError(f"{what}={value!r}: a number of seconds above 0 is allowed")
    return float(value)
