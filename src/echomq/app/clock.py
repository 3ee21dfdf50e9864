"""`mq.clock` in a test: what waits for a time comes nearer, without anybody waiting (docs/testing.md)."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Unpack

from echomq.app.times import Span, span_ms
from echomq.identity.errors import InvalidInputError
from echomq.protocol.call import Plan
from echomq.protocol.trials import MAX_HASTE_MS, Hastened, hasten

if TYPE_CHECKING:
    from echomq.app.trial import ServerTrial


class Clock:
    """Moves time on for what waits for it on the server of a test.

    The server's own clock cannot be set. So every run-at on the schedule, and every next run of a recurrence, is moved
    back by the span: what is due in an hour is due now. The slots of recurrences stay what they are, and so do those
    that follow: they are instants of a clock that is `ahead` of the server's.
    """

    def __init__(self, trial: ServerTrial) -> None:
        self._trial = trial
        self._ahead_ms = 0
        self._moving = False

    def __repr__(self) -> str:
        return f"<clock of a test, {self.ahead} ahead>"

    @property
    def ahead(self) -> timedelta:
        """How far it has been moved in all."""
        return timedelta(milliseconds=self._ahead_ms)

    def ahead_ms(self) -> int | None:
        """The same in ms; None while the scores are being moved. For who fires recurrences."""
        return None if self._moving else self._ahead_ms

    def advance(self, span: timedelta | None = None, /, **parts: Unpack[Span]) -> Hastened:
        """Moves it on: `mq.clock.advance(hours=1)`, or a timedelta; says how many jobs and recurrences came nearer.

        Each queue is moved at one instant, one queue after the other. Nothing is run by it: `mq.drain()` does that.
        `InvalidInputError` for a span that is not above zero, or beyond twenty years in all. Raises as `mq.run` does.
        """
        span = self._span(span, parts)
        self._trial.mq.warn_on_a_loop("advance")
        try:
            moved = self._trial.mq.run(self._moved(span))
        finally:
            self._moving = False
        return moved

    async def aadvance(self, span: timedelta | None = None, /, **parts: Unpack[Span]) -> Hastened:
        """`advance`, awaited."""
        span = self._span(span, parts)
        try:
            moved = await self._trial.mq.arun(self._moved(span))
        finally:
            self._moving = False
        return moved

    def _span(self, span: timedelta | None, parts: Span) -> timedelta:
        more_ms = span_ms("advance", span, parts)
        if self._ahead_ms + more_ms > MAX_HASTE_MS:
            raise InvalidInputError(f"advance: {self.ahead} and {timedelta(milliseconds=more_ms)} are beyond 20 years")
        return timedelta(milliseconds=more_ms)

    def _moved(self, span: timedelta) -> Plan[Hastened]:
        jobs = recurrences = 0
        more_ms = span // timedelta(milliseconds=1)
        queues: tuple[str, ...] = yield from self._trial.queues()
        self._moving = True
        for queue in queues:
            moved: Hastened = yield hasten(queue, more_ms)
            jobs += moved.jobs
            recurrences += moved.recurrences
        self._ahead_ms += more_ms
        return Hastened(jobs, recurrences)
