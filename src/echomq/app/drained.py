"""`mq.drain()` in a test: everything that can run now is run, here, and what became of it is told (docs/testing.md)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from echomq.app.dispatch import Dispatch
from echomq.app.envelope import decode
from echomq.app.errors import DrainTimeoutError, EnvelopeError
from echomq.app.failures import failure_of
from echomq.app.flag import flag
from echomq.app.joblog import End, JobLog, end_of
from echomq.app.middleware import Layer
from echomq.app.patience import Patience
from echomq.app.times import limit_ms
from echomq.app.worker import Worker
from echomq.protocol import jobs, metrics
from echomq.protocol.call import Plan
from echomq.protocol.errors import StateError
from echomq.protocol.replies import State
from echomq.runtime.hand import Held
from echomq.runtime.outcome import Bury, Lapsed, Retry

if TYPE_CHECKING:
    from echomq.app.context import JobContext
    from echomq.app.echomq import EchoMQ

__all__ = ["Drained", "Draining", "Ran", "drained"]

_FAILED: Final = (End.FAILED, End.DEAD, End.LAPSED)


@dataclass(frozen=True, slots=True)
class Ran:
    """One run of a job in a drain: what became of it, and what it raised."""

    id: str
    name: str
    queue: str
    attempt: int
    end: End
    error: BaseException | None = None
    """What its function raised; a `JobFailed` where that is not known here, as for a job in a process of its own."""
    buried: bool = False
    """It lapsed once too often, and its job went to the morgue by that."""

    def __str__(self) -> str:
        why = "" if self.error is None else f": {type(self.error).__name__}: {self.error}"
        end = f"{self.end.value} and {End.DEAD.value}" if self.buried else self.end.value
        return f"{self.name or self.id} attempt {self.attempt} {end}{why}"


@dataclass(frozen=True, slots=True)
class Drained:
    """What a drain has run, in the order in which it ended, and how many jobs wait for a time still to come."""

    runs: tuple[Ran, ...] = ()
    scheduled: int = 0

    def _count(self, end: End) -> int:
        return sum(run.end is end for run in self.runs)

    @property
    def completed(self) -> int:
        """Jobs that are done."""
        return self._count(End.DONE)

    @property
    def failed(self) -> int:
        """Attempts that failed, and that another one follows."""
        return self._count(End.FAILED)

    @property
    def dead(self) -> int:
        """Jobs that went to the morgue, those that were cancelled left out; also one whose last run lapsed."""
        return self._count(End.DEAD) + sum(run.buried for run in self.runs)

    @property
    def cancelled(self) -> int:
        """Jobs that were cancelled."""
        return self._count(End.CANCELLED)

    @property
    def snoozed(self) -> int:
        """Runs that were put off by `Snooze`."""
        return self._count(End.SNOOZED)

    @property
    def lapsed(self) -> int:
        """Runs whose process died; the last one of a job that went to the morgue by it is also among the `dead`."""
        return self._count(End.LAPSED)

    @property
    def errors(self) -> tuple[BaseException, ...]:
        """What the jobs raised whose last run failed, in order: those that run again later, and the dead."""
        last = {run.id: run for run in self.runs}
        return tuple(run.error for run in last.values() if run.end in _FAILED and run.error is not None)

    def raise_errors(self) -> None:
        """Raises what `errors` has: one as it is, several as an `ExceptionGroup`; nothing when there is none."""
        errors = self.errors
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise BaseExceptionGroup(f"{len(errors)} jobs failed", errors)

    def __str__(self) -> str:
        counted = Counter(run.end.value for run in self.runs)
        counted.update(End.DEAD.value for run in self.runs if run.buried)
        said = [f"{number} {end}" for end, number in counted.items()] + [f"{self.scheduled} scheduled"]
        return f"<drained: {', '.join(said)}>"


@dataclass(frozen=True, slots=True)
class Draining:
    """How to drain; see `EchoMQ.drain`."""

    retries: bool
    schedules: bool
    raise_errors: bool
    concurrency: int
    timeout: timedelta | None

    def __post_init__(self) -> None:
        for word in ("retries", "schedules", "raise_errors"):
            flag(word, getattr(self, word))


class _Log(JobLog):
    """The worker's own lines, and a note of each run beside them."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: list[Ran] = []
        self.again: set[tuple[str, str]] = set()
        """Queue and id of what waits for a retry."""
        self._raised: dict[str, BaseException] = {}
        self.layer = Layer(None, None, self._caught)

    async def _caught(self, job: JobContext, error: BaseException) -> None:
        self._raised[job.id] = error

    def told(self, queue: str, held: Held, verdict: object) -> bool:
        """See `JobLog.told`."""
        end = end_of(held, verdict)
        raised = self._raised.pop(held.job.id, None)
        if end is not None:
            error = (raised or _failure(queue, held)) if end in _FAILED else None
            self.runs.append(Ran(held.job.id, _name(held), queue, held.job.failures + 1, end, error))
            place = (queue, held.job.id)
            if end is End.FAILED:
                self.again.add(place)
            else:
                self.again.discard(place)
        return super().told(queue, held, verdict)

    def listens(self) -> bool:
        """Always."""
        return True


