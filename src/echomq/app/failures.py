"""What waiting for a job's result raises, and why it has none."""

from __future__ import annotations

from echomq.app.text import parts_of
from echomq.identity.errors import EchoMQError
from echomq.protocol.replies import State

__all__ = ["JobCancelled", "JobFailed", "NoResultError", "ResultError", "ResultTimeoutError", "failure_of"]


class ResultError(EchoMQError):
    """A result that cannot be had. By itself: the job is done, and what it returned could not be kept or read."""


class NoResultError(ResultError):
    """There is no result and there will be none: the job keeps none, was removed, or its result's time is over."""


class ResultTimeoutError(ResultError, TimeoutError):
    """The job had not ended when the time to wait was over; it goes on. `state`: where it was when last looked at."""

    def __init__(self, message: str, state: State) -> None:
        super().__init__(message)
        self.state = state

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.state)


class JobFailed(ResultError):  # noqa: N818  (the word that the field uses, as in `except JobFailed`)
    """The job lies in the morgue: it has failed as often as it may, or was given up.

    `id`, `name` and `queue` are the job's, `attempt` is the number of its last one, `error` the reason as the morgue
    has it: of an exception its type and text. `traceback` is that of the worker, as text; it is shown as a note, too.
    """

    def __init__(self, job_id: str, name: str, queue: str, attempt: int, reason: str) -> None:
        error, frames = parts_of(reason)
        who = f"job {job_id} ({name})" if name else f"job {job_id}"
        super().__init__(f"{who} of {queue} {self._ended(attempt)}: {error}")
        self.id = job_id
        self.name = name
        self.queue = queue
        self.attempt = attempt
        self.error = error
        self.traceback = frames
        self._reason = reason
        if frames:
            self.add_note(f"In the worker, the innermost call last:\n{frames}")

    def _ended(self, attempt: int) -> str:
        return f"failed at attempt {attempt}"

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.id, self.name, self.queue, self.attempt, self._reason)


class JobCancelled(JobFailed):
    """The job lies in the morgue because somebody has cancelled it, or because it has ended itself so."""

    def _ended(self, attempt: int) -> str:
        del attempt
        return "was cancelled"


def failure_of(job_id: str, name: str, queue: str, *, reason: str, failures: int, stalled: int) -> JobFailed:
    """The error that a dead job's row speaks of. A lapse ends an attempt that no failure counts."""
    kind = JobCancelled if reason.startswith("cancelled") else JobFailed
    attempt = failures + 1 if stalled and reason.startswith("stalled") else failures
    return kind(job_id, name, queue, attempt, reason)
