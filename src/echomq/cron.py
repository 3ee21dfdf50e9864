"""The verbs of recurrences that say more than a period, in public: see `echomq.protocol.cron`."""

from echomq.protocol.cron import *  # noqa: F403
from echomq.protocol.cron import __all__ as __all__
