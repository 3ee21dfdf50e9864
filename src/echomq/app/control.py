"""What a handler raises to say something other than "I failed"."""

from __future__ import annotations

from datetime import timedelta
from typing import Unpack

from echomq.app.times import Span, span_ms
from echomq.identity.errors import InvalidInputError


class Snooze(Exception):  # noqa: N818  (an instruction, not an error)
    """Raised inside a job: put it back and run it again after this long. No attempt is spent.

    `raise Snooze(minutes=5)` or `raise Snooze(timedelta(minutes=5))`; the keywords are `weeks`, `days`, `hours`,
    `minutes`, `seconds` and `milliseconds`, and add up. The delay counts from the server's now, in whole milliseconds,
    rounded up. `InvalidInputError` for one that is not above zero.
    """

    def __init__(self, delay: timedelta | None = None, /, **parts: Unpack[Span]) -> None:
        self.delay_ms = span_ms("Snooze", delay, parts)
        super().__init__(f"again in {self.delay_ms} ms")


class Cancelled(Exception):  # noqa: N818  (an instruction, not an error)
    """Raised inside a job: it ends here, and goes to the morgue as cancelled. No attempt follows.

    `current_job().raise_if_cancelled()` raises it when somebody has cancelled the job; a job may also raise it by
    itself: `raise Cancelled("the order is gone")`.
    """

    def __init__(self, reason: str = "cancelled", /) -> None:
        if not isinstance(reason, str):
            raise InvalidInputError(f"the reason of Cancelled must be str, not {type(reason).__name__}: {reason!r}")
        self.reason = reason
        super().__init__(reason)
