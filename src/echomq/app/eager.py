"""`mq.eager()`: an app without a server, whose jobs run where and when they are sent (docs/testing.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self, TypeVar

from echomq.app.aside import AnyLoopAside
from echomq.app.background import Background
from echomq.app.clock import Clock
from echomq.app.dispatch import Dispatch
from echomq.app.drained import Drained, Draining
from echomq.app.enqueued import Enqueued, read
from echomq.app.errors import EagerError
from echomq.app.failures import failure_of
from echomq.app.flag import flag
from echomq.app.lifecycle import Lifecycle
from echomq.app.middleware import Layer
from echomq.app.options import PLAIN, Options
from echomq.app.patience import Patience
from echomq.app.trial import Trial
from echomq.identity.minter import mint
from echomq.protocol.admin import Cancellation
from echomq.protocol.admission import Admitted
from echomq.protocol.call import Call, Plan
from echomq.protocol.checks import payload_of
from echomq.protocol.follow import Follow
from echomq.protocol.lanes import lane_id
from echomq.protocol.replies import Admission, Claimed, State
from echomq.protocol.results import Ending
from echomq.runtime.outcome import DONE, Bury, Done, Outcome, Retry
from echomq.runtime.runner import InThread, is_awaitable
from echomq.wire.plans import drive_blocking

if TYPE_CHECKING:
    from types import TracebackType

    from echomq.app.context import JobContext
    from echomq.app.echomq import EchoMQ

T = TypeVar("T")

_SNOOZED: Final = Ending(State.SCHEDULED)


@dataclass(slots=True)
class _Kept:
    """A job that was sent, and what has become of it."""

    id: str
    queue: str
    payload: bytes
    group: str | None
    claims: int = 0
    failures: int = 0
    ending: Ending = field(default_factory=lambda: Ending(State.ACTIVE))
    progress: str | None = None
    log: list[str] = field(default_factory=list[str])

    def claimed(self) -> Claimed:
        self.claims += 1
        return Claimed(self.id, self.payload, self.claims, self.failures, 0, self.group)


_stand_in: Final = ContextVar["tuple[Eager, Background]"]("echomq stand-in")
"""The loop for the jobs of a coroutine that blocks on them, and what they send in their turn."""


class Eager(Trial):
    """Runs each job where it is sent: `with mq.eager():`, or `async with`.

    `enqueue` runs a plain function in the caller's thread, and a coroutine on a loop of its own: on another one where
    such a coroutine has called `enqueue` in its turn, and so keeps the first from going on. `aenqueue` awaits a
    coroutine on the caller's loop, and runs a plain function in a thread. Nothing else is waited for: the time of `at`
    and `after` has come at once, and so has that of a retry. A job that snoozes stays `SCHEDULED` for good. What
    follows a job (`on_success` and so on) runs right behind it. The start-up hooks, lifespans and dependencies of scope
    `worker` are begun when it is opened: on the loop of `async with`, else on its own.
    """

    def __init__(self, mq: EchoMQ, *, raise_errors: bool = False) -> None:
        super().__init__(mq)
        self._raise_errors = flag("raise_errors", raise_errors)
        self._loop = Background()
        self._life = Lifecycle()
        self._raised: dict[str, BaseException] = {}
        layers = [*mq.layers.around, Layer(None, None, self._caught)]
        self._dispatch = Dispatch(mq.names, Patience(0), self._life, layers)
        self._dispatch.aside = AnyLoopAside()
        self._jobs: dict[str, _Kept] = {}
        self._sent: list[Enqueued] = []
        self._lives_here = False

    # As a test

    @property
    def clock(self) -> Clock:
        """There is none: `EagerError`."""
        raise _no_server("mq.clock")

    def ahead_ms(self) -> int:
        """Nothing waits for a time."""
        return 0

    def enqueued(self) -> list[Enqueued]:
        """Every job that was sent since it was opened, in order, though all have run."""
        return list(self._sent)

    async def aenqueued(self) -> list[Enqueued]:
        """`enqueued`, awaited."""
        return self.enqueued()

    async def drain(self, how: Draining) -> Drained:  # noqa: ARG002  (there is nothing to do)
        """Nothing is left to run."""
        return Drained(scheduled=sum(job.ending is _SNOOZED for job in self._jobs.values()))

    # As a server

    def admit(self, queue: str, payload: bytes, options: Options) -> Admitted:
        """Runs a job, and says that it was admitted, whatever has become of it."""
        job = self._kept(queue, payload, options)
        with self._free() as loop:
            self._run(job, loop)
        return Admitted(Admission.ADMITTED, job.id)

    async def aadmit(self, queue: str, payload: bytes, options: Options) -> Admitted:
        """`admit`, awaited."""
        job = self._kept(queue, payload, options)
        # A task has a context of its own, so that what the job sets there stays with it.
        await asyncio.create_task(self._arun(job))
        return Admitted(Admission.ADMITTED, job.id)

    def ending(self, job_id: str) -> Ending:
        """What has become of a job."""
        job = self._jobs.get(job_id)
        return Ending(State.ABSENT) if job is None else job.ending

    def answer(self, work: Call[T] | Plan[T]) -> T:
        """What a server would say, as far as that is known here; `EagerError` for the rest."""
        return self._said(work) if isinstance(work, Call) else drive_blocking(work, self._said)

    def refuse(self, what: str) -> NoReturn:
        """What needs a server: `EagerError`."""
        raise _no_server(what)

    def _said(self, call: Call[Any]) -> Any:
        job = self._jobs.get(call.subject)
        match call.verb:
            case "state":
                return State.ABSENT if job is None else job.ending.state
            case "read progress":
                return None if job is None or job.ending.is_final else job.progress
            case "progress" if job is not None:
                job.progress = _text(call.args[0])
                return True
            case "add log" if job is not None:
                job.log.append(_text(call.args[0]))
                return len(job.log)
            case "cancel job":
                if job is None or job.ending is not _SNOOZED:
                    return Cancellation.GONE
                job.ending = Ending(State.DEAD, error=_text(call.args[1]), failures=job.failures)
                return Cancellation.DEAD
            case _:
                raise _no_server(f"the verb {call.verb!r}")

    # Running

    def _kept(self, queue: str, payload: bytes, options: Options, job_id: str | None = None) -> _Kept:
        group = None if options.lane is None else lane_id(options.lane)
        job = _Kept(job_id or mint(), queue, payload, group)
        self._jobs[job.id] = job
        self._sent.append(_record(self.mq, job, options))
        return job

    @contextmanager
    def _free(self) -> Generator[Background]:
        """The loop; or, for what runs on it and so blocks it meanwhile, another one."""
        eager, loop = _stand_in.get((self, self._loop))
        if eager is not self:
            loop = self._loop
        if not loop.is_here:
            yield loop
            return
        other = Background()
        token = _stand_in.set((self, other))
        try:
            yield other
        finally:
            _stand_in.reset(token)
            other.close()

    def _run(self, job: _Kept, loop: Background) -> None:
        again = True
        while again:
            routed = loop.run(self._routed(job))
            if isinstance(routed, InThread):
                routed = routed.run()
                if is_awaitable(routed):
                    routed = loop.run(_awaited(routed))
            again, follows = self._settled(job, routed)
            for each in follows:
                self._run(self._following(job, each), loop)
        self._verdict(job)

    async def _arun(self, job: _Kept) -> None:
        again = True
        while again:
            routed = await self._routed(job)
            if isinstance(routed, InThread):
                routed = await asyncio.to_thread(routed.run)
                if is_awaitable(routed):
                    routed = await routed
            again, follows = self._settled(job, routed)
            for each in follows:
                await asyncio.create_task(self._arun(self._following(job, each)))
        self._verdict(job)

    async def _routed(self, job: _Kept) -> object:
        routed = self._dispatch.route(job.queue, job.claimed())
        return await routed if is_awaitable(routed) else routed

    def _settled(self, job: _Kept, value: object) -> tuple[bool, list[Follow]]:
        """Whether it runs again, and what follows it."""
        outcome = value if isinstance(value, Outcome) else DONE
        raised = self._raised.get(job.id)
        if raised is not None and not isinstance(raised, Exception | SystemExit):
            raise raised  # such as a KeyboardInterrupt: meant for the test, and not for the job
        match outcome:
            case Done(result, ttl_ms, then):
                job.ending = Ending(State.ABSENT, payload_of(result) if ttl_ms else None)
                return False, _these(then)
            case Retry(error, _, most, then, at_death):
                job.failures += 1
                if most is not None and job.failures < most:
                    return True, _these(then)
                job.ending = Ending(State.DEAD, error=error, failures=job.failures)
                return False, _these(then, at_death)
            case Bury(error, at_death):
                job.ending = Ending(State.DEAD, error=error, failures=job.failures)
                return False, _these(at_death)
            case _:
                job.ending = _SNOOZED
                return False, []

    def _following(self, job: _Kept, follow: Follow) -> _Kept:
        return self._kept(job.queue, payload_of(follow.payload), PLAIN, follow.id)

    def _verdict(self, job: _Kept) -> None:
        raised = self._raised.pop(job.id, None)
        if self._raise_errors and job.ending.state is State.DEAD:
            name = read(self.mq, job.payload)[0]
            reason, failures = job.ending.error, job.ending.failures
            raise raised or failure_of(job.id, name, job.queue, reason=reason, failures=failures, stalled=0)

    async def _caught(self, job: JobContext, error: BaseException) -> None:
        self._raised[job.id] = error

    # Life

    def _open(self) -> None:
        self._takes(replace(self.mq.ground, trial=self, eager=self))
        if self._has_life() and not self._lives_here:
            try:
                self._loop.run(self._life.start(self.mq.life))
            except BaseException:
                self._close()
                raise

    def _close(self) -> None:
        try:
            if not self._lives_here and self._has_life():
                self._loop.run(self._life.stop())
        finally:
            self._gives_back()
            self._dispatch.aside.close()
            self._loop.close()

    def _has_life(self) -> bool:
        for job in self.mq.jobs.values():
            self._life.needs(job.arguments.needs.values())
        return bool(self.mq.life or self._life.is_needed)

    async def __aenter__(self) -> Self:
        self._lives_here = True
        self._open()
        try:
            self._has_life()
            await self._life.start(self.mq.life)
        except BaseException:
            self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._life.stop()
        finally:
            self._close()


def _no_server(what: str) -> EagerError:
    return EagerError(
        f"{what} needs a server, and in mq.eager() there is none: each job has run when it is sent; use mq.testing()"
    )


async def _awaited(work: Awaitable[object]) -> object:
    return await work


def _these(*follows: Follow | None) -> list[Follow]:
    return [each for each in follows if each is not None]


def _record(mq: EchoMQ, job: _Kept, options: Options) -> Enqueued:
    from echomq.runtime.calendar import instant

    name, args, kwargs, meta = read(mq, job.payload)
    timed = options.when.at_ms is not None or options.when.delay_ms is not None
    run_at = instant(options.when.expected_ms()) if timed else None
    state = State.SCHEDULED if timed else State.PENDING
    return Enqueued(job.id, name, args, kwargs, job.queue, lane=options.lane, run_at=run_at, meta=meta, state=state)


def _text(arg: object) -> str:
    return str(arg, "utf-8") if isinstance(arg, bytes) else str(arg)
