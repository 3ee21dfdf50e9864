"""RESP through hiredis, with the types that its stubs leave open."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final, Protocol, TypeAlias, cast

import hiredis
from hiredis import HiredisError, PushNotification

from echomq.protocol.call import Arg, Call, Reply
from echomq.protocol.errors import InvalidInputError

__all__ = ["NOT_YET", "Answer", "ErrorReply", "HiredisError", "Push", "Reader", "pack", "raw", "reader"]

Push: Final = PushNotification
"""The type of what a server sends without being asked: a list."""


class NotYet(Enum):
    """No reply."""

    NOT_YET = "not yet"


NOT_YET: Final = NotYet.NOT_YET
"""What a reader gives while it has no whole reply."""


class ErrorReply(Exception):  # noqa: N818  (a reply, never raised)
    """An error as the server words it."""

    @property
    def text(self) -> str:
        """The server's own text."""
        return str(self.args[0])


Answer: TypeAlias = "Reply | ErrorReply"


class Reader(Protocol):
    """hiredis' reader: bytes in, whole replies out."""

    def feed(self, data: bytes, /) -> None:
        """Take what the socket gave."""
        ...

    def gets(self) -> Answer | NotYet:
        """The next whole reply, or `NOT_YET`."""
        ...


def reader() -> Reader:
    """A reader whose error replies are `ErrorReply` values."""
    return cast("Reader", hiredis.Reader(replyError=ErrorReply, notEnoughData=NOT_YET))


_pack_command = cast("Callable[[tuple[object, ...]], bytes]", hiredis.pack_command)


def pack(call: Call[object], *, native: bool = False) -> bytes:
    """The call as bytes, on wire 4 or `native`; `InvalidInputError` names what cannot be sent."""
    words = call.native_words() if native else call.words()
    try:
        return _pack_command(words)
    except (TypeError, ValueError) as error:
        bad = next((word for word in words if not _sendable(word)), None)
        raise InvalidInputError(
            f"{call.verb}: {bad!r} cannot be sent; str (valid Unicode), bytes and int are allowed"
        ) from error


def _sendable(word: object) -> bool:
    try:
        _pack_command((word,))
    except (TypeError, ValueError):
        return False
    return True


def raw(*words: Arg) -> Call[Reply]:
    """A plain command as a call whose value is the server's reply as it comes."""
    if not words or not isinstance(words[0], str) or not words[0]:
        raise InvalidInputError(f"a command begins with its name as str, not {words[:1]!r}")
    return Call(words[0].lower(), (), words[1:], _as_it_is, command=words[0])


def _as_it_is(reply: Reply) -> Reply:
    return reply
