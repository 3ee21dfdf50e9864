"""Running handlers: a task for a coroutine, a thread for a plain function, an outcome for whatever happens."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from types import CoroutineType
from typing import Any, Final, TypeAlias, TypeGuard, cast

from echomq.identity.errors import InvalidInputError
from echomq.protocol.errors import JobCancelledError
from echomq.protocol.replies import Claimed
from echomq.runtime import copies
from echomq.runtime.cancel import current
from echomq.runtime.hand import Held
from echomq.runtime.loops import log, told
from echomq.runtime.outcome import DONE, RELEASED, Bury, Later, Outcome, Retry, failure_text
from echomq.runtime.threads import Threads, ThreadShortageError

PUT_OFF_MS: Final = 1_000
"""How long a job waits that could not be started for want of the system's means; no failure is spent."""


@dataclass(frozen=True, slots=True)
class InThread:
    """What a router gives for a function that blocks: it is run in a thread, and what it returns is the outcome.

    `timeout_ms`, counted from its start, is how long it may take, with what its token is granted. Nothing can stop it
    then: `late()` says what becomes of its job, its cancel token is set, and its slot stays taken until it returns.
    """

    run: Callable[[], object]
    timeout_ms: int | None = None
    late: Callable[[], Outcome] | None = None


@dataclass(frozen=True, slots=True)
class Router:
    """A handler that decides per job, on the event loop and without blocking it.

    `route(job)` gives an awaitable, which becomes the job's task, an `InThread`, or the outcome at once.
    """

    route: Callable[[Claimed], object]


Handler: TypeAlias = Router | Callable[[Claimed], object | Awaitable[object]]
"""A coroutine function runs on the loop, a plain function in a thread, a `Router` says which."""


def is_async(function: object) -> bool:
    """Whether calling `function` gives a coroutine."""
    if inspect.iscoroutinefunction(function):
        return True
    call = getattr(function, "__call__", None)  # noqa: B004  (its kind matters, not whether it exists)
    return inspect.iscoroutinefunction(call)


def is_awaitable(value: object) -> TypeGuard[Awaitable[Any]]:
    """Whether `value` can be awaited, whatever its class does when it is looked at."""
    try:
        return type(value) is CoroutineType or inspect.isawaitable(value)
    except BaseException:  # noqa: BLE001  (a user's class may raise anything)
        return False


def check_handler(handler: Handler) -> Handler:
    """`handler` itself, or `InvalidInputError`."""
    if isinstance(handler, Router) or callable(handler):
        return handler
    raise InvalidInputError(f"a handler must be callable, not {handler!r}")


