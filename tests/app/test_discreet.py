"""What does not fit is told without its value: in the log, in the morgue, and to whoever waits for a result."""

from __future__ import annotations

import enum
import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
import pydantic
import pytest

from echomq import EchoMQ, Failure, JobFailed
from echomq.app.arguments import Arguments
from echomq.app.codec import Codecs
from echomq.app.returns import Returns
from echomq.errors import EnvelopeError, ResultError, SerializationError
from support.apps import burst
from support.servers import Server

SECRET = "hunter2"
SOON = timedelta(seconds=5)


class Kind(enum.Enum):
    A = "a"


class Number(enum.IntEnum):
    ONE = 1


class Cat(msgspec.Struct, tag=True, forbid_unknown_fields=True):
    name: Literal["tom"]


class Dog(msgspec.Struct, tag=True):
    name: str = ""


@dataclass
class Picky:
    name: str

    def __post_init__(self) -> None:
        raise ValueError(f"not {self.name}")


@dataclass
class Odd:
    name: str

    def __post_init__(self) -> None:
        raise KeyError(self.name)


class Line(pydantic.BaseModel):
    amounts: dict[str, int] = {}
    size: Annotated[int, pydantic.Field(alias="grösse")] = 0
    pet: Literal["cat"] = "cat"

    @pydantic.field_validator("pet", mode="before")
    @classmethod
    def _no(cls, value: object) -> object:
        if value == SECRET:
            raise ValueError(f"never {value}")
        return value


class Card(pydantic.BaseModel, extra="forbid"):
    number: int = 0
    lines: list[Line] = []


MISFITS: list[tuple[Any, Any, str]] = [
    (Kind, SECRET, "it is none of the values allowed"),
    (list[Kind], [SECRET], "it is none of the values allowed - at `$[0]`"),
    (Number, 47110815, "it is none of the values allowed"),
    (Literal["a", "b"], f"{SECRET} - at `$.x`", "it is none of the values allowed"),
    (Literal[1, 2], 47110815, "it is none of the values allowed"),
    (dict[str, Kind], {SECRET: SECRET}, "it is none of the values allowed - at `$[...]`"),
    (list[dict[Kind, int]], [{SECRET: 1}], "it is none of the values allowed - at `key` in `$[0]`"),
    (list[dict[int, int]], [{SECRET: 1}], "Expected `int`, got `str` - at `key` in `$[0]`"),
    (Cat | Dog, {"type": SECRET}, "it is none of the values allowed - at `$.type`"),
    (Cat, {"type": "Cat", "name": "tom", SECRET: 1}, "Object contains an unknown field"),
    (list[Cat], [{"type": "Cat", "name": SECRET}], "it is none of the values allowed - at `$[0].name`"),
    (int, SECRET, "Expected `int`, got `str`"),
    (Decimal, SECRET, "Invalid decimal string"),
    (datetime, SECRET, "Invalid RFC3339 encoded datetime"),
    (date, SECRET, "Invalid RFC3339 encoded date"),
    (time, SECRET, "Invalid RFC3339 encoded time"),
    (timedelta, SECRET, "Invalid ISO8601 duration"),
    (UUID, SECRET, "Invalid UUID"),
    (bytes, f"{SECRET}!", "Invalid base64 encoded string"),
    (Annotated[str, msgspec.Meta(pattern="^x")], SECRET, "Expected `str` matching regex '^x'"),
    (Annotated[int, msgspec.Meta(lt=10)], 47110815, "Expected `int` <= 9"),
    (Path, [SECRET], "Path cannot be made from JSON"),
    (Picky, {"name": SECRET}, "ValueError"),
    (list[Picky], [{"name": SECRET}], "ValueError - at `$[0]`"),
    (Odd, {"name": SECRET}, "KeyError"),
    (Card, {"number": SECRET}, "1 validation error for Card: number (int_parsing)"),
    (list[Card], [{"number": SECRET}], "1 validation error for Card: number (int_parsing) - at `$[0]`"),
    (Card, {SECRET: 1}, "1 validation error for Card: ... (extra_forbidden)"),
    (Card, SECRET, "1 validation error for Card: the whole (model_type)"),
    (
        Card,
        {"lines": [{"amounts": {SECRET: SECRET}, "grösse": SECRET, "pet": SECRET}, SECRET]},
        (
            "4 validation errors for Card: lines.0.amounts.... (int_parsing), lines.0.grösse (int_parsing), "
            "lines.0.pet (value_error) and 1 more"
        ),
    ),
]


