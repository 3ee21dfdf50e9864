"""What a handler raises to say something other than "I failed"."""

from __future__ import annotations

from datetime import timedelta
from typing import Final, Unpack, cast

from echomq.app.times import Span, duration, first_ms, span_ms
from echomq.identity.errors import InvalidInputError


class Instruction(Exception):  # noqa: N818  (an instruction, not an error)
    """What is raised inside a job to say what is to become of it; a job raises one of the classes below."""


class Snooze(Instruction):
    """Raised inside a job: put it back and run it again after this long. No attempt is spent.

    `raise Snooze(minutes=5)` or `raise Snooze(timedelta(minutes=5))`; the keywords are `weeks`, `days`, `hours`,
    `minutes`, `seconds` and `milliseconds`, and add up. The delay counts from the server's now, in whole milliseconds,
    rounded up. `InvalidInputError` for one that is not above zero.
    """

    def __init__(self, delay: timedelta | None = None, /, **parts: Unpack[Span]) -> None:
        self.delay_ms = span_ms("Snooze", delay, parts)
        super().__init__(f"again in {self.delay_ms} ms")


class Retry(Instruction):
    """Raised inside a job: this attempt has failed, and this is how long the next one waits.

    `raise Retry(minutes=5)`, `raise Retry(after=timedelta(minutes=5))`, or with a reason for the log and the morgue,
    `raise Retry("the gateway is closed", minutes=5)`. Without a span of time the job's backoff gives it, and zero is at
    once. An attempt is spent: the job is buried when it was the last one. It is tried again whatever `retry_on` and
    `discard_on` say. Raised without a reason where another error is handled, it keeps the text of that one. The delay
    counts from the server's now, in whole milliseconds, rounded up.
    """

    def __init__(self, reason: str | None = None, /, *, after: timedelta | None = None, **parts: Unpack[Span]) -> None:
        if after is not None and parts:
            raise InvalidInputError("Retry takes after=timedelta(...) or keywords such as minutes=5, not both")
        self.delay_ms: int | None = None
        if after is not None:
            self.delay_ms = first_ms("after", after)
        elif parts:
            self.delay_ms = first_ms("Retry", duration("Retry", None, parts))
        self.reason = None if reason is None else _reason("Retry", reason)
        super().__init__("the job asked for another attempt" if reason is None else reason)

    @property
    def about(self) -> BaseException:
        """The failure that is kept: the error that it was raised for, unless it has a reason of its own."""
        if self.reason is not None:
            return self
        return self.__cause__ or (None if self.__suppress_context__ else self.__context__) or self


class Discard(Instruction):
    """Raised inside a job: it can never succeed. It goes to the morgue with this reason, and no attempt follows.

    `raise Discard("no such customer")`. The reason is kept as `last_error`, behind the word `discarded`.
    """

    def __init__(self, reason: str, /) -> None:
        self.reason = _reason("Discard", reason)
        super().__init__(reason)


class Cancelled(Instruction):
    """Raised inside a job: it ends here, and goes to the morgue as cancelled. No attempt follows.

    `current_job().raise_if_cancelled()` raises it when somebody has cancelled the job; a job may also raise it by
    itself, by its other name: `raise Cancel("the order is gone")`.
    """

    def __init__(self, reason: str = "cancelled", /) -> None:
        self.reason = _reason("Cancelled", reason)
        super().__init__(reason)


Cancel: Final = Cancelled
"""`Cancelled` as an order: a job raises it by itself, and catches it by either name."""


def asked_again(error: BaseException) -> Retry | None:
    """`error`, when it asks for another attempt; whatever its class does when it is looked at."""
    return cast("Retry", error) if issubclass(type(error), Retry) else None


def _reason(what: str, reason: object) -> str:
    if not isinstance(reason, str):
        hint = "; write after=timedelta(...)" if isinstance(reason, timedelta) else ""
        raise InvalidInputError(f"the reason of {what} must be str, not {type(reason).__name__}: {reason!r:.200}{hint}")
    return reason
