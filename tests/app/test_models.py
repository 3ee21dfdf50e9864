"""Values of classes travel by their annotation, also those of pydantic's models, which need not be installed."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, Flag, IntEnum, StrEnum
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, NamedTuple, TypedDict
from uuid import UUID, uuid4

import msgspec
import pytest

from echomq.app import envelope
from echomq.app.arguments import Arguments
from echomq.errors import EnvelopeError, JobDefinitionError, SerializationError

pydantic = pytest.importorskip("pydantic", reason="it has no wheel for every Python")


class Order(pydantic.BaseModel):
    """A model with what pydantic alone knows how to write."""

    model_config = pydantic.ConfigDict(populate_by_name=False)

    number: int = pydantic.Field(alias="no", gt=0)
    when: datetime | None = None
    tags: frozenset[str] = frozenset()
    weight: float = 0.0

    @pydantic.computed_field
    def label(self) -> str:
        return f"order {self.number}"


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True, extra="forbid")

    day: date
    pair: tuple[int, str]


class Names(pydantic.RootModel[list[str]]): ...


class Level(IntEnum):
    LOW = 1


class Colour(StrEnum):
    RED = "red"


class Size(Enum):
    BIG = "big"


class Right(Flag):
    READ = 1
    WRITE = 2


@dataclass
class Basket:
    orders: list[Order] = field(default_factory=list)
    total: Decimal = Decimal(0)


class Parcel(msgspec.Struct):
    basket: Basket
    to: UUID


class Point(NamedTuple):
    x: int
    at: datetime


class Words(TypedDict):
    since: date


NOW = datetime(2026, 11, 30, 12, 0, 0, 123_456, tzinfo=UTC)
ID = uuid4()
ORDER = Order(no=5, when=NOW, tags=frozenset({"a", "b"}))
PRICE = Decimal("1.10")


def arguments(annotation: Any) -> Arguments:
    def take(value) -> None: ...

    take.__annotations__["value"] = annotation
    return Arguments("take", take)


def sent(annotation: Any, value: Any) -> Any:
    """What a job is called with that was sent with `value`."""
    takes = arguments(annotation)
    got = envelope.decode(envelope.encode(takes, (value,), {}))
    (arrived,), _ = takes.incoming(got.args, got.kwargs)
    return arrived


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (datetime, NOW),
        (date, NOW.date()),
        (time, time(1, 2, 3)),
        (timedelta, timedelta(hours=1, microseconds=5)),
        (UUID, ID),
        (Decimal, PRICE),
        (bytes, b"\x00\xff"),
        (PurePosixPath, PurePosixPath("/a/b")),
        (Level, Level.LOW),
        (Colour, Colour.RED),
        (Size, Size.BIG),
        (Right, Right.READ | Right.WRITE),
        (Basket, Basket([ORDER], PRICE)),
        (Parcel, Parcel(Basket([ORDER]), ID)),
        (Point, Point(1, NOW)),
        (Words, {"since": NOW.date()}),
        (Order, ORDER),
        (Strict, Strict(day=NOW.date(), pair=(1, "a"))),
        (Names, Names(["a", "b"])),
    ],
)
def test_a_value_arrives_as_it_was_at_any_depth(annotation: Any, value: Any) -> None:
    for wrapped, inside in [
        (annotation, value),
        (annotation | None, value),
        (annotation | None, None),
        (list[annotation], [value, value]),
        (list[annotation | None], [None, value]),
        (dict[str, list[annotation]], {"a": [value]}),
        (dict[UUID, annotation], {ID: value}),
        (tuple[int, annotation], (1, value)),
        (Annotated[annotation, "said"], value),
    ]:
        arrived = sent(wrapped, inside)
        assert (arrived, type(arrived)) == (inside, type(inside)), wrapped


@pytest.mark.parametrize(
    ("annotation", "values"),
    [
        (datetime | int, [NOW, 5]),
        (UUID | int | None, [ID, 5, None]),
        (Basket | list[int] | str, [Basket(), [1], "a"]),
        (Basket | Level, [Basket(), Level.LOW]),
        (Literal["a", "b"] | bool, ["a", True]),
    ],
)
def test_a_union_that_json_can_tell_apart(annotation: Any, values: list[Any]) -> None:
    assert [sent(annotation, value) for value in values] == values


@pytest.mark.parametrize("annotation", [datetime | str, Order | int, Order | Strict, Basket | Parcel, Size | UUID])
def test_a_union_that_json_cannot_tell_apart_is_refused_with_the_job(annotation: Any) -> None:
    with pytest.raises(JobDefinitionError, match="argument 'value' of job 'take' has an annotation that JSON cannot"):
        arguments(annotation)


@pytest.mark.parametrize(
    ("annotation", "value", "why"),
    [
        (Order, {"no": 0}, r"(?s)does not fit its annotation: .*greater than 0"),
        (Order, "5", "does not fit its annotation"),
        (Order, Order.model_construct(number=0), "does not fit its annotation"),
        (Order, Order(no=1, weight=math.nan), "it holds a NaN or an infinity"),
        (list[Order], [Order(no=1, weight=math.inf)], "it holds a NaN or an infinity"),
        (Basket, Basket([Order(no=1, weight=-math.inf)]), "it holds a NaN or an infinity"),
        (Any, ORDER, "an Order arrives as something else unless the annotation names its type"),
        (dict, {"a": [ORDER]}, r"at \['a'\]\[0\]: an Order arrives as something else"),
    ],
)
def test_a_model_that_would_not_arrive_is_refused_before_it_is_sent(annotation: Any, value: Any, why: str) -> None:
    with pytest.raises(SerializationError, match=why):
        sent(annotation, value)


def test_what_another_client_sends_for_a_model_is_checked_by_the_model() -> None:
    takes = arguments(Order)
    assert takes.incoming([{"no": 5}], {}) == ((Order(no=5),), {})
    with pytest.raises(EnvelopeError, match="argument 'value' does not fit its annotation: 1 validation error"):
        takes.incoming([{"no": "five"}], {})
