"""What a worker does with a job in hand: decode it, find its function, call it, say what became of it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from contextvars import copy_context
from functools import lru_cache, partial
from typing import Any, Final, TypeAlias

from echomq.app.around import Around
from echomq.app.aside import Aside
from echomq.app.codec import missing
from echomq.app.context import JobContext
from echomq.app.control import Cancelled, Discard, Snooze, asked_again
from echomq.app.envelope import Envelope, decode, opened, renamed
from echomq.app.errors import EnvelopeError
from echomq.app.filling import Filling
from echomq.app.follow import NONE
from echomq.app.job import JobFunction
from echomq.app.joblog import Line
from echomq.app.lifecycle import Lifecycle
from echomq.app.middleware import Layer
from echomq.app.patience import Patience
from echomq.app.pool import CellDiedError, CellUnavailableError, Pool
from echomq.app.succession import Succession
from echomq.app.text import cut, nearest
from echomq.identity.minter import wall_clock_ms
from echomq.protocol.backoff import delay_ms
from echomq.protocol.errors import JobCancelledError
from echomq.protocol.replies import Claimed
from echomq.runtime.cancel import LOST, current
from echomq.runtime.hand import Held
from echomq.runtime.outcome import (
    DONE,
    RELEASED,
    Bury,
    Done,
    Lapsed,
    Later,
    Outcome,
    Retry,
    failure_text,
    traceback_of,
)
from echomq.runtime.runner import InThread, is_awaitable

log: Final = logging.getLogger("echomq.worker")

_UNWIND_S: Final = 1.0
"""How long a coroutine in a process of its own may take to end once its time is over, before that is killed."""


def _mover(limit: asyncio.Timeout) -> Callable[[int], None]:
    """What moves a coroutine's time limit, from any thread."""
    loop = asyncio.get_running_loop()

    def moved(more_ms: int) -> None:
        with suppress(RuntimeError):  # it is over
            limit.reschedule((limit.when() or loop.time()) + more_ms / 1_000)

    def move(more_ms: int) -> None:
        if limit.expired():
            raise Cancelled("its time is over")
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(moved, more_ms)

    return move


async def _is_taken_back() -> bool:
    """Whether a cancelled coroutine was cancelled by its worker, not by what it has done itself."""
    task = asyncio.current_task()
    if task is None or not task.cancelling():
        return False
    held = current.get(None)
    if not isinstance(held, Held):
        return True
    await asyncio.sleep(0)  # where all tasks are cancelled at once, the worker has to learn of it first
    return held.interrupted


@lru_cache(maxsize=1_024)
def _nothing(ttl_ms: int) -> Done:
    """The outcome of a job that has returned None."""
    return Done(b"", ttl_ms) if ttl_ms else DONE


