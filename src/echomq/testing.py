"""Testing an app (docs/testing.md): what `mq.testing()` and `mq.eager()` open, and what they tell.

`with mq.testing():` starts a real server for a test; the rest is on the app: `mq.drain()`, `mq.clock`,
`mq.enqueued()`, `mq.assert_enqueued(...)`. With pytest, the plugin `echomq` has fixtures for it.
"""

from echomq.app.clock import Clock
from echomq.app.drained import Drained, Ran
from echomq.app.eager import Eager
from echomq.app.enqueued import Enqueued
from echomq.app.joblog import End
from echomq.app.throwaway import Throwaway
from echomq.app.trial import ServerTrial, Trial

__all__ = ["Clock", "Drained", "Eager", "End", "Enqueued", "Ran", "ServerTrial", "Throwaway", "Trial"]
