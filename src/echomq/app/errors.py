"""What the app tier refuses, and what it warns about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from echomq.app.failures import JobCancelled, JobFailed, NoResultError, ResultError, ResultTimeoutError
from echomq.identity.errors import EchoMQError, InvalidInputError

if TYPE_CHECKING:
    from echomq.app.handles import Job

__all__ = [
    "BlockingCallWarning",
    "DrainTimeoutError",
    "EagerError",
    "EnqueueManyError",
    "EnvelopeError",
    "JobCancelled",
    "JobDefinitionError",
    "JobFailed",
    "NoResultError",
    "NotTestingError",
    "ResultError",
    "ResultTimeoutError",
    "SerializationError",
    "StartupError",
    "UndeclaredQueueWarning",
]


class JobDefinitionError(InvalidInputError):
    """A function that cannot be a job as it stands: its kind, its name, its options or its annotations."""


class SerializationError(InvalidInputError):
    """An argument that JSON cannot carry to the worker unaltered; names the job and the argument."""


class EnvelopeError(EchoMQError):
    """A payload that this worker cannot read; its text is the reason that the morgue shows."""


class StartupError(EchoMQError):
    """Something that a worker has to begin with has raised: a start-up hook, a lifespan or a dependency of scope
    `worker`. Its own error is the cause; no job was claimed, and what was begun before it is ended."""


class NotTestingError(EchoMQError):
    """What is only for tests, `mq.drain()`, `mq.clock` and so on, was used outside of `mq.testing()`."""


class EagerError(EchoMQError):
    """Something was asked of a server where there is none: in `mq.eager()` a job runs where it is sent."""


class DrainTimeoutError(EchoMQError, TimeoutError):
    """`mq.drain()` took longer than its `timeout`. The jobs in hand were handed back; what is left still waits."""


class EnqueueManyError(EchoMQError):
    """Some jobs of an `enqueue_many` were not accepted, after all were tried; the others are sent.

    `jobs` has a handle for each call, in order, also for those that failed: its `state()` tells whether the server
    has that one all the same. `errors` has the failures, by their place in `jobs`.
    """

    def __init__(self, message: str, jobs: Sequence[Job[Any]], errors: Mapping[int, EchoMQError]) -> None:
        super().__init__(message)
        self.jobs = tuple(jobs)
        self.errors = dict(errors)

    @property
    def sent(self) -> list[Job[Any]]:
        """The jobs that the server has accepted, in order."""
        return [job for place, job in enumerate(self.jobs) if place not in self.errors]


class BlockingCallWarning(RuntimeWarning):
    """`enqueue` was called on a running event loop, which stands still until the server answers."""


class UndeclaredQueueWarning(RuntimeWarning):
    """A queue was named that no worker of this app serves: no job is in it, and the app does not declare it."""
