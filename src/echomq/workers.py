"""The registry of live workers, in public: see `echomq.protocol.workers`."""

from echomq.protocol.workers import *  # noqa: F403
from echomq.protocol.workers import __all__ as __all__
