"""A function as a job: still callable as before, and with `enqueue`, `at`, `after` and `every` beside it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property, update_wrapper
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from echomq.app import envelope
from echomq.app.arguments import Arguments
from echomq.app.errors import JobDefinitionError
from echomq.app.handles import Job
from echomq.app.recurrence import Recurrence
from echomq.app.times import Span, first_ms, instant_ms, period_ms, span_ms
from echomq.protocol import jobs
from echomq.protocol.backoff import Policy
from echomq.protocol.call import Call
from echomq.protocol.checks import name_of
from echomq.protocol.replies import Admission

if TYPE_CHECKING:
    from echomq.app.echomq import EchoMQ

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class JobOptions:
    """What `@mq.job(...)` says about a job."""

    name: str
    queue: str
    max_attempts: int
    backoff: Policy


@dataclass(frozen=True, slots=True)
class When:
    """When a job can be claimed: an instant on the caller's clock, a delay on the server's, or at once."""

    at_ms: int | None = None
    delay_ms: int | None = None

    def admit(self, queue: str, job_id: str, payload: bytes) -> Call[Admission]:
        """The call that admits the job for then."""
        if self.at_ms is not None:
            return jobs.enqueue_at(queue, job_id, payload, at_ms=self.at_ms)
        if self.delay_ms is not None:
            return jobs.enqueue_in(queue, job_id, payload, delay_ms=self.delay_ms)
        return jobs.enqueue(queue, job_id, payload)


NOW = When()


class BoundJob(Generic[P, R]):
    """A job with its options chosen; what is left are its arguments."""

    def __init__(self, job: JobFunction[P, R], when: When) -> None:
        self._job = job
        self._when = when

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._job.name} {self._when}>"

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Sends the job and waits until the server has it.

        `TypeError` for arguments that the function does not take, `InvalidInputError` for values that cannot
        be sent; both before anything is sent. Warns once when called on a running event loop: use `aenqueue`.
        """
        job = self._job
        payload = job.payload(args, kwargs)
        job.mq.warn_on_a_loop("enqueue")
        return Job(job.mq.admit(job.name, job.queue, payload, self._when), job.name, job.queue)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """`enqueue`, awaited. Jobs that are sent at the same time travel in one flight."""
        job = self._job
        payload = job.payload(args, kwargs)
        return Job(await job.mq.aadmit(job.name, job.queue, payload, self._when), job.name, job.queue)


class JobFunction(BoundJob[P, R]):
    """What `@mq.job` makes of a function. Calling it still calls the function, here and now."""

    def __init__(self, mq: EchoMQ, function: Callable[P, object], options: JobOptions) -> None:
        super().__init__(self, NOW)
        itself: Any = self
        update_wrapper(itself, function)
        self.mq = mq
        self.function = function
        self.options = options
        self.name = options.name
        self.queue = options.queue
        self.is_coroutine = inspect.iscoroutinefunction(function)

    def __repr__(self) -> str:
        return f"<job {self.name} in {self.queue}>"

    @cached_property
    def arguments(self) -> Arguments:
        """Its signature, read when it is first used: by then every name in its annotations is known."""
        return Arguments(self.name, self.function)

    def payload(self, args: tuple[object, ...], kwargs: dict[str, object]) -> bytes:
        """The envelope of one call."""
        return envelope.encode(self.arguments, args, kwargs, max_bytes=self.mq.max_payload)

    def at(self, when: datetime) -> BoundJob[P, R]:
        """The job, to run from an instant on. An aware datetime; one that has passed is at once."""
        return BoundJob(self, When(at_ms=instant_ms("at", when)))

    def after(
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
    ) -> BoundJob[P, R]:
        """The job, to run after a delay from the server's now: a timedelta, or `minutes=5` and the like."""
        span = Span(weeks, days, hours, minutes, seconds, milliseconds)
        return BoundJob(self, When(delay_ms=span_ms("after", delay, span)))

    def every(
        self,
        period: timedelta | None = None,
        /,
        *,
        name: str,
        weeks: float = 0,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        milliseconds: float = 0,
        first_in: timedelta = timedelta(0),
    ) -> Recurrence[P]:
        """The job, again and again under a name: `send.every(hours=1, name="digest").register("all")`.

        The first run is `first_in` after its registration, at once by default.
        """
        span = Span(weeks, days, hours, minutes, seconds, milliseconds)
        return Recurrence(
            self,
            name_of("the name of a recurrence", name),
            period_ms("every", period, span),
            first_ms("first_in", first_in),
        )


class PlainJob(JobFunction[P, R]):
    """A job whose function is plain; a worker runs it in a thread."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls the function, here and now."""
        function: Any = self.function
        result: R = function(*args, **kwargs)
        return result


class CoroutineJob(JobFunction[P, R]):
    """A job whose function is a coroutine; a worker awaits it on its loop."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Calls the function, here and now; the caller awaits it."""
        function: Any = self.function
        coroutine: Coroutine[Any, Any, R] = function(*args, **kwargs)
        return coroutine


def check_function(function: object) -> None:
    """`JobDefinitionError` for what cannot be a job."""
    if isinstance(function, JobFunction):
        raise JobDefinitionError(f"{function.name} is a job already; write @mq.job once")
    if inspect.isclass(function):
        raise JobDefinitionError(f"{function!r} is a class; a job is a function, plain or async")
    if not callable(function):
        raise JobDefinitionError(f"{function!r} is not a function; a job is a function, plain or async")
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise JobDefinitionError(f"{function!r} is a generator (it yields); a job is a function that returns")
    parameters = getattr(getattr(function, "__code__", None), "co_varnames", ())
    if parameters[:1] in (("self",), ("cls",)):
        raise JobDefinitionError(f"{function!r} looks like a method; a job is a function outside of a class")
