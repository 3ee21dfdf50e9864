"""What the terminal shows of the standard `logging`. Libraries stay quiet unless their program says otherwise."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from datetime import UTC, datetime
from enum import Enum
from typing import Final

FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"

_OURS: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""What every record has; the rest is what a line is about."""
_SECRET: Final = re.compile(r"""(\w[\w+.-]*://)[^\s/"']*:[^\s/"']*@""")


class Level(Enum):
    """How much the terminal shows."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Format(Enum):
    """How the terminal shows it."""

    TEXT = "text"
    JSON = "json"


class TextFormatter(logging.Formatter):
    """A line a record, and below it the traceback of a job that has failed. Passwords in URLs are left out."""

    def __init__(self) -> None:
        super().__init__(FORMAT)

    def format(self, record: logging.LogRecord) -> str:
        """The text of a record."""
        text = super().format(record)
        trace = getattr(record, "traceback", None)
        return without_secrets(f"{text}\n{trace}" if trace else text)


class JsonFormatter(logging.Formatter):
    """One JSON object a record, on one line: `time`, `level`, `logger`, `message`, and whatever else the record has.

    `time` is ISO 8601 in UTC. What is no JSON is shown as text; passwords in URLs are left out.
    """

    def __init__(self) -> None:
        super().__init__()
        # Imported when used: a program that logs text has no need of it.
        import msgspec

        self._encode: Callable[[object], bytes] = msgspec.json.Encoder(enc_hook=repr).encode

    def format(self, record: logging.LogRecord) -> str:
        """The text of a record."""
        at = datetime.fromtimestamp(record.created, UTC)
        facts: dict[str, object] = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **{name: value for name, value in vars(record).items() if name not in _OURS},
        }
        if record.exc_info:
            facts["traceback"] = self.formatException(record.exc_info)
        elif record.stack_info:
            facts["traceback"] = record.stack_info
        try:
            text = self._encode(facts).decode()
        except Exception:  # noqa: BLE001  (a record of somebody's own may hold anything)
            plain = {name: ascii(value) for name, value in facts.items()}
            text = self._encode({str(name): value for name, value in plain.items()}).decode()
        return without_secrets(text)


def without_secrets(text: str) -> str:
    """The text without the user and the password of any URL in it."""
    return _SECRET.sub(r"\1***@", text) if "://" in text else text


def configure(level: Level | None, form: Format | None = None) -> None:
    """One record a line on stderr, from `level` on, info unless given.

    A program that has set up its logging keeps it, unless a format was asked for; of the levels only one that was asked
    for is set.
    """
    if level is None and (form is not None or not logging.getLogger().handlers):
        level = Level.INFO
    if form is not None or not logging.getLogger().handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(JsonFormatter() if form is Format.JSON else TextFormatter())
        logging.basicConfig(level=logging.WARNING, handlers=[handler], force=form is not None)
    if level is not None:
        logging.getLogger("echomq").setLevel(level.value.upper())
