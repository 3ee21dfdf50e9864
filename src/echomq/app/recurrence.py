"""A job that comes again: a registration by name that a worker's pump keeps firing (protocol §9)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, ParamSpec

from echomq.protocol import repeat
from echomq.protocol.call import Call
from echomq.protocol.repeat import Registration

if TYPE_CHECKING:
    from echomq.app.job import JobFunction

P = ParamSpec("P")


class Recurrence(Generic[P]):
    """A job with a period and a name, ready to be registered with its arguments."""

    def __init__(self, job: JobFunction[P, Any], name: str, every_ms: int, first_in_ms: int) -> None:
        self._job = job
        self.name = name
        self.every_ms = every_ms
        self.first_in_ms = first_in_ms

    def __repr__(self) -> str:
        return f"<recurrence {self.name} of {self._job.name} every {self.every_ms} ms>"

    def register(self, *args: P.args, **kwargs: P.kwargs) -> Registration:
        """Registers it, or brings the registration of that name up to date; says which.

        The next run stays unless the period changes; a first one is `first_in` after the server's now (protocol §9).
        Each occurrence is a fresh job with these arguments; a time when no worker ran leaves no backlog.

        Raises as `enqueue` does: `TypeError` and `InvalidInputError` before anything is sent, then `WireError` or
        `ServerError`.
        """
        call = self._upsert(self._job.payload(args, kwargs))
        self._job.mq.warn_on_a_loop("register")
        return self._job.mq.run(call)

    async def aregister(self, *args: P.args, **kwargs: P.kwargs) -> Registration:
        """`register`, awaited."""
        return await self._job.mq.arun(self._upsert(self._job.payload(args, kwargs)))

    def cancel(self) -> bool:
        """Ends it; False when there was none of that name. Occurrences that were admitted stay."""
        return self._job.mq.run(repeat.cancel(self._job.queue, self.name))

    async def acancel(self) -> bool:
        """`cancel`, awaited."""
        return await self._job.mq.arun(repeat.cancel(self._job.queue, self.name))

    def _upsert(self, template: bytes) -> Call[Registration]:
        return repeat.upsert(
            self._job.queue,
            self.name,
            every_ms=self.every_ms,
            template=template,
            first_in_ms=self.first_in_ms,
        )
