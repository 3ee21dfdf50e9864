"""Base62 keeps the vectors of protocol §1 and sorts as the numbers do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echomq.identity import base62
from echomq.identity.errors import IdError

NUMBERS = st.integers(0, 2**63 - 1)

VECTORS = [
    (0, "00000000000"),
    (61, "0000000000z"),
    (62, "00000000010"),
    (2**63 - 1, "AzL8n0Y58m7"),
]


@pytest.mark.parametrize(("number", "text"), VECTORS)
def test_the_protocols_vectors(number: int, text: str) -> None:
    assert base62.encode(number) == text
    assert base62.decode(text) == number


@given(NUMBERS)
def test_decoding_undoes_encoding(number: int) -> None:
    assert base62.decode(base62.encode(number)) == number


@given(NUMBERS, NUMBERS)
def test_byte_order_is_the_order_of_the_numbers(a: int, b: int) -> None:
    assert (base62.encode(a).encode() < base62.encode(b).encode()) == (a < b)


@pytest.mark.parametrize("number", [-1, 2**63, 2**64])
def test_a_number_out_of_range_is_refused_by_value(number: int) -> None:
    with pytest.raises(IdError, match=str(number)):
        base62.encode(number)


@pytest.mark.parametrize("number", [True, 1.0, "1", None])
def test_only_an_int_is_encoded(number: object) -> None:
    with pytest.raises(IdError, match="takes an int"):
        base62.encode(number)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("AzL8n0Y58m8", "2\\^63 or more"),
        ("zzzzzzzzzzz", "2\\^63 or more"),
        ("0000000000", "has 10 characters"),
        ("000000000000", "has 12 characters"),
        ("", "has 0 characters"),
        ("0000000000-", "holds '-'"),
        ("0000000000\n", r"holds '\\n'"),
        ("٠0000000000", "holds '٠'"),
        (b"00000000000", "reads str, not bytes"),
    ],
)
def test_a_bad_text_is_refused_with_its_reason(text: str, why: str) -> None:
    with pytest.raises(IdError, match=why):
        base62.decode(text)
