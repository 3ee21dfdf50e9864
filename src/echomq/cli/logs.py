"""What the terminal shows of the standard `logging`. Libraries stay quiet unless their program says otherwise."""

from __future__ import annotations

import logging
import re
import sys
import threading
from collections.abc import Callable
from copy import copy
from datetime import UTC, datetime
from enum import Enum
from types import TracebackType
from typing import Final, TypeAlias

log: Final = logging.getLogger("echomq.worker")

FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"

ExcInfo: TypeAlias = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]

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


class _Formatter(logging.Formatter):
    """One that raises for no record: what `logging` writes then is neither JSON nor free of passwords."""

    def formatException(self, ei: ExcInfo) -> str:  # noqa: N802  (the name it has there)
        try:
            return super().formatException(ei)
        except Exception:  # noqa: BLE001  (an error's own class may raise anything when it is looked at)
            # Imported when used: it is rare, and the command line is quick.
            from echomq.runtime.outcome import failure_text

            return "" if ei[1] is None else failure_text(ei[1])


class TextFormatter(_Formatter):
    """A line a record, and below it the traceback of a job that has failed. Passwords in URLs are left out."""

    def __init__(self) -> None:
        super().__init__(FORMAT)

    def format(self, record: logging.LogRecord) -> str:
        """The text of a record."""
        text = super().format(_sound(record))
        trace = getattr(record, "traceback", None)
        return without_secrets(f"{text}\n{trace}" if trace else text)


class JsonFormatter(_Formatter):
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
            "message": _message(record),
            **{name: value for name, value in vars(record).items() if name not in _OURS},
        }
        if record.exc_info:
            facts["traceback"] = self.formatException(record.exc_info)
        elif record.stack_info:
            facts["traceback"] = record.stack_info
        try:
            text = self._encode(facts).decode()
        except Exception:  # noqa: BLE001  (a record of somebody's own may hold anything)
            text = self._encode({_unicode(str(name)): self._plain(value) for name, value in facts.items()}).decode()
        return without_secrets(text)

    def _plain(self, value: object) -> object:
        """What can be encoded of a value that perhaps cannot be."""
        try:
            self._encode(value)
        except Exception:  # noqa: BLE001  (as above)
            return _unicode(value) if isinstance(value, str) else _shown(value)
        return value


def _message(record: logging.LogRecord) -> str:
    """The message of a record; one whose arguments do not fit it is shown beside them."""
    try:
        return record.getMessage()
    except Exception as error:  # noqa: BLE001  (somebody's own texts and arguments)
        return f"{_shown(record.msg)} with {_shown(record.args)} (they do not fit: {type(error).__name__})"


def _sound(record: logging.LogRecord) -> logging.LogRecord:
    """A record that the standard formatter can show."""
    try:
        record.getMessage()
    except Exception:  # noqa: BLE001  (as above)
        record = copy(record)
        record.msg, record.args = _message(record), None
    return record


def _unicode(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def _shown(value: object) -> str:
    try:
        return ascii(value)
    except Exception as error:  # noqa: BLE001  (as above)
        return f"<{type(value).__name__}, whose text raised {type(error).__name__}>"


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
        # What Python would write there in lines of its own, passwords and all.
        logging.captureWarnings(True)
        threading.excepthook = _thread_raised
        sys.unraisablehook = _nobody_was_told
    if level is not None:
        logging.getLogger("echomq").setLevel(level.value.upper())


def _thread_raised(about: threading.ExceptHookArgs) -> None:
    if about.exc_type is SystemExit:
        return
    error = about.exc_value or about.exc_type()
    name = "a thread" if about.thread is None else f"thread {about.thread.name!r}"
    log.error("%s has ended with an exception", name, exc_info=(type(error), error, about.exc_traceback))


def _nobody_was_told(about: sys.UnraisableHookArgs) -> None:
    error = about.exc_value or about.exc_type()
    what = about.err_msg or "exception ignored in"
    log.error("%s: %s", what, _shown(about.object), exc_info=(type(error), error, about.exc_traceback))
