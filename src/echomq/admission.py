"""Admission with options, in public: see `echomq.protocol.admission`."""

from echomq.protocol.admission import *  # noqa: F403  (all that it exports, under the name that users import)
from echomq.protocol.admission import __all__ as __all__
