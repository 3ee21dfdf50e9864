"""What `@mq.job(...)` says about a job, checked where it is written."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeAlias, TypedDict, TypeVar, cast, overload

from echomq.app.control import Instruction
from echomq.app.declared import Declared, ScheduleWord, check_arguments, check_values, declared
from echomq.app.errors import JobDefinitionError
from echomq.app.flag import flag
from echomq.app.follow import NONE as NO_FOLLOWERS
from echomq.app.follow import Followers, Named, followers
from echomq.app.naming import job_name
from echomq.app.options import PLAIN, Options
from echomq.app.recurrence import check_expiry
from echomq.app.text import check_words
from echomq.app.times import first_ms, limit_ms
from echomq.protocol.backoff import Fixed, Policy, check_policy
from echomq.protocol.checks import integer, name_of

if TYPE_CHECKING:
    from echomq.app.echomq import EchoMQ
    from echomq.app.job import CoroutineJob, JobFunction, PlainJob

P = ParamSpec("P")
R = TypeVar("R")

Errors: TypeAlias = type[BaseException] | tuple[type[BaseException], ...]
"""Types of exceptions, as `except` takes them."""

MAX_ATTEMPTS: Final = 3
BACKOFF: Final = Fixed(1_000)
RESULT_TTL: Final = timedelta(hours=1)
RESULT_TTL_MS: Final = first_ms("result_ttl", RESULT_TTL)


class JobWords(TypedDict, total=False):
    """What `@mq.job(...)` takes; None, where it is allowed, says nothing."""

    name: str | None
    """What payloads carry: by default `module.function`. One of your own lets the function move while jobs wait."""
    aliases: Iterable[str] | None
    """Names that the job had before, under which jobs may still wait."""
    queue: str | None
    """The queue it is sent to: the app's default queue unless given."""
    lane: str | None
    """The lane it is sent to, unless `options(lane=...)` names another."""
    max_attempts: int
    """How often it may fail before it is buried: 3 unless given."""
    backoff: Policy
    """The wait before each retry, on the server's clock: 1,000 ms unless given."""
    retry_on: Errors | None
    """The only failures that are tried again; every other one goes straight to the morgue."""
    discard_on: Errors | None
    """Failures that are never tried again, and go straight to the morgue."""
    timeout: timedelta | None
    """How long one run may take, unless it was sent with another."""
    result_ttl: timedelta
    """How long what it returns is kept for `job.result()`: an hour unless given; zero: not at all."""
    process: bool | None
    """Run it, a plain function, in a process beside the worker's: one that can be killed, and does no harm."""
    expires: timedelta | None
    """It does not start later than this after the instant that it is sent for, unless it is sent with another."""
    meta: Mapping[str, object] | None
    """A mapping that travels with it, unless it is sent with another."""
    schedule: ScheduleWord | None
    """`Every(hours=1)`, `Cron("30 2 * * *", tz="Europe/Berlin")`, or a list of these: registered at worker start."""
    on_success: Named
    """A job, or its name, that follows each completion: it gets a `Success`."""
    on_failure: Named
    """A job, or its name, that follows each attempt that has failed: it gets a `Failure`."""
    on_dead: Named
    """A job, or its name, that follows a burial, whatever its cause: it gets a `Failure`."""


_WORDS: Final = tuple(JobWords.__annotations__)


@dataclass(frozen=True, slots=True)
class JobOptions:
    """What is known of a job beside its function."""

    name: str
    queue: str
    max_attempts: int = MAX_ATTEMPTS
    backoff: Policy = BACKOFF
    aliases: tuple[str, ...] = ()
    timeout_ms: int | None = None
    result_ttl_ms: int = RESULT_TTL_MS
    process: bool = False
    retry_on: tuple[type[BaseException], ...] = ()
    """Empty: every failure is tried again."""
    discard_on: tuple[type[BaseException], ...] = ()
    sends: Options = PLAIN
    """What every send of it begins with."""
    schedules: tuple[Declared, ...] = ()
    """What it recurs by, as its code declares it."""
    follows: Followers = NO_FOLLOWERS

    def retries(self, error: BaseException) -> bool:
        """Whether a failure is worth another attempt."""
        # By its type: an error may have its own idea of its `__class__`.
        kind = type(error)
        return not issubclass(kind, self.discard_on) and (not self.retry_on or issubclass(kind, self.retry_on))


