"""A function as a job: still callable as before, and with `enqueue`, `at`, `after`, `options` and `every` beside it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from dataclasses import fields, replace
from datetime import datetime, timedelta
from functools import cached_property, update_wrapper
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, Unpack

from echomq.app import envelope, recurrence
from echomq.app.arguments import Arguments, UnresolvedError
from echomq.app.bound import Bound
from echomq.app.definition import JobOptions
from echomq.app.envelope import NOTHING
from echomq.app.errors import JobDefinitionError
from echomq.app.handles import Job
from echomq.app.options import PLAIN, Options, OptionWords, When
from echomq.app.plain import is_promised
from echomq.app.recurrence import Recurrence
from echomq.app.returns import Returns
from echomq.app.times import Span, instant_ms, span_ms
from echomq.app.timing import CronWords, EveryWords
from echomq.identity.errors import InvalidInputError
from echomq.protocol.admission import Admitted
from echomq.protocol.checks import check_job
from echomq.protocol.replies import Admission

if TYPE_CHECKING:
    from echomq.app.echomq import EchoMQ
    from echomq.app.holes import Holes

P = ParamSpec("P")
R = TypeVar("R")


class TimedJob(Generic[P, R]):
    """A job whose time is settled; what is left are other options and its arguments."""

    def __init__(self, job: JobFunction[P, R], options: Options) -> None:
        self._job = job
        self._options = options

    def __repr__(self) -> str:
        said = [f"{each.name}={value!r}" for each in fields(Options) if (value := getattr(self._options, each.name))]
        return f"<{type(self).__name__} {self._job.name} {', '.join(said)}>"

    @property
    def job(self) -> JobFunction[P, R]:
        """The job itself, without options."""
        return self._job

    def options(self, **options: Unpack[OptionWords]) -> TimedJob[P, R]:
        """The job with options of this send: `send.options(lane="acme", dedup="k").enqueue(...)`.

        `queue`: another queue than the job's own. `lane`: any text; each lane of a queue gets its share of the
        workers. `dedup`: a key, or a `Dedup`; while a living job of the queue holds it, there is no second one.
        `max_attempts`: in the place of the job's own. `expires`: a timedelta; the job does not start later than this
        after the instant that it is sent for. `timeout`: a timedelta; how long one run may take. `result_ttl`: a
        timedelta; how long its result is kept, zero for not at all. `meta`: a mapping that travels with it. Called
        again, it adds to them, and the last word counts.
        """
        return TimedJob(self._job, self._chosen(options))

    def _chosen(self, words: OptionWords) -> Options:
        chosen = self._options.chosen(words)
        return chosen if chosen.queue is None else replace(chosen, queue=self._job.mq.queue_name(chosen.queue))

    def s(self, *args: P.args, **kwargs: P.kwargs) -> Bound[R]:
        """The call as a value, to be sent with others: `mq.enqueue_many(send.s(to) for to in everybody)`.

        Raises what `enqueue` raises before it sends.
        """
        job = self._job
        options = job.stamped(self._options)
        if is_promised(args) or (kwargs and is_promised(kwargs.values())):
            encoded, found = job.promised(args, kwargs, options)
            bound = Bound(job, options, encoded, tuple(found))
        else:
            bound = Bound(job, options, job.encoded(args, kwargs, options))
        self._where()
        return bound

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """Sends the job and waits until the server has it.

        `TypeError` for arguments that the function does not take, `InvalidInputError` for values that cannot
        be sent; both before anything is sent. Warns once when called on a running event loop: use `aenqueue`.
        """
        job = self._job
        options = job.stamped(self._options)
        payload = job.payload(args, kwargs, options)
        job.mq.warn_on_a_loop("enqueue")
        queue = self._where()
        return self._handle(queue, job.mq.admit(job.name, queue, payload, options))

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        """`enqueue`, awaited. Jobs that are sent at the same time travel in one flight."""
        job = self._job
        options = job.stamped(self._options)
        payload = job.payload(args, kwargs, options)
        queue = self._where()
        return self._handle(queue, await job.mq.aadmit(job.name, queue, payload, options))

    def _handle(self, queue: str, admitted: Admitted) -> Job[R]:
        job, duplicate = self._job, admitted.verdict is Admission.DUPLICATE
        return Job(admitted.id, job.name, queue, duplicate, job.mq, duplicate or job.keeps(self._options))

    def handle(self, job_id: str) -> Job[R]:
        """The handle of a job of this function that was sent somewhere else: `send.handle(job_id)`.

        In the job's own queue; `send.options(queue="mail").handle(job_id)` for another. Nothing is sent.
        `IdError` for what is no job's id.
        """
        job, queue = self._job, self._where()
        return Job(check_job(job_id), job.name, queue, False, job.mq)

    def _where(self) -> str:
        """The queue that it goes to, after a warning where no worker serves that: for methods that a user calls."""
        job, queue = self._job, self._options.queue
        return job.queue if queue is None else job.mq.asked(job.mq.placed(queue), above=1)

    if not TYPE_CHECKING:  # a type checker finds no such methods here, and says so before the program runs

        def at(self, *_, **__):
            """Refused: the time is settled."""
            raise InvalidInputError(f"job {self._job.name!r} has its time already: give either .at(...) or .after(...)")

        after = at


class BoundJob(TimedJob[P, R]):
    """A job that may be given a time."""

    def options(self, **options: Unpack[OptionWords]) -> BoundJob[P, R]:
        """See `TimedJob.options`."""
        return BoundJob(self._job, self._chosen(options))

    def at(self, when: datetime) -> TimedJob[P, R]:
        """The job, to run from an instant on, by the server's clock (protocol §5).

        An aware datetime, rounded up to whole milliseconds; one that has passed is at once. `InvalidInputError` for a
        naive one.
        """
        return TimedJob(self._job, self._options.timed(When(at_ms=instant_ms("at", when))))

    def after(self, delay: timedelta | None = None, /, **parts: Unpack[Span]) -> TimedJob[P, R]:
        """The job, to run after a delay from the server's now (protocol §5).

        A timedelta, or `weeks`, `days`, `hours`, `minutes`, `seconds` and `milliseconds`, which add up; rounded up to
        whole milliseconds. `InvalidInputError` for a delay that is not above zero.
        """
        return TimedJob(self._job, self._options.timed(When(delay_ms=span_ms("after", delay, parts))))

    def every(self, period: timedelta | None = None, /, *, name: str, **words: Unpack[EveryWords]) -> Recurrence[P, R]:
        """The job, again and again under a name: `send.every(hours=1, name="digest").register("all")` (protocol §9).

        The period is a timedelta, or `weeks`, `days`, `hours`, `minutes`, `seconds` and `milliseconds`, which add up;
        a whole number of milliseconds. `anchor` is a slot, `first_in` how long after its registration the first one
        is; `jitter`, `catch_up`, `overlap`, `start`, `end`, `max_runs` and `paused` are as `cron` has them. Slots are
        instants of the server's clock; they do not drift. `InvalidInputError` names a word that is wrong.
        """
        return recurrence.every(self._job, self._options, name, period, words)

    def cron(self, line: str, /, *, name: str, **words: Unpack[CronWords]) -> Recurrence[P, R]:
        """The job at the times of a cron line: `send.cron("30 2 * * *", name="nightly", tz="Europe/Berlin")`.

        Five fields or `@hourly`, `@daily`, `@weekly`, `@monthly`, `@yearly`, on the wall clock of `tz` (UTC unless
        given). A time that a spring forward leaves out runs at the first instant after the gap, one that an autumn
        repeats runs once; a line with `*` first in minute or hour runs every real time. `TimingWords` has the other
        words. `InvalidInputError` names one that is wrong.
        """
        return recurrence.cron(self._job, self._options, name, line, words)


class JobFunction(BoundJob[P, R]):
    """What `@mq.job` makes of a function. Calling it still calls the function, here and now."""

    def __init__(self, mq: EchoMQ, function: Callable[P, object], defaults: JobOptions) -> None:
        super().__init__(self, defaults.sends)
        itself: Any = self
        update_wrapper(itself, function)
        self.mq = mq
        self.function = function
        self.defaults = defaults
        self.name = defaults.name
        self.queue = mq.placed(defaults.queue)
        """The queue that it is sent to unless options name another."""
        self.is_coroutine = inspect.iscoroutinefunction(function)

    def __repr__(self) -> str:
        return f"<job {self.name} in {self.queue}>"

    def moved(self) -> None:
        """The app stands elsewhere, and so may its queue."""
        self.queue = self.mq.placed(self.defaults.queue)

    @cached_property
    def arguments(self) -> Arguments:
        """Its signature, read where the job is written, or else when it is first used: see `settle`."""
        return Arguments(self.name, self.function)

    def settle(self) -> bool:
        """Reads its signature, and says whether that could be done: a name in its annotations may be defined later.

        `JobDefinitionError` for what no later definition mends.
        """
        try:
            return bool(self.arguments)
        except UnresolvedError:
            return False

    @cached_property
    def returns(self) -> Returns:
        """What its function returns, by the annotation, read when it is first used."""
        return Returns(self.name, self.function, self.mq.codecs, self.mq.max_payload)

    def keeps(self, options: Options) -> bool:
        """Whether a job that is sent with these options leaves a result."""
        ttl_ms = options.result_ttl_ms
        return (self.defaults.result_ttl_ms if ttl_ms is None else ttl_ms) > 0

    def stamped(self, options: Options) -> Options:
        """These options with what the middleware of the app adds to `meta` for one send."""
        layers = self.mq.layers
        return options.stamped(layers, self.name, options.queue or self.queue) if layers.sends else options

    def payload(self, args: tuple[object, ...], kwargs: dict[str, object], options: Options | None = None) -> bytes:
        """The envelope of one call that is sent now, by default with the job's own options."""
        options = self._options if options is None else options
        encoded = self.encoded(args, kwargs, options)
        return encoded if options.expires_ms is None else Bound(self, options, encoded).payload

    def encoded(self, args: tuple[object, ...], kwargs: dict[str, object], options: Options) -> bytes:
        """The envelope of one call, but for what depends on when it is sent."""
        mq, more = self.mq, NOTHING if options is PLAIN else options.members()
        return envelope.encode(self.arguments, args, kwargs, more, codec=mq.codecs.first, max_bytes=mq.max_payload)

    def promised(self, args: tuple[object, ...], kwargs: dict[str, object], options: Options) -> tuple[bytes, Holes]:
        """The envelope of a call of which the children will know arguments, and which these are."""
        from echomq.app.holes import holes

        mq = self.mq
        places, words, found = holes(args, kwargs)
        more = {**options.members(), "takes": found}
        codec, most = mq.codecs.first, mq.max_payload
        return envelope.encode(self.arguments, places, words, more, codec=codec, max_bytes=most), found


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


def job_of(mq: EchoMQ, function: Callable[..., Any], options: JobOptions) -> JobFunction[..., Any]:
    """The job of a function that `check_function` lets pass."""
    kind = CoroutineJob[..., Any] if inspect.iscoroutinefunction(function) else PlainJob[..., Any]
    return kind(mq, function, options)