class Dispatch:
    """The handler of a worker's consumers: `route` is called on the loop and never blocks it.

    `life` has what the worker has begun with, `layers` the hooks around every job. `alone`: this is a cell, which runs
    one job for a worker that knows when its time is over.
    """

    def __init__(
        self,
        jobs: Mapping[str, JobFunction[..., Any]],
        patience: Patience,
        life: Lifecycle | None = None,
        layers: list[Layer] | None = None,
        *,
        alone: bool = False,
    ) -> None:
        self._jobs = jobs
        self._patience = patience
        self._life = life or Lifecycle()
        self._layers = layers or []
        self._alone = alone
        self.succession = Succession(jobs)
        # What follows a cell's job is its worker's business.
        self._followed: Callable[[*Parts], Run] = Run if alone else partial(FollowedRun, self.succession)
        self.pool: Pool | None = None
        """Processes for jobs that are to have one, and for those that have lapsed before."""
        self.aside = Aside()
        self.in_threads = set[Run]()
        """Calls of plain functions that have not returned."""
        self.begun = 0
        """How many runs it has begun: not those of jobs that are put off or buried as they are."""

    def route(self, queue: str, claimed: Claimed) -> Outcome | InThread | Awaitable[Outcome]:
        """An outcome at once for what cannot be run, else the work: awaited, or in a thread."""
        try:
            envelope = decode(claimed.payload)
            job = self._jobs.get(envelope.job)
            if job is None:
                return self._unknown(claimed, envelope.job)
            if envelope.job != job.name:
                envelope = renamed(envelope, job.name)
            token = current.get(None)
            if envelope.expires_ms is not None and wall_clock_ms() > envelope.expires_ms:
                if isinstance(token, Held):
                    token.run = Line(claimed, job, envelope)
                return Bury(f"expired: it was not to start after {envelope.expires_ms} (Unix ms)")
            if self.pool is not None and (claimed.stalled or job.defaults.process):
                return self._elsewhere(self.pool, queue, claimed, job, envelope)
            if envelope.codec is not None:
                if (codec := job.mq.codecs.get(envelope.codec)) is None:
                    return self._patient(claimed, missing(envelope.codec, job.mq.codecs))
                envelope = opened(envelope, codec)
            calls = None if envelope.takes is None else Filling(queue, claimed, job, envelope)
            args, kwargs = ((), {}) if calls else job.arguments.incoming(envelope.args, envelope.kwargs)
        except EnvelopeError as error:
            return Bury(str(error))
        context = JobContext(job.mq, queue, claimed, envelope, token, self._life.state)
        needs = job.arguments.needs
        around = Around(context, self._layers, needs, self._life.values, self.aside) if self._layers or needs else None
        make = Run if job.defaults.follows is NONE else self._followed
        run = make(claimed, job, envelope, context, around)
        self.begun += 1
        if isinstance(token, Held):
            token.run = run
        if job.is_coroutine:
            return run.awaited(args, kwargs) if calls is None else calls.awaited(run.awaited)
        # The context of the loop at this moment, as `asyncio.to_thread` would hand it on.
        here = copy_context()
        return InThread(
            lambda: here.run(self._call, run, args, kwargs, calls),
            None if self._alone else run.timeout_ms,
            run.outlasted,
        )

    async def _elsewhere(
        self, pool: Pool, queue: str, claimed: Claimed, job: JobFunction[..., Any], envelope: Envelope
    ) -> Outcome:
        """The outcome of a job that runs in another process."""
        token = current.get(None)
        context = JobContext(job.mq, queue, claimed, envelope, token)
        make = Run if job.defaults.follows is NONE else self._followed
        run = make(claimed, job, envelope, context, None)
        self.begun += 1
        if isinstance(token, Held):
            token.run = run
        context.enter(run.timeout_ms)
        limit_s = None if run.timeout_ms is None else run.timeout_ms / 1_000
        if limit_s is not None and job.is_coroutine:
            limit_s += _UNWIND_S
        try:
            fresh = claimed.stalled > 0
            return run.ended(await pool.run(queue, claimed, fresh=fresh, limit_s=limit_s, granted=context.grant))
        except CellDiedError as error:
            return Lapsed(str(error))
        except TimeoutError:
            return run.killed()
        except CellUnavailableError as error:
            wait_ms = self._patience.wait_ms(claimed.id, claimed.attempts)
            if wait_ms is None:
                return Bury(str(error))
            self.begun -= 1
            log.error("%s %s: %s; %s", claimed.id, job.name, error, self._prospect(claimed, wait_ms))
            return Later(wait_ms, yield_time=True)

    def _call(
        self, run: Run, args: tuple[object, ...], kwargs: dict[str, object], calls: Filling | None = None
    ) -> object:
        self.in_threads.add(run)
        try:
            return run.called(args, kwargs) if calls is None else calls.called(run.called)
        finally:
            self.in_threads.discard(run)

    def _unknown(self, claimed: Claimed, name: str) -> Outcome:
        near = nearest(name, self._jobs)
        return self._patient(claimed, f"unknown job {cut(name)!r}; this worker knows: {near}")

    def _patient(self, claimed: Claimed, why: str) -> Outcome:
        """The outcome of a job that this worker cannot run, and that another may be able to."""
        wait_ms = self._patience.wait_ms(claimed.id, claimed.attempts)
        if wait_ms is None:
            return Bury(why)
        log.warning("%s: %s; %s", claimed.id, why, self._prospect(claimed, wait_ms))
        return Later(wait_ms, yield_time=True)

    def _prospect(self, claimed: Claimed, wait_ms: int) -> str:
        left_s = self._patience.left_s(claimed.id)
        return f"again in {wait_ms} ms, and buried in {left_s:g} s unless a worker has run it by then"


