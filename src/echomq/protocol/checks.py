"""What every builder refuses on the host, before anything is sent."""

from __future__ import annotations

from echomq.identity.branded import check, check_job
from echomq.protocol.errors import IdError, InvalidInputError, PayloadTooLargeError

MAX_MS = 2**53 - 1
"""Times are scores, and scores are doubles (protocol §4)."""

MAX_SPAN_MS = MAX_MS - 2**42
"""The longest span from a server's now that is still a time: until the year 2109 on its clock."""

MAX_PERIOD_MS = 2**46
"""The longest period of a rate: its window is an expiry, and no longer one fits every server. The scripts take a longer
one in `meta` for none."""

MAX_PAYLOAD = 512 * 1024 * 1024
"""A server's default `proto-max-bulk-len`: the longest string it takes."""

__all__ = [
    "MAX_MS",
    "MAX_PAYLOAD",
    "MAX_PERIOD_MS",
    "MAX_SPAN_MS",
    "any_name",
    "check_job",
    "encoded",
    "error_of",
    "group_of",
    "integer",
    "milliseconds",
    "moment",
    "name_of",
    "payload_of",
    "span",
    "token_of",
]


def integer(name: str, value: int, *, least: int, most: int = MAX_MS) -> int:
    """`value`, an integer from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInputError(f"{name} must be an integer, not {type(value).__name__}: {value!r}")
    if not least <= value <= most:
        raise InvalidInputError(f"{name} must be from {least} to {most}, not {value}")
    return value


def milliseconds(name: str, value: int) -> int:
    """`value`, a whole number of milliseconds from 0 to 2^53 - 1."""
    return integer(name, value, least=0)


def span(name: str, value: int, *, least: int = 0) -> int:
    """`value`, a whole number of milliseconds that counts from the server's now, short enough to be added to it."""
    return integer(name, value, least=least, most=MAX_SPAN_MS)


def moment(at_ms: int | None, delay_ms: int | None) -> tuple[str, int]:
    """The wire's pair `at|in, value` from exactly one of the two."""
    if at_ms is not None and delay_ms is None:
        return "at", milliseconds("at_ms", at_ms)
    if delay_ms is not None and at_ms is None:
        return "in", span("delay_ms", delay_ms)
    raise InvalidInputError("give exactly one of at_ms (Unix ms) and delay_ms (from the server's now)")


def encoded(name: str, value: str) -> bytes:
    """Text as UTF-8; half a surrogate pair has no place in it."""
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"{name} is no text that UTF-8 can hold: {error}") from error


def error_of(value: str) -> bytes:
    """An error's text as it is kept: whatever it holds, it can be stored."""
    if not isinstance(value, str):
        raise InvalidInputError(f"error must be str, not {type(value).__name__}: {value!r}")
    return value.encode("utf-8", "backslashreplace")


def group_of(value: str) -> str:
    """The id of a lane, a branded one of any namespace (protocol §6); `IdError` says how a text becomes one."""
    try:
        return check(value)
    except IdError as error:
        raise _no_group(value, error) from None


def _no_group(value: object, error: IdError) -> IdError:
    if value == "":
        return IdError(
            "the lane is an empty text; a lane is named by its id, as lanes.lane_id('acme') makes it of a text"
        )
    if isinstance(value, str):
        text = repr(value) if len(value) <= 80 else "text"
        return IdError(f"lane {error}; the lane that a text names is lanes.lane_id({text})")
    return IdError(f"a lane is named by its id, as lanes.lane_id('acme') makes it of a text: {error}")


def payload_of(value: bytes | str) -> bytes:
    """A payload as bytes, no longer than a server takes."""
    if isinstance(value, str):
        value = encoded("payload", value)
    elif not isinstance(value, bytes):
        raise InvalidInputError(f"payload must be bytes or str, not {type(value).__name__}")
    if len(value) > MAX_PAYLOAD:
        raise PayloadTooLargeError(f"payload is {len(value):,} bytes; a server takes at most {MAX_PAYLOAD:,}")
    return value


def token_of(value: int | str) -> str:
    """A fencing token as the scripts compare it: canonical decimal, 1 or more, for no claim gives 0."""
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str) or not (text.isascii() and text.isdigit()) or text[0] == "0":
        raise InvalidInputError(f"token must be the attempts count that a claim returned, not {value!r}")
    return text


def name_of(what: str, value: str) -> str:
    """A name that becomes part of a key: printable text, not empty."""
    if not isinstance(value, str):
        raise InvalidInputError(f"{what} must be str, not {type(value).__name__}: {value!r}")
    if not value or not (value.isprintable() or _prints(value)):
        raise InvalidInputError(f"{what} {value!r} must be printable text, at least one character")
    return value


def any_name(what: str, value: str) -> str:
    """A name as another client may have made it: text that UTF-8 can hold, not empty."""
    if not isinstance(value, str) or not value:
        raise InvalidInputError(f"{what} must be text, at least one character, not {value!r}")
    encoded(what, value)
    return value


def _prints(text: str) -> bool:
    """Whether people write it so: Python counts the spaces of other scripts, and joiners, as unprintable."""
    from unicodedata import category

    return all(char.isprintable() or category(char) in ("Zs", "Cf") for char in text)
