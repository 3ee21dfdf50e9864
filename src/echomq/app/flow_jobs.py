"""What sending a flow gives back: a handle of every job in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar

from echomq.app.handles import Job

R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True, slots=True)
class FlowJobs(Generic[R_co]):
    """The jobs of a flow that the server has accepted, as a tree."""

    job: Job[R_co]
    """The one that waits for the others; its end is the flow's."""
    children: tuple[FlowJobs[Any], ...]
    """Those it waits for, in the order they were given."""

    def __iter__(self) -> Iterator[Job[Any]]:
        """Every job of the flow, a parent before its children."""
        yield self.job
        for child in self.children:
            yield from child

    async def result(self, timeout: timedelta | None = None) -> R_co:  # noqa: ASYNC109  (as `Job.result`)
        """What the flow comes to: the result of its last job. See `Job.result`."""
        return await self.job.result(timeout)

    def get(self, timeout: timedelta | None = None) -> R_co:
        """`result`, blocking. See `Job.get`."""
        return self.job.get(timeout)
