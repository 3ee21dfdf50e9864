"""Floor 3, the runtime: the loops that claim, run, settle, promote, recur, recover and keep leases."""

from __future__ import annotations

from echomq.protocol.errors import JobCancelledError
from echomq.runtime.budget import Budget
from echomq.runtime.cancel import CancelToken, current_token
from echomq.runtime.consumer import Consumer
from echomq.runtime.dial import Dial
from echomq.runtime.leases import LeaseKeeper
from echomq.runtime.metronome import Metronome
from echomq.runtime.outcome import Bury, Done, Lapsed, Later, Outcome, Retry
from echomq.runtime.presence import Identity, identity
from echomq.runtime.pump import Pump
from echomq.runtime.runner import Handler, InThread, Router
from echomq.runtime.settle import Tally
from echomq.runtime.signals import Signal
from echomq.runtime.stalled import StalledSweep
from echomq.runtime.telemetry import Step, Telemetry, hub

__all__ = [
    "Budget",
    "Bury",
    "CancelToken",
    "Consumer",
    "Dial",
    "Done",
    "Handler",
    "Identity",
    "InThread",
    "JobCancelledError",
    "Lapsed",
    "Later",
    "LeaseKeeper",
    "Metronome",
    "Outcome",
    "Pump",
    "Retry",
    "Router",
    "Signal",
    "StalledSweep",
    "Step",
    "Tally",
    "Telemetry",
    "current_token",
    "hub",
    "identity",
]
