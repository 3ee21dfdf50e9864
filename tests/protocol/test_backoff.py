"""Backoff is a pure number of milliseconds, exact also for attempts beyond any float."""

from __future__ import annotations

import time
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echomq.identity.errors import InvalidInputError
from echomq.protocol.backoff import Exponential, Fixed, Jitter, Policy, delay_ms
from echomq.protocol.checks import MAX_SPAN_MS

MS = st.integers(0, 10**9)
POSITIVE_MS = st.integers(1, 10**9)
ATTEMPTS = st.integers(1, 200)
DOUBLING = st.builds(lambda base, more: Exponential(base, base + more), POSITIVE_MS, MS)
PLAIN = st.one_of(st.builds(Fixed, MS), DOUBLING)


@given(MS, st.integers(1, 10**12))
def test_fixed_is_always_the_same(ms: int, attempts: int) -> None:
    assert delay_ms(Fixed(ms), attempts) == ms


@pytest.mark.parametrize(("attempts", "ms"), [(1, 100), (2, 200), (3, 400), (20, 10_000), (10**9, 10_000)])
def test_exponential_doubles_up_to_its_cap(attempts: int, ms: int) -> None:
    assert delay_ms(Exponential(100, 10_000), attempts) == ms


@given(DOUBLING, ATTEMPTS)
def test_exponential_is_its_formula(policy: Exponential, attempts: int) -> None:
    assert delay_ms(policy, attempts) == min(policy.base * 2 ** (attempts - 1), policy.cap)


def test_a_huge_count_of_attempts_costs_nothing() -> None:
    start = time.process_time()
    assert delay_ms(Exponential(1, MAX_SPAN_MS), 10**9) == MAX_SPAN_MS
    assert delay_ms(Exponential(1, 1), 10**300) == 1
    assert time.process_time() - start < 0.5  # the naive power takes seconds and gigabytes


@given(PLAIN, ATTEMPTS, st.integers())
def test_jitter_lies_between_nothing_and_all_of_it(inner: Policy, attempts: int, seed: int) -> None:
    drawn = delay_ms(Jitter(inner), attempts, Random(seed))
    assert 0 <= drawn <= delay_ms(inner, attempts)
    assert drawn == delay_ms(Jitter(inner), attempts, Random(seed))


def test_jitter_reaches_both_ends_and_everything_between() -> None:
    random = Random(1)
    assert {delay_ms(Jitter(Fixed(3)), 1, random) for _ in range(200)} == {0, 1, 2, 3}
    assert {delay_ms(Jitter(Fixed(3)), 1) for _ in range(500)} == {0, 1, 2, 3}


def test_jitter_nests() -> None:
    drawn = {delay_ms(Jitter(Jitter(Fixed(2))), 1, Random(seed)) for seed in range(200)}
    assert drawn == {0, 1, 2}


def test_any_callable_is_a_policy() -> None:
    assert delay_ms(lambda attempts: attempts * 7, 3) == 21
    assert 0 <= delay_ms(Jitter(lambda attempts: 5), 1) <= 5


@pytest.mark.parametrize("result", [-1, 1.5, True, None, "5", MAX_SPAN_MS + 1])
def test_what_a_callable_gives_is_checked(result) -> None:
    with pytest.raises(InvalidInputError, match=r"delay that .* gave for attempts=4"):
        delay_ms(lambda attempts: result, 4)


@pytest.mark.parametrize("attempts", [0, -1, True, 1.0, "1", None])
def test_attempts_are_counted_from_one(attempts) -> None:
    for policy in (Fixed(1), Exponential(1, 1), Jitter(Fixed(1)), lambda attempts: 1):
        with pytest.raises(InvalidInputError, match="attempts"):
            delay_ms(policy, attempts)


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: Fixed(-1), "Fixed ms is -1"),
        (lambda: Fixed(True), "Fixed ms must be an int"),
        (lambda: Fixed(1.0), "Fixed ms must be an int"),  # type: ignore[arg-type]
        (lambda: Fixed(MAX_SPAN_MS + 1), f"Fixed ms is {MAX_SPAN_MS + 1}"),
        (lambda: Exponential(0, 1), "Exponential base is 0"),
        (lambda: Exponential(1, 0), "Exponential cap is 0"),
        (lambda: Exponential(10, 5), r"Exponential cap is 5, less than its base 10: .*Fixed\(5\)"),
        (lambda: Exponential(True, 1), "Exponential base must be an int"),
        (lambda: Exponential(1, "9"), "Exponential cap must be an int"),  # type: ignore[arg-type]
        (lambda: Jitter(5), "not a backoff: 5"),  # type: ignore[arg-type]
        (lambda: delay_ms(5, 1), "not a backoff: 5"),  # type: ignore[arg-type]
    ],
)
def test_a_bad_policy_is_refused_when_it_is_made(make, names: str) -> None:
    with pytest.raises(InvalidInputError, match=names):
        make()


def test_policies_are_values() -> None:
    assert Exponential(base=1, cap=2) == Exponential(1, 2)
    assert {Fixed(1), Fixed(1)} == {Fixed(1)}
    with pytest.raises(AttributeError):
        Fixed(1).ms = 2  # type: ignore[misc]
