"""The job that the code at hand runs in: `current_job()`, from any depth of calls inside it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Unpack

from echomq.app.control import Cancelled
from echomq.app.times import Span, span_ms
from echomq.identity.errors import InvalidInputError
from echomq.protocol import admin
from echomq.protocol.call import Call

if TYPE_CHECKING:
    from echomq.app.echomq import EchoMQ
    from echomq.app.envelope import Envelope
    from echomq.app.holes import Child
    from echomq.protocol.replies import Claimed
    from echomq.runtime.cancel import CancelToken

_NOTHING: Final[Mapping[str, object]] = MappingProxyType({})


class JobContext:
    """A job while it runs. It may be handed to threads of the job's own, and be used from there."""

    __slots__ = (
        "_begun_with",
        "_claimed",
        "_envelope",
        "_limit_ms",
        "_move",
        "_mq",
        "_started",
        "_state",
        "_token",
        "queue",
    )

    def __init__(
        self,
        mq: EchoMQ,
        queue: str,
        claimed: Claimed,
        envelope: Envelope,
        token: CancelToken | None,
        begun_with: Mapping[str, object] = _NOTHING,
    ) -> None:
        self._begun_with = begun_with
        self._state: dict[str, object] | None = None
        self._mq = mq
        self.queue = queue
        self._claimed = claimed
        self._envelope = envelope
        self._token = token
        self._started: datetime | None = None
        self._limit_ms: int | None = None
        self._move: Callable[[int], None] | None = None

    def __repr__(self) -> str:
        return f"<running job {self.id} {self.name} attempt {self.attempt}>"

    @property
    def id(self) -> str:
        """Its id."""
        return self._claimed.id

    @property
    def name(self) -> str:
        """The name of the job, as `@mq.job` has it."""
        return self._envelope.job

    @property
    def attempt(self) -> int:
        """1 at first, and one more after each failure."""
        return self._claimed.failures + 1

    @property
    def failures(self) -> int:
        """How often it has failed before."""
        return self._claimed.failures

    @property
    def lane(self) -> str | None:
        """The id of its lane, as in `mq.lane("acme").id`; None when it is in no lane."""
        return self._claimed.group

    @property
    def slot(self) -> datetime | None:
        """The slot of the recurrence that it is an occurrence of, in UTC; None for any other job.

        It may lie before the instant at which the job started, by the jitter and by how late it was.
        """
        if self._envelope.slot_ms is None:
            return None
        from echomq.runtime.calendar import instant

        return instant(self._envelope.slot_ms)

    @property
    def meta(self) -> Mapping[str, object]:
        """What it was sent with by `options(meta=...)`."""
        return MappingProxyType(self._envelope.meta or {})

    @property
    def state(self) -> dict[str, object]:
        """A place for middleware and the job to leave things for each other, for this run: at first what the worker's
        lifespans have yielded."""
        if self._state is None:
            self._state = dict(self._begun_with)
        return self._state

    @property
    def deadline(self) -> datetime | None:
        """When its `timeout` is over, by this host's clock; None without a timeout.

        A coroutine is ended then. A plain function cannot be: it has to look.
        """
        if self._limit_ms is None or self._started is None:
            return None
        try:
            return self._started + timedelta(milliseconds=self._limit_ms)
        except OverflowError:
            return datetime.max.replace(tzinfo=UTC)

    def extend(self, more: timedelta | None = None, /, **parts: Unpack[Span]) -> datetime | None:
        """Gives this run more time: moves `deadline` by that much, and says where it is then; None without a timeout.

        `job.extend(minutes=5)` or a timedelta; it counts from the old deadline, and calls add up. For this run only,
        from any thread, without a word to the server: the lease needs nothing, it is kept while the job runs.
        `InvalidInputError` for a span that is not above zero, `Cancelled` when the job is to end, its time being over.
        """
        more_ms = span_ms("extend", more, parts)
        self.raise_if_cancelled()
        self.grant(more_ms)
        return self.deadline

    def grant(self, more_ms: int) -> None:
        """Moves the deadline. For the worker."""
        if self._limit_ms is None:
            return
        if self._move is not None:
            self._move(more_ms)
        self._limit_ms += more_ms
        if self._token is not None:
            self._token.grant(more_ms)

    @property
    def cancelled(self) -> bool:
        """Whether the job is to end: somebody has cancelled it, or another worker may have it by now."""
        return self._token is not None and self._token.check()

    @property
    def reason(self) -> str | None:
        """Why it is to end; None while it is not."""
        return None if self._token is None else self._token.reason

    def raise_if_cancelled(self) -> None:
        """Raises `Cancelled` when the job is to end. To be called now and then by a plain function that runs long."""
        if (reason := self.reason) is not None:
            raise Cancelled(reason)

    def children(self) -> tuple[Child, ...]:
        """The jobs that it has waited for, in the order they were given; none when it is no flow's parent.

        Raises what a verb raises, and `ResultError` for a result that cannot be read (protocol §8).
        """
        from echomq.app import holes

        self._mq.warn_on_a_loop("children")
        return holes.children(*self._mq.run(holes.read(self.queue, self.id)), self._mq.codecs)

    async def achildren(self) -> tuple[Child, ...]:
        """`children`, awaited."""
        from echomq.app import holes

        return holes.children(*await self._mq.arun(holes.read(self.queue, self.id)), self._mq.codecs)

    def progress(self, value: float | str) -> None:
        """Says how far it is, in a number or in words: kept with the job while it lives, and published."""
        call = self._progress(value)
        self._mq.warn_on_a_loop("progress")
        self._mq.run(call)

    async def aprogress(self, value: float | str) -> None:
        """`progress`, awaited."""
        await self._mq.arun(self._progress(value))

    def log(self, line: str, *, keep: int = admin.KEEP_LINES) -> None:
        """Adds a line to the job's log, of which the newest `keep` are kept while the job lives."""
        call = admin.add_log(self.queue, self.id, line, keep=keep)
        self._mq.warn_on_a_loop("log")
        self._mq.run(call)

    async def alog(self, line: str, *, keep: int = admin.KEEP_LINES) -> None:
        """`log`, awaited."""
        await self._mq.arun(admin.add_log(self.queue, self.id, line, keep=keep))

    @property
    def limit_ms(self) -> int | None:
        """How long it may take in all."""
        return self._limit_ms

    def enter(self, timeout_ms: int | None, move: Callable[[int], None] | None = None) -> None:
        """Makes it the current job of the task or thread that calls this, and begins its time. For the worker.

        `move` is called when that is given more of it, in any thread.
        """
        self._limit_ms = timeout_ms
        self._move = move
        if timeout_ms is not None:
            self._started = datetime.now(UTC)
        _current.set(self)

    def _progress(self, value: float | str) -> Call[bool]:
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise InvalidInputError(f"progress must be a number or text, not {type(value).__name__}: {value!r:.200}")
        if isinstance(value, float) and not math.isfinite(value):
            raise InvalidInputError(f"progress must be a finite number or text, not {value!r}")
        return admin.update_progress(self.queue, self.id, str(value))


_current: Final[ContextVar[JobContext]] = ContextVar("echomq_current_job")


def current_job() -> JobContext:
    """The job that this code runs in, whether in its coroutine, in a task of that, or in its thread.

    `InvalidInputError` where no worker runs it. A thread that a job starts by itself inherits nothing: hand it the
    `JobContext`.
    """
    job = _current.get(None)
    if job is None:
        raise InvalidInputError("no job runs here: current_job() is for code that a worker runs")
    return job
