"""What becomes of a job for whoever waits for it: its result, or the error that says why there is none."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from echomq.app.errors import NoResultError, ResultError, ResultTimeoutError
from echomq.app.failures import failure_of
from echomq.app.returns import Returns
from echomq.app.times import first_ms
from echomq.protocol.replies import State
from echomq.protocol.results import Ending

if TYPE_CHECKING:
    from echomq.app.handles import Job

__all__ = ["limit_s", "value_of"]


def limit_s(job: Job[Any], timeout: timedelta | None) -> float | None:
    """How long to wait for `job`, in seconds; `InvalidInputError` for what is no timedelta of zero or more.

    `NoResultError` when there is nothing to wait for.
    """
    seconds = None if timeout is None else first_ms("timeout", timeout) / 1_000
    if not job.keeps_result:
        raise NoResultError(
            f"job {job.id} ({job.name}) keeps no result: its result_ttl is zero; job.state() tells whether it is done"
        )
    return seconds


def value_of(job: Job[Any], ending: Ending, waited_s: float | None) -> Any:
    """What `job` has returned, when this is what became of it after a wait of `waited_s`."""
    if ending.result is not None:
        function = job.mq.names.get(job.name)
        try:
            returns = Returns("", None, job.mq.codecs, 0) if function is None else function.returns
            return returns.value(ending.result)
        except ResultError as error:
            raise type(error)(f"job {job.id}{_named(job)}: {error}") from error.__cause__
    if ending.state is State.DEAD:
        raise failure_of(
            job.id, job.name, job.queue, reason=ending.error, failures=ending.failures, stalled=ending.stalled
        )
    if ending.state is State.ABSENT:
        raise NoResultError(
            f"job {job.id}{_named(job)} is not in {job.queue} and has left no result: it was removed, its result_ttl "
            "is over or was zero, or it never was in this queue"
        )
    where = f"it is {ending.state.value}"
    if ending.state is State.UNKNOWN:
        where = "the server has not said where it is"
    raise ResultTimeoutError(
        f"job {job.id}{_named(job)} has not ended after {waited_s or 0:g} s: {where}", ending.state
    )


def _named(job: Job[Any]) -> str:
    return f" ({job.name})" if job.name else ""
