"""Base62 of fixed width: 11 characters whose byte order is the order of the numbers (protocol §1)."""

from __future__ import annotations

from typing import Final

from echomq.identity.errors import IdError

ALPHABET: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
WIDTH: Final = 11
LIMIT: Final = 1 << 63
"""The first number that is refused."""
LAST: Final = "AzL8n0Y58m7"
"""The text of `LIMIT - 1`; a text of the right shape is in range when it is not above this one."""

PAIRS: Final = tuple(a + b for a in ALPHABET for b in ALPHABET)
"""Two characters by value. Text is built from pairs: half the divisions of single characters."""
PAIR: Final = len(PAIRS)

_VALUES: Final = {char: value for value, char in enumerate(ALPHABET)}


def encode(number: int) -> str:
    """The 11 characters of `number`; `IdError` unless it is an int in 0 .. 2^63 - 1."""
    if not isinstance(number, int) or isinstance(number, bool):
        raise IdError(f"base62 takes an int, not {type(number).__name__}: {number!r}")
    if not 0 <= number < LIMIT:
        raise IdError(f"base62 takes 0 to 2^63 - 1, not {number}")
    number, f = divmod(number, PAIR)
    number, e = divmod(number, PAIR)
    number, d = divmod(number, PAIR)
    number, c = divmod(number, PAIR)
    a, b = divmod(number, PAIR)
    return ALPHABET[a] + PAIRS[b] + PAIRS[c] + PAIRS[d] + PAIRS[e] + PAIRS[f]


def decode(text: str) -> int:
    """The number that 11 characters stand for; `IdError` for any other text."""
    if not isinstance(text, str):
        raise IdError(f"base62 reads str, not {type(text).__name__}: {text!r}")
    if len(text) != WIDTH:
        raise IdError(f"base62 text {text!r} has {len(text)} characters: exactly {WIDTH} are allowed")
    number = 0
    for char in text:
        value = _VALUES.get(char)
        if value is None:
            raise IdError(f"base62 text {text!r} holds {char!r}: only 0-9, A-Z and a-z are allowed")
        number = number * 62 + value
    if number >= LIMIT:
        raise IdError(f"base62 text {text!r} is 2^63 or more: the last one allowed is {LAST}")
    return number
