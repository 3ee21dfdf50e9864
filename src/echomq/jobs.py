"""The flat verbs, in public: see `echomq.protocol.jobs`."""

from echomq.protocol.jobs import *  # noqa: F403
from echomq.protocol.jobs import __all__ as __all__
