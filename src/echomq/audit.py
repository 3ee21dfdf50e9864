"""The audit of a queue, in public: see `echomq.protocol.audit`."""

from echomq.protocol.audit import *  # noqa: F403
from echomq.protocol.audit import __all__ as __all__
