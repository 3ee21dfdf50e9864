"""What became of a job: the values that a handler may return, and the text of a failure."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

from echomq.identity.errors import InvalidInputError
from echomq.protocol.checks import integer, milliseconds, payload_of, span
from echomq.protocol.follow import Follow

MAX_TEXT: Final = 8 * 1024
"""Bytes of a failure's text that are kept in the row: the message and the end of the traceback."""

LINE: Final = 200
"""Characters of a text that is not ours in one line of a log."""

_MAX_MESSAGE: Final = 2 * 1024

# As `BaseException` and `type` have them, past any property that a class puts in their place.
_TRACEBACK: Final[Any] = BaseException.__dict__["__traceback__"]
_QUALNAME: Final[Any] = type.__dict__["__qualname__"]


class Outcome:
    """How a job is settled. A handler that returns anything else is done with its job."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Done(Outcome):
    """The job is complete; its row is deleted.

    `result` goes to the parent of a flow's child, and is kept as the job's own for `result_ttl_ms` (0: not at all).
    `then` is admitted in the same step.
    """

    result: bytes | str = b""
    result_ttl_ms: int = 0
    then: Follow | None = None

    def __post_init__(self) -> None:
        payload_of(self.result)
        milliseconds("Done result_ttl_ms", self.result_ttl_ms)


@dataclass(frozen=True, slots=True)
class Retry(Outcome):
    """The attempt failed. `delay_ms` and `max_attempts` take the place of the consumer's own when given.

    `then` is admitted in the same step, and so is `at_death` if it was the last attempt.
    """

    error: str
    delay_ms: int | None = None
    max_attempts: int | None = None
    then: Follow | None = None
    at_death: Follow | None = None

    def __post_init__(self) -> None:
        _text("Retry", self.error)
        if self.delay_ms is not None:
            span("Retry delay_ms", self.delay_ms)
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
        span("Later delay_ms", self.delay_ms)


@dataclass(frozen=True, slots=True)
class Bury(Outcome):
    """The job can never succeed: it goes to the morgue with this text, whatever attempts it has left.

    `at_death` is admitted in the same step.
    """

    error: str
    at_death: Follow | None = None

    def __post_init__(self) -> None:
        _text("Bury", self.error)


@dataclass(frozen=True, slots=True)
class Released(Outcome):
    """The worker hands the job back: claimable at once, nothing spent. For the consumer's own use in a drain."""


@dataclass(frozen=True, slots=True)
class Lapsed(Outcome):
    """The process that the job ran in has died, the consumer has not: its lease lapses now, and is counted as a lapse.

    So a sweep buries it where that is one too many, as it does any job (protocol §5). This text goes into its log.
    """

    error: str

    def __post_init__(self) -> None:
        _text("Lapsed", self.error)


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


def failure_text(error: BaseException, message_limit: int = _MAX_MESSAGE) -> str:
    """`TypeName: message`, then the end of the traceback; at most `MAX_TEXT` bytes.

    Whatever the error's own class does when it is looked at, this gives a text.
    """
    name = _name(error)
    message = _read(lambda: _plain(str(error)), "text")
    head = bounded(f"{name}: {message}" if message else name, message_limit)
    # The frames alone: the message is said already, and may be huge. The innermost ones say most.
    frames = _read(lambda: "".join(traceback.format_tb(traceback_of(error), limit=-30)), "traceback")
    room = MAX_TEXT - len(head.encode("utf-8", "backslashreplace")) - len("\n...")
    data = frames.encode("utf-8", "backslashreplace")
    if len(data) > room:
        frames = "..." + data[-room:].decode("utf-8", "ignore")
    return f"{head}\n{frames}".rstrip()


def traceback_of(error: BaseException) -> TracebackType | None:
    """Its traceback, also where its class has another idea of it."""
    found: TracebackType | None = _TRACEBACK.__get__(error)
    return found


def brief(about: object, limit: int = LINE) -> str:
    """What may go into one line of a log: the beginning of its text."""
    text = _read(lambda: _plain(str(about)), "text").replace("\n", " ")
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def _plain(text: str) -> str:
    """A `str` of no class of somebody's own, and of Unicode alone: an error may quote a file's name that is none."""
    return str.__str__(text).encode("utf-8", "backslashreplace").decode()


def _name(error: BaseException) -> str:
    return _plain(_QUALNAME.__get__(type(error)))


def _read(what: Callable[[], str], part: str) -> str:
    try:
        return what()
    except BaseException as second:  # noqa: BLE001  (a user's class may raise anything; the job's own error counts)
        return f"<its {part} raised {_name(second)}>"
