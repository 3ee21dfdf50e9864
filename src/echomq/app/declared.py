"""Schedules that code declares: `@mq.job(schedule=Every(hours=1))`, brought in line with the server at worker start."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias, Unpack

from echomq.app.depends import signature_of
from echomq.app.errors import JobDefinitionError, SerializationError
from echomq.app.recurrence import Recurrence
from echomq.app.registering import Registered
from echomq.app.renamed import end_former, owner_of, take_over
from echomq.app.schedule import ScheduleInfo, schedules
from echomq.app.timing import CronWords, EveryWords, Timing, cron_timing, every_timing
from echomq.identity.errors import InvalidInputError
from echomq.protocol import cron
from echomq.protocol.call import Plan
from echomq.protocol.checks import name_of
from echomq.protocol.errors import ServerError
from echomq.protocol.repeat import Registration

if TYPE_CHECKING:
    from echomq.app.echomq import EchoMQ
    from echomq.app.job import JobFunction

log: Final = logging.getLogger("echomq.worker")

_NO_KWARGS: Final[Mapping[str, object]] = {}


class Declared:
    """What `Every` and `Cron` have in common: a timing, a name, and arguments."""

    def __init__(self, timing: Timing, name: str | None, args: Iterable[object], kwargs: Mapping[str, object]) -> None:
        self.timing = timing
        self.name = None if name is None else name_of("the name of a recurrence", name)
        if not isinstance(args, Iterable) or isinstance(args, (str, bytes)):
            raise InvalidInputError(
                f"args of a schedule must be a list of arguments, as in args=[5], not {args!r:.200}"
            )
        if not isinstance(kwargs, Mapping) or not all(isinstance(word, str) for word in kwargs):
            raise InvalidInputError(
                f"kwargs of a schedule must be a mapping of names to arguments, not {kwargs!r:.200}"
            )
        self.args = tuple(args)
        self.kwargs = dict(kwargs)

    def __repr__(self) -> str:
        said = self.timing.definition
        when = f"{said.every_ms} ms" if said.every_ms is not None else f"{said.line!r}, tz={said.tz!r}"
        return f"{type(self).__name__}({when}{'' if self.name is None else f', name={self.name!r}'})"


class Every(Declared):
    """`@mq.job(schedule=Every(hours=1))`: the words are those of `send.every(...)`.

    `name`: the job's own name unless given. `args`, `kwargs`: the arguments of each occurrence.
    """

    def __init__(
        self,
        period: timedelta | None = None,
        /,
        *,
        name: str | None = None,
        args: Iterable[object] = (),
        kwargs: Mapping[str, object] = _NO_KWARGS,
        **words: Unpack[EveryWords],
    ) -> None:
        super().__init__(every_timing(period, words), name, args, kwargs)


class Cron(Declared):
    """`@mq.job(schedule=Cron("30 2 * * *", tz="Europe/Berlin"))`: the words are those of `send.cron(...)`.

    `name`: the job's own name unless given. `args`, `kwargs`: the arguments of each occurrence.
    """

    def __init__(
        self,
        line: str,
        /,
        *,
        name: str | None = None,
        args: Iterable[object] = (),
        kwargs: Mapping[str, object] = _NO_KWARGS,
        **words: Unpack[CronWords],
    ) -> None:
        super().__init__(cron_timing(line, words), name, args, kwargs)


ScheduleWord: TypeAlias = Every | Cron | Sequence[Every | Cron]
"""What `@mq.job(schedule=...)` takes."""


def declared(schedule: ScheduleWord | None) -> tuple[Declared, ...]:
    """The schedules of a decorator, checked as far as that can be done without the function."""
    if schedule is None:
        return ()
    wanted: Sequence[object] = schedule if isinstance(schedule, (list, tuple)) else (schedule,)
    found: list[Declared] = []
    for each in wanted:
        if not isinstance(each, Declared):
            raise JobDefinitionError(
                f"schedule must be Every(hours=1), Cron('30 2 * * *') or a list of these, not {each!r:.80}"
            )
        found.append(each)
    names = [each.name for each in found]
    for name in names:
        if names.count(name) > 1:
            said = "one name, the job's own" if name is None else f"the name {name!r}"
            raise JobDefinitionError(f"two schedules of a job have {said}: give each another name=...")
    return tuple(found)


def check_arguments(job: str, function: Callable[..., object], schedules: tuple[Declared, ...]) -> None:
    """`JobDefinitionError` for a schedule without the arguments that its job needs."""
    for each in schedules:
        try:
            signature_of(function).bind(*each.args, **each.kwargs)
        except TypeError as error:
            raise JobDefinitionError(
                f"job {job!r} cannot run by schedule={each!r}: {error}; give its arguments defaults, or say them with "
                f"{type(each).__name__}(..., args=(...), kwargs={{...}})"
            ) from None


def check_values(job: JobFunction[..., Any]) -> None:
    """`JobDefinitionError` for a schedule whose arguments do not fit the annotations of its job."""
    for each in job.defaults.schedules:
        try:
            job.arguments.outgoing(each.args, each.kwargs)
        except (TypeError, SerializationError) as error:
            raise JobDefinitionError(
                f"job {job.name!r} cannot run by schedule={each!r}: {error}; its args and kwargs are those of an "
                "enqueue(...)"
            ) from error


@dataclass(frozen=True, slots=True)
class Synced:
    """What a synchronisation did: what is declared, and what it removed, each by its queue and its name."""

    registered: dict[tuple[str, str], Registered]
    removed: tuple[tuple[str, str], ...]
    renamed: tuple[tuple[str, str, str], ...] = ()
    """What goes on under the new name of its job: its queue, the old name and the new one."""

    @property
    def changed(self) -> int:
        """How many it wrote."""
        return sum(each.verdict is not Registration.UNCHANGED for each in self.registered.values())


def sync(mq: EchoMQ, queues: Iterable[str], *, prune: bool = False) -> Plan[Synced]:
    """Makes the declared schedules of the jobs in `queues` be as the code says; harmless when many do it at once.

    One that the same code declared under an alias of its job goes on under the job's name, with its next run and its
    history. With `prune` it also ends those of these queues that code of the same packages declared once, and no longer
    does.
    """
    wanted = tuple(dict.fromkeys(queues))
    registered: dict[tuple[str, str], Registered] = {}
    renamed: list[tuple[str, str, str]] = []
    removed: list[tuple[str, str]] = []
    owners = {owner_of(job) for job in mq.jobs.values()}
    names = {(job.queue, each.name or job.name) for job in mq.jobs.values() for each in job.defaults.schedules}
    for job in mq.jobs.values():
        if job.queue not in wanted:
            continue
        for each in job.defaults.schedules:
            recurrence = Recurrence(job, job.defaults.sends, each.name or job.name, each.timing)
            old = [] if each.name else [name for name in job.defaults.aliases if (job.queue, name) not in names]
            was: str | None = yield from take_over(recurrence.queue, job, old)
            done = yield from recurrence.plan(each.args, each.kwargs, owner_of(job))
            registered[recurrence.queue, recurrence.name] = done
            renamed += [(recurrence.queue, was, recurrence.name)] if was else []
            ended: list[str] = yield from end_former(recurrence.queue, job, old)
            removed += [(recurrence.queue, name) for name in ended]
            if done.verdict is Registration.REGISTERED and done.next_run is None and not each.timing.paused:
                log.warning(
                    "the schedule %s of queue %s, declared by job %s, never runs: no slot lies between now and its end",
                    *(recurrence.name, recurrence.queue, job.name),
                )
    if prune:
        there: list[ScheduleInfo] = yield from schedules(wanted)
        for info in there:
            if info.declared_by in owners and (info.queue, info.name) not in registered:
                gone: bool = yield cron.cancel(info.queue, info.name)
                removed += [(info.queue, info.name)] * gone
    return Synced(registered, tuple(removed), tuple(renamed))


async def sync_at_start(mq: EchoMQ, queues: Iterable[str], *, prune: bool) -> None:
    """`sync`, as a worker does it before it begins: said in the log; a server that is full keeps no worker from it."""
    wanted = tuple(queues)
    if not prune and not any(job.defaults.schedules for job in mq.jobs.values() if job.queue in wanted):
        return
    conn = await mq.dial().aconnect("schedules")
    try:
        done = await conn.run(sync(mq, wanted, prune=prune))
    except ServerError as error:
        log.error("the declared schedules were not brought up to date: %s", error)
        return
    finally:
        await conn.close()
    for queue, old, new in done.renamed:
        log.info("the schedule %s of queue %s goes on as %s, as its job is named now", old, queue, new)
    ended = ", ".join(f"{name} of {queue}" for queue, name in done.removed)
    removed = f", removed {ended}" if ended else ""
    log.info("%d schedules are declared, %d new or changed%s", len(done.registered), done.changed, removed)
