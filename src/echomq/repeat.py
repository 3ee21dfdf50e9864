"""The recurrence verbs, in public: see `echomq.protocol.repeat`."""

from echomq.protocol.repeat import *  # noqa: F403
from echomq.protocol.repeat import __all__ as __all__
