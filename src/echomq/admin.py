"""The operator's verbs, in public: see `echomq.protocol.admin`."""

from echomq.protocol.admin import *  # noqa: F403  (all that it exports, under the name that users import)
from echomq.protocol.admin import __all__ as __all__
