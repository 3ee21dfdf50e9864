"""Raw commands that would change what a shared connection is, and are refused before they are sent."""

from __future__ import annotations

from typing import Final

from echomq.identity.errors import InvalidInputError
from echomq.protocol.call import Arg

_ADVICE: Final[dict[str, str]] = {
    **dict.fromkeys(
        ("SUBSCRIBE", "UNSUBSCRIBE", "PSUBSCRIBE", "PUNSUBSCRIBE", "SSUBSCRIBE", "SUNSUBSCRIBE"),
        "use subscribe(), which is restored after a reconnect",
    ),
    **dict.fromkeys(
        ("MULTI", "EXEC", "DISCARD", "WATCH", "UNWATCH"),
        "callers share the connection; put what belongs together into one script",
    ),
    **dict.fromkeys(("HELLO", "AUTH", "SELECT"), "say it in the URL, so that it holds after a reconnect"),
    **dict.fromkeys(("QUIT", "RESET"), "use close()"),
    **dict.fromkeys(("MONITOR", "SYNC", "PSYNC"), "its stream would take the place of replies"),
    "CLIENT REPLY": "calls would wait for replies that never come",
}


def check_command(words: tuple[Arg, ...]) -> None:
    """`InvalidInputError` for a command that has no place on a shared connection."""
    named = [word.upper() for word in words[:2] if isinstance(word, str)]
    for name in (" ".join(named), *named[:1]):
        if name in _ADVICE:
            raise InvalidInputError(f"{name} cannot be sent on a connector: {_ADVICE[name]}")
