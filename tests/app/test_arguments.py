"""What `enqueue` accepts arrives as it was sent; what cannot is refused before anything is sent, by name."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple
from uuid import UUID, uuid4

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echomq.app import envelope
from echomq.app.arguments import Arguments
from echomq.app.errors import EnvelopeError, JobDefinitionError, SerializationError
from echomq.protocol.errors import InvalidInputError, PayloadTooLargeError

if TYPE_CHECKING:
    from decimal import Context


class Colour(Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    y: float = 0.0
    labels: list[str] = field(default_factory=list)


class Order(msgspec.Struct):
    total: Decimal
    when: datetime | None = None


def loose(a, b=None, *rest, c=None, **more): ...  # type: ignore[no-untyped-def]
def anything(a: Any, b: dict[str, Any] | None = None, c: object = None, d: list[Any] | None = None) -> None: ...
def typed(
    when: datetime | None = None,
    day: date | None = None,
    span: timedelta | None = None,
    key: UUID | None = None,
    price: Decimal | None = None,
    colour: Colour = Colour.RED,
    point: Point | None = None,
    order: Order | None = None,
    data: bytes = b"",
    names: set[str] = frozenset(),  # type: ignore[assignment]
    pair: tuple[int, str] = (0, ""),
    by_number: dict[int, float] | None = None,
    path: Path = Path(),
    number: float = 0.0,
    count: int = 0,
    text: str = "",
) -> None: ...
def marked(number: Annotated[int, msgspec.Meta(ge=1), {"unhashable": []}] = 1) -> None: ...
def many(*numbers: int, **days: date) -> None: ...


def sent(function: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A call's arguments as they arrive."""
    arguments = Arguments("send", function)
    read = envelope.decode(envelope.encode(arguments, args, kwargs))
    assert read.job == "send"
    return arguments.incoming(read.args, read.kwargs)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@settings(max_examples=30)
@given(JSON, JSON, JSON)
def test_what_json_can_say_arrives_unaltered(a, b, c) -> None:
    assert sent(loose, a, b, "rest", c=c) == ((a, b, "rest"), {"c": c})
    assert sent(anything, a, {"b": b}, c) == ((a, {"b": b}, c), {})


@given(st.data())
def test_annotated_values_arrive_as_what_they_were(data) -> None:
    pick = {
        "when": st.datetimes(timezones=st.just(UTC)),
        "day": st.dates(),
        "key": st.uuids(),
        "price": st.decimals(allow_nan=False, allow_infinity=False),
        "point": st.builds(Point, st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.lists(st.text())),
        "data": st.binary(),
        "names": st.sets(st.text()),
        "pair": st.tuples(st.integers(), st.text()),
        "by_number": st.dictionaries(
            st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False)
        ),
        "number": st.floats(allow_nan=False, allow_infinity=False),
        "count": st.integers(),
        "text": st.text(),
    }
    chosen = data.draw(st.fixed_dictionaries({}, optional=pick))
    args, kwargs = sent(typed, **chosen)
    names = list(typed.__annotations__)
    assert dict(zip(names, args, strict=False)) | kwargs | chosen == dict(zip(names, args, strict=False)) | kwargs


def test_more_that_an_annotation_brings_back() -> None:
    order = Order(Decimal("1.10"), datetime.now(UTC))
    values = {"colour": Colour.RED, "order": order, "span": timedelta(days=1, seconds=1), "path": Path("/a/b")}
    args, kwargs = sent(typed, **values)
    got = dict(zip(typed.__annotations__, args, strict=False)) | kwargs
    assert {name: got[name] for name in values} == values
    assert sent(marked, 5) == ((5,), {})
    assert sent(many, 1, 2, today=date(2026, 1, 1)) == ((1, 2), {"today": date(2026, 1, 1)})


def test_a_tuple_without_an_annotation_arrives_as_a_list() -> None:
    assert sent(loose, (1, (2,))) == (([1, [2]],), {})


class Pair(NamedTuple):
    a: int
    b: int


class Level(IntEnum):
    LOW = 1


class Tint(StrEnum):
    RED = "red"


