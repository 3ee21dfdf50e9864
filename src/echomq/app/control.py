"""What a handler raises to say something other than "I failed"."""

from __future__ import annotations

from datetime import timedelta

from echomq.app.times import Span, span_ms


class Snooze(Exception):  # noqa: N818  (an instruction, not an error)
    """Raised inside a job: put it back and run it again after this long. No attempt is spent.

    `raise Snooze(minutes=5)` or `raise Snooze(timedelta(minutes=5))`. The delay counts from the server's now.
    """

    def __init__(
        self,
        delay: timedelta | None = None,
        /,
        *,
        weeks: float = 0,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        milliseconds: float = 0,
    ) -> None:
        span = Span(weeks, days, hours, minutes, seconds, milliseconds)
        self.delay_ms = span_ms("Snooze", delay, span)
        super().__init__(f"again in {self.delay_ms} ms")
