"""The audit of a queue, in public: see `echomq.protocol.audit`."""

from echomq.protocol.audit import *  # noqa: F403  (all that it exports, under the name that users import)
from echomq.protocol.audit import __all__ as __all__
