"""Settling: what has finished goes to the server in one flight, and counts only when the server has said so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

from echomq.identity.errors import EchoMQError
from echomq.protocol import admin, jobs
from echomq.protocol.backoff import Policy, check_policy, delay_ms
from echomq.protocol.call import Call, Reply
from echomq.protocol.checks import MAX_SPAN_MS, check_job, integer
from echomq.protocol.errors import ServerError, StaleTokenError, UnexpectedReplyError
from echomq.protocol.follow import Follow
from echomq.protocol.jobs import Finished
from echomq.protocol.keys import keys
from echomq.protocol.replies import Claimed, Completion, Retried, as_bytes, as_list
from echomq.runtime.bereaved import Bereaved
from echomq.runtime.hand import Held
from echomq.runtime.loops import log
from echomq.runtime.outcome import (
    LINE,
    Bury,
    Done,
    Lapsed,
    Later,
    Outcome,
    Released,
    Retry,
    bounded,
    brief,
)
from echomq.runtime.telemetry import Cancelled, Completed, Dead, Delayed, Failed, Telemetry, hub
from echomq.runtime.telemetry import Retried as RetriedStep
from echomq.wire import AsyncConnector

_FALLBACK_MS: Final = 1_000
_FINAL: Final = ("EMQ", "ERR ", "WRONGTYPE ")
"""Answers that a second sending cannot change; the others (LOADING, READONLY, OOM, ...) pass."""
_ELSEWHERE: Final = ("MOVED ", "ASK ")
"""Answers of a node that has not got the queue: they say nothing of a row, and a settlement waits for an operator."""


@dataclass(slots=True)
class Tally:
    """How many jobs ended how in one consumer, by the server's own answers."""

    claimed: int = 0
    completed: int = 0
    retried: int = 0
    buried: int = 0
    snoozed: int = 0
    released: int = 0
    lapsed: int = 0
    refused: int = 0


class Teller(Protocol):
    """Tells people what became of jobs, in the place of the lines that a settler would log."""

    def listens(self) -> bool:
        """Whether it has anything to tell of jobs that are done."""
        ...

    def told(self, queue: str, held: Held, verdict: object) -> bool:
        """Tells what became of a job, by the server's verdict; False when it has nothing to tell."""
        ...


@dataclass(frozen=True, slots=True)
class Batch:
    """What one flight settles: completions, which share one call, and the others with a call each.

    Behind these go `notes` calls that settle nothing.
    """

    done: list[Held]
    single: list[Held]
    notes: int = 0


