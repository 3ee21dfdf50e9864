"""Counting and looking, in public: see `echomq.protocol.metrics`."""

from echomq.protocol.metrics import *  # noqa: F403  (all that it exports, under the name that users import)
from echomq.protocol.metrics import __all__ as __all__
