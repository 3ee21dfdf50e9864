"""Branded ids: the vectors of protocol §1, the order theorem, and what is refused."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echomq.identity import BrandedId, branded, snowflake
from echomq.identity.errors import EchoMQError, IdError, InvalidInputError

NAMESPACES = st.text(string.ascii_uppercase, min_size=3, max_size=3)
NUMBERS = st.integers(0, 2**63 - 1)


def test_the_protocols_vectors() -> None:
    assert branded.encode("USR", 274557032793636864) == "USR0KHTOWnGLuC"
    assert branded.parse("USR0NgWEfAEJfs") == BrandedId("USR", 320636799581945856)
    with pytest.raises(IdError, match=r"USRzzzzzzzzzzz.*2\^63 or more"):
        branded.parse("USRzzzzzzzzzzz")


@given(NAMESPACES, NUMBERS)
def test_parsing_undoes_encoding(namespace: str, number: int) -> None:
    text = branded.encode(namespace, number)
    assert len(text.encode("ascii")) == 14
    assert branded.parse(text) == BrandedId(namespace, number)
    assert str(branded.parse(text)) == text
    assert branded.check(text) is text


@given(NAMESPACES, st.lists(NUMBERS, unique=True))
def test_the_order_theorem(namespace: str, numbers: list[int]) -> None:
    ids = [branded.encode(namespace, number).encode() for number in sorted(numbers)]
    assert ids == sorted(ids)


def test_an_id_carries_the_instant_of_its_mint() -> None:
    text = branded.encode("JOB", snowflake.pack(1_750_000_000_123, 5, 6))
    assert branded.unix_ms(text) == 1_750_000_000_123
    assert branded.parse(text).unix_ms == 1_750_000_000_123


BAD = [
    ("JOB", "has 3 characters"),
    ("", "has 0 characters"),
    ("JOB000000000000", "has 15 characters"),
    ("job00000000000", "begins with 'job'"),
    ("J0B00000000000", "begins with 'J0B'"),
    ("ÄÖÜ00000000000", "begins with 'ÄÖÜ'"),
    ("JOB0000000000_", "outside 0-9A-Za-z"),
    ("JOB0000000000\n", "outside 0-9A-Za-z"),
    ("JOB0000000000é", "outside 0-9A-Za-z"),
    ("JOBAzL8n0Y58m8", r"2\^63 or more"),
    (b"JOB00000000000", "must be str, not bytes"),
    (None, "must be str, not NoneType"),
    (7, "must be str, not int"),
]


@pytest.mark.parametrize(("value", "why"), BAD)
@pytest.mark.parametrize("check", [branded.check, branded.check_job, branded.parse, branded.unix_ms])
def test_what_is_no_id_is_refused_with_its_reason(check, value, why) -> None:
    with pytest.raises(IdError, match=why) as caught:
        check(value)
    assert repr(value) in str(caught.value)
    assert "allowed is" in str(caught.value)


def test_a_job_id_begins_with_job() -> None:
    assert branded.check_job("JOBAzL8n0Y58m7") == "JOBAzL8n0Y58m7"
    with pytest.raises(IdError, match="another kind, USR"):
        branded.check_job("USR0KHTOWnGLuC")


@given(st.text(max_size=16))
def test_check_job_agrees_with_parse(text: str) -> None:
    def accepts(check) -> bool:
        try:
            check(text)
        except IdError:
            return False
        return True

    assert accepts(branded.check_job) == (accepts(branded.parse) and text.startswith("JOB"))


@pytest.mark.parametrize("namespace", ["", "JO", "JOBS", "job", "J B", "JO1", "ÄBC", "JOB\n", None, b"JOB"])
def test_a_namespace_is_three_capitals(namespace) -> None:
    with pytest.raises(IdError, match="exactly three letters A-Z"):
        branded.encode(namespace, 0)


def test_a_refusal_is_bad_input_and_a_value_error() -> None:
    assert issubclass(IdError, InvalidInputError)
    assert issubclass(IdError, ValueError)
    assert issubclass(IdError, EchoMQError)
