"""`EchoMQ`, the object an application begins with: its server, its jobs, and how they are sent."""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, Unpack, overload

from echomq.app.bound import Bound
from echomq.app.codec import Codec, Codecs
from echomq.app.connections import Connections
from echomq.app.definition import JobDecorator, JobWords
from echomq.app.errors import BlockingCallWarning, UndeclaredQueueWarning
from echomq.app.flag import flag
from echomq.app.ground import Ground, Tested
from echomq.app.handles import Job
from echomq.app.hooks import Hooked
from echomq.app.job import CoroutineJob, JobFunction, PlainJob
from echomq.app.lanes import Lane
from echomq.app.options import Options
from echomq.app.registry import Registry
from echomq.app.schedule import Schedule, ScheduleInfo, schedules
from echomq.app.sending import admission, asend_all, send_all
from echomq.app.telling import overhearing
from echomq.app.text import nearest
from echomq.protocol import admin
from echomq.protocol.admin import Cancellation
from echomq.protocol.admission import Admitted
from echomq.protocol.call import Call, Plan
from echomq.protocol.checks import MAX_PAYLOAD, check_job, integer
from echomq.protocol.errors import DisconnectedError, InvalidInputError, QueueNameError
from echomq.protocol.keys import check_queue
from echomq.protocol.results import Ending, endings
from echomq.wire.options import FENCE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from echomq.runtime.dial import Dial
    from echomq.wire import AsyncConnector, Connector, Wire

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

PAYLOAD: Final = 1024 * 1024
"""Bytes that one job may carry, unless told otherwise."""
SEPARATOR: Final = ":"
"""What stands between a prefix and the name of a queue."""


