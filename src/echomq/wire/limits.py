"""How much a server takes, asked at every connect: what goes beyond is refused here, before it is sent.

A server that meets a string above its limit closes the connection, and every call in flight with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from echomq.protocol.call import Arg, Call, Reply
from echomq.protocol.errors import PayloadTooLargeError, ServerError
from echomq.wire.url import Target

_BULK: Final = "proto-max-bulk-len"
_QUERY: Final = "client-query-buffer-limit"

QUESTION: Final[tuple[Arg, ...]] = ("CONFIG", "GET", _BULK, _QUERY)

_BULK_DEFAULT: Final = 512 << 20
_QUERY_DEFAULT: Final = 1 << 30
_FLIGHT: Final = 64 << 20
_NAMED: Final = 64

_silent: set[tuple[str, str | None]] = set()


@dataclass(frozen=True, slots=True)
class Limits:
    """In bytes; the defaults are those of a server that does not tell its own."""

    string: int = _BULK_DEFAULT
    """The longest word of a command."""
    setting: str = _BULK
    """What `string` follows from, by the server's name for it."""
    flight: int = _FLIGHT
    """Calls without an answer, together; one that is longer goes alone.

    Half of what a server buffers for a client that it lets wait (CLIENT PAUSE) before it closes the connection, and
    no more than is good for the memory here.
    """


def is_due(target: Target) -> bool:
    """Whether `target` may answer `QUESTION`: what a user may not ask, a process asks once."""
    return (target.address, target.user) not in _silent


def read(target: Target, answer: Reply | ServerError) -> Limits:
    """The limits in an answer to `QUESTION`."""
    if not isinstance(answer, dict):
        _silent.add((target.address, target.user))
        return Limits()
    bulk = _number(answer.get(_BULK.encode()), _BULK_DEFAULT)
    query = _number(answer.get(_QUERY.encode()), _QUERY_DEFAULT)
    # A string lies in the buffer whole, with its end of line.
    string, setting = min((bulk, _BULK), (query - 2, _QUERY))
    return Limits(string, setting, min(_FLIGHT, query // 2))


def _number(value: Reply, default: int) -> int:
    return int(value) if isinstance(value, bytes) and value.isdigit() and int(value) else default


def too_large(call: Call[object], limits: Limits) -> PayloadTooLargeError | None:
    """What is said of a call with a word above the limit; None if each word of it may be sent."""
    before: Arg = ""
    for word in call.words():
        size = 0 if isinstance(word, int) else len(word.encode() if isinstance(word, str) else word)
        if size > limits.string:
            place = f"the word after {before!r}" if isinstance(before, str) and 0 < len(before) <= _NAMED else "a word"
            return PayloadTooLargeError(
                f"{f'{call.verb} {call.subject}'.strip()}: {place} is {size:,} bytes; the server takes at most "
                f"{limits.string:,} ({limits.setting}), so the call was not sent"
            )
        before = word
    return None
