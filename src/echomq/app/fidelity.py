"""What a value loses on its way through JSON although it fits its annotation.

An annotation may say nothing of a part of a value (`Any` in a field of a dataclass), or less than it is (the base of
its class), or what JSON cannot tell apart (`dict[int | str, int]`). Then something else arrives, and nobody says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from typing import Any, Final

from echomq.app.misfits import FULL, Words
from echomq.app.plain import an, at, encode_value, is_model

_PLAIN: Final = (str, int, float, bool, type(None), list, tuple, dict)
_SCALARS: Final = (str, int, float, bool, type(None))
_BYTES: Final = (bytes, bytearray, memoryview)


def lost(value: object, arrived: object, words: Words = FULL) -> str | None:
    """Why `value` is not what arrives of it, which is `arrived`, with the path inside it; None when it is.

    A tuple may arrive as a list, and what is given as plain JSON as what the annotation makes of it.
    """
    return None if _equal(value, arrived) else _lost(value, arrived, words, "")


def _lost(value: Any, arrived: Any, words: Words, path: str) -> str | None:
    if _equal(value, arrived) or _both_nan(value, arrived):
        return None
    if _both(_BYTES, value, arrived):
        return None if bytes(value) == bytes(arrived) else _other(value, arrived, words, path)
    if type(value) is type(arrived) and (names := _fields(value)) is not None:
        return _first(words, _pairs(value, arrived, words, path, names))
    if _both((Mapping,), value, arrived):
        return _of_mappings(value, arrived, words, path)
    if _both((AbstractSet,), value, arrived):
        return _of_sets(value, arrived, words, path)
    if _both((list, tuple), value, arrived) and len(value) == len(arrived):
        pairs = enumerate(zip(value, arrived, strict=True))
        return _first(words, ((f"{path}[{place}]", *pair) for place, pair in pairs))
    if _both((datetime,), value, arrived) and value.tzinfo is not None:
        # In an hour that an autumn repeats, a datetime equals none of another zone.
        return None if value.astimezone(UTC) == arrived.astimezone(UTC) else _other(value, arrived, words, path)
    if type(value) in _PLAIN and type(arrived) not in _SCALARS:
        return None  # the annotation names what it is
    return _other(value, arrived, words, path)


def _both(kinds: tuple[type, ...], value: object, arrived: object) -> bool:
    return isinstance(value, kinds) and isinstance(arrived, kinds)


def _of_mappings(
    value: Mapping[object, object], arrived: Mapping[object, object], words: Words, path: str
) -> str | None:
    if len(value) != len(arrived):
        return at(path, f"of {len(value)} keys {len(arrived)} arrive")
    for (key, item), (other, there) in zip(value.items(), arrived.items(), strict=True):
        if _lost(key, other, words, ""):
            return at(path, f"the key {words.value(key)} arrives as {words.value(other)}")
        if why := _lost(item, there, words, f"{path}[{words.value(key)}]"):
            return why
    return None


def _of_sets(value: AbstractSet[object], arrived: AbstractSet[object], words: Words, path: str) -> str | None:
    if len(value) != len(arrived):
        return at(path, f"of {len(value)} members {len(arrived)} arrive")
    forms = {encode_value(each): each for each in arrived}
    return _first(words, ((path, each, forms.get(encode_value(each))) for each in value))


def _first(words: Words, pairs: Iterator[tuple[str, object, object]]) -> str | None:
    for path, value, arrived in pairs:
        if why := _lost(value, arrived, words, path):
            return why
    return None


def _pairs(
    value: object, arrived: object, words: Words, path: str, names: Iterable[str]
) -> Iterator[tuple[str, object, object]]:
    more: Iterable[str] = getattr(value, "model_extra", None) or ()  # whose names are part of the value
    for name in names:
        step = f"[{words.value(name)}]" if name in more else f".{name}"
        yield path + step, getattr(value, name, None), getattr(arrived, name, None)


def _other(value: object, arrived: object, words: Words, path: str) -> str:
    if type(value) is type(arrived) or type(value) in _SCALARS:
        return at(path, f"{words.value(value)} arrives as {words.value(arrived)}")
    return at(path, f"{an(type(value))} arrives as {an(type(arrived))}: the annotation does not name its type")


def _equal(value: object, arrived: object) -> bool:
    try:
        return bool(value == arrived)
    except Exception:  # noqa: BLE001  (a value's own comparison may raise anything)
        return False


def _both_nan(value: object, arrived: object) -> bool:
    return type(value) is type(arrived) and str(value) == str(arrived) and not _equal(value, value)


def _fields(value: object) -> list[str] | None:
    """What an object of a class with fields is made of; None for any other value."""
    kind: Any = type(value)
    if is_model(kind):
        extra: Iterable[str] = getattr(value, "model_extra", None) or ()
        return [*(name for name, field in kind.model_fields.items() if not field.exclude), *extra]
    for mark in ("__struct_fields__", "__dataclass_fields__"):
        if hasattr(kind, mark):
            return list(getattr(kind, mark))
    if hasattr(kind, "__attrs_attrs__"):
        return [each.name for each in kind.__attrs_attrs__]
    return list(kind._fields) if isinstance(value, tuple) and hasattr(kind, "_fields") else None
