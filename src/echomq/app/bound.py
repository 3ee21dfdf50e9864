"""A call of a job as a value, ready to be sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

if TYPE_CHECKING:
    from echomq.app.job import JobFunction
    from echomq.app.options import Options

R_co = TypeVar("R_co", covariant=True)


class Bound(msgspec.Struct, Generic[R_co], frozen=True):
    """A job with its options and its arguments, what `send.s(...)` gives; `R_co` is what its function returns.

    The arguments are checked and encoded already: what the caller changes afterwards is not sent. It may be sent as
    often as wanted, each time as another job.
    """

    job: JobFunction[..., R_co]
    options: Options
    encoded: bytes
    """Its envelope, but for what depends on when it is sent."""
    takes: tuple[tuple[int | str, str], ...] = ()
    """The arguments that its children will know, by place or by name: such a call goes only into a flow."""

    @property
    def queue(self) -> str:
        """The queue that it goes to."""
        queue = self.options.queue
        return self.job.queue if queue is None else self.job.mq.placed(queue)

    @property
    def payload(self) -> bytes:
        """Its envelope (protocol §13) if it is sent now: `expires` counts from here."""
        if self.options.expires_ms is None:
            return self.encoded
        return b'%b,"expires_ms":%d}' % (self.encoded[:-1], self.options.expires_at_ms())

    def __repr__(self) -> str:
        return f"<call of {self.job.name} for {self.queue}, {len(self.encoded)} bytes>"


def said(bound: Bound[Any]) -> str:
    """A call as an error speaks of it: its job and its queue, and no argument's value."""
    return f"job {bound.job.name!r} of queue {bound.queue!r}"


def said_argument(bound: Bound[Any], place: int | str) -> str:
    """An argument of a call, given by its place or its name, as an error speaks of it."""
    return f"argument {bound.job.arguments.name_of(place)!r} of {said(bound)}"
