"""The verbs of flows, in public: see `echomq.protocol.flows`."""

from echomq.protocol.flows import *  # noqa: F403
from echomq.protocol.flows import __all__ as __all__
