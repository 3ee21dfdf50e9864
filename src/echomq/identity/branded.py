"""Branded ids: three capitals and a snowflake in base62, 14 ASCII bytes (protocol §1).

The order theorem: ids of one namespace sort, byte by byte, in the order of their mints.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from echomq.identity import base62, snowflake
from echomq.identity.errors import IdError

JOB: Final = "JOB"
"""The namespace of jobs; a lane may be named by an id of any namespace."""
LENGTH: Final = 3 + base62.WIDTH

_NAMESPACE = re.compile(r"[A-Z]{3}").fullmatch
_ANY = re.compile(r"[A-Z]{3}[0-9A-Za-z]{11}").fullmatch
_JOB = re.compile(r"JOB[0-9A-Za-z]{11}").fullmatch
_LAST_JOB: Final = JOB + base62.LAST


@dataclass(frozen=True, slots=True)
class BrandedId:
    """An id taken apart; `str()` puts it together again."""

    namespace: str
    snowflake: int

    def __str__(self) -> str:
        return encode(self.namespace, self.snowflake)

    @property
    def unix_ms(self) -> int:
        """When it was minted, by the clock of the host that minted it."""
        return (self.snowflake >> snowflake.TIME_SHIFT) + snowflake.EPOCH_MS


def check_namespace(namespace: str) -> str:
    """`namespace` itself, or `IdError`: exactly three letters A-Z."""
    if not isinstance(namespace, str) or _NAMESPACE(namespace) is None:
        raise IdError(f"namespace {namespace!r} is not allowed: exactly three letters A-Z")
    return namespace


def encode(namespace: str, number: int) -> str:
    """The id of a namespace and a snowflake."""
    return check_namespace(namespace) + base62.encode(number)


def _refusal(text: object, namespace: str = "") -> IdError:
    """What is wrong with something that is not an id, or not one of that namespace."""
    kind = f"{namespace} id" if namespace else "branded id"
    allowed = (
        f"{namespace or 'three letters A-Z'} and 11 characters of 0-9A-Za-z not above {base62.LAST}, {LENGTH} in all"
    )
    if not isinstance(text, str):
        return IdError(f"{kind} must be str, not {type(text).__name__}: {text!r}; allowed is {allowed}")
    if len(text) != LENGTH:
        why = f"has {len(text)} characters"
    elif _NAMESPACE(text[:3]) is None:
        why = f"begins with {text[:3]!r}"
    elif _ANY(text) is None:
        why = "holds a character outside 0-9A-Za-z"
    elif namespace and text[:3] != namespace:
        why = f"is of another kind, {text[:3]}"
    else:
        why = "stands for 2^63 or more"
    return IdError(f"{text!r} is not a {kind}: it {why}; allowed is {allowed}")


def check(text: str) -> str:
    """`text` itself when it is a branded id of any namespace, else `IdError`."""
    if isinstance(text, str) and _ANY(text) is not None and text[3:] <= base62.LAST:
        return text
    raise _refusal(text)


def check_job(text: str) -> str:
    """`text` itself when it is a job's, else `IdError`. Every verb calls it, so it does little."""
    if isinstance(text, str) and _JOB(text) is not None and text <= _LAST_JOB:
        return text
    raise _refusal(text, JOB)


def parse(text: str) -> BrandedId:
    """The parts of an id of any namespace, or `IdError`."""
    check(text)
    return BrandedId(text[:3], base62.decode(text[3:]))


def unix_ms(text: str) -> int:
    """When the id was minted: Unix milliseconds by the clock of the host that minted it."""
    return parse(text).unix_ms
