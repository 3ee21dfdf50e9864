"""Datetimes and spans of time as the protocol's milliseconds, rounded up: never early."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final, TypedDict

from echomq.app.text import check_words
from echomq.identity.errors import InvalidInputError
from echomq.protocol.checks import MAX_SPAN_MS

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)
_ZERO: Final = timedelta(0)
_SECOND: Final = timedelta(seconds=1)
_MOST: Final = timedelta(milliseconds=MAX_SPAN_MS)


class Span(TypedDict, total=False):
    """The keywords that a span of time is written with; they add up."""

    weeks: float
    days: float
    hours: float
    minutes: float
    seconds: float
    milliseconds: float


_WORDS: Final = tuple(Span.__annotations__)
_NONE: Final = Span()


def instant_ms(what: str, when: datetime) -> int:
    """An aware datetime as Unix ms, rounded up; anything before 1970 is 0."""
    if not isinstance(when, datetime):
        raise InvalidInputError(
            f"{what} takes an aware datetime, not {type(when).__name__}: {when!r}; for a span of time use after(...)"
        )
    if when.utcoffset() is None:
        raise InvalidInputError(
            f"{what} takes an aware datetime, and {when!r} is naive: give it its zone, "
            "as in datetime.now(UTC) or when.replace(tzinfo=ZoneInfo('Europe/Berlin'))"
        )
    return max(0, _ceil_ms(when - _EPOCH))


def duration(what: str, whole: timedelta | None, parts: Span) -> timedelta:
    """The span that a caller gave, as a timedelta or in keywords; at most `MAX_SPAN_MS`."""
    check_words(what, parts, _WORDS)
    if whole is None:
        return _within(what, _added(what, parts))
    if not isinstance(whole, timedelta):
        raise InvalidInputError(
            f"{what} takes a timedelta or keywords such as minutes=5, not {type(whole).__name__}: {whole!r:.200}"
        )
    if parts:
        raise InvalidInputError(f"{what} takes a timedelta or keywords such as minutes=5, not both")
    return _within(what, whole)


def _added(what: str, parts: Span) -> timedelta:
    if not parts:
        raise InvalidInputError(
            f"{what} needs a span of time above zero, as in {what}(minutes=5) or {what}(timedelta(minutes=5))"
        )
    given = ", ".join(f"{word}={value!r:.200}" for word, value in parts.items())
    if any(isinstance(value, bool) for value in parts.values()):
        raise InvalidInputError(f"{what}({given}) is not a span of time: give it numbers, not True or False")
    try:
        return timedelta(**parts)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(f"{what}({given}) is not a span of time: {error}") from None


def span_ms(what: str, whole: timedelta | None, parts: Span = _NONE) -> int:
    """A span above zero in ms, rounded up."""
    span = duration(what, whole, parts)
    if span <= _ZERO:
        raise InvalidInputError(f"{what} needs a span of time above zero, not {_shown(span)}")
    return _ceil_ms(span)


def limit_ms(what: str, span: timedelta) -> int:
    """A timedelta above zero in ms, rounded up."""
    if not isinstance(span, timedelta):
        raise InvalidInputError(f"{what} must be a timedelta, not {type(span).__name__}: {span!r}")
    return span_ms(what, span)


def period_ms(what: str, whole: timedelta | None, parts: Span = _NONE) -> int:
    """A period above zero in ms. It is not rounded: a rounded period drifts from the one that was meant."""
    span = duration(what, whole, parts)
    if span <= _ZERO:
        raise InvalidInputError(f"{what} needs a period above zero, not {_shown(span)}")
    if span % _MS:
        raise InvalidInputError(f"{what} needs a whole number of milliseconds, not {_shown(span)}")
    return span // _MS


def first_ms(what: str, span: timedelta) -> int:
    """How long until something, in ms, rounded up; zero is at once, or not at all."""
    if not isinstance(span, timedelta):
        raise InvalidInputError(f"{what} must be a timedelta, not {type(span).__name__}: {span!r}")
    if span < _ZERO:
        raise InvalidInputError(f"{what} must be zero or more, not {_shown(span)}")
    return _ceil_ms(_within(what, span))


def _ceil_ms(span: timedelta) -> int:
    return span // _MS + (1 if span % _MS else 0)


def _within(what: str, span: timedelta) -> timedelta:
    if span > _MOST:
        raise InvalidInputError(f"{what} is {_shown(span)}; at most {MAX_SPAN_MS} ms are allowed")
    return span


def _shown(span: timedelta) -> str:
    """In seconds, every digit: str(timedelta(seconds=-1)) is "-1 day, 23:59:59", which nobody wrote."""
    whole, rest = divmod(abs(span), _SECOND)
    digits = f"{whole}.{rest.microseconds:06d}".rstrip("0").rstrip(".")
    return f"{'-' if span < _ZERO else ''}{digits} s"
