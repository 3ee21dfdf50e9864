"""Texts of strangers, cut before anything is done with them: a payload may hold a name of any length."""

from __future__ import annotations

from typing import Final

__all__ = ["CUT", "cut"]

CUT: Final = 200
"""Characters of such a text that are looked at, shown or kept."""


def cut(text: str, limit: int = CUT) -> str:
    """`text`, or its beginning when it is longer."""
    return text if len(text) <= limit else f"{text[:limit]}..."
