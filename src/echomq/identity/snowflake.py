"""The 63 bits behind an id: when it was minted, on which node, and the how-manieth (protocol §1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from echomq.identity.errors import IdError

EPOCH_MS: Final = 1_704_067_200_000
"""2024-01-01T00:00:00Z in Unix milliseconds."""

NODE_BITS: Final = 10
SEQUENCE_BITS: Final = 12
TIME_SHIFT: Final = NODE_BITS + SEQUENCE_BITS
MAX_NODE: Final = (1 << NODE_BITS) - 1
MAX_SEQUENCE: Final = (1 << SEQUENCE_BITS) - 1
MAX_UNIX_MS: Final = EPOCH_MS + (1 << 41) - 1
"""The last millisecond that fits, in 2093."""


@dataclass(frozen=True, slots=True)
class Snowflake:
    """The parts of an id's number."""

    unix_ms: int
    node: int
    sequence: int


def _within(name: str, value: int, low: int, high: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise IdError(f"{name} must be an int, not {type(value).__name__}: {value!r}")
    if not low <= value <= high:
        raise IdError(f"{name} {value} is out of range: {low} to {high} are allowed")
    return value


def check_node(node: int) -> int:
    """`node` itself, or `IdError`: an int in 0 .. 1023."""
    return _within("node", node, 0, MAX_NODE)


def pack(unix_ms: int, node: int, sequence: int) -> int:
    """The number of a millisecond (Unix time), a node and a sequence."""
    elapsed_ms = _within("unix_ms", unix_ms, EPOCH_MS, MAX_UNIX_MS) - EPOCH_MS
    check_node(node)
    _within("sequence", sequence, 0, MAX_SEQUENCE)
    return elapsed_ms << TIME_SHIFT | node << SEQUENCE_BITS | sequence


def unpack(number: int) -> Snowflake:
    """The parts of a number in 0 .. 2^63 - 1."""
    _within("snowflake", number, 0, (1 << 63) - 1)
    return Snowflake(
        unix_ms=(number >> TIME_SHIFT) + EPOCH_MS,
        node=number >> SEQUENCE_BITS & MAX_NODE,
        sequence=number & MAX_SEQUENCE,
    )
