"""What a test may say of the jobs that wait: `mq.enqueued(send)`, and `mq.assert_enqueued(send, "a@b.c")`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from echomq.app.bound import Bound
from echomq.app.envelope import decode, opened
from echomq.app.errors import EnvelopeError
from echomq.app.job import TimedJob
from echomq.app.text import nearest
from echomq.app.times import first_ms, instant_ms
from echomq.identity.branded import unix_ms
from echomq.identity.errors import InvalidInputError
from echomq.protocol import survey, survey_lanes
from echomq.protocol.call import Plan
from echomq.protocol.checks import integer, name_of
from echomq.protocol.discover import held
from echomq.protocol.replies import State

if TYPE_CHECKING:
    from echomq.app.echomq import EchoMQ

_PAGE: Final = 1_000
_WHOLE: Final = 1 << 40
_SHOWN: Final = 5

What: TypeAlias = TimedJob[..., Any] | Bound[Any] | str
"""A job, a call of one (`send.s("a@b.c")`), or the name of a job."""


@dataclass(frozen=True, slots=True)
class Enqueued:
    """A job that waits, as a worker would be given it."""

    id: str
    name: str
    """The job's name now, also where it waits under an alias; "" for a payload that no app has written."""
    args: tuple[Any, ...]
    """As its function would get them, by the annotations; as JSON has them where the app does not know the job."""
    kwargs: dict[str, Any]
    queue: str
    lane: str | None = None
    """The text that the lane was named by, or its id where nobody has said it."""
    run_at: datetime | None = None
    """When it is due, by the server's clock and in UTC, as `mq.clock` has moved it; None when it could run now."""
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])
    state: State = State.PENDING
    """`PENDING`, `SCHEDULED`, or `AWAITING_CHILDREN` for a flow's parent."""
    failures: int = 0
    """How often it has failed."""

    def __str__(self) -> str:
        where = f" in {self.queue}" + (f", lane {self.lane}" if self.lane is not None else "")
        when = "" if self.run_at is None else f", at {self.run_at.isoformat(timespec='milliseconds')}"
        held_back = ", held for its children" if self.state is State.AWAITING_CHILDREN else ""
        return f"{self.name or 'a payload of no app'}{_said(self.args, self.kwargs)}{where}{when}{held_back}"


def _said(args: Sequence[object], kwargs: Mapping[str, object]) -> str:
    return f"({', '.join([*map(repr, args), *(f'{name}={value!r}' for name, value in kwargs.items())])})"


def waiting(mq: EchoMQ, queues: Iterable[str]) -> Plan[list[Enqueued]]:
    """Every job that waits in some queues, in the order of their ids."""
    found: list[Enqueued] = []
    for queue in queues:
        groups: tuple[str, ...] = yield from survey_lanes.lane_groups(queue, waiting=True)
        seen: list[survey.SeenJob] = []
        for state, group in [(State.PENDING, None), (State.SCHEDULED, None), *((State.PENDING, g) for g in groups)]:
            seen += yield from _paged(queue, state, group)
        parents: tuple[str, ...] = yield from held(queue, limit=_PAGE)
        if parents:
            part: survey.Jobs = yield survey.jobs(queue, parents, cut=_WHOLE)
            seen += [job for job in part.jobs if job.state is State.AWAITING_CHILDREN]
        texts = yield from _texts(queue, sorted({job.group for job in seen if job.group is not None}))
        found += [_enqueued(mq, queue, job, texts) for job in seen]
    return sorted(found, key=lambda job: job.id)


def _paged(queue: str, state: State, group: str | None) -> Plan[list[survey.SeenJob]]:
    found: list[survey.SeenJob] = []
    while True:
        page: survey.Jobs = yield survey.page(queue, state, group=group, first=len(found), count=_PAGE, cut=_WHOLE)
        found += page.jobs
        if len(page.jobs) < _PAGE:
            return found