class _Burst(Worker):
    """A worker that serves all the queues of a test until nothing in them can run, and notes what it runs."""

    def __init__(self, mq: EchoMQ, queues: Iterable[str], job_log: _Log, *, concurrency: int, schedules: bool) -> None:
        super().__init__(mq, burst=True, concurrency=concurrency, unknown_patience=timedelta(0))
        self._shares = dict.fromkeys(queues, 1)  # also those that the app does not declare
        self._queues = tuple(self._shares)
        self._job_log = job_log
        self._schedules = schedules
        layers = [*mq.layers.around, job_log.layer]
        self._dispatch = Dispatch(mq.names, Patience(0), self._life, layers)

    async def _sync(self) -> None:
        if self._schedules:
            await super()._sync()


async def drained(mq: EchoMQ, queues: Callable[[], Plan[tuple[str, ...]]], how: Draining) -> Drained:
    """See `EchoMQ.drain`."""
    limit_s = None if how.timeout is None else limit_ms("timeout", how.timeout) / 1_000
    ends_at = None if limit_s is None else asyncio.get_running_loop().time() + limit_s
    job_log = _Log()
    there: tuple[str, ...] = await mq.arun(queues())
    while mq.jobs:
        worker = _Burst(mq, there, job_log, concurrency=how.concurrency, schedules=how.schedules)
        await _served(worker, ends_at, how.timeout, job_log)
        hastened = await _hastened(mq, job_log) if how.retries else 0
        # A job may have been the first to send to one.
        served, there = there, await mq.arun(queues())
        if not hastened and set(there) <= set(served):
            break
    counts = [await mq.arun(metrics.counts(queue)) for queue in there]
    done = Drained(await _with_burials(mq, job_log.runs), sum(each.schedule for each in counts))
    if how.raise_errors:
        done.raise_errors()
    return done


async def _with_burials(mq: EchoMQ, runs: list[Ran]) -> tuple[Ran, ...]:
    """The runs, those marked whose lapse was the last of their job: only the server knows, whose sweep buries it."""
    places = {(run.queue, run.id): place for place, run in enumerate(runs)}
    marked = list(runs)
    for (queue, job_id), place in places.items():
        if runs[place].end is End.LAPSED and await mq.arun(metrics.state(queue, job_id)) is State.DEAD:
            marked[place] = replace(runs[place], buried=True)
    return tuple(marked)


async def _served(worker: Worker, ends_at: float | None, limit: timedelta | None, job_log: _Log) -> None:
    loop = asyncio.get_running_loop()
    serving = asyncio.ensure_future(worker.serve())
    try:
        await asyncio.wait([serving], timeout=None if ends_at is None else max(0.0, ends_at - loop.time()))
    except asyncio.CancelledError:
        await _ended(worker, serving)
        raise
    if serving.done():
        serving.result()
        return
    held = sum(consumer.in_hand for consumer in worker.consumers)
    await _ended(worker, serving)
    newest = "; the last that ended: " + ", ".join(map(str, job_log.runs[-3:])) if job_log.runs else ""
    raise DrainTimeoutError(
        f"drain is not done after {limit}: {len(job_log.runs)} runs have ended, {held} jobs were in hand and are "
        f"handed back{newest}; give it another timeout=, or end what goes on for ever"
    )


async def _ended(worker: Worker, serving: asyncio.Future[None]) -> None:
    worker.stop()
    worker.stop()
    with suppress(asyncio.CancelledError):
        await asyncio.wait([serving])
    if serving.done() and not serving.cancelled():
        serving.exception()


async def _hastened(mq: EchoMQ, job_log: _Log) -> int:
    """Lets what waits for a retry run at once; gives how many those were."""
    count = 0
    for queue, job_id in sorted(job_log.again):
        with suppress(StateError):
            await mq.arun(jobs.reschedule(queue, job_id, delay_ms=0))
            count += 1
    job_log.again.clear()
    return count


def _name(held: Held) -> str:
    try:
        return decode(held.job.payload).job
    except EnvelopeError:
        return ""


def _failure(queue: str, held: Held) -> BaseException | None:
    outcome: Any = held.outcome
    if not isinstance(outcome, Retry | Bury | Lapsed):
        return None
    job = held.job
    return failure_of(job.id, _name(held), queue, reason=outcome.error, failures=job.failures + 1, stalled=job.stalled)