def taking(annotation: Any) -> Arguments:
    def take(value: Any) -> None: ...

    take.__annotations__ = {"value": annotation}
    return Arguments("take", take)


@pytest.mark.parametrize(("annotation", "value", "why"), MISFITS)
def test_an_argument_that_does_not_fit_is_not_quoted(annotation: Any, value: Any, why: str) -> None:
    with pytest.raises(EnvelopeError) as caught:
        taking(annotation).incoming([value], {})
    assert str(caught.value) == f"argument 'value' does not fit its annotation: {why}"
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(("annotation", "value", "why"), MISFITS)
def test_a_result_that_does_not_fit_is_not_quoted(annotation: Any, value: Any, why: str) -> None:
    def give() -> Any: ...

    give.__annotations__ = {"return": annotation}
    with pytest.raises(ResultError) as caught:
        Returns("give", give, Codecs(None), 1_000).value(msgspec.json.encode(value))
    assert str(caught.value) == f"it is done, but its result does not fit the annotation: {why}"
    assert caught.value.__suppress_context__


def test_whoever_sends_is_told_all() -> None:
    for annotation, value, why in [
        (Literal["a"], SECRET, f"Invalid enum value '{SECRET}'"),
        (Picky, {"name": SECRET}, f"not {SECRET}"),
        (Card, {"number": SECRET}, f"input_value='{SECRET}'"),
    ]:
        with pytest.raises(SerializationError, match=why):
            taking(annotation).outgoing((value,), {})


def test_a_name_that_is_data_is_not_told_either() -> None:
    def any_words(**words: int) -> None: ...

    with pytest.raises(EnvelopeError, match=r"^argument '\*\*words' does not fit its annotation: Expected `int`"):
        Arguments("take", any_words).incoming([], {f"{SECRET}@example.com": "x"})
    with pytest.raises(EnvelopeError, match=r"unexpected keyword argument '\.\.\.'$"):
        taking(int).incoming([1], {f"{SECRET}@example.com": "x"})
    with pytest.raises(EnvelopeError, match=r"unexpected keyword argument 'amount'$"):
        taking(int).incoming([1], {"amount": "x"})


class Sealed:
    name = "sealed"

    def encode(self, data: bytes, /) -> bytes:
        return bytes(byte ^ 0x5A for byte in data)

    decode = encode


class Narrow(pydantic.BaseModel):
    args: list[int]


class Extra(pydantic.BaseModel, extra="allow"):
    content: Any = None


LOST: list[tuple[Any, Any]] = [
    (Any, {SECRET: {1, 2}}),
    (Any, {SECRET: {(SECRET,): 1}}),
    (Any, {SECRET: [{47110815: 1}]}),
    (Extra, Extra.model_validate({SECRET: {47110815}})),
    (dict[int | str, int], {47110815: 1}),
    (float, 2**60 + 1),
    (list[datetime], [datetime(1890, 1, 2, 3, 4, 5, tzinfo=UTC) - timedelta(microseconds=1)]),
    (dict[str, Any], {SECRET: datetime.now(UTC)}),
    (Any, f"{SECRET}\ud800"),
    (Line, Line.model_construct(size=SECRET)),  # type: ignore[arg-type]  # the point of the test
]


