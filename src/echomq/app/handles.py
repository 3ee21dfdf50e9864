"""What an enqueue gives back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

from echomq.identity.branded import unix_ms
from echomq.protocol import admin, metrics
from echomq.protocol.admin import Cancellation
from echomq.protocol.replies import State

if TYPE_CHECKING:
    from echomq.app.echomq import EchoMQ

R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Job(Generic[R_co]):
    """A job that the server has accepted; `R_co` is what its function returns.

    `id` is the receipt: with it, any verb of `echomq.jobs` and `echomq.metrics` finds the job in `queue`.
    `duplicate` says that there was no need of another job: this is the living one that holds the deduplication key.
    """

    id: str
    name: str
    queue: str
    duplicate: bool
    mq: EchoMQ = field(repr=False, compare=False)

    @property
    def minted_ms(self) -> int:
        """When the id was minted, Unix ms, by this host's clock."""
        return unix_ms(self.id)

    def state(self) -> State:
        """Where the job is now; `ABSENT` when it is completed, or was removed."""
        self.mq.warn_on_a_loop("state")
        return self.mq.run(metrics.state(self.queue, self.id))

    async def astate(self) -> State:
        """`state`, awaited."""
        return await self.mq.arun(metrics.state(self.queue, self.id))

    def progress(self) -> str | None:
        """What the job has last said with `current_job().progress(...)`; None when it has said nothing, or is gone."""
        self.mq.warn_on_a_loop("progress")
        return self.mq.run(metrics.progress(self.queue, self.id))

    async def aprogress(self) -> str | None:
        """`progress`, awaited."""
        return await self.mq.arun(metrics.progress(self.queue, self.id))

    def cancel(self, reason: str = "cancelled") -> Cancellation:
        """Cancels the job: one that does not run goes to the morgue, one that runs is told.

        `DEAD`, `REQUESTED`, or `GONE` for a job that is completed or was removed.
        """
        call = admin.cancel_job(self.queue, self.id, reason=reason)
        self.mq.warn_on_a_loop("cancel")
        return self.mq.run(call)

    async def acancel(self, reason: str = "cancelled") -> Cancellation:
        """`cancel`, awaited."""
        return await self.mq.arun(admin.cancel_job(self.queue, self.id, reason=reason))