def _texts(queue: str, groups: Sequence[str]) -> Plan[dict[str, str]]:
    found: dict[str, str] = {}
    for start in range(0, len(groups), _PAGE):
        lanes: tuple[survey_lanes.Lane, ...] = yield survey_lanes.lanes(queue, groups[start : start + _PAGE])
        found.update({lane.group: lane.text for lane in lanes if lane.text is not None})
    return found


def _enqueued(mq: EchoMQ, queue: str, seen: survey.SeenJob, texts: Mapping[str, str]) -> Enqueued:
    from echomq.runtime.calendar import instant

    name, args, kwargs, meta = read(mq, seen.payload)
    return Enqueued(
        seen.id,
        name,
        args,
        kwargs,
        queue,
        lane=None if seen.group is None else texts.get(seen.group, seen.group),
        run_at=instant(seen.at_ms) if seen.state is State.SCHEDULED and seen.at_ms is not None else None,
        meta=meta,
        state=seen.state,
        failures=seen.failures,
    )


def read(mq: EchoMQ, payload: bytes) -> tuple[str, tuple[Any, ...], dict[str, Any], dict[str, Any]]:
    """The name, the arguments and the meta in a payload."""
    try:
        envelope = decode(payload)
        if envelope.codec is not None and (codec := mq.codecs.get(envelope.codec)) is not None:
            envelope = opened(envelope, codec)
    except EnvelopeError:
        return "", (), {}, {}
    meta = dict(envelope.meta or {})
    job = mq.names.get(envelope.job)
    if job is None:
        return envelope.job, tuple(envelope.args), dict(envelope.kwargs), meta
    try:
        args, kwargs = job.arguments.incoming(envelope.args, envelope.kwargs)
    except EnvelopeError:
        args, kwargs = tuple(envelope.args), envelope.kwargs
    return job.name, args, dict(kwargs), meta


class Wanted:
    """What an assertion asks for. `InvalidInputError` for what no job can be."""

    def __init__(
        self,
        mq: EchoMQ,
        what: What,
        args: tuple[object, ...],
        *,
        queue: str | None = None,
        lane: str | None = None,
        at: datetime | None = None,
        within: timedelta,
    ) -> None:
        self._mq = mq
        self._within_ms = first_ms("within", within)
        self._queue = None if queue is None else mq.queue_name(queue)
        self._lane = None if lane is None else name_of("lane", lane)
        self._at_ms = None if at is None else instant_ms("at", at)
        self._delay_ms: int | None = None
        self._said = ""
        self._named: dict[str, object] | None = None
        if isinstance(what, str):
            self.name = what
        elif isinstance(what, Bound):
            self.name = what.job.name
            self._takes(what)
        elif isinstance(what, TimedJob):
            self.name = what.job.name
        else:
            raise InvalidInputError(
                f"assert_enqueued takes a job, a call such as send.s('a@b.c'), or a job's name, not {what!r:.200}"
            )
        if args:
            if not isinstance(what, TimedJob):
                raise InvalidInputError("assert_enqueued takes arguments behind a job; a call has its own")
            self._takes(what.s(*args))

    def _takes(self, call: Bound[Any]) -> None:
        name, args, kwargs, _ = read(self._mq, call.payload)
        self._said = _said(args, kwargs)
        self._named = self._by_name(name, args, kwargs)
        options = call.options
        if self._queue is None and options.queue is not None:
            self._queue = call.queue
        if self._lane is None:
            self._lane = options.lane
        if self._at_ms is None:
            self._at_ms = options.when.at_ms
            self._delay_ms = options.when.delay_ms

    def __str__(self) -> str:
        where = "" if self._queue is None else f" in {self._queue}"
        lane = "" if self._lane is None else f", lane {self._lane}"
        when = ""
        if self._at_ms is not None:
            from echomq.runtime.calendar import instant

            when = f", at {instant(self._at_ms).isoformat(timespec='milliseconds')}"
        elif self._delay_ms is not None:
            when = f", after {timedelta(milliseconds=self._delay_ms)}"
        return f"{self.name}{self._said}{where}{lane}{when}"

    def differences(self, job: Enqueued) -> list[str]:
        """What keeps a job from being what is asked for, in words; none when it is."""
        if job.name != self.name:
            return [f"it is {job.name or 'no job of an app'}"]
        found = self._other_arguments(job)
        if self._queue is not None and job.queue != self._queue:
            found.append(f"it is in queue {job.queue}, not {self._queue}")
        if self._lane is not None and job.lane != self._lane:
            found.append(f"it is in {'no lane' if job.lane is None else f'lane {job.lane}'}, not {self._lane}")
        return found + self._other_time(job)

    def _other_arguments(self, job: Enqueued) -> list[str]:
        if self._named is None:
            return []
        has = self._by_name(job.name, job.args, job.kwargs)
        names = [name for name in {**self._named, **has} if self._named.get(name, ...) != has.get(name, ...)]
        return [f"{name} is {_shown(has, name)}, not {_shown(self._named, name)}" for name in names]

    def _other_time(self, job: Enqueued) -> list[str]:
        due_ms = self._at_ms
        if self._delay_ms is not None:
            due_ms = unix_ms(job.id) + self._delay_ms
        if due_ms is None:
            return []
        if job.run_at is None:
            return ["it can run now"]
        off_ms = round(job.run_at.timestamp() * 1_000) - due_ms
        if abs(off_ms) <= self._within_ms:
            return []
        return [f"it is due {timedelta(milliseconds=abs(off_ms))} {'later' if off_ms > 0 else 'earlier'}"]

    def _by_name(self, name: str, args: tuple[object, ...], kwargs: Mapping[str, object]) -> dict[str, object]:
        job = self._mq.names.get(name)
        if job is not None:
            try:
                return job.arguments.named(args, dict(kwargs))
            except TypeError:
                pass
        return {**{f"argument {place}": value for place, value in enumerate(args)}, **kwargs}


