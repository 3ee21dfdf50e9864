"""Backoff as a value: how long to wait before the next attempt, in milliseconds."""

from __future__ import annotations

import random as _random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from echomq.identity.errors import InvalidInputError
from echomq.protocol.checks import MAX_SPAN_MS


def _checked(name: str, value: object, least: int, most: int | None = MAX_SPAN_MS) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidInputError(f"{name} must be an int, not {type(value).__name__}: {value!r}")
    if value < least or (most is not None and value > most):
        allowed = f"{least} or more" if most is None else f"{least} to {most}"
        raise InvalidInputError(f"{name} is {value}: {allowed} is allowed")
    return value


@dataclass(frozen=True, slots=True)
class Fixed:
    """The same delay before every attempt."""

    ms: int

    def __post_init__(self) -> None:
        _checked("Fixed ms", self.ms, 0)


@dataclass(frozen=True, slots=True)
class Exponential:
    """`base` ms after the first attempt, twice as long after each further one, at most `cap` ms, which is no less."""

    base: int
    cap: int

    def __post_init__(self) -> None:
        _checked("Exponential base", self.base, 1)
        _checked("Exponential cap", self.cap, 1)
        if self.cap < self.base:
            raise InvalidInputError(
                f"Exponential cap is {self.cap}, less than its base {self.base}: the first wait is too long already; "
                f"raise the cap, or write Fixed({self.cap}) for that wait each time"
            )


@dataclass(frozen=True, slots=True)
class Jitter:
    """Anything from nothing to all of what `inner` gives, each millisecond alike likely."""

    inner: Policy

    def __post_init__(self) -> None:
        check_policy(self.inner)


Policy: TypeAlias = Fixed | Exponential | Jitter | Callable[[int], int]
"""A backoff: one of ours, or any callable from the number of attempts (1, 2, ...) to milliseconds."""


def check_policy(policy: Policy) -> Policy:
    """`policy` itself, or `InvalidInputError`."""
    if isinstance(policy, Fixed | Exponential | Jitter) or callable(policy):
        return policy
    raise InvalidInputError(
        f"not a backoff: {policy!r}; Fixed, Exponential, Jitter or a callable attempts -> ms is allowed"
    )


def delay_ms(policy: Policy, attempts: int, random: _random.Random | None = None) -> int:
    """How long to wait after `attempts` attempts (1 or more); only `Jitter` draws from `random`."""
    _checked("attempts", attempts, 1, None)
    match policy:
        case Fixed(ms):
            return ms
        case Exponential(base, cap):
            # A shift as wide as the cap already exceeds it: never build 2 ** (10 ** 9).
            return min(base << min(attempts - 1, cap.bit_length()), cap)
        case Jitter(inner):
            most = delay_ms(inner, attempts, random)
            return (random or _random).randint(0, most)
        case _:
            check_policy(policy)
            return _checked(f"delay that {policy!r} gave for attempts={attempts}", policy(attempts), 0)
