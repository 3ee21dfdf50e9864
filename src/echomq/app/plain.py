"""What JSON carries unaltered without an annotation's help, and what msgspec would alter in silence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from math import isfinite
from pathlib import PurePath
from types import UnionType
from typing import Annotated, Any, Final, Protocol, Union, cast, get_args, get_origin

import msgspec

from echomq.app.misfits import FULL, RefusedError, UnfitError, Words

_LEAVES: Final = frozenset({str, int, bool, type(None)})
_CONTAINERS: Final[tuple[object, ...]] = (dict, list, tuple, Mapping, Sequence)


class _Model(Protocol):
    """What is used of a model of pydantic's."""

    def model_dump(self, *, warnings: bool) -> dict[str, object]: ...

    def model_dump_json(self, *, by_alias: bool, round_trip: bool, warnings: bool) -> str: ...

    @classmethod
    def model_validate_json(cls, data: bytes, /) -> object: ...


_FIELDS: Final = ("__dataclass_fields__", "__attrs_attrs__")


def is_loose(annotation: object) -> bool:
    """Whether an annotation leaves (part of) a value to what JSON makes of it: none, `Any`, `dict`, `list[Any]`..."""
    if annotation is Any or annotation is object or any(annotation is each for each in _CONTAINERS):
        return True
    origin = get_origin(annotation)
    if origin is Annotated:
        return is_loose(get_args(annotation)[0])
    parts = [part for part in get_args(annotation) if part is not type(None) and part is not Ellipsis]
    if origin in (Union, UnionType):
        return all(map(is_loose, parts))
    return origin in _CONTAINERS and any(map(is_loose, parts))


def altered(value: object, words: Words = FULL) -> str | None:
    """Why JSON would not carry `value` as it is, with the path inside it; None when it would.

    Tuples pass, and arrive as lists; so do enumerations of numbers and texts, which arrive as what they equal. What has
    no equal in JSON (bytes, sets, dates, other enumerations) needs an annotation.
    """
    return _altered(value, words, "", 0)


def _altered(value: object, words: Words, path: str, depth: int) -> str | None:
    kind = type(value)
    if kind in _LEAVES or isinstance(value, (str, int)):
        return None
    if isinstance(value, float):
        return None if isfinite(value) else at(path, f"{value!r} has no form in JSON")
    if depth > 500:
        return at(path[:40] + "...", "it is nested too deeply, or holds itself")
    if isinstance(value, (list, tuple)):
        for index, item in enumerate(cast("list[object]", value)):
            if why := _altered(item, words, f"{path}[{index}]", depth + 1):
                return why
        return None
    if isinstance(value, dict):
        for key, item in cast("dict[object, object]", value).items():
            if not isinstance(key, str):
                return at(path, f"the key {words.value(key)} is {an(type(key))}: annotate it, as in dict[int, str]")
            if why := _altered(item, words, f"{path}[{words.value(key)}]", depth + 1):
                return why
        return None
    try:
        encode_value(value)
    except Exception as error:  # noqa: BLE001  (a value's own hooks may raise anything)
        return at(path, words.error(error))
    return at(path, f"{an(kind)} arrives as something else unless the annotation names its type")


def not_finite(value: object) -> bool:
    """Whether a NaN or an infinity hides in `value`: msgspec writes both as null."""
    if isinstance(value, float):
        return not isfinite(value)
    if isinstance(value, dict):
        return any(map(not_finite, cast("dict[object, object]", value).values()))
    if isinstance(value, (list, tuple)):
        return any(map(not_finite, cast("list[object]", value)))
    if type(value) in _LEAVES or isinstance(value, (str, bytes)):
        return False
    if is_model(type(value)):
        return not_finite(cast("_Model", value).model_dump(warnings=False))
    if isinstance(value, (AbstractSet, msgspec.Struct)) or any(hasattr(value, mark) for mark in _FIELDS):
        return not_finite(msgspec.to_builtins(value, enc_hook=_looked_into, str_keys=True))
    return False


def _looked_into(value: object) -> object:
    return cast("_Model", value).model_dump(warnings=False) if is_model(type(value)) else enc_hook(value)


class Promised:
    """The place of an argument that is not known yet (`echomq.app.holes`)."""

    __slots__ = ()


def is_promised(values: Iterable[object]) -> bool:
    """Whether one of these arguments is not known yet."""
    for value in values:  # noqa: SIM110  (a generator costs more than the look)
        if isinstance(value, Promised):
            return True
    return False


class _Hole:
    __slots__ = ()


HOLE: Final = _Hole()
"""What lies in a call where such an argument is to be: null, until it is known."""


def enc_hook(value: object) -> object:
    """What msgspec does not know: paths travel as text, pydantic's models as the JSON that they make of themselves."""
    if isinstance(value, PurePath):
        return str(value)
    if value is HOLE:
        return None
    if isinstance(value, Promised):
        raise TypeError(f"{value!r} is known only in a flow, and only as a whole argument: see flow() and chain()")
    kind: type[object] = type(value)
    if is_model(kind):
        return msgspec.Raw(
            cast("_Model", value).model_dump_json(by_alias=True, round_trip=True, warnings=False).encode()
        )
    raise UnfitError(f"{kind.__module__}.{kind.__qualname__} is not JSON".removeprefix("builtins."))


def dec_hook(asked: object, value: object) -> object:
    """The way back, by the annotation `asked`."""
    if not isinstance(asked, type):  # a generic that msgspec does not know, such as Iterable[int]
        raise UnfitError(f"{asked} cannot be made from JSON: list, set, tuple and dict can")
    kind: type[object] = asked
    if issubclass(kind, PurePath) and isinstance(value, str):
        return kind(value)
    if kind is object:
        return value
    if is_model(kind):
        # As JSON, not as values: in strict mode a model takes a text for a date from nowhere else.
        try:
            return cast("type[_Model]", kind).model_validate_json(encode_value(value))
        except ValueError as error:
            raise RefusedError(kind, error) from error
    raise UnfitError(f"{kind.__qualname__} cannot be made from JSON")


def is_model(kind: type[object]) -> bool:
    """Whether a class is a model of pydantic's, which need not be installed."""
    return hasattr(kind, "model_dump_json") and hasattr(kind, "model_validate_json")


encode_value: Final = msgspec.json.Encoder(enc_hook=enc_hook).encode
"""Any value as JSON."""


def an(kind: type) -> str:
    """The name of a class with its article, for people."""
    name = kind.__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def at(path: str, why: str) -> str:
    """`why`, with the place inside a value that it is about."""
    return f"at {path}: {why}" if path else why
