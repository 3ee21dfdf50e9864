"""What an enqueue gives back: where the job is, what it says, how it ends and what it has returned."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from echomq.identity.branded import unix_ms
from echomq.protocol import admin, metrics
from echomq.protocol.admin import Cancellation
from echomq.protocol.replies import State

if TYPE_CHECKING:
    from echomq.app.echomq import EchoMQ
    from echomq.app.job_events import JobEvents

R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Job(Generic[R_co]):
    """A job that the server has accepted; `R_co` is what its function returns.

    `id` is the receipt: with it, any verb of `echomq.jobs` and `echomq.metrics` finds the job in `queue`, and
    `send.handle(id)` gives such a handle in another process. `duplicate` says that there was no need of another job:
    this is the living one that holds the deduplication key.
    """

    id: str
    name: str
    queue: str
    duplicate: bool
    mq: EchoMQ = field(repr=False, compare=False)
    keeps_result: bool = field(default=True, repr=False, compare=False)
    """False when it was sent to keep none (`result_ttl` zero)."""

    @property
    def minted_ms(self) -> int:
        """When the id was minted, Unix ms, by this host's clock."""
        return unix_ms(self.id)

    async def result(self, timeout: timedelta | None = None) -> R_co:  # noqa: ASYNC109  (it says where the job was)
        """Waits until the job has ended, and gives what it has returned, of the type that its annotation says.

        However many are waited for, they cost one subscription a queue:
        `await asyncio.gather(*[job.result() for job in jobs])`. `timeout` is a timedelta on this host's clock; zero
        looks once, None waits for ever, also while the connection is lost. Raises `JobFailed` when the job is in the
        morgue, `JobCancelled` when it was cancelled, `ResultTimeoutError` when it has not ended, `NoResultError` when
        it is gone and has left nothing, or keeps nothing, `ResultError` when it is done and what it returned could not
        be kept.
        """
        from echomq.app.results import limit_s, value_of

        seconds = limit_s(self, timeout)
        ending = await self.mq.aending(self.queue, self.id, seconds)
        return cast("R_co", value_of(self, ending, seconds))

    def get(self, timeout: timedelta | None = None) -> R_co:
        """`result`, blocking; for threads. The first that has to wait starts a thread that waits for all of them."""
        from echomq.app.results import limit_s, value_of

        seconds = limit_s(self, timeout)
        self.mq.warn_on_a_loop("get", "await result()")
        ending = self.mq.ending(self.queue, self.id, seconds)
        return cast("R_co", value_of(self, ending, seconds))

    def events(self, timeout: timedelta | None = None) -> JobEvents:
        """What happens to the job until it has ended: `async for event in job.events()`, or `for` in a thread.

        The last event is `completed`, `dead`, or `cancelled` with the `state` `dead`; it comes whatever is published.
        The others are those of protocol §10, each at most once: `progress` always, the rest where `EchoMQ(events=True)`
        or a worker with events publishes them. `ResultTimeoutError` when the job has not ended after `timeout`, a
        timedelta on this host's clock; None waits for ever.
        """
        from echomq.app.job_events import JobEvents

        return JobEvents(self, timeout)

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
