"""One line a job in the standard `logging`, once the server has confirmed what became of it: logger
`echomq.worker.jobs`.

A line's record has the facts as attributes, too, for formatters and filters: `job_id`, `job_name`, `queue`, `attempt`,
`outcome`, `duration_ms` and, where they are known, `lane`, `lateness_ms`, `retry_in_ms`, `error` and `traceback`.
Arguments are only there when asked for. Where the level is above INFO a job that is done costs one look at the level.

`lateness_ms` counts on this host's clock from the instant that the job was due to the start of its first run: the slot
of a recurrence, the instant of `.at(...)`, the mint of the id and the delay of `.after(...)`, or else the mint. It is
left out where another claim went before, since nobody knows when the job was due again, and where the payload may have
replaced that of a job with another time.
"""

from __future__ import annotations

import logging
import time
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from echomq.app.envelope import Envelope
from echomq.app.plain import encode_value
from echomq.app.text import parts_of
from echomq.identity.branded import unix_ms
from echomq.identity.minter import wall_clock_ms
from echomq.protocol.replies import Claimed, Retried
from echomq.runtime.hand import Held
from echomq.runtime.outcome import Bury, Done, Lapsed, Later, Outcome, Released, Retry, brief

if TYPE_CHECKING:
    from echomq.app.job import JobFunction

log: Final = logging.getLogger("echomq.worker.jobs")

MAX_ARGUMENTS: Final = 2_000
"""Characters of a job's arguments in its line."""


class End(Enum):
    """What became of a run."""

    DONE = "done"
    FAILED = "failed"
    DEAD = "dead"
    CANCELLED = "cancelled"
    SNOOZED = "snoozed"
    RELEASED = "handed back"
    LAPSED = "lapsed"


_LEVELS: Final = {End.FAILED: logging.WARNING, End.DEAD: logging.ERROR, End.LAPSED: logging.ERROR}


class JobLog:
    """Tells of the jobs of one worker. `arguments`: with their arguments, as JSON has them."""

    def __init__(self, *, arguments: bool = False) -> None:
        self._arguments = arguments

    def told(self, queue: str, held: Held, verdict: object) -> bool:
        """Tells what became of a job in hand, by the server's verdict; False when it is for another one to tell."""
        run = held.run
        if not isinstance(run, Line):
            return False
        end = end_of(held, verdict)
        if end is None:
            return False
        level = _LEVELS.get(end, logging.INFO)
        if log.isEnabledFor(level):
            run.write(level, queue, end, held, arguments=self._arguments)
        return True

    def listens(self) -> bool:
        """Whether anybody reads of jobs that are done."""
        return log.isEnabledFor(logging.INFO)


class Line:
    """What a line says of one run."""

    __slots__ = ("_began", "_claimed", "_envelope", "_job", "_took_s")

    def __init__(self, claimed: Claimed, job: JobFunction[..., Any], envelope: Envelope) -> None:
        self._claimed = claimed
        self._job = job
        self._envelope = envelope
        self._began = time.perf_counter()
        self._took_s: float | None = None

    def began(self) -> None:
        """The run begins now, and no earlier."""
        self._began = time.perf_counter()

    def over(self) -> None:
        """It has ended; the first end counts."""
        if self._took_s is None:
            self._took_s = time.perf_counter() - self._began

    def write(self, level: int, queue: str, end: End, held: Held, *, arguments: bool) -> None:
        """Writes it."""
        claimed, outcome = self._claimed, held.outcome
        self.over()
        took_ms = (self._took_s or 0.0) * 1_000
        facts: dict[str, object] = {
            "job_id": claimed.id,
            "job_name": self._job.name,
            "queue": queue,
            "attempt": claimed.failures + 1,
            "outcome": end.value,
            "duration_ms": round(took_ms, 3),
        }
        words = [f"{claimed.id} {self._job.name} attempt {claimed.failures + 1} {end.value}, {took_ms:.1f} ms"]
        if claimed.group is not None:
            facts["lane"] = claimed.group
        if (late_ms := self._lateness_ms()) is not None:
            facts["lateness_ms"] = late_ms
            words.append(f", {late_ms} ms late")
        if isinstance(outcome, Later) or (end is End.FAILED and isinstance(outcome, Retry)):
            facts["retry_in_ms"] = outcome.delay_ms
            words.append(f", again in {outcome.delay_ms} ms")
        if isinstance(outcome, Retry | Bury | Lapsed):
            error, frames = parts_of(outcome.error)
            facts["error"] = brief(error, MAX_ARGUMENTS)
            words.append(f": {brief(error)}")
            if frames:
                facts["traceback"] = frames
        if arguments:
            facts["arguments"] = sent = self._sent()
            words.append(f", called with {brief(sent)}")
        log.log(level, "%s", "".join(words), extra=facts)

    def _lateness_ms(self) -> int | None:
        claimed, sent = self._claimed, self._envelope
        if claimed.attempts != 1 or sent.at_ms is False:
            return None
        due_ms = unix_ms(claimed.id)
        if isinstance(sent.slot_ms, int):
            due_ms = sent.slot_ms
        elif isinstance(sent.at_ms, int):
            due_ms = max(due_ms, sent.at_ms)
        elif isinstance(sent.delay_ms, int):
            due_ms += sent.delay_ms
        began_ms = wall_clock_ms() - round((time.perf_counter() - self._began) * 1_000)
        return max(0, began_ms - due_ms)

    def _sent(self) -> str:
        sent = self._envelope
        text = encode_value({"args": sent.args, "kwargs": sent.kwargs}).decode("utf-8", "replace")
        return brief(text, MAX_ARGUMENTS)


def end_of(held: Held, verdict: object) -> End | None:
    """What became of a job in hand, by the verdict of the server; None where that does not say."""
    outcome: Outcome | None = held.outcome
    if verdict is Retried.DEAD:
        if held.reason is not None or (isinstance(outcome, Bury) and outcome.error.startswith("cancelled")):
            return End.CANCELLED
        return End.DEAD
    if verdict is Retried.SCHEDULED:
        return End.FAILED
    match outcome:
        case Done():
            return End.DONE
        case Later():
            return End.SNOOZED
        case Released():
            return End.RELEASED
        case Lapsed():
            return End.LAPSED
        case _:
            return None
