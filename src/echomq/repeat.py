"""The recurrence verbs, in public: see `echomq.protocol.repeat`."""

from echomq.protocol.repeat import *  # noqa: F403  (all that it exports, under the name that users import)
from echomq.protocol.repeat import __all__ as __all__