@pytest.mark.parametrize(("annotation", "value"), LOST)
def test_a_result_that_cannot_be_kept_is_not_quoted(
    annotation: Any, value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def give() -> Any: ...

    give.__annotations__ = {"return": annotation}
    with caplog.at_level(logging.DEBUG), warnings.catch_warnings(record=True) as warned:
        kept = Returns("give", give, Codecs(Sealed()), 10_000).encoded(value)
    assert not warned, "pydantic's own warnings quote what they are about"
    for word in (SECRET, "4711", "1152921504606846977", "1890"):
        assert word.encode() not in kept
        assert word not in caplog.text


def _everything(server: Server, queue: str) -> bytes:
    """Whatever the server has of a queue."""
    reads: dict[bytes, Callable[[bytes], list[Any]]] = {
        b"hash": lambda key: ["HGETALL", key],
        b"string": lambda key: ["GET", key],
        b"list": lambda key: ["LRANGE", key, 0, -1],
        b"zset": lambda key: ["ZRANGE", key, 0, -1],
        b"set": lambda key: ["SMEMBERS", key],
        b"stream": lambda key: ["XRANGE", key, "-", "+"],
    }
    found: list[object] = []
    with server.client() as client:
        for key in client.execute("KEYS", f"*{queue}*"):
            kind = client.execute("TYPE", key)
            found += [key, client.execute(*reads[kind if isinstance(kind, bytes) else str(kind).encode()](key))]
    return repr(found).encode()


def test_no_secret_of_an_encrypted_run_is_on_the_server_or_in_the_log(
    server: Server, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    told: list[Failure] = []

    def app(*kinds: Any) -> EchoMQ:
        mq = EchoMQ(server.url, default_queue=queue, codec=Sealed())
        for place, kind in enumerate(kinds):

            def work(value: Any) -> Any:
                return {"given": [value], "never": {1, 2}}

            work.__annotations__ = {"value": kind, "return": Any}
            mq.job(name=f"job{place}", on_dead="alert", result_ttl=timedelta(hours=1))(work)
        return mq

    sent = [SECRET, [SECRET], {SECRET: SECRET}, {"number": SECRET}, {"name": SECRET}, SECRET]
    with app(*[Any] * len(sent)) as older:
        handles = [older.jobs[f"job{place}"].enqueue(value) for place, value in enumerate(sent)]
    with app(Kind, list[Literal["a"]], dict[str, int], Card, Picky, Any) as newer:

        @newer.job(name="alert")
        def alert(what: Failure) -> None:
            told.append(what)

        burst(newer)
        assert sorted(each.name for each in told) == [f"job{place}" for place in range(5)]
        assert told[0].args is not None
        errors = [each.error for each in told]
        for handle in handles[:5]:
            with pytest.raises(JobFailed) as failed:
                newer.handle(handle.id, queue=queue).get(SOON)
            errors.append(str(failed.value))
        with pytest.raises(ResultError, match="could not be kept") as unkept:
            newer.handle(handles[5].id, queue=queue).get(SOON)
        stored = _everything(server, queue)
    assert b"last_error" in stored
    assert b"could not" in stored or b"!dict" in stored
    for text in (*errors, str(unkept.value), stored.decode(), caplog.text):
        assert SECRET not in text
    for record in caplog.records:
        assert SECRET not in repr(vars(record))


def test_a_follower_that_cannot_take_what_it_is_told_is_not_quoted(
    server: Server, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    with EchoMQ(server.url, default_queue=queue, codec=Sealed()) as mq:

        @mq.job(name="alert")
        def alert(what: Narrow) -> None: ...

        @mq.job(name="work", on_success="alert")
        def work(value: str) -> None: ...

        work.enqueue(SECRET)
        burst(mq)
    assert "alert cannot follow it: 1 validation error for Narrow: args.0 (int_parsing)" in caplog.text
    assert SECRET not in caplog.text
