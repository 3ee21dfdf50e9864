"""What became of a job: the values that a handler may return, and the text of a failure."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import Final

from echomq.identity.errors import InvalidInputError
from echomq.protocol.checks import integer, milliseconds, payload_of

MAX_DELAY_MS: Final = 1 << 52
"""What fits between any server's now and the last instant of protocol §4."""

MAX_TEXT: Final = 8 * 1024
"""Bytes of a failure's text that are kept in the row: the message and the end of the traceback."""

_MAX_MESSAGE: Final = 2 * 1024


class Outcome:
    """How a job is settled. A handler that returns anything else is done with its job."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Done(Outcome):
    """The job is complete; its row is deleted.

    `result` goes to the parent of a flow's child, and is kept as the job's own for `result_ttl_ms` (0: not at all).
    """

    result: bytes | str = b""
    result_ttl_ms: int = 0

    def __post_init__(self) -> None:
        payload_of(self.result)
        milliseconds("Done result_ttl_ms", self.result_ttl_ms)


@dataclass(frozen=True, slots=True)
class Retry(Outcome):
    """The attempt failed. `delay_ms` and `max_attempts` take the place of the consumer's own when given."""

    error: str
    delay_ms: int | None = None
    max_attempts: int | None = None

    def __post_init__(self) -> None:
        _text("Retry", self.error)
        if self.delay_ms is not None:
            integer("Retry delay_ms", self.delay_ms, least=0, most=MAX_DELAY_MS)
        if self.max_attempts is not None:
            integer("Retry max_attempts", self.max_attempts, least=1)


@dataclass(frozen=True, slots=True)
class Later(Outcome):
    """Not now: the job runs again after `delay_ms`, and no attempt is spent.

    With `yield_time` this consumer leaves the queue's time to another one until its next beat: for a job that it will
    never run, as in a rolling deploy, and that it would otherwise be the first to claim again.
    """

    delay_ms: int
    yield_time: bool = False

    def __post_init__(self) -> None:
        integer("Later delay_ms", self.delay_ms, least=0, most=MAX_DELAY_MS)


@dataclass(frozen=True, slots=True)
class Bury(Outcome):
    """The job can never succeed: it goes to the morgue with this text, whatever attempts it has left."""

    error: str

    def __post_init__(self) -> None:
        _text("Bury", self.error)


@dataclass(frozen=True, slots=True)
class Released(Outcome):
    """The worker hands the job back: claimable at once, nothing spent. For the consumer's own use in a drain."""


DONE: Final = Done()
RELEASED: Final = Released()


def _text(what: str, error: object) -> None:
    if not isinstance(error, str):
        raise InvalidInputError(f"{what} error must be str, not {type(error).__name__}: {error!r}")


def bounded(text: str, limit: int = MAX_TEXT) -> str:
    """`text`, its end cut off where it is longer than `limit` bytes."""
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= limit:
        return text
    return data[: limit - 3].decode("utf-8", "ignore") + "..."


def failure_text(error: BaseException) -> str:
    """`TypeName: message`, then the end of the traceback; at most `MAX_TEXT` bytes."""
    try:
        message = str(error)
    except Exception as second:  # noqa: BLE001  (a user's __str__ may raise anything; the job's own error counts)
        message = f"<its text raised {type(second).__name__}>"
    name = type(error).__qualname__
    head = bounded(f"{name}: {message}" if message else name, _MAX_MESSAGE)
    # The frames alone: the message is said already, and may be huge. The innermost ones say most.
    frames = "".join(traceback.format_tb(error.__traceback__, limit=-30))
    room = MAX_TEXT - len(head.encode("utf-8", "backslashreplace")) - len("\n...")
    data = frames.encode("utf-8", "backslashreplace")
    if len(data) > room:
        frames = "..." + data[-room:].decode("utf-8", "ignore")
    return f"{head}\n{frames}".rstrip()