class EchoMQ(Hooked, Tested):
    """An application's jobs and the server they wait on.

    The server is `url`, else `$ECHOMQ_URL`, else the embedded server in `home` (else `$ECHOMQ_HOME`, else
    `.echomq` in the project); `durable` asks that one for an fsync on every write. Nothing is connected
    before it is used. It may be used from any thread, on any event loop, and in a forked child. With `events` what
    happens to each job is published, by senders and workers, for `echomq.events` (protocol §10): a command more a job.
    `max_payload`, in bytes, bounds what one job carries; 1 MiB unless given. `queues`: those that no job of the app is
    in, and that its workers serve all the same. `prefix` goes before the name of every queue that the app touches, so
    that staging and production can share a server: with `prefix="staging"` its queue `mail` is `staging:mail`.
    `codec` encodes the arguments of the jobs, see `Codec`; of several the first one does, and all decode.
    `wire` is how the server is spoken to (protocol §5): 4 by scripts, 6 by native commands and by nothing else, "auto"
    by those that it has; None is the URL's `?wire=`, or else "auto". `middleware`: see `mq.middleware`.
    `InvalidInputError` for a wrong URL, name or number.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        default_queue: str = "default",
        queues: Iterable[str] = (),
        prefix: str | None = None,
        home: str | os.PathLike[str] | None = None,
        durable: bool = False,
        fence: str = FENCE,
        max_payload: int = PAYLOAD,
        codec: Codec | Iterable[Codec] | None = None,
        events: bool = False,
        wire: Wire | None = None,
        middleware: Iterable[object] = (),
    ) -> None:
        super().__init__(middleware)
        self._prefix = "" if prefix is None else f"{_prefix(prefix)}{SEPARATOR}"
        self.own_default_queue = self.own_name(default_queue)
        self.max_payload = integer("max_payload", max_payload, least=1, most=MAX_PAYLOAD)
        self.codecs = Codecs(codec)
        self.events = flag("events", events)
        self._ground = Ground(Connections(url, home, durable, fence=fence, wire=wire))
        self._registry = Registry([self.own_name(queue) for queue in _declared(queues)])
        self._looked_at = set[str]()
        self._warned = False

    def __repr__(self) -> str:
        return f"<EchoMQ on {self._ground.connections!r}, {len(self.jobs)} jobs>"

    @property
    def default_queue(self) -> str:
        """The queue of whatever names none."""
        return self.placed(self.own_default_queue)

    @property
    def moved(self) -> tuple[str | None, Wire | None] | None:
        """What `use_server` was told, for processes that are started for this app."""
        return self._ground.moved

    @property
    def jobs(self) -> Mapping[str, JobFunction[..., Any]]:
        """The app's jobs by name."""
        return self._registry.jobs

    @property
    def names(self) -> Mapping[str, JobFunction[..., Any]]:
        """The app's jobs by every name that a payload may carry, the aliases among them."""
        return self._registry.names

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues that the app's jobs are in, in the order of their first use, then those that it declares.

        By the names that the server knows: with the app's prefix.
        """
        return tuple(map(self.placed, self._registry.queues))

    # A coroutine function is also a function that returns some R; the first overload that fits is the right one.
    @overload
    def job(  # type: ignore[overload-overlap]
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> CoroutineJob[P, R]: ...

    @overload
    def job(self, function: Callable[P, R], /) -> PlainJob[P, R]: ...

    @overload
    def job(self, /, **options: Unpack[JobWords]) -> JobDecorator: ...

    def job(self, function: Callable[..., Any] | None = None, /, **options: Unpack[JobWords]) -> Any:
        """Makes a function a job: `@mq.job`, or `@mq.job(queue="mail", max_attempts=5)`.

        The options are those of `JobWords`, in docs/jobs.md. `JobDefinitionError` for a function that cannot be a job,
        options that contradict each other, and a name that another job has.
        """
        decorate = JobDecorator(self, options)
        return decorate if function is None else decorate(function)

    def add(self, job: JobFunction[..., Any]) -> None:
        """Registers a job; refuses a name, also an alias, that leads to another function."""
        self._registry.add(job)

    def queue_name(self, queue: str) -> str:
        """A queue of the app by the name that the server knows: with the app's prefix, unless it has that already.

        For the verbs, which know no prefix: `mq.run(metrics.counts(mq.queue_name("mail")))`. `QueueNameError` for a
        name that cannot be one.
        """
        aside = self._ground.aside
        return check_queue(queue) if aside and queue.startswith(aside) else self.placed(self.own_name(queue))

    def placed(self, queue: str) -> str:
        """Where a queue of the app is, given its whole name: somewhere else only within `mq.testing(url)`."""
        aside = self._ground.aside
        return queue if not aside or queue.startswith(aside) else check_queue(aside + queue)

    def own_name(self, queue: str) -> str:
        """A queue of the app by its whole name, wherever it is at the moment."""
        check_queue(queue)
        return queue if queue.startswith(self._prefix) else check_queue(self._prefix + queue)

    def warn_if_undeclared(self, queue: str, *, above: int = 0) -> None:
        """Warns, once for a queue, that no worker of this app serves it; an app without any queue has no worker.

        Called as `warn_on_a_loop` is, or by a function so many calls `above`.
        """
        if queue in self._looked_at or not (queues := self.queues):
            return
        self._looked_at.add(queue)
        if queue in queues:
            return
        warnings.warn(
            f"no job of this app is in queue {queue!r}, so none of its workers serves it: declare it with "
            f"EchoMQ(queues=[{queue!r}]), or use one of {nearest(queue, queues)}",
            UndeclaredQueueWarning,
            stacklevel=3 + above,
        )

    def asked(self, queue: str, *, above: int = 0) -> str:
        """`queue`, the name of one, after `warn_if_undeclared`: for methods that a user calls, or so many `above`."""
        self.warn_if_undeclared(queue, above=1 + above)
        return queue

    def _asked(self, queue: str | None) -> str:
        return self.asked(self.default_queue if queue is None else self.queue_name(queue), above=1)

    def connection(self) -> Connector:
        """The app's blocking connector, for the verbs: `mq.connection().run(metrics.counts("mail"))`.

        One for all threads, opened by the first use: `ConnectError` (`EmbeddedServerError` for the embedded server)
        when there is no connection, `FenceError` when the server speaks another version (protocol §11).
        """
        if self._ground.eager is not None:
            self._ground.eager.refuse("a connection")
        return self._ground.connections.blocking()

    async def aconnection(self) -> AsyncConnector:
        """The app's connector on the running loop: one a loop, closed when that ends. Raises as `connection` does."""
        if self._ground.eager is not None:
            self._ground.eager.refuse("a connection")
        return await self._ground.connections.awaited()

    def dial(self) -> Dial:
        """The app's server, for loops and connectors of your own, such as a `Consumer`. Nothing is connected by it."""
        # Imported when used: a program that only sends has no loops.
        from echomq.runtime.dial import Dial

        connections = self._ground.connections
        return Dial(connections.source, fence=connections.fence, wire=connections.wire)

    def use_server(self, url: str | None = None, *, wire: Wire | None = None) -> None:
        """Uses another server, or another wire, from now on; to be called before anything is sent.

        `InvalidInputError` for what is none. Awaited connectors that are open stay with their loops.
        """
        self._ground.connections.close()
        before = self.moved or (None, None)
        moved = before[0] if url is None else url, before[1] if wire is None else wire
        self._ground = replace(self._ground, connections=self._ground.connections.moved(url, wire), moved=moved)

    def exchange(self, ground: Ground) -> Ground:
        """Stands on other ground from now on; gives the former, which is to be put back. For `testing`."""
        former, self._ground = self._ground, ground
        for job in tuple(self._registry.every):
            job.moved()
        return former

    @property
    def ground(self) -> Ground:
        """What the app stands on."""
        return self._ground

    def run(self, call: Call[T] | Plan[T]) -> T:
        """Runs a verb: `mq.run(repeat.cancel("mail", "digest"))` (protocol §5 to §9).

        Raises what `connection` raises, a `ServerError` when the server refused the verb, and another `WireError` when
        there was no answer: `DisconnectedError.sent` says whether it may have run all the same. Observers are told of a
        flow's nodes, of an occurrence and of a job that was cancelled while it waited.
        """
        if (eager := self._ground.eager) is not None:
            return eager.answer(call)
        ear = overhearing(events=self.events)
        if ear is None:
            return self.connection().run(call)
        conn = self.connection()
        try:
            return conn.run(ear.work(call))
        finally:
            calls = ear.told()
            while calls:
                calls = ear.answered(conn.run_many(calls))

    async def arun(self, call: Call[T] | Plan[T]) -> T:
        """`run`, awaited. Verbs that are awaited at the same time travel in one flight."""
        if (eager := self._ground.eager) is not None:
            return eager.answer(call)
        ear = overhearing(events=self.events)
        conn = await self.aconnection()
        if ear is None:
            return await conn.run(call)
        try:
            return await conn.run(ear.work(call))
        finally:
            calls = ear.told()
            while calls:
                calls = ear.answered(await conn.run_many(calls))

    def admit(self, name: str, queue: str, payload: bytes, options: Options) -> Admitted:
        """Sends a payload under a fresh id; the answer has it, or that of the living job that holds the key.

        Raises as `run` does; an error without an answer has a note with the id that was sent (protocol §1).
        """
        if (eager := self._ground.eager) is not None:
            return eager.admit(queue, payload, options)
        return self.run(admission(name, queue, payload, options, events=self.events))

    async def aadmit(self, name: str, queue: str, payload: bytes, options: Options) -> Admitted:
        """`admit`, awaited."""
        if (eager := self._ground.eager) is not None:
            return await eager.aadmit(queue, payload, options)
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
        return Lane(self, name, self.default_queue if queue is None else self.queue_name(queue))

    def schedule(self, name: str, *, queue: str | None = None) -> Schedule:
        """A recurrence by its name, in the app's default queue unless named: `mq.schedule("nightly").pause()`.

        Whoever has registered it. Nothing is sent.
        """
        return Schedule(self, name, self.default_queue if queue is None else self.queue_name(queue))

    def schedules(self, *, queue: str | None = None) -> list[ScheduleInfo]:
        """Every recurrence of a queue, of all the app's queues unless named; the next to run first in each."""
        self.warn_on_a_loop("schedules")
        return self.run(schedules(self.queues if queue is None else (self._asked(queue),), self.ahead_ms() or 0))

    async def aschedules(self, *, queue: str | None = None) -> list[ScheduleInfo]:
        """`schedules`, awaited."""
        return await self.arun(schedules(self.queues if queue is None else (self._asked(queue),), self.ahead_ms() or 0))

    def cancel(self, job_id: str, *, queue: str | None = None, reason: str = "cancelled") -> Cancellation:
        """Cancels a job by its id, in the app's default queue unless named; see `Job.cancel` (protocol §7).

        `IdError` for what is no job's id, before anything is sent; then it raises as `run` does.
        """
        call = admin.cancel_job(self._asked(queue), job_id, reason=reason)
        self.warn_on_a_loop("cancel")
        return self.run(call)

    async def acancel(self, job_id: str, *, queue: str | None = None, reason: str = "cancelled") -> Cancellation:
        """`cancel`, awaited."""
        return await self.arun(admin.cancel_job(self._asked(queue), job_id, reason=reason))

    def handle(self, job_id: str, *, queue: str | None = None) -> Job[object]:
        """The handle of a job by its id, in the app's default queue unless named; `send.handle(job_id)` knows more.

        Its result is what JSON makes of it, for the function is not known. `IdError` for what is no job's id. Nothing
        is sent.
        """
        return Job(check_job(job_id), "", self._asked(queue), False, self)

    def ending(self, queue: str, job_id: str, timeout_s: float | None) -> Ending:
        """What has become of a job once it has ended, or after so many seconds. For `Job.get`."""
        if self._ground.eager is not None:
            return self._ground.eager.ending(job_id)
        began = time.monotonic()
        try:
            (ending,) = self.run(endings(queue, (job_id,)))
        except DisconnectedError:
            if timeout_s == 0:
                raise
        else:
            if ending.is_final or timeout_s == 0:
                return ending
        left_s = None if timeout_s is None else max(0.0, timeout_s - (time.monotonic() - began))
        return self.wait_for(self.aending(queue, job_id, left_s))

    async def aending(self, queue: str, job_id: str, timeout_s: float | None) -> Ending:
        """`ending`, awaited. For `Job.result`."""
        if self._ground.eager is not None:
            return self._ground.eager.ending(job_id)
        if timeout_s == 0:
            return (await self.arun(endings(queue, (job_id,))))[0]
        return await (await self._ground.connections.waiting()).ending(queue, job_id, timeout_s)

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Blocks until something that is awaited is done, on the event loop that waits for this app's threads."""
        return self._ground.connections.background.run(work)

    def warn_on_a_loop(self, method: str, awaited: str = "") -> None:
        """To be called by the blocking methods that have an awaited twin, straight from the user's code."""
        asyncio = sys.modules.get("asyncio")
        if self._warned or asyncio is None:
            return
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return
        self._warned = True
        instead = awaited or f"await a{method}()"
        warnings.warn(
            f"{method}() blocks the running event loop until the server answers; {instead} instead",
            BlockingCallWarning,
            stacklevel=3,
        )

    def close(self) -> None:
        """Closes the blocking connector; a later use opens it again. A `get` that waits has a `DisconnectedError`."""
        self._ground.connections.close()

    async def aclose(self) -> None:
        """Closes the running loop's connector, and the blocking one."""
        await self._ground.connections.aclose()

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


def _prefix(prefix: str) -> str:
    try:
        check_queue(prefix)
    except QueueNameError as error:
        raise QueueNameError(f"prefix {prefix!r:.200} makes no queue name: {error}") from None
    if SEPARATOR in prefix:
        raise QueueNameError(
            f"prefix {prefix!r} holds {SEPARATOR!r}, which ends a prefix: use another sign, as in "
            f"{prefix.replace(SEPARATOR, '-')!r}"
        )
    return prefix


def _declared(queues: Iterable[str]) -> Iterable[str]:
    if isinstance(queues, str):
        raise InvalidInputError(f"queues must be a list of names, not a text; write queues=[{queues!r:.200}]")
    if not isinstance(queues, Iterable):
        raise InvalidInputError(f"queues must be a list of names, not {queues!r:.200}")
    return queues
