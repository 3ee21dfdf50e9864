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


def configure(level: Level) -> None:
    """One line a record on stderr, from `level` on; does nothing where the program has set up its own."""
    logging.basicConfig(level=logging.WARNING, format=FORMAT)
    logging.getLogger("echomq").setLevel(level.value.upper())
