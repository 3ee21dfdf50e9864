"""Numbers on the command line: a wrong one is refused with itself and with what is allowed."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Final

import typer

from echomq.protocol.checks import MAX_MS

__all__ = ["seconds", "size", "whole"]

_UNITS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}

_SHOWN: Final = 100
"""Characters of a wrong word that are shown."""


def whole(least: int, most: int = MAX_MS) -> Callable[[str], int]:
    """The parser of an option that takes a whole number."""
    allowed = f"{least} or more" if most == MAX_MS else f"from {least} to {most}"

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if not least <= number <= most:
            raise typer.BadParameter(f"{str(text)[:_SHOWN]!r}; a whole number, {allowed}, is allowed")
        return number

    return parse


def seconds(least: float) -> Callable[[str], float]:
    """The parser of an option that takes a number of seconds."""

    def parse(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = least - 1
        if not isfinite(number) or number < least:
            raise typer.BadParameter(f"{str(text)[:_SHOWN]!r}; a number of seconds, {least:g} or more, is allowed")
        return number

    return parse


def size(text: str) -> int:
    """The parser of an option that takes an amount of memory; gives bytes."""
    word = text.upper().removesuffix("B").removesuffix("I")
    digits = word.rstrip("KMGT")
    factor = _UNITS.get(word[len(digits) :])
    try:
        number = int(float(digits) * (factor or 0))
    except (ValueError, OverflowError):
        number = 0
    if number < 1:
        raise typer.BadParameter(f"{text[:_SHOWN]!r}; a number of bytes, with K, M or G if so wanted, is allowed: 512M")
    return number