class JobDecorator:
    """`@mq.job(...)` with its options checked, waiting for the function."""

    def __init__(self, mq: EchoMQ, words: JobWords) -> None:
        check_words("job", words, _WORDS)
        self._mq = mq
        self._name = None if (name := words.get("name")) is None else name_of("the name of a job", name)
        self._options = _options(mq, words)
        self._follow = words.get("on_success"), words.get("on_failure"), words.get("on_dead")

    # A coroutine function is also a function that returns some R; the first overload that fits is the right one.
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> CoroutineJob[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> PlainJob[P, R]: ...

    def __call__(self, function: Callable[..., Any], /) -> JobFunction[..., Any]:
        """The job."""
        # Imported when used: a job's class needs to know what is defined here.
        from echomq.app.job import check_function, job_of

        check_function(function)
        name = self._name or name_for(function)
        check_arguments(name, function, self._options.schedules)
        for each in self._options.schedules:
            check_expiry(each.timing, self._options.sends)
        follows = followers(name, *self._follow)
        sends = self._options.sends.followed(follows.on_dead)
        job = job_of(self._mq, function, replace(self._options, name=name, follows=follows, sends=sends))
        if self._options.process and job.is_coroutine:
            raise JobDefinitionError(f"job {job.name!r} is a coroutine: process=True is for plain functions")
        if job.settle():
            check_values(job)
        self._mq.add(job)
        return job


def name_for(function: Callable[..., Any]) -> str:
    """The name of a function that was given none; `JobDefinitionError` when it has none."""
    name = getattr(function, "__qualname__", "")
    if not name or name.endswith("<lambda>"):
        raise JobDefinitionError(f"{function!r} has no name of its own: give it one with @mq.job(name=...)")
    return job_name(function)


def _options(mq: EchoMQ, words: JobWords) -> JobOptions:
    queue, timeout = words.get("queue"), words.get("timeout")
    process = False if (given := words.get("process")) is None else given
    most = integer("max_attempts", words.get("max_attempts", MAX_ATTEMPTS), least=1)
    retry_on = _errors("retry_on", words.get("retry_on"))
    discard_on = _errors("discard_on", words.get("discard_on"))
    for kind in retry_on:
        if issubclass(kind, discard_on):
            raise JobDefinitionError(
                f"retry_on and discard_on both speak of {kind.__qualname__}: an error is tried again or it is not"
            )
    if retry_on and most == 1:
        raise JobDefinitionError("max_attempts=1 lets nothing be tried again, so retry_on has no use: leave one out")
    return JobOptions(
        name="",
        queue=mq.own_default_queue if queue is None else mq.own_name(queue),
        max_attempts=most,
        backoff=check_policy(words.get("backoff", BACKOFF)),
        aliases=_aliases(words.get("aliases")),
        timeout_ms=None if timeout is None else limit_ms("timeout", timeout),
        result_ttl_ms=first_ms("result_ttl", words.get("result_ttl", RESULT_TTL)),
        process=flag("process", process),
        schedules=declared(words.get("schedule")),
        retry_on=retry_on,
        discard_on=discard_on,
        sends=PLAIN.chosen({"lane": words.get("lane"), "expires": words.get("expires"), "meta": words.get("meta")}),
    )


def _aliases(names: Iterable[str] | None) -> tuple[str, ...]:
    if names is None:
        return ()
    if isinstance(names, str):
        raise JobDefinitionError(f"aliases must be a list of names, not a text; write aliases=[{names!r:.200}]")
    if not isinstance(names, Iterable):
        raise JobDefinitionError(f"aliases must be a list of names, not {names!r:.200}")
    return tuple(dict.fromkeys(name_of("an alias of a job", name) for name in names))


def _errors(what: str, given: object) -> tuple[type[BaseException], ...]:
    if given is None:
        return ()
    kinds: tuple[object, ...] = cast("tuple[object, ...]", given) if isinstance(given, tuple) else (given,)
    if not kinds:
        raise JobDefinitionError(f"{what} is empty: name one type of exception or more, or leave it out")
    out: list[type[BaseException]] = []
    for kind in kinds:
        if not isinstance(kind, type) or not issubclass(kind, BaseException):
            raise JobDefinitionError(f"{what} takes a type of exception or a tuple of them, not {kind!r:.200}")
        if issubclass(kind, Instruction):
            raise JobDefinitionError(
                f"{what} is about failures, and {kind.__qualname__} is no failure: what it says is done anyway"
            )
        out.append(kind)
    return tuple(out)
