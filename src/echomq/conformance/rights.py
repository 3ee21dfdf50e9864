"""What a server says to a user who may not do something, in a command and in a script."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from echomq.conformance.scenario import LackError
from echomq.protocol.errors import ServerError

__all__ = ["allowed", "is_denied", "lacking"]

_IN_SCRIPT: Final = ("ACL failure in script", "The user executing the script can't")


def is_denied(error: ServerError) -> bool:
    """Whether an ACL has refused it: the command, a key, a channel, or what a script does."""
    return error.reply.startswith("NOPERM") or any(words in error.reply for words in _IN_SCRIPT)


def lacking(error: ServerError) -> str:
    """The reason to skip what an ACL has refused."""
    return f"this user may not do it ({error.reply})"


@contextmanager
def allowed() -> Generator[None, None, None]:
    """What an ACL refuses inside is a `LackError`, which no scenario takes for an answer of the contract."""
    try:
        yield
    except ServerError as error:
        if is_denied(error):
            raise LackError(lacking(error)) from error
        raise
