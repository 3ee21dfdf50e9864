"""Admission with options, in public: see `echomq.protocol.admission`."""

from echomq.protocol.admission import *  # noqa: F403
from echomq.protocol.admission import __all__ as __all__
