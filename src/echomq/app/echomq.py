"""`EchoMQ`, the object an application begins with: its server, its jobs, and how they are sent."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Coroutine, Iterable
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, overload

from echomq.app.bound import Bound
from echomq.app.connections import Connections
from echomq.app.errors import BlockingCallWarning, JobDefinitionError
from echomq.app.job import CoroutineJob, JobFunction, JobOptions, PlainJob, check_function
from echomq.app.lanes import Lane
from echomq.app.naming import job_name
from echomq.app.options import Options
from echomq.app.sending import admission, asend_all, send_all
from echomq.protocol import admin
from echomq.protocol.admin import Cancellation
from echomq.protocol.admission import Admitted
from echomq.protocol.backoff import Fixed, Policy, check_policy
from echomq.protocol.call import Call, Plan
from echomq.protocol.checks import MAX_PAYLOAD, integer, name_of
from echomq.protocol.keys import check_queue
from echomq.wire.options import FENCE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from echomq.app.handles import Job
    from echomq.runtime.dial import Dial
    from echomq.wire import AsyncConnector, Connector, Wire

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

MAX_ATTEMPTS: Final = 3
BACKOFF: Final = Fixed(1_000)


class EchoMQ:
    """An application's jobs and the server they wait on.

    The server is `url`, else `$ECHOMQ_URL`, else the embedded server in `home` (else `$ECHOMQ_HOME`, else
    `.echomq` in the project); `durable` asks that one for an fsync on every write. Nothing is connected
    before it is used. It may be used from any thread, on any event loop, and in a forked child. With `events` what
    happens to each job is published, by senders and workers, for `echomq.events` (protocol §10): a command more a job.
    `max_payload`, in bytes, bounds what one job carries. `wire` is how the server is spoken to (protocol §5): 4 by
    scripts, 6 by native commands and by nothing else, "auto" by those that it has; None is the URL's `?wire=`, or else
    "auto". `InvalidInputError` for a wrong URL, name or number.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        default_queue: str = "default",
        home: str | os.PathLike[str] | None = None,
        durable: bool = False,
        fence: str = FENCE,
        max_payload: int = MAX_PAYLOAD,
        events: bool = False,
        wire: Wire | None = None,
    ) -> None:
        self.default_queue = check_queue(default_queue)
        self.max_payload = integer("max_payload", max_payload, least=1, most=MAX_PAYLOAD)
        self.events = events
        self._connections = Connections(url, home, durable, fence=fence, wire=wire)
        self._jobs: dict[str, JobFunction[..., Any]] = {}
        self._warned = False

    def __repr__(self) -> str:
        return f"<EchoMQ on {self._connections!r}, {len(self._jobs)} jobs>"

    @property
    def jobs(self) -> Mapping[str, JobFunction[..., Any]]:
        """The app's jobs by name."""
        return MappingProxyType(self._jobs)

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues that the app's jobs use, in the order of their first use."""
        return tuple(dict.fromkeys(job.queue for job in self._jobs.values()))

    # A coroutine function is also a function that returns some R; the first overload that fits is the right one.
    @overload
    def job(  # type: ignore[overload-overlap]
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> CoroutineJob[P, R]: ...

    @overload
    def job(self, function: Callable[P, R], /) -> PlainJob[P, R]: ...

    @overload
    def job(
        self,
        /,
        *,
        name: str | None = None,
        queue: str | None = None,
        max_attempts: int = MAX_ATTEMPTS,
        backoff: Policy = BACKOFF,
    ) -> JobDecorator: ...

    def job(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        queue: str | None = None,
        max_attempts: int = MAX_ATTEMPTS,
        backoff: Policy = BACKOFF,
    ) -> Any:
        """Makes a function a job: `@mq.job`, or `@mq.job(queue="mail", max_attempts=5)`.

        `name` is what payloads carry: by default `module.function`; give one of your own if the function may
        move while jobs wait. After `max_attempts` failures a job is buried; `backoff` gives the wait before each
        retry in milliseconds, on the server's clock. `JobDefinitionError` for a function that cannot be a job.
        """
        decorate = JobDecorator(self, name, queue, max_attempts, backoff)
        return decorate if function is None else decorate(function)

    def add(self, job: JobFunction[..., Any]) -> None:
        """Registers a job; refuses a name that another function has."""
        other = self._jobs.get(job.name)
        if other is not None and not _is_again(other.function, job.function):
            raise JobDefinitionError(
                f"two jobs are named {job.name!r}, {_place(other.function)} and {_place(job.function)}: "
                "give one of them another name=..."
            )
        self._jobs[job.name] = job

    def connection(self) -> Connector:
        """The app's blocking connector, for the verbs: `mq.connection().run(metrics.counts("mail"))`.

        One for all threads, opened by the first use: `ConnectError` (`EmbeddedServerError` for the embedded server)
        when there is no connection, `FenceError` when the server speaks another version (protocol §11).
        """
        return self._connections.blocking()

    async def aconnection(self) -> AsyncConnector:
        """The app's connector on the running loop: one a loop, closed when that ends. Raises as `connection` does."""
        return await self._connections.awaited()

    def dial(self) -> Dial:
        """The app's server, for loops and connectors of your own, such as a `Consumer`. Nothing is connected by it."""
        # Imported when used: a program that only sends has no loops.
        from echomq.runtime.dial import Dial

        return Dial(self._connections.source, fence=self._connections.fence, wire=self._connections.wire)

    def use_server(self, url: str | None = None, *, wire: Wire | None = None) -> None:
        """Uses another server, or another wire, from now on; to be called before anything is sent.

        `InvalidInputError` for what is none. Awaited connectors that are open stay with their loops.
        """
        self._connections.close()
        self._connections = self._connections.moved(url, wire)

    def run(self, call: Call[T] | Plan[T]) -> T:
        """Runs a verb: `mq.run(repeat.cancel("mail", "digest"))` (protocol §5 to §9).

        Raises what `connection` raises, a `ServerError` when the server refused the verb, and another `WireError` when
        there was no answer: `DisconnectedError.sent` says whether it may have run all the same.
        """
        return self.connection().run(call)

    async def arun(self, call: Call[T] | Plan[T]) -> T:
        """`run`, awaited. Verbs that are awaited at the same time travel in one flight."""
        return await (await self.aconnection()).run(call)

    def admit(self, name: str, queue: str, payload: bytes, options: Options) -> Admitted:
        """Sends a payload under a fresh id; the answer has it, or that of the living job that holds the key.

        Raises as `run` does; an error without an answer has a note with the id that was sent (protocol §1).
        """
        return self.run(admission(name, queue, payload, options, events=self.events))

    async def aadmit(self, name: str, queue: str, payload: bytes, options: Options) -> Admitted:
        """`admit`, awaited."""
        return await self.arun(admission(name, queue, payload, options, events=self.events))

    def enqueue_many(self, calls: Iterable[Bound[R]]) -> list[Job[R]]:
        """Sends many jobs: `mq.enqueue_many(send.s(to) for to in everybody)`, one handle a call, in their order.

        Some thousands travel in one flight, and an iterable of any length is taken as it goes. All are tried:
        `EnqueueManyError` has what was sent and what was not. What the iterable raises ends it; before the first
        flight it comes through as it is.
        """
        self.warn_on_a_loop("enqueue_many")
        return send_all(self, calls)

    async def aenqueue_many(self, calls: Iterable[Bound[R]]) -> list[Job[R]]:
        """`enqueue_many`, awaited."""
        return await asend_all(self, calls)

    def lane(self, name: str, *, queue: str | None = None) -> Lane:
        """A lane of a queue, the app's default queue unless named: `mq.lane("acme", queue="mail").limit(5)`.

        `InvalidInputError` for a name that is not printable text (protocol §6). Nothing is sent.
        """
        return Lane(self, name, self.default_queue if queue is None else queue)

    def cancel(self, job_id: str, *, queue: str | None = None, reason: str = "cancelled") -> Cancellation:
        """Cancels a job by its id, in the app's default queue unless named; see `Job.cancel` (protocol §7).

        `IdError` for what is no job's id, before anything is sent; then it raises as `run` does.
        """
        call = admin.cancel_job(self.default_queue if queue is None else queue, job_id, reason=reason)
        self.warn_on_a_loop("cancel")
        return self.run(call)

    async def acancel(self, job_id: str, *, queue: str | None = None, reason: str = "cancelled") -> Cancellation:
        """`cancel`, awaited."""
        call = admin.cancel_job(self.default_queue if queue is None else queue, job_id, reason=reason)
        return await self.arun(call)

    def warn_on_a_loop(self, method: str) -> None:
        """To be called by the blocking methods that have an awaited twin, straight from the user's code."""
        asyncio = sys.modules.get("asyncio")
        if self._warned or asyncio is None:
            return
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        self._warned = True
        warnings.warn(
            f"{method}() blocks the running event loop until the server answers; await a{method}() instead",
            BlockingCallWarning,
            stacklevel=3,
        )

    def close(self) -> None:
        """Closes the blocking connector; a later use opens it again."""
        self._connections.close()

    async def aclose(self) -> None:
        """Closes the running loop's connector, and the blocking one."""
        await self._connections.aclose()

    def __enter__(self) -> EchoMQ:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> EchoMQ:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class JobDecorator:
    """`@mq.job(...)` with its options checked, waiting for the function."""

    def __init__(self, mq: EchoMQ, name: str | None, queue: str | None, max_attempts: int, backoff: Policy) -> None:
        self._mq = mq
        self._name = None if name is None else name_of("the name of a job", name)
        self._queue = mq.default_queue if queue is None else check_queue(queue)
        self._max_attempts = integer("max_attempts", max_attempts, least=1)
        self._backoff = check_policy(backoff)

    # See `EchoMQ.job`.
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> CoroutineJob[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> PlainJob[P, R]: ...

    def __call__(self, function: Callable[..., Any], /) -> JobFunction[..., Any]:
        """The job."""
        check_function(function)
        options = JobOptions(self._name or _named(function), self._queue, self._max_attempts, self._backoff)
        kind = CoroutineJob[..., Any] if _is_coroutine(function) else PlainJob[..., Any]
        job = kind(self._mq, function, options)
        self._mq.add(job)
        return job


def _is_coroutine(function: Callable[..., Any]) -> bool:
    import inspect

    return inspect.iscoroutinefunction(function)


def _named(function: Callable[..., Any]) -> str:
    name = getattr(function, "__qualname__", "")
    if not name or name.endswith("<lambda>"):
        raise JobDefinitionError(f"{function!r} has no name of its own: give it one with @mq.job(name=...)")
    return job_name(function)


def _is_again(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    """Whether a module that is executed again, by a reload or as a notebook's cell, brings its function once more.

    A function that is made by a function is another one each time, with values of its own inside.
    """
    if one is other:
        return True
    if "<locals>" in getattr(one, "__qualname__", "<locals>"):
        return False
    interactive = getattr(getattr(one, "__code__", None), "co_filename", "").startswith("<")
    return _place(one) == _place(other) or (interactive and one.__qualname__ == other.__qualname__)


def _place(function: Callable[..., Any]) -> str:
    code = getattr(function, "__code__", None)
    if code is None:
        return repr(function)
    return f"{function.__qualname__} ({code.co_filename}:{code.co_firstlineno})"