Parts: TypeAlias = tuple[Claimed, JobFunction[..., Any], Envelope, JobContext, Around | None]
"""What a run is made of."""


class Run(Line):
    """One call of a job's function, and its outcome."""

    __slots__ = ("_around", "_context")

    def __init__(
        self,
        claimed: Claimed,
        job: JobFunction[..., Any],
        envelope: Envelope,
        context: JobContext,
        around: Around | None,
    ) -> None:
        # Without a call of the base's: this is on the way of every job.
        self._claimed = claimed
        self._job = job
        self._envelope = envelope
        self._began = time.perf_counter()
        self._took_s = None
        self._around = around
        self._context = context

    @property
    def timeout_ms(self) -> int | None:
        """How long it may take: what it was sent with, or else what its job says."""
        sent = self._envelope.timeout_ms
        return self._job.defaults.timeout_ms if sent is None else sent

    def outlasted(self) -> Outcome:
        """Its function is in a thread, and its time is over."""
        took = f"not done after {self._context.limit_ms} ms"
        return self._failed(
            TimeoutError(f"{took}; its function still runs in its thread, which nothing can stop (process=True can)")
        )

    def ended(self, outcome: Outcome) -> Outcome:
        """The outcome of its run in another process."""
        self.over()
        return outcome

    def killed(self) -> Outcome:
        """Its time was over, and so its process was ended."""
        return self._failed(TimeoutError(f"not done after {self._context.limit_ms} ms; its process was killed"))

    def awaited(self, args: tuple[object, ...], kwargs: dict[str, object]) -> Coroutine[Any, Any, Outcome]:
        """Calls a coroutine function and awaits it, within `timeout_ms` if it has one."""
        function, around = self._job.function, self._around
        if around is None:
            return self._await(function, args, kwargs)
        return self._await(around.call, (function, args, kwargs), {})

    def called(self, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        """Calls a plain function. What it gives to be awaited is handed back to the loop, to be awaited there."""
        self.began()
        self._context.enter(self.timeout_ms)
        if self._around is not None:
            return self._called_within(self._around, args, kwargs)
        try:
            value = self._job.function(*args, **kwargs)
        except BaseException as error:  # noqa: BLE001  (a SystemExit in a job is the job's failure)
            return self._failed(error)
        return self._await(lambda: value, (), {}) if is_awaitable(value) else self._done(value)

    def _called_within(self, around: Around, args: tuple[object, ...], kwargs: dict[str, object]) -> Outcome:
        try:
            value = around.call_here(self._job.function, args, kwargs)
        except BaseException as error:  # noqa: BLE001  (a SystemExit in a job is the job's failure)
            outcome = self._failed(error)
            around.failed_here(error)
            return outcome
        outcome = self._done(value)
        around.ended_here(value)
        return outcome

    async def _await(self, begin: Callable[..., Any], args: tuple[object, ...], kwargs: dict[str, object]) -> Outcome:
        timeout_ms = self.timeout_ms
        limit = None if timeout_ms is None else asyncio.timeout(timeout_ms / 1_000)
        self._context.enter(timeout_ms, None if limit is None else _mover(limit))
        try:
            if limit is None:
                value = await begin(*args, **kwargs)
            else:
                async with limit:
                    value = await begin(*args, **kwargs)
        except asyncio.CancelledError as error:
            if await _is_taken_back():
                if self._around is not None:
                    await self._around.failed(error)
                raise
            return await self._failed_within(error)
        except BaseException as error:  # noqa: BLE001  (also SystemExit, KeyboardInterrupt: signals go elsewhere)
            if limit is not None and limit.expired():
                why = f"not done after {self._context.limit_ms} ms"
                error = TimeoutError(why).with_traceback(traceback_of(error))
            return await self._failed_within(error)
        outcome = self._done(value)
        if self._around is not None:
            await self._around.ended(value)
        return outcome

    async def _failed_within(self, error: BaseException) -> Outcome:
        outcome = self._failed(error)
        if self._around is not None:
            await self._around.failed(error)
        return outcome

    def _done(self, value: object) -> Outcome:
        if self._took_s is None:
            self._took_s = time.perf_counter() - self._began
        ttl_ms = self._envelope.result_ttl_ms
        if ttl_ms is None:
            ttl_ms = self._job.defaults.result_ttl_ms
        return _nothing(ttl_ms) if value is None else Done(self._job.returns.encoded(value), ttl_ms)

    def _failed(self, error: BaseException) -> Outcome:
        self.over()
        try:
            instruction = self._instruction(error)
        except BaseException:  # noqa: BLE001  (an error's own class may raise anything when it is looked at)
            instruction = None
        if instruction is not None:
            return instruction
        failures = self._claimed.failures + 1
        most = self._envelope.max_attempts or self._job.defaults.max_attempts
        if (trace := traceback_of(error)) is not None:
            # The first frame is ours, and says nothing.
            BaseException.with_traceback(error, trace.tb_next)
        again = asked_again(error)
        if again is None and not self._job.defaults.retries(error):
            most = failures
        wait_ms = None if again is None else again.delay_ms
        if wait_ms is None:
            wait_ms = 0 if failures >= most else self._backoff_ms(failures)
        return Retry(failure_text(error if again is None else again.about), delay_ms=wait_ms, max_attempts=most)

    def _instruction(self, error: BaseException) -> Outcome | None:
        if isinstance(error, Snooze):
            return Later(error.delay_ms)
        if isinstance(error, Discard):
            return Bury(f"discarded: {error.reason}")
        if isinstance(error, Cancelled | JobCancelledError):
            return self._cancelled(error)
        return None

    def _cancelled(self, error: Exception) -> Outcome:
        if self._context.reason == LOST:
            return RELEASED  # nobody's wish: whoever has the job by now settles it, and this is refused
        reason = str(error)
        return Bury(reason if reason.startswith("cancelled") else f"cancelled: {reason}")

    def _backoff_ms(self, failures: int) -> int:
        policy = self._job.defaults.backoff
        try:
            return delay_ms(policy, failures)
        except BaseException:
            # A user's function: whatever it raises must not keep the job from being settled.
            log.exception("the backoff of job %s gives no delay; it is taken as 1000 ms", self._job.name)
            return 1_000


class FollowedRun(Run):
    """A run of a job that others follow."""

    __slots__ = ("_succession",)

    def __init__(self, succession: Succession, *parts: *Parts) -> None:
        super().__init__(*parts)
        self._succession = succession

    def ended(self, outcome: Outcome) -> Outcome:
        """The outcome, with what follows."""
        self.over()
        try:
            return self._succession.after(outcome, self._job, self._context.queue, self._claimed, self._envelope)
        except Exception:
            log.exception("%s: nothing follows it", self._claimed.id)
            return outcome

    def _done(self, value: object) -> Outcome:
        return self.ended(super()._done(value))

    def _failed(self, error: BaseException) -> Outcome:
        return self.ended(super()._failed(error))
