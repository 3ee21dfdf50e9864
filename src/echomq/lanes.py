"""The verbs of lanes, in public: see `echomq.protocol.lanes`."""

from echomq.protocol.lanes import *  # noqa: F403
from echomq.protocol.lanes import __all__ as __all__