class Settler:
    """What is finished and not yet confirmed.

    `take` turns it into calls, `answered` reads the replies. What got no answer waits for the next flight: every
    settlement is fenced by its token, so sending it again is safe. The one exception is a failure that may have
    been counted, whose job may be claimable again under the same token: `clear_doubts` looks before it is sent again.
    """

    def __init__(
        self,
        queue: str,
        *,
        retry_delay: Policy,
        max_attempts: int,
        held: set[Held],
        watch: Telemetry = hub,
        teller: Teller | None = None,
    ) -> None:
        self._queue = queue
        self._teller = teller
        self._retry_delay = check_policy(retry_delay)
        self._max_attempts = integer("max_attempts", max_attempts, least=1)
        self._held = held
        self._watch = watch
        self.bereaved = Bereaved(queue, watch)
        """Deaths that may have buried parents, of which nobody is told yet."""
        self.waiting: list[Held] = []
        self.leaving = 0
        """Jobs whose settlement is under way."""
        self.tally = Tally()
        self.signalled = False
        """Something has died, or was completed with a signal to a parent in another queue."""
        self.doubtful = False
        """A failure was sent and not answered: `clear_doubts` before the next `take`."""
        self.lapsed = False
        """The lease of a job was ended, for the next sweep to count: in a millisecond at the earliest."""
        self.yielded = False
        """A job was put off that asks this consumer to leave the time to another one."""
        self._trouble: EchoMQError | None = None

    def take(self, limit: int) -> tuple[Batch, list[Call[Any]]]:
        """The calls that settle the first `limit` that wait; `answered` must be told what became of them."""
        taken = self.waiting[:limit]
        # Inline, for it is the hot path: completions that nothing follows share a call.
        done = [held for held in taken if type(held.outcome) is Done and held.outcome.then is None]
        others: list[Held] = []
        if len(done) < len(taken):
            shared = set(done)
            others = [held for held in taken if held not in shared]
        calls: list[Call[Any]] = []
        if done:
            try:
                calls.append(self._completion(done))
            except Exception:  # noqa: BLE001  (whatever a builder refuses in one of them: the others are settled)
                done = [held for held in done if self._built(held, lambda held: self._completion([held]))]
                calls += [self._completion(done)] if done else []
        single: list[Held] = []
        for held in others:
            if (call := self._built(held, self._call)) is not None:
                calls.append(call)
                single.append(held)
        self.waiting = self.waiting[limit:]
        self.leaving += len(done) + len(single)
        notes = [_note(self._queue, held, held.outcome) for held in single if type(held.outcome) is Lapsed]
        return Batch(done, single, len(notes)), calls + notes

    def _completion(self, done: list[Held]) -> Call[tuple[Completion | ServerError, ...]]:
        # Most leave the very same: the one value that says it spares a check of each.
        common = cast("Done", done[0].outcome)
        pairs = [
            (held.job.id, held.job.attempts) if held.outcome is common else _finished(held.job, held.outcome)
            for held in done
        ]
        return jobs.complete_many(self._queue, pairs, result=common.result, result_ttl_ms=common.result_ttl_ms)

    def _built(self, held: Held, build: Callable[[Held], Call[Any]]) -> Call[Any] | None:
        """The call that settles a job; None, and the job is no longer in hand, where there can be no such call."""
        try:
            return build(held)
        except Exception as error:  # noqa: BLE001  (whatever a builder refuses: the others are settled)
            self.tally.refused += 1
            log.error(
                "job %s of %s cannot be settled, its lease will lapse: %s",
                *(brief(held.job.id), self._queue, brief(error)),
            )
            self._held.discard(held)
            return None

    def answered(self, batch: Batch, answers: Iterator[object]) -> EchoMQError | None:
        """Takes one answer a call of the batch, in order; an `EchoMQError` stands for a call without one.

        Gives an error that passes, for which something waits to be sent again.
        """
        self._trouble = None
        self.leaving -= len(batch.done) + len(batch.single)
        if batch.done:
            self._completed(batch.done, next(answers))
        for held in batch.single:
            answer = next(answers)
            if isinstance(answer, EchoMQError):
                self._failed(held, answer)
            elif isinstance(answer, Completion):
                self._completed([held], (answer,))
            else:
                self._confirmed(held, answer)
        for _ in range(batch.notes):
            next(answers)  # one that did not arrive is not missed
        return self._trouble

    async def clear_doubts(self, conn: AsyncConnector) -> None:
        """Look whether failures that were sent, and not answered, have been counted."""
        for held in [held for held in self.waiting if held.doubt and isinstance(held.outcome, Retry | Bury)]:
            try:
                self._looked(held, await conn.run(_marks(self._queue, held.job.id)))
            except ServerError as error:
                if error.passes or error.reply.startswith(_ELSEWHERE):
                    raise
                # Its row cannot be looked at, so the settlement has to speak for itself: the script is as strict.
                log.warning("job %s of %s: cannot look at its row: %s", held.job.id, self._queue, brief(error))
                held.doubt = False
        self.doubtful = False

    def _looked(self, held: Held, marks: tuple[bytes | None, ...]) -> None:
        held.doubt = False
        attempts, failures, state = marks
        counted = (failures or b"0") != b"%d" % held.job.failures
        if counted or attempts != held.job.token.encode():
            self.waiting.remove(held)
            self._confirmed(held, Retried.DEAD if state == b"dead" else Retried.SCHEDULED)

    def _call(self, held: Held) -> Call[Any]:
        job, outcome = held.job, held.outcome
        match outcome:
            case Later(delay):
                return jobs.delay(self._queue, job.id, job.attempts, delay_ms=delay)
            case Released():
                return jobs.release(self._queue, job.id, job.attempts)
            case Bury(error, at_death):
                return self._retry(held, 0, job.attempts, error, at_death=at_death)
            case Lapsed():
                return jobs.extend(self._queue, job.id, job.attempts, lease_ms=1)
            case Retry(error, delay, most, then, at_death):
                failures = job.failures + 1
                last = self._is_last(job, most)
                if delay is None:
                    delay = 0 if last else self._policy(failures)
                bound = job.attempts if last else job.attempts + 1
                return self._retry(held, delay, bound, error, then, at_death if last else None)
            case Done(result, ttl, then):
                return jobs.complete(self._queue, job.id, job.attempts, result=result, result_ttl_ms=ttl, then=then)
            case _:
                return jobs.complete(self._queue, job.id, job.attempts)

    def _retry(
        self,
        held: Held,
        delay: int,
        most: int,
        error: str,
        then: Follow | None = None,
        at_death: Follow | None = None,
    ) -> Call[Retried]:
        job = held.job
        return jobs.retry(
            self._queue,
            job.id,
            job.attempts,
            delay_ms=delay,
            max_attempts=most,
            error=bounded(error),
            then=then,
            at_death=at_death,
        )

    def _is_last(self, job: Claimed, most: int | None) -> bool:
        return job.failures + 1 >= (self._max_attempts if most is None else most)

    def _policy(self, failures: int) -> int:
        try:
            return min(delay_ms(self._retry_delay, failures), MAX_SPAN_MS)
        except BaseException:  # noqa: BLE001  (a user's function; its fault must not keep the job from being settled)
            log.exception("queue %s: the retry policy failed; %d ms instead", self._queue, _FALLBACK_MS)
            return _FALLBACK_MS

    def _completed(self, done: list[Held], answer: object) -> None:
        if isinstance(answer, EchoMQError):
            for held in done:
                self._failed(held, answer)
            return
        verdicts = cast("tuple[Completion | ServerError, ...]", answer)
        if verdicts.count(Completion.RETIRED) == len(done):  # the hot path: no loop in Python
            self.tally.completed += len(done)
            self._held.difference_update(done)
            if self._watch.observers or (self._teller is not None and self._teller.listens()):
                for held in done:
                    self._tell_done(held, Completion.RETIRED)
            return
        for held, verdict in zip(done, verdicts, strict=True):
            if verdict is Completion.SIGNALLED:
                self.signalled = True
            if isinstance(verdict, ServerError):
                self._refused(held, verdict)
            elif verdict is Completion.GONE and not held.doubt:
                self._refused(held, None)
            else:
                self.tally.completed += 1
                self._held.discard(held)
                self._tell_done(held, verdict)

    def _tell_done(self, held: Held, verdict: Completion) -> None:
        if self._watch.observers:
            self._watch.emit(Completed(self._queue, held.job.id, held.job.failures + 1))
        if self._teller is not None:
            self._teller.told(self._queue, held, verdict)

    def _confirmed(self, held: Held, verdict: object) -> None:
        if verdict is Retried.DEAD:
            self._minded(held)
        job, outcome = held.job, held.outcome
        if self._watch.observers:
            self._report(held, verdict)
        told = self._teller is not None and self._teller.told(self._queue, held, verdict)
        if verdict is Retried.DEAD:
            self.tally.buried += 1
            self.signalled = True
            self.bereaved.saw(job.id)
            if not told:
                say = log.error if held.reason is None else log.info
                say("job %s of %s buried: %s", job.id, self._queue, _first_line(outcome))
        elif verdict is Retried.SCHEDULED:
            self.tally.retried += 1
            if not told:
                log.warning("job %s of %s failed (%d): %s", job.id, self._queue, job.failures + 1, _first_line(outcome))
        elif isinstance(outcome, Later):
            self.tally.snoozed += 1
            self.yielded |= outcome.yield_time
        elif isinstance(outcome, Released):
            self.tally.released += 1
        elif isinstance(outcome, Lapsed):
            self.tally.lapsed += 1
            self.lapsed = True
            if not told:
                log.error("job %s of %s lapsed: %s", job.id, self._queue, _first_line(outcome))
        self._held.discard(held)

    def _minded(self, held: Held) -> None:
        """A job that was to run again and is dead was cancelled, and nobody here had heard of it (protocol §3)."""
        outcome = held.outcome
        if isinstance(outcome, Later | Released) or (
            isinstance(outcome, Retry) and not self._is_last(held.job, outcome.max_attempts)
        ):
            held.cancel("cancelled")
            held.outcome = Bury("cancelled" if held.lost else held.reason or "cancelled")

    def _report(self, held: Held, verdict: object) -> None:
        queue, job, outcome, emit = self._queue, held.job, held.outcome, self._watch.emit
        attempt = job.failures + 1
        if isinstance(outcome, Later):
            emit(Delayed(queue, job.id, outcome.delay_ms))
        elif isinstance(outcome, Retry | Bury):
            if isinstance(outcome, Retry):
                emit(Failed(queue, job.id, attempt, outcome.error))
            if verdict is Retried.SCHEDULED:
                emit(RetriedStep(queue, job.id, attempt, outcome.error))
            elif held.reason is not None and outcome.error == held.reason:
                emit(Cancelled(queue, job.id, held.reason))
            else:
                emit(Dead(queue, job.id, outcome.error))

    def _failed(self, held: Held, error: EchoMQError) -> None:
        """A refusal is the end of it; anything else waits for the next flight."""
        if isinstance(error, UnexpectedReplyError) or (
            isinstance(error, ServerError) and error.reply.startswith(_FINAL)
        ):
            self._refused(held, error)
            return
        if not isinstance(error, ServerError) and getattr(error, "sent", False):
            held.doubt = self.doubtful = True
        self._trouble = error
        self.waiting.append(held)

    def _refused(self, held: Held, error: ServerError | None) -> None:
        self.tally.refused += 1
        what = type(held.outcome).__name__.lower()
        if error is None:
            log.warning("job %s of %s: %s came late, its row is gone", held.job.id, self._queue, what)
        elif held.doubt and not isinstance(error, StaleTokenError):
            log.info("job %s of %s: %s had been settled before: %s", held.job.id, self._queue, what, brief(error))
        else:
            log.warning("job %s of %s: %s came too late: %s", held.job.id, self._queue, what, brief(error))
        self._held.discard(held)


def _note(queue: str, held: Held, lapsed: Lapsed) -> Call[int | None]:
    """How a job's process has ended, for its log: the row says only that it stalled."""
    line = f"lapse {held.job.stalled + 1}: {lapsed.error}"
    return admin.add_log(queue, held.job.id, bounded(line), keep=admin.KEEP_LINES)


def _marks(queue: str, job_id: str) -> Call[tuple[bytes | None, ...]]:
    """What tells whether a failure was counted, whatever else is in the row."""
    fields = ("attempts", "failures", "state")
    return Call("look", (keys(queue).job(check_job(job_id)),), fields, _fields, command="HMGET", subject=job_id)


def _fields(reply: Reply) -> tuple[bytes | None, ...]:
    return tuple(None if item is None else as_bytes(item) for item in as_list(reply))


def _finished(job: Claimed, outcome: Outcome | None) -> Finished:
    assert isinstance(outcome, Done)
    return Finished(job.id, job.attempts, outcome.result, outcome.result_ttl_ms)


def _first_line(outcome: Outcome | None) -> str:
    text = outcome.error if isinstance(outcome, Retry | Bury | Lapsed) else repr(outcome)
    return text.split("\n", 1)[0][:LINE]
