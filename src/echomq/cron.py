"""The verbs of recurrences that say more than a period, in public: see `echomq.protocol.cron`."""

from echomq.protocol.cron import *  # noqa: F403  (all that it exports, under the name that users import)
from echomq.protocol.cron import __all__ as __all__
