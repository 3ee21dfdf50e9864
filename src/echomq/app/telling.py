"""Telling that a job was added, or cancelled: to the process's observers, and on the queue's channel when events are
wanted.

A program that only sends has not imported the runtime; then nobody observes, and nothing is imported here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

from echomq.protocol.admin import BURIED
from echomq.protocol.admission import Admitted
from echomq.protocol.call import Call, Plan, Reply
from echomq.protocol.cron import Ran
from echomq.protocol.discover import queue_of
from echomq.protocol.replies import Admission
from echomq.wire.plans import mapped

if TYPE_CHECKING:
    from echomq.runtime.bereaved import Bereaved
    from echomq.runtime.telemetry import Step

T = TypeVar("T")

_RUNTIME: Final = "echomq.runtime.telemetry"


def added(queue: str, admitted: Admitted, *, events: bool) -> Call[None] | None:
    """Tells this process's observers; gives the call that publishes it, when `events` are wanted (protocol §10)."""
    if not events and _RUNTIME not in sys.modules:
        return None
    from echomq.runtime.publishing import publication
    from echomq.runtime.telemetry import Added, hub

    if not events and not hub.observers:
        return None
    step = Added(queue, admitted.id, admitted.verdict)
    hub.emit(step)
    return publication(step) if events else None


def overhearing(*, events: bool) -> Overhearing | None:
    """Who is to hear what the verbs do that an app runs; None when nobody listens."""
    if not events:
        if _RUNTIME not in sys.modules:
            return None
        from echomq.runtime.telemetry import hub

        if not hub.observers:
            return None
    return Overhearing(events=events)


class Overhearing:
    """Hears what the calls of one verb have added and cancelled: a flow's nodes, an occurrence, a job that waited.

    A send tells by itself: only it knows whether an id that was taken is minted anew.
    """

    def __init__(self, *, events: bool) -> None:
        self._events = events
        self._steps: list[Step] = []
        self._notes: list[Call[None]] = []
        self._bereaved: list[Bereaved] = []
        self._noted = 0
        self._looks: list[int] = []

    def work(self, work: Call[T] | Plan[T]) -> Call[T] | Plan[T]:
        """The same work, overheard."""
        return self._call(work) if isinstance(work, Call) else mapped(work, self._call)

    def told(self) -> list[Call[Any]]:
        """Tells the observers what has happened; gives the calls that publish what is still to be published.

        Others look which parents have died with a job that was cancelled: `answered` is to be told what became of them.
        """
        from echomq.runtime.bereaved import Bereaved
        from echomq.runtime.telemetry import Cancelled, Telemetry

        steps, self._steps = self._steps, []
        for step in steps:
            self._tell(step)
            if isinstance(step, Cancelled):
                bereaved = Bereaved(step.queue, Telemetry(self._tell))
                bereaved.saw(step.job)
                self._bereaved.append(bereaved)
        return self._calls()

    def answered(self, answers: list[Any]) -> list[Call[Any]]:
        """Takes an answer, or an error, for each of those calls; gives the next ones, until there are none."""
        rest = iter(answers[self._noted :])
        for bereaved, count in zip(self._bereaved, self._looks, strict=True):
            bereaved.answered(islice(rest, count))
        return self._calls()

    def _calls(self) -> list[Call[Any]]:
        notes, self._notes = self._notes, []
        looks = [each.calls() for each in self._bereaved]
        self._noted, self._looks = len(notes), [len(each) for each in looks]
        return [*notes, *(call for each in looks for call in each)]

    def _tell(self, step: Step) -> None:
        from echomq.runtime.publishing import publication
        from echomq.runtime.telemetry import Cancelled, hub

        hub.emit(step)
        # A cancel is published by its script.
        if self._events and not isinstance(step, Cancelled) and (note := publication(step)) is not None:
            self._notes.append(note)

    def _call(self, call: Call[T]) -> Call[T]:
        steps = _STEPS.get(call.script.name) if call.script is not None else None
        if steps is None:
            return call

        def decode(reply: Reply) -> T:
            value = call.decode(reply)
            self._steps += steps(call, reply, value)
            return value

        return replace(call, decode=decode)


def _queue(call: Call[Any]) -> str:
    return queue_of(call.keys[0].encode()) or ""


def _nodes(call: Call[Any], reply: Reply, verdicts: tuple[Admission, ...]) -> Iterator[Step]:
    from echomq.runtime.telemetry import Added

    del reply
    for job_id, verdict in zip(call.args[::5], verdicts, strict=True):
        yield Added(_queue(call), str(job_id), verdict)


def _occurrence(call: Call[Any], reply: Reply, ran: tuple[Ran, str]) -> Iterator[Step]:
    from echomq.runtime.telemetry import Added

    del reply
    verdict, job_id = ran
    if verdict in (Ran.ADMITTED, Ran.HELD):
        yield Added(_queue(call), job_id, Admission.ADMITTED if verdict is Ran.ADMITTED else Admission.DUPLICATE)


def _cancelled(call: Call[Any], reply: Reply, verdict: object) -> Iterator[Step]:
    from echomq.runtime.telemetry import Cancelled

    del verdict
    job_id, reason = call.args
    if reply == BURIED and isinstance(reason, bytes):
        yield Cancelled(_queue(call), str(job_id), reason.decode("utf-8", "replace"))


_STEPS: Final[dict[str, Callable[[Call[Any], Reply, Any], Iterator[Step]]]] = {
    "flow_add": _nodes,
    "cron_run": _occurrence,
    "cancel_job": _cancelled,
}
"""By the script of a call: the steps that its reply, and what it means, tell of."""
