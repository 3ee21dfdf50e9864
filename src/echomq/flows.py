"""The verbs of flows, in public: see `echomq.protocol.flows`."""

from echomq.protocol.flows import *  # noqa: F403  (all that it exports, under the name that users import)
from echomq.protocol.flows import __all__ as __all__
