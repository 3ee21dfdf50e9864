"""The verbs of lanes, in public: see `echomq.protocol.lanes`."""

from echomq.protocol.lanes import *  # noqa: F403  (all that it exports, under the name that users import)
from echomq.protocol.lanes import __all__ as __all__
