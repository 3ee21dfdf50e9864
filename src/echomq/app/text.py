"""Texts of strangers, cut before anything is done with them: a payload may hold a name of any length.

What a failure left in the morgue, taken apart. And words that nobody knows, each told with those that were most likely
meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Final

__all__ = ["CUT", "check_words", "cut", "nearest", "parts_of"]

CUT: Final = 200
"""Characters of such a text that are looked at, shown or kept."""

_FRAMES: Final = re.compile(r'\n(?=  File "|\.\.\.)')


def cut(text: str, limit: int = CUT) -> str:
    """`text`, or its beginning when it is longer."""
    return text if len(text) <= limit else f"{text[:limit]}..."


def parts_of(failure: str) -> tuple[str, str]:
    """The text of a failure (`echomq.runtime.outcome`) as its message and its traceback, which may be empty."""
    message, *frames = _FRAMES.split(failure, maxsplit=1)
    return message, "".join(frames)


def nearest(name: str, known: Iterable[str]) -> str:
    """The known names that a wrong one was most likely meant to be, as text. Of a long one the beginning counts."""
    names = sorted(known)
    close = get_close_matches(name[:CUT], names, n=3, cutoff=0.5)
    return ", ".join(map(repr, close or names[:6])) or "none at all"


def check_words(what: str, given: Iterable[str], known: Sequence[str]) -> None:
    """Python's own `TypeError` for a keyword that `what` does not take, with the nearest one that it does, else all."""
    for word in given:
        if word not in known:
            near = get_close_matches(word[:CUT], known, n=1)
            offered = f"did you mean {near[0]}?" if near else f"it takes {', '.join(known)}"
            raise TypeError(f"{what}() got an unexpected keyword argument {word!r:.200}; {offered}")
