"""A job of a flow that takes what its children have returned: read when it begins, put into its arguments.

A read that the connection fails costs no attempt: the job is put off.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from echomq.app.errors import EnvelopeError, ResultError
from echomq.app.holes import Results, children, filled, read
from echomq.protocol.errors import WireError
from echomq.runtime.outcome import Bury, Later, Outcome

if TYPE_CHECKING:
    from echomq.app.envelope import Envelope
    from echomq.app.job import JobFunction
    from echomq.protocol.replies import Claimed

log: Final = logging.getLogger("echomq.worker")

_AGAIN_MS: Final = 1_000

Call: TypeAlias = tuple[tuple[object, ...], dict[str, object]]


class Filling:
    """The call of one job, whose arguments are not all known yet."""

    __slots__ = ("_claimed", "_envelope", "_job", "_queue")

    def __init__(self, queue: str, claimed: Claimed, job: JobFunction[..., Any], envelope: Envelope) -> None:
        self._queue = queue
        self._claimed = claimed
        self._job = job
        self._envelope = envelope

    async def awaited(self, run: Callable[..., Awaitable[Outcome]]) -> Outcome:
        """Reads on the running loop, then awaits `run(args, kwargs)`."""
        try:
            call = self._call(await self._job.mq.arun(read(self._queue, self._claimed.id)))
        except (EnvelopeError, ResultError, WireError) as error:
            return self._outcome(error)
        return await run(*call)

    def called(self, run: Callable[..., object]) -> object:
        """Reads in the job's thread, then calls `run(args, kwargs)`."""
        try:
            call = self._call(self._job.mq.run(read(self._queue, self._claimed.id)))
        except (EnvelopeError, ResultError, WireError) as error:
            return self._outcome(error)
        return run(*call)

    def _call(self, found: tuple[Results, Results]) -> Call:
        return self._job.arguments.incoming(*filled(self._envelope, children(*found, self._job.mq.codecs)))

    def _outcome(self, error: Exception) -> Outcome:
        if isinstance(error, WireError):
            log.warning(
                "%s %s: what its children returned cannot be read now, again in %d ms: %s",
                self._claimed.id,
                self._job.name,
                _AGAIN_MS,
                error,
            )
            return Later(_AGAIN_MS, yield_time=True)
        return Bury(str(error))
