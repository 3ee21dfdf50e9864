"""The registry of live workers, in public: see `echomq.protocol.workers`."""

from echomq.protocol.workers import *  # noqa: F403  (all that it exports, under the name that users import)
from echomq.protocol.workers import __all__ as __all__
