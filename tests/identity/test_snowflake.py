"""A snowflake is 41 bits of milliseconds, 10 of node and 12 of sequence (protocol §1)."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echomq.identity.errors import IdError
from echomq.identity.snowflake import EPOCH_MS, MAX_UNIX_MS, Snowflake, pack, unpack


def test_the_epoch_is_the_start_of_2024() -> None:
    assert datetime(2024, 1, 1, tzinfo=UTC).timestamp() * 1000 == EPOCH_MS


def test_the_last_number_is_the_last_below_2_to_the_63() -> None:
    assert pack(MAX_UNIX_MS, 1023, 4095) == 2**63 - 1
    assert datetime.fromtimestamp(MAX_UNIX_MS / 1000, UTC).year == 2093


def test_the_parts_lie_where_the_protocol_says() -> None:
    assert pack(EPOCH_MS + 1, 0, 0) == 1 << 22
    assert pack(EPOCH_MS, 1, 0) == 1 << 12
    assert pack(EPOCH_MS, 0, 1) == 1


@given(st.integers(EPOCH_MS, MAX_UNIX_MS), st.integers(0, 1023), st.integers(0, 4095))
def test_unpacking_undoes_packing(unix_ms: int, node: int, sequence: int) -> None:
    assert unpack(pack(unix_ms, node, sequence)) == Snowflake(unix_ms, node, sequence)


@pytest.mark.parametrize(
    ("parts", "names"),
    [
        ((EPOCH_MS - 1, 0, 0), "unix_ms"),
        ((MAX_UNIX_MS + 1, 0, 0), "unix_ms"),
        ((EPOCH_MS, 1024, 0), "node 1024"),
        ((EPOCH_MS, -1, 0), "node -1"),
        ((EPOCH_MS, 0, 4096), "sequence 4096"),
        ((EPOCH_MS, True, 0), "node must be an int"),
        ((float(EPOCH_MS), 0, 0), "unix_ms must be an int"),
    ],
)
def test_a_part_out_of_range_is_refused_by_name(parts: tuple[int, int, int], names: str) -> None:
    with pytest.raises(IdError, match=names):
        pack(*parts)


@pytest.mark.parametrize("number", [-1, 2**63, True, "1"])
def test_only_63_bits_are_unpacked(number: int) -> None:
    with pytest.raises(IdError, match="snowflake"):
        unpack(number)