def chosen(mq: EchoMQ, jobs: list[Enqueued], what: What | None) -> list[Enqueued]:
    """Those of a job, by the job or its name; all of them for None."""
    if what is None:
        return jobs
    wanted = Wanted(mq, what, (), within=timedelta(0))
    return [job for job in jobs if not wanted.differences(job)]


def found(wanted: Wanted, jobs: list[Enqueued], times: int | None) -> Enqueued:
    """The first job that is what is asked for; `AssertionError`, with the nearest, when there are not as many."""
    __tracebackhide__ = True
    if times is not None:
        integer("times", times, least=1)
    matching = [job for job in jobs if not wanted.differences(job)]
    if matching and times in (None, len(matching)):
        return matching[0]
    if matching:
        raise AssertionError(f"{wanted} was enqueued {len(matching)} times, not {times}:{_listed(matching)}")
    raise AssertionError(f"{wanted} was not enqueued, or waits no longer;{_near(wanted, jobs)}")


def none_found(wanted: Wanted, jobs: list[Enqueued]) -> None:
    """`AssertionError`, with what there is, when there is any."""
    __tracebackhide__ = True
    if matching := [job for job in jobs if not wanted.differences(job)]:
        raise AssertionError(f"{wanted} was enqueued:{_listed(matching)}")


def _near(wanted: Wanted, jobs: list[Enqueued]) -> str:
    if not jobs:
        return " no job waits at all"
    same = [(wanted.differences(job), job) for job in jobs if job.name == wanted.name]
    if same:
        same.sort(key=lambda pair: len(pair[0]))
        lines = [f"\n  {job}\n    {'; '.join(differences)}" for differences, job in same[:_SHOWN]]
        more = len(same) - len(lines)
        return " the nearest:" + "".join(lines) + (f"\n  and {more} more of that name" if more > 0 else "")
    return f" of that name none waits; there are {nearest(wanted.name, {job.name for job in jobs})}:{_listed(jobs)}"


def _listed(jobs: list[Enqueued]) -> str:
    lines = "".join(f"\n  {job}" for job in jobs[:_SHOWN])
    return lines + (f"\n  and {len(jobs) - _SHOWN} more" if len(jobs) > _SHOWN else "")


def _shown(named: Mapping[str, object], name: str) -> str:
    return f"{named[name]!r:.200}" if name in named else "not there"