def test_under_no_annotation_a_named_tuple_is_a_list_and_an_enumeration_what_it_equals() -> None:
    assert sent(loose, Pair(1, 2), Level.LOW, Tint.RED) == (([1, 2], 1, "red"), {})

    def named(pair: Pair, level: Level, tint: Tint) -> None: ...

    (pair, level, tint), _ = sent(named, Pair(1, 2), Level.LOW, Tint.RED)
    assert isinstance(pair, Pair)
    assert level is Level.LOW
    assert tint is Tint.RED


def circle() -> list[Any]:
    out: list[Any] = []
    out.append(out)
    return out


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (threading.Lock(), "is not JSON"),
        (object(), "object is not JSON"),
        (1j, "complex"),
        (float("nan"), "nan has no form in JSON"),
        (float("-inf"), "-inf has no form in JSON"),
        ({"a": [float("inf")]}, r"at \['a'\]\[0\]: inf"),
        ({1: 2}, "the key 1 is an int"),
        ({"a": {None: 2}}, r"at \['a'\]: the key None"),
        ("\ud800", "surrogates not allowed"),
        ({"\udfff": 1}, "surrogates not allowed"),
        (circle(), "holds itself"),
        (b"x", "a bytes arrives as something else"),
        ({1, 2}, "a set arrives as something else"),
        (datetime.now(UTC), "a datetime arrives as something else"),
        ([uuid4()], r"at \[0\]: an UUID arrives"),
        (Decimal(1), "a Decimal arrives"),
        (Point(1), "a Point arrives"),
        (Colour.RED, "a Colour arrives"),
        pytest.param(10**5000, "digits", id="huge"),
    ],
)
def test_what_json_would_alter_or_cannot_say_is_refused_by_name(value, why) -> None:
    for function in (loose, anything):
        with pytest.raises(SerializationError, match=f"argument 'a' of job 'send' cannot be serialised: .*{why}"):
            sent(function, value)
    with pytest.raises(SerializationError, match="argument 'c' of job 'send'"):
        sent(loose, 1, c=value)
    with pytest.raises(SerializationError, match=r"argument '\*rest' of job 'send'"):
        sent(loose, 1, 2, value)
    with pytest.raises(SerializationError, match="argument 'z' of job 'send'"):
        sent(loose, 1, z=value)
    with pytest.raises(SerializationError, match="argument 'd' of job 'send'"):
        sent(anything, 1, d=[value])


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"number": float("nan")}, "NaN or an infinity"),
        ({"by_number": {1: float("inf")}}, "NaN or an infinity"),
        ({"point": Point(1, float("nan"))}, "NaN or an infinity"),
        ({"order": Order(Decimal(1), threading.Lock())}, "is not JSON"),
        ({"count": "5"}, "does not fit its annotation: Expected `int`, got `str`"),
        ({"text": 5}, "does not fit its annotation"),
        ({"count": 1.5}, "does not fit its annotation"),
        ({"when": "tomorrow"}, "does not fit its annotation"),
        ({"pair": (1, 2)}, "does not fit its annotation"),
        ({"colour": "green"}, "does not fit its annotation"),
        ({"path": Path("\udcff")}, "surrogates"),
    ],
)
def test_what_the_worker_could_not_turn_back_is_refused_by_name(values, why) -> None:
    (name,) = values
    with pytest.raises(SerializationError, match=f"argument '{name}' of job 'send' .*{why}"):
        sent(typed, **values)


@pytest.mark.parametrize(
    ("args", "kwargs"), [((), {}), ((1, 2), {"b": 3}), ((1,), {"a": 1})], ids=["missing", "twice", "again"]
)
def test_wrong_arguments_are_pythons_own_type_error(args, kwargs) -> None:
    with pytest.raises(TypeError, match=r"send\(\): (missing|multiple)"):
        sent(loose, *args, **kwargs)
    with pytest.raises(TypeError, match=r"send\(\): got an unexpected keyword argument 'nothing'"):
        sent(typed, nothing=1)
    with pytest.raises(TypeError, match=r"send\(\): too many positional"):
        sent(lambda: None, 1)


