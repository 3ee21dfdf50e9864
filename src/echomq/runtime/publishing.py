"""Publishing what happens to jobs on their queue's channel (protocol §10): an observer like any other, opt-in."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from echomq.identity.errors import EchoMQError
from echomq.protocol.call import Call
from echomq.protocol.keys import keys
from echomq.protocol.replies import Admission, ignored
from echomq.runtime.telemetry import (
    Added,
    Cancelled,
    Completed,
    Dead,
    Delayed,
    JobStep,
    Retried,
    Stalled,
    Started,
    Step,
    Telemetry,
)

_ADDED = {Admission.ADMITTED: "enqueued", Admission.SCHEDULED: "scheduled"}


def event_of(step: Step) -> dict[str, str] | None:
    """The event that says this step to others, all values text; None for one that is not published."""
    words: dict[str, str]
    match step:
        case Started():
            words = {"event": "active", "attempt": str(step.attempt)}
        case Completed():
            words = {"event": "completed", "attempt": str(step.attempt)}
        case Retried():
            words = {"event": "retried", "attempt": str(step.attempt), "error": step.error}
        case Delayed():
            words = {"event": "delayed", "delay_ms": str(step.delay_ms)}
        case Dead():
            words = {"event": "dead", "error": step.error}
        case Stalled():
            words = {"event": "stalled", "state": "dead" if step.dead else "pending"}
        case Cancelled():
            words = {"event": "cancelled", "error": step.reason, "state": "dead"}
        case Added() if step.admission in _ADDED:
            words = {"event": _ADDED[step.admission]}
        case _:
            return None
    return words | {"job": step.job} if isinstance(step, JobStep) else None


def publication(step: Step) -> Call[None] | None:
    """The call that publishes a step; None when it is not published."""
    event = event_of(step)
    if event is None:
        return None
    text = json.dumps(event).encode("utf-8", "backslashreplace")
    return Call("publish", (keys(step.queue).events,), (text,), ignored, command="PUBLISH", subject=step.queue)


def published(watch: Telemetry, submit: Callable[[Call[None]], Any]) -> Telemetry:
    """Observers who are told what those of `watch` are, and have it published too, on a connection of their own."""
    return Telemetry(watch.emit, Publisher(submit))


class Publisher:
    """Publishes each step in the flight that leaves next. At most once: what cannot leave is counted and dropped."""

    def __init__(self, submit: Callable[[Call[None]], Any]) -> None:
        self._submit = submit
        self.dropped = 0

    def __call__(self, step: Step) -> None:
        """Publish one step."""
        call = publication(step)
        if call is not None:
            try:
                self._submit(call).add_done_callback(self._answered)
            except EchoMQError:
                self.dropped += 1

    def _answered(self, future: Any) -> None:
        if future.cancelled() or future.exception() is not None:
            self.dropped += 1
