"""How the operators' commands read and write times, spans and texts of strangers."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from echomq.identity.errors import InvalidInputError
from echomq.protocol.checks import MAX_MS, MAX_PERIOD_MS

__all__ = ["clean", "first_line", "instant", "local_and_utc", "number_or_none", "rate", "shown_span", "span_ms"]

_UNITS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d|w)")
_SPAN: Final = re.compile(rf"(?:{_PART.pattern})+")


def span_ms(what: str, text: str) -> int:
    """A span such as `90s`, `2h` or `1d12h` in ms."""
    if not _SPAN.fullmatch(text):
        raise InvalidInputError(f"{what} {text!r} is not a span of time: write it as 500ms, 90s, 15m, 2h, 7d or 1d12h")
    total = round(sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text)))
    if total > MAX_MS:
        raise InvalidInputError(f"{what} {text!r} is longer than time is counted here: at most {MAX_MS} ms")
    return total


def rate(text: str) -> tuple[int, int] | None:
    """A rate such as `10/s`, `100/1m` or `none`: how many, in how many ms."""
    if text == "none":
        return None
    number, slash, period = text.partition("/")
    if not slash or not (number.isascii() and number.isdigit()) or int(number) < 1:
        raise InvalidInputError(
            f"--rate {text!r} is not a rate: write it as 10/s, 100/1m or 5000/1h, or none to lift it"
        )
    if not _SPAN.fullmatch(period if period[:1].isdigit() else f"1{period}"):
        raise InvalidInputError(
            f"--rate {text!r}: {period!r} is not a span of time: write it as in 10/s, 100/1m or 10/500ms"
        )
    period_ms = span_ms("the period of --rate", period if period[:1].isdigit() else f"1{period}")
    if period_ms < 1:
        raise InvalidInputError(f"--rate {text!r} has a period of nothing: at least 1ms")
    if period_ms > MAX_PERIOD_MS:
        raise InvalidInputError(f"--rate {text!r} has too long a period: at most {MAX_PERIOD_MS}ms")
    return int(number), period_ms


def number_or_none(what: str, text: str, *, least: int) -> int | None:
    """A whole number, or None for `none`."""
    if text == "none":
        return None
    if not (text.isascii() and text.isdigit()) or not least <= int(text) <= MAX_MS:
        raise InvalidInputError(f"{what} {text!r}: a whole number of {least} or more is allowed, or none to lift it")
    return int(text)


def shown_span(ms: int | None) -> str:
    """A span for a person: its two largest units."""
    if ms is None:
        return "-"
    if ms < 0:
        return "-" + shown_span(-ms)
    if ms < 1_000:
        return f"{ms}ms"
    seconds = ms // 1_000
    if seconds < 10 and ms % 1_000:
        return f"{ms // 100 / 10:.1f}s"
    parts: list[str] = []
    for name, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count}{name}")
        elif parts:
            break
    return " ".join(parts[:2])


def _moment(ms: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(ms / 1_000, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def instant(ms: int | None) -> str:
    """An instant in this machine's zone."""
    moment = None if ms is None else _moment(ms)
    if moment is None:
        return "-" if ms is None else f"{ms} ms"
    return f"{moment.astimezone():%Y-%m-%d %H:%M:%S %Z}"


def local_and_utc(ms: int | None) -> str:
    """An instant in this machine's zone and in UTC."""
    moment = None if ms is None else _moment(ms)
    if moment is None:
        return instant(ms)
    utc = f"{moment:%Y-%m-%d %H:%M:%S.%f}"[:-3] + " UTC"
    here = moment.astimezone()
    return f"{here:%Y-%m-%d %H:%M:%S %Z} ({utc})" if here.utcoffset() else utc


def clean(text: str) -> str:
    """Text of a stranger without anything that a terminal would obey."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def first_line(text: str | None) -> str:
    """The first line of an error that says something."""
    return clean(next((line.strip() for line in (text or "").splitlines() if line.strip()), ""))
