"""What the terminal shows of the standard `logging`. Libraries stay quiet unless their program says otherwise."""

from __future__ import annotations

import logging
from enum import Enum

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class Level(Enum):
    """How much the terminal shows."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


def configure(level: Level | None) -> None:
    """One line a record on stderr, from `level` on, info unless given.

    A program that has set up its logging keeps it; only a level that was asked for is set.
    """
    if level is None and not logging.getLogger().handlers:
        level = Level.INFO
    logging.basicConfig(level=logging.WARNING, format=FORMAT)
    if level is not None:
        logging.getLogger("echomq").setLevel(level.value.upper())
