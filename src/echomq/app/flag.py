"""Options that are either on or off."""

from __future__ import annotations

from echomq.identity.errors import InvalidInputError

__all__ = ["flag"]


def flag(what: str, value: object) -> bool:
    """`value`, True or False. What only counts as one of them, such as 5 or "no", is refused: `InvalidInputError`."""
    if not isinstance(value, bool):
        raise InvalidInputError(f"{what} must be True or False, not {value!r:.200}")
    return value