def test_a_payload_above_the_limit_names_the_job_and_its_size() -> None:
    arguments = Arguments("send", loose)
    with pytest.raises(PayloadTooLargeError, match=r"job 'send' is 1,0\d\d bytes; at most 1,000"):
        envelope.encode(arguments, ("x" * 1_000,), {}, max_bytes=1_000)


def test_an_annotation_that_json_cannot_decide_is_refused() -> None:
    def either(a: datetime | str) -> None: ...

    with pytest.raises(JobDefinitionError, match="argument 'a' of job 'send' has an annotation"):
        Arguments("send", either)


def test_an_annotation_that_is_imported_for_type_checkers_only_is_refused() -> None:
    def late(a: Context) -> None: ...

    with pytest.raises(JobDefinitionError, match=r"job 'send' cannot be resolved: name 'Context'.*TYPE_CHECKING"):
        Arguments("send", late)

    def result_only(a: int) -> Context: ...  # type: ignore[empty-body]

    assert sent(result_only, 1) == ((1,), {})


@pytest.mark.parametrize(
    ("args", "kwargs", "why"),
    [
        ([], {"count": "x"}, "argument 'count' does not fit its annotation: Expected `int`, got `str`"),
        ([], {"nothing": 1}, "the arguments do not fit: send.*unexpected keyword argument 'nothing'"),
        ([None] * 17, {}, "the arguments do not fit: send.*too many"),
        (["yesterday"], {}, "argument 'when' does not fit"),
        ([], {"path": 5}, "argument 'path' does not fit"),
    ],
)
def test_arguments_of_another_client_that_do_not_fit_say_which(args, kwargs, why) -> None:
    with pytest.raises(EnvelopeError, match=why):
        Arguments("send", typed).incoming(args, kwargs)


@given(st.binary() | st.text().map(str.encode))
def test_any_bytes_are_an_envelope_or_a_reason(payload) -> None:
    try:
        read = envelope.decode(payload)
    except EnvelopeError:
        return
    assert read.v == 1


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (b"", "not an envelope"),
        (b"[]", "Expected `object`"),
        (b"null", "Expected `object`"),
        (b"{}", "required field `v`"),
        (b'{"v":1}', "required field `job`"),
        (b'{"v":2,"job":"a"}', "version 2; this worker reads version 1"),
        (b'{"v":"1","job":"a"}', r"Expected `int`, got `str` - at `\$\.v`"),
        (b'{"v":1,"job":5}', r"at `\$\.job`"),
        (b'{"v":1,"job":"a","args":{}}', r"at `\$\.args`"),
        (b'{"v":1,"job":"a","kwargs":[]}', r"at `\$\.kwargs`"),
        (b'{"v":1,"job":"a","max_attempts":0}', r"at `\$\.max_attempts`"),
        (b'{"v":1,"job":"a","timeout_ms":-1}', r"at `\$\.timeout_ms`"),
        (b'{"v":1,"job":"a","codec":"zip","body":5}', r"at `\$\.body`"),
        (b'{"v":1,"job":"a","args":[],"body":"W10="}', "a body, and no codec that says what reads it"),
        (b'{"v":1,"job":"a"', "not an envelope"),
        (b"\xff\xfe", "not an envelope"),
        pytest.param(b'{"v":1,"job":"a","args":' + b"[" * 100_000, "nested too deeply", id="deep"),
        (b'{"v":1,"job":"a","args":[1e999]}', "out of range"),
        pytest.param(b'{"v":1,"job":"a","args":[' + b"9" * 5_000 + b"]}", "not an envelope", id="long"),
        (b'{"v":1,"job":"\\ud800"}', "not an envelope"),
    ],
)
def test_what_is_no_envelope_says_why(payload, why) -> None:
    with pytest.raises(EnvelopeError, match=why):
        envelope.decode(payload)


def test_members_that_this_client_does_not_know_are_borne() -> None:
    read = envelope.decode(b'{"v":1,"job":"a","future":[1],"meta":{"trace":"x"},"result_ttl_ms":5}')
    assert (read.job, read.args, read.kwargs, read.meta) == ("a", [], {}, {"trace": "x"})


def test_every_refusal_is_an_invalid_input() -> None:
    assert issubclass(SerializationError, InvalidInputError)
    assert issubclass(PayloadTooLargeError, InvalidInputError)
