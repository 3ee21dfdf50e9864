"""What would arrive as something else, although its annotation takes it, is refused; what would not, is left alone."""

from __future__ import annotations

import math
import re
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, StrEnum
from pathlib import Path
from typing import Any, NamedTuple, TypedDict
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest
from pydantic import BaseModel, SecretStr

from echomq.app import envelope
from echomq.app.arguments import Arguments
from echomq.app.codec import Codecs
from echomq.app.errors import ResultError, SerializationError
from echomq.app.returns import Returns

NOW = datetime(2026, 11, 30, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")
TWICE = datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=BERLIN)
BEFORE_ZONES = datetime(1890, 1, 1, tzinfo=BERLIN)
"""Its offset is 53 minutes and 28 seconds, and RFC 3339 has no seconds there."""


class Colour(Enum):
    RED = "red"


class Size(StrEnum):
    SMALL = "small"


@dataclass
class Box:
    content: Any = None
    cache: dict[str, int] = field(default_factory=dict, compare=False)


@dataclass
class Crate(Box):
    lid: bool = True


@dataclass(eq=False)
class Silent:
    when: datetime
    content: Any = None


class Note(msgspec.Struct):
    content: Any = None


class Row(NamedTuple):
    content: Any


class Page(TypedDict):
    content: Any


class Sheet(BaseModel):
    content: Any = None


class Login(BaseModel):
    password: SecretStr


def through(annotation: Any, value: Any) -> Any:
    def take(value: Any) -> None: ...

    take.__annotations__ = {"value": annotation}
    arguments = Arguments("take", take)
    found = envelope.decode(envelope.encode(arguments, (value,), {}))
    return arguments.incoming(found.args, found.kwargs)[0][0]


def back(annotation: Any, value: Any) -> Any:
    def give() -> Any: ...

    give.__annotations__ = {"return": annotation}
    returns = Returns("give", give, Codecs(None), 1_000_000)
    return returns.value(returns.encoded(value))


ALTERED = [
    (Box, Box(NOW), r"at \.content: a datetime arrives as a str"),
    (Box, Box(b"x"), r"at \.content: a bytes arrives as a str"),
    (Box, Box(Colour.RED), r"at \.content: a Colour arrives as a str"),
    (Box, Box(Box()), r"at \.content: a Box arrives as a dict"),
    (Box, Box({"a": [0, {1: 2}]}), r"at \.content\['a'\]\[1\]: the key 1 arrives as '1'"),
    (dict[str, list[Note]], {"a": [Note(UUID(int=1))]}, r"at \['a'\]\[0\]\.content: an UUID arrives as a str"),
    (Row, Row(NOW), r"at \.content: a datetime"),
    (Page, {"content": {1}}, r"at \['content'\]: a set arrives as a list"),
    (Page, {"content": 1, "more": 2}, "of 2 keys 1 arrive"),
    (Sheet, Sheet(content=NOW), r"at \.content: a datetime"),
    (Silent, Silent(NOW, NOW), r"at \.content: a datetime"),
    (set[Any], {1, NOW}, "a datetime arrives as a str"),
    (Box, Crate(), "a Crate arrives as a Box"),
    (list[Box], [Box(), Crate()], r"at \[1\]: a Crate arrives as a Box"),
    (Login, Login(password=SecretStr("s3cret")), r"at \.password: SecretStr\('\*+'\) arrives as"),
    (dict[int | str, int], {1: 1}, "the key 1 arrives as '1'"),
    (dict[int | str, int], {1: 1, "1": 2}, "of 2 keys 1 arrive"),
    (float, 2**60 + 1, "1152921504606846977 arrives as 1.15"),
    (str, UUID(int=1), "an UUID arrives as a str"),
    (datetime, BEFORE_ZONES, r"datetime\.datetime\(1890.* arrives as"),
    (datetime, datetime(2026, 1, 1, tzinfo=timezone(timedelta(seconds=90))), r"datetime\.datetime\(2026.* arrives as"),
]


@pytest.mark.parametrize(("annotation", "value", "why"), ALTERED)
def test_an_argument_that_would_arrive_as_something_else_is_refused(annotation: Any, value: Any, why: str) -> None:
    with pytest.raises(SerializationError, match=f"argument 'value' of job 'take' would arrive altered: {why}"):
        through(annotation, value)


@pytest.mark.parametrize(("annotation", "value", "why"), ALTERED)
def test_a_result_that_would_come_back_as_something_else_is_not_kept(annotation: Any, value: Any, why: str) -> None:
    with pytest.raises(ResultError, match=f"could not be kept, .*it would come back altered: {_unquoted(why)}"):
        back(annotation, value)


def _unquoted(why: str) -> str:
    """The same without the values: many can read why a result is not kept."""
    for quoted, kind in [
        (r"'1'", "<str>"),
        (r"the key 1 ", "the key <int> "),
        (r"\\\['\w+'\\\]", r"\[<str>\]"),
        (r"SecretStr.* arrives", "<SecretStr> arrives"),
        (r"\d+ arrives as 1\.15", "<int> arrives as <float>"),
        (r"datetime\\\.datetime.* arrives", "<datetime> arrives"),
    ]:
        why = re.sub(quoted, lambda _, kind=kind: kind, why)
    return why


@pytest.mark.parametrize(
    ("annotation", "value", "arrives"),
    [
        (Box, Box((1, 2)), Box([1, 2])),
        (Box, Box(Size.SMALL, {"seen": 1}), Box("small")),
        (Sequence[int], (1, 2), [1, 2]),
        (set[int], [1, 1, 2], {1, 2}),
        (Colour, "red", Colour.RED),
        (Decimal, 1.1, Decimal("1.1")),
        (datetime, NOW.isoformat(), NOW),
        (Box, {"content": 1}, Box(1)),
        (bytes, bytearray(b"x"), b"x"),
        (Path, Path("a"), Path("a")),
        (datetime, TWICE, TWICE.astimezone(timezone(timedelta(hours=1)))),
    ],
)
def test_what_says_the_same_passes(annotation: Any, value: Any, arrives: Any) -> None:
    assert through(annotation, value) == back(annotation, value) == arrives


def test_what_cannot_be_compared_is_compared_by_what_it_is_made_of() -> None:
    assert through(Silent, Silent(NOW)).when == back(list[Silent], [Silent(NOW)])[0].when == NOW
    assert through(set[datetime], {TWICE, NOW}) == {TWICE.astimezone(UTC), NOW}
    (key,) = through(dict[float, int], {math.nan: 1})
    assert math.isnan(key)
    assert through(Decimal, Decimal("NaN")).is_nan()
    assert through(list[Decimal], [Decimal("sNaN")])[0].is_snan()


@pytest.mark.parametrize("annotation", [Iterable[int], OrderedDict[str, int]])
def test_a_generic_that_json_does_not_make_is_named(annotation: Any) -> None:
    value: Any = [] if annotation == Iterable[int] else {}
    with pytest.raises(SerializationError, match=r"(Iterable|OrderedDict)\[.*\] cannot be made from JSON: list, set, "):
        through(annotation, value)
