"""The flat verbs, in public: see `echomq.protocol.jobs`."""

from echomq.protocol.jobs import *  # noqa: F403  (all that it exports, under the name that users import)
from echomq.protocol.jobs import __all__ as __all__
