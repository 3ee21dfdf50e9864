"""The one place where every step of a job's life, and of a worker's, can be observed.

An observer is a plain callable that is given a `Step`. It is called on the event loop of the consumer that saw the
step, after the server has confirmed it, and must not block. Nobody listening costs one look at an attribute. One that
raises is logged once, and never harms a job.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from echomq.identity.errors import InvalidInputError
from echomq.protocol.replies import Admission, Idle
from echomq.runtime.loops import log, told
from echomq.runtime.outcome import brief


@dataclass(frozen=True, slots=True)
class Step:
    """Something that has happened in a queue."""

    queue: str


@dataclass(frozen=True, slots=True)
class JobStep(Step):
    """Something that has happened to a job."""

    job: str


@dataclass(frozen=True, slots=True)
class Added(JobStep):
    """It was admitted, or was there already. Told by its producer, and by the process that has fired a recurrence."""

    admission: Admission


@dataclass(frozen=True, slots=True)
class Started(JobStep):
    """Its handler is about to run. `attempt` is 1 at first, and one more after each failure."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Completed(JobStep):
    """It is done, and its row is gone."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Failed(JobStep):
    """An attempt failed; `Retried`, `Dead` or `Cancelled` says what follows."""

    attempt: int
    error: str


@dataclass(frozen=True, slots=True)
class Retried(JobStep):
    """Another attempt is on the schedule."""

    attempt: int
    error: str


@dataclass(frozen=True, slots=True)
class Delayed(JobStep):
    """It was put off, and no attempt was spent."""

    delay_ms: int


@dataclass(frozen=True, slots=True)
class Dead(JobStep):
    """It is in the morgue, for this reason."""

    error: str


@dataclass(frozen=True, slots=True)
class Stalled(JobStep):
    """Its lease had lapsed and was counted; `dead` when that was its end, and `Dead` or `Cancelled` follows."""

    dead: bool


@dataclass(frozen=True, slots=True)
class Cancelled(JobStep):
    """It is in the morgue because somebody wished it so.

    Told by the worker that had it in hand, or, when it waited, by the process that has cancelled it. A worker that had
    not heard of the wish, and finds the job buried for it, gives `cancelled` as the reason; the row has the whole.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class WorkerStarted(Step):
    """A consumer serves the queue; `worker` is its name in the registry."""

    worker: str


@dataclass(frozen=True, slots=True)
class WorkerStopped(Step):
    """It serves the queue no more."""

    worker: str


@dataclass(frozen=True, slots=True)
class LimitHit(Step):
    """A claim brought less than there was, because of the queue's ceiling or rate."""

    limit: Idle


Observer: TypeAlias = Callable[[Step], object]


class Telemetry:
    """Observers, and who tells them. `observers` is empty when nobody listens: look there before making a step."""

    __slots__ = ("_faulty", "observers")

    def __init__(self, *observers: Observer) -> None:
        self.observers = observers
        self._faulty = list[Observer]()

    def observe(self, observer: Observer) -> Callable[[], None]:
        """Tell `observer` every step from now on; call what this gives to end that."""
        if not callable(observer):
            raise InvalidInputError(f"an observer must be callable, not {observer!r}")
        self.observers = (*self.observers, observer)

        def end() -> None:
            self.observers = tuple(each for each in self.observers if each is not observer)

        return end

    def emit(self, step: Step) -> None:
        """Tell every observer."""
        for observer in self.observers:
            try:
                observer(step)
            except Exception as error:  # noqa: BLE001  (an observer may raise anything; the jobs go on)
                if not any(each is observer for each in self._faulty):
                    self._faulty.append(observer)
                    log.error(
                        "observer %s raised at %s; said once, it is told all the same: %s",
                        *(brief(observer), brief(step), told(error)),
                    )


hub: Final = Telemetry()
"""The process's own: consumers tell it unless they are given another one."""
