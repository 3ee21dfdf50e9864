"""Why a value does not fit: in full for whoever sends it, and without a word of it where others read.

A worker's log, the morgue and whoever waits for a result are told which part it was and what was asked for, never what
was there: that may be a secret, which a codec has kept from the server.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

import msgspec

from echomq.app.text import cut

_PATH: Final = re.compile(r" - at (?:`key` in )?`\$[^`]*`$")
_VALUELESS: Final = re.compile(
    r"Expected |Object missing required field `|JSON is malformed: "
    r"|(Number|Integer value|Duration|Timestamp) (is )?out of "
    r"|Invalid (RFC3339|ISO8601|UUID|base64|decimal|epoch|UTF-8)"
)
"""What msgspec says of a value without quoting it: it names types, bounds and fields of the annotation."""
_ENCODING: Final = frozenset({"Only dicts with str-like or number-like keys are supported"})
_DEEP: Final = "it is nested too deeply, or holds itself"
_MOST: Final = 3
"""Parts of a model that are named."""


class UnfitError(TypeError):
    """What JSON and an annotation cannot do with a value, in words that name types alone."""


class RefusedError(ValueError):
    """A model of pydantic's, `kind`, takes no such value; its own error is the cause."""

    def __init__(self, kind: type[object], error: ValueError) -> None:
        super().__init__(str(error))
        self.kind = kind
        self.error = error


@dataclass(frozen=True, slots=True)
class Words:
    """How values and errors are told."""

    value: Callable[[object], str]
    error: Callable[[Exception], str]


def reason(error: Exception) -> str:
    """Why a value could not be encoded or decoded, in a few words, which may quote it."""
    if isinstance(error, RecursionError):
        return _DEEP
    return cut(str(error)) or type(error).__name__


def discreet(error: Exception) -> str:
    """The same without the value. Of an error that a class of the user's own has raised only the kind is told."""
    if isinstance(error, RecursionError):
        return _DEEP
    if isinstance(error, msgspec.DecodeError):
        return cut(_of_msgspec(error))
    if isinstance(error, UnicodeError) and isinstance(why := getattr(error, "reason", None), str):
        return cut(f"its text is no Unicode: {why}")
    if isinstance(error, UnfitError) or str(error) in _ENCODING:
        return cut(str(error))
    if isinstance(error, RefusedError):
        return cut(_of_model(error.error, error.kind))
    if _is_pydantic(error):
        return cut(_of_model(error, None))
    return cut(type(error).__name__)


FULL: Final = Words(lambda value: f"{value!r:.100}", reason)
"""For whoever has the value already."""

DISCREET: Final = Words(lambda value: f"<{cut(type(value).__name__)}>", discreet)
"""For everybody else."""


def _of_msgspec(error: msgspec.DecodeError) -> str:
    text, cause = str(error), error.__cause__
    if isinstance(cause, Exception):
        # It was raised by what msgspec has called, and its text goes before the path.
        path = _PATH.search(text.removeprefix(str(cause)))
        return discreet(cause) + (path.group() if path else "")
    path = _PATH.search(text)
    where = path.group() if path else ""
    if text.startswith(("Invalid enum value ", "Invalid value ")):
        return f"it is none of the values allowed{where}"
    if text.startswith("Object contains unknown field "):
        return f"Object contains an unknown field{where}"
    return text if _VALUELESS.match(text) else type(error).__name__


def _is_pydantic(error: Exception) -> bool:
    core = sys.modules.get("pydantic_core")
    return core is not None and isinstance(error, core.ValidationError)


def _of_model(error: Exception, kind: type[object] | None) -> str:
    """The places of what a model refuses, by names that the model itself has, and pydantic's word for each."""
    if not _is_pydantic(error):
        return type(error).__name__
    about = cast("Any", error)
    found: list[dict[str, Any]] = about.errors(include_input=False, include_context=False, include_url=False)
    names = set(_names(getattr(kind, "__pydantic_core_schema__", None)))
    said = ", ".join(f"{_place(each['loc'], names)} ({each['type']})" for each in found[:_MOST])
    more = f" and {len(found) - _MOST} more" if len(found) > _MOST else ""
    of = "error" if len(found) == 1 else "errors"
    return f"{len(found)} validation {of} for {about.title if kind is None else kind.__name__}: {said}{more}"


def _place(loc: tuple[int | str, ...], names: set[str]) -> str:
    """Where it is. What is no name of a field may be a key, and so a part of the value."""
    steps = [str(step) if isinstance(step, int) or step in names else "..." for step in loc]
    return ".".join(steps) or "the whole"


def _names(schema: object) -> Iterator[str]:
    if isinstance(schema, str):
        yield schema
    elif isinstance(schema, Mapping):
        for name, part in cast("Mapping[object, object]", schema).items():
            yield from _names(name)
            yield from _names(part)
    elif isinstance(schema, (list, tuple)):
        for part in cast("list[object]", schema):
            yield from _names(part)
