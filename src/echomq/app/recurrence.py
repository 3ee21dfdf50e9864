"""A job that comes again: a registration by name that every worker's pump keeps firing (protocol §9)."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Generic, ParamSpec, TypeVar, cast

from echomq.app.options import Options
from echomq.app.registering import Registered, register
from echomq.app.schedule import Schedule
from echomq.app.timing import CronWords, EveryWords, Timing, cron_timing, every_timing
from echomq.identity.errors import InvalidInputError
from echomq.protocol.call import Plan
from echomq.protocol.checks import name_of
from echomq.protocol.lanes import lane_id
from echomq.protocol.recurring import Definition

if TYPE_CHECKING:
    from echomq.app.handles import Job
    from echomq.app.job import JobFunction

P = ParamSpec("P")
R = TypeVar("R")


class Recurrence(Schedule, Generic[P, R]):
    """A job with a timing and a name, ready to be registered with its arguments."""

    def __init__(self, job: JobFunction[P, R], options: Options, name: str, timing: Timing) -> None:
        super().__init__(job.mq, name_of("the name of a recurrence", name), options.queue or job.queue)
        check_expiry(timing, options)
        self._job = job
        self._options = options
        self._timing = timing

    def __repr__(self) -> str:
        said = self._timing.definition
        when = f"every {said.every_ms} ms" if said.every_ms is not None else f"at {said.line} {said.tz}"
        return f"<recurrence {self.name} of {self._job.name} {when}>"

    def register(self, *args: P.args, **kwargs: P.kwargs) -> Registered:
        """Registers it, or makes the recurrence of that name be like this; says which, and when it runs next.

        The next run is kept unless the timing changes, and so is a pause. Each occurrence is a fresh job with these
        arguments.

        Raises as `enqueue` does: `TypeError` and `InvalidInputError` before anything is sent, then `WireError` or
        `ServerError`.
        """
        plan = self._plan(args, kwargs)
        self.mq.asked(self.queue)
        self.mq.warn_on_a_loop("register")
        return self.mq.run(plan)

    async def aregister(self, *args: P.args, **kwargs: P.kwargs) -> Registered:
        """`register`, awaited."""
        plan = self._plan(args, kwargs)
        self.mq.asked(self.queue)
        return await self.mq.arun(plan)

    def run_now(self) -> Job[R]:
        """See `Schedule.run_now`: with the arguments that it is registered with."""
        self.mq.asked(self.queue)
        return cast("Job[R]", super().run_now())

    async def arun_now(self) -> Job[R]:
        """`run_now`, awaited."""
        self.mq.asked(self.queue)
        return cast("Job[R]", await super().arun_now())

    def plan(self, args: tuple[object, ...], kwargs: dict[str, object], owner: str = "") -> Plan[Registered]:
        """The registration as a plan; `owner` is whose code declares it."""
        template = self._job.encoded(args, kwargs, self._options)
        definition = _defined(self._timing, template, self._options, owner)
        return register(self.queue, self.name, definition, self._timing, self.mq.ahead_ms() or 0)

    def _plan(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Plan[Registered]:
        return self.plan(args, kwargs)


def every(
    job: JobFunction[P, R], options: Options, name: str, period: timedelta | None, words: EveryWords
) -> Recurrence[P, R]:
    """What `send.every(...)` gives."""
    return Recurrence(job, options, name, every_timing(period, words))


def cron(job: JobFunction[P, R], options: Options, name: str, line: str, words: CronWords) -> Recurrence[P, R]:
    """What `send.cron(...)` gives."""
    return Recurrence(job, options, name, cron_timing(line, words))


def check_expiry(timing: Timing, options: Options) -> None:
    """`InvalidInputError` for an `expires` that the jitter of a timing can outlast: such an occurrence never starts."""
    jitter_ms = timing.definition.jitter_ms
    if options.expires_ms is not None and options.expires_ms <= jitter_ms:
        raise InvalidInputError(
            f"expires of {options.expires_ms / 1_000:g} s counts from the slot, and its jitter can put an occurrence "
            f"off by {jitter_ms / 1_000:g} s: make expires longer than that"
        )


def _defined(timing: Timing, template: bytes, options: Options, owner: str) -> Definition:
    dedup = None if options.dedup is None else options.dedup.verb()
    return timing.of(
        template,
        group="" if options.lane is None else lane_id(options.lane),
        lane=options.lane or "",
        dedup="" if dedup is None else dedup.key,
        dedup_ms=0 if dedup is None else dedup.window_ms or 0,
        dedup_way="replace" if dedup is not None and dedup.replace else "keep",
        expires_in_ms=options.expires_ms,
        owner=owner,
    )
