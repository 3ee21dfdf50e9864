"""Telling that a job was added: to the process's observers, and on the queue's channel when events are wanted."""

from __future__ import annotations

import sys

from echomq.protocol.admission import Admitted
from echomq.protocol.call import Call


def added(queue: str, admitted: Admitted, *, events: bool) -> Call[None] | None:
    """Tells the observers of this process; gives the call that publishes it, when `events` are wanted (protocol §10).

    A program that only sends has not imported the runtime; then nobody observes, and nothing is imported here.
    """
    if not events and "echomq.runtime.telemetry" not in sys.modules:
        return None
    from echomq.runtime.publishing import publication
    from echomq.runtime.telemetry import Added, hub

    if not events and not hub.observers:
        return None
    step = Added(queue, admitted.id, admitted.verdict)
    hub.emit(step)
    return publication(step) if events else None
