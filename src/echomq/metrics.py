"""Counting and looking, in public: see `echomq.protocol.metrics`."""

from echomq.protocol.metrics import *  # noqa: F403
from echomq.protocol.metrics import __all__ as __all__
