"""The operator's verbs, in public: see `echomq.protocol.admin`."""

from echomq.protocol.admin import *  # noqa: F403
from echomq.protocol.admin import __all__ as __all__