class Runner:
    """The handlers of one consumer. `ended(held)` is called once for each job that was started."""

    def __init__(self, handler: Handler, *, queue: str, threads: int, ended: Callable[[Held], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended = ended
        self._forks = copies.forks
        copies.watch(self)
        self._threads: Threads[Held] = Threads(threads, f"echomq {queue}", self._returned)
        self.threaded: set[Held] = set()
        """Jobs whose function is in a thread, which nothing can interrupt."""
        self.late = set[Held]()
        """Jobs that are settled, and whose function goes on past its time."""
        self.freed: Callable[[], None] = _nothing
        """Called when such a function has returned."""
        self.draining = False
        """From now on a cancelled job is handed back, and so is one that raises."""
        self.start: Callable[[Held], None]
        """Run the handler on a job."""
        if isinstance(handler, Router):
            self._handler: Callable[[Claimed], Any] = handler.route
            self.start = self._start_routed
        else:
            self._handler = handler
            self.start = self._start_task if is_async(handler) else self._start_thread

    def cancel(self, running: Iterable[Held]) -> None:
        """Cancel those of `running` that are coroutines; their jobs are handed back as they end."""
        self.draining = True
        for held in running:
            if held.task is not None:
                self._cancel(held, held.task)

    def interrupt(self, held: Held) -> None:
        """Cancel the coroutine of a job whose token is set; a function in a thread has to look at the token itself."""
        if held.task is not None and held.outcome is None:
            self._cancel(held, held.task)

    def _cancel(self, held: Held, task: asyncio.Task[None]) -> None:
        held.interrupted = True
        task.cancel()
        # A task that is cancelled before its first step never says so itself.
        task.add_done_callback(partial(self._ended_unstarted, held))

    def put_off(self, held: Held, error: Exception) -> None:
        """Hand back a job that could not be started, for a while and with nothing spent."""
        log.error("job %s cannot be started and is put off for %d ms: %s", held.job.id, PUT_OFF_MS, told(error))
        self._end(held, Later(PUT_OFF_MS))

    def close(self) -> None:
        """Let the threads end."""
        copies.forget(self)
        self._threads.close()

    def _start_task(self, held: Held) -> None:
        held.task = self._loop.create_task(self._attend(held))

    def _start_thread(self, held: Held) -> None:
        self._into_thread(held, partial(self._handler, held.job))

    def _start_routed(self, held: Held) -> None:
        current.set(held)  # also for the context that the router may hand on to a thread
        try:
            routed = self._handler(held.job)
        except BaseException as error:  # noqa: BLE001  (whatever a handler raises is the job's failure)
            self._end(held, _failed(held, error))
            return
        if type(routed) is InThread:
            self._into_thread(held, routed.run, routed)
        elif is_awaitable(routed):
            held.task = self._loop.create_task(self._attend(held, routed))
        else:
            self._end(held, _outcome(routed))

    def _into_thread(self, held: Held, function: Callable[[], object], limits: InThread | None = None) -> None:
        began: list[float] = []

        def call() -> object:
            began.append(time.monotonic())
            current.set(held)
            if held.outcome is not None:
                return RELEASED  # given up while it waited for a thread
            held.raise_if_cancelled()
            return function()

        try:
            self._threads.run(held, call)
        except ThreadShortageError as error:
            self.put_off(held, error)
        else:
            self.threaded.add(held)
            if limits is not None and limits.timeout_ms is not None:
                self._loop.call_later(limits.timeout_ms / 1_000, self._due, held, limits, began)

    def _due(self, held: Held, limits: InThread, began: list[float]) -> None:
        """The time of a function in a thread may be over."""
        if held not in self.threaded or held.outcome is not None or limits.timeout_ms is None or limits.late is None:
            return
        limit_ms = limits.timeout_ms + held.granted_ms
        limit_s = limit_ms / 1_000
        left_s = began[0] + limit_s - time.monotonic() if began else limit_s
        if left_s > 0:
            self._loop.call_later(left_s, self._due, held, limits, began)
            return
        self.threaded.discard(held)
        self.late.add(held)
        self._end(held, limits.late())
        held.cancel(f"not done after {limit_ms} ms")
        log.error(
            "job %s goes on past its time, in a thread that nothing can stop; %d slots are taken so",
            *(held.job.id, len(self.late)),
        )

    def _returned(self, held: Held, value: object, error: BaseException | None) -> None:
        self.threaded.discard(held)
        if held in self.late:
            self.late.discard(held)
            self.freed()
        if held.outcome is not None:
            if inspect.iscoroutine(value):
                value.close()
        elif error is not None:
            self._end(held, _failed(held, error))
        elif is_awaitable(value):
            held.task = self._loop.create_task(self._attend(held, value))
        else:
            self._end(held, _outcome(value))

    async def _attend(self, held: Held, work: Awaitable[object] | None = None) -> None:
        current.set(held)
        try:
            value = await (self._handler(held.job) if work is None else work)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if not self.draining and task is not None and task.cancelling():
                # When all tasks are cancelled at once, as asyncio.run does at its end, the consumer's own is
                # among them: let it learn of it first.
                await asyncio.sleep(0)
            self._end(held, RELEASED if self.draining else _failed(held, error))
        except BaseException as error:  # noqa: BLE001  (also SystemExit, KeyboardInterrupt: signals go elsewhere)
            released = self.draining and held.task is not None and held.task.cancelling()
            self._end(held, RELEASED if released else _failed(held, error))
        else:
            outcome = _outcome(value)
            if self.draining and isinstance(outcome, Retry) and held.task is not None and held.task.cancelling():
                outcome = RELEASED
            self._end(held, outcome)

    def _ended_unstarted(self, held: Held, _: asyncio.Task[None]) -> None:
        self._end(held, RELEASED if self.draining else _failed(held, asyncio.CancelledError()))

    def _end(self, held: Held, outcome: Outcome) -> None:
        if copies.forks != self._forks:
            copies.end()
        if held.outcome is None:
            if held.reason is not None and not held.lost and isinstance(outcome, Retry | Later):
                outcome = Bury(held.reason)  # no attempt may follow
            held.outcome = outcome
            self._ended(held)


def _nothing() -> None:
    pass


def _failed(held: Held, error: BaseException) -> Outcome:
    """What a handler that raised says about its job."""
    # By its type: an error may have its own idea of its `__class__`.
    if held.reason is not None and issubclass(type(error), (JobCancelledError, asyncio.CancelledError)):
        # A lost lease is nobody's wish: whoever has the job settles it, and this is refused there.
        return RELEASED if held.lost else Bury(held.reason)
    return Retry(failure_text(error))


def _outcome(value: object) -> Outcome:
    """What a handler's return value says."""
    # By its type: asking a value that is somebody's own for its `__class__` may raise.
    return cast("Outcome", value) if issubclass(type(value), Outcome) else DONE
