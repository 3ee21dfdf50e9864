"""Why an annotation cannot be served, in the words of whoever wrote it: msgspec's text says it in msgspec's."""

from __future__ import annotations

import re
from typing import Final

_UNION: Final = re.compile(r"type `(?P<union>.+)` is not supported$")
_ALIKE: Final = re.compile(r"more than one (str|int|array|dict)-like")
_KINDS: Final = {"str": "text", "int": "numbers", "array": "lists", "dict": "objects"}
_OBJECTS: Final = ("multiple Struct types", "more than one dataclass or attrs type")
_ONE: Final = "write one of them, or give each an argument of its own"


def unserved(error: Exception) -> str:
    """What is wrong with an annotation for which msgspec makes no decoder, and what to write instead."""
    text = str(error)
    found = _UNION.search(text)
    if found is None:
        return text
    union = found["union"]
    if alike := _ALIKE.search(text):
        return f"the members of {union} are all {_KINDS[alike[1]]} there, and nothing tells which was sent: {_ONE}"
    if any(each in text for each in _OBJECTS):
        return (
            f"the members of {union} are all objects there, and nothing tells which was sent: {_ONE}, or make them "
            "classes that say so, as in class Page(msgspec.Struct, tag=True)"
        )
    if "custom type" in text:
        return f"in {union} there is a class that msgspec does not know, which goes with nothing but None: {_ONE}"
    return text
