"""What a job has returned comes back as its annotation says, and what cannot be kept is said so."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import pytest

from echomq import EchoMQ, State, Worker, flows, jobs, metrics, mint
from echomq.app.codec import Codecs
from echomq.errors import IdError, InvalidInputError, JobFailed, NoResultError, ResultError
from echomq.protocol.keys import keys
from support.servers import Server

SOON = timedelta(seconds=40)
NOON = datetime(2026, 2, 3, 12, tzinfo=UTC)


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Place(msgspec.Struct):
    lat: float
    lon: float


class Pair(NamedTuple):
    left: int
    right: str


@dataclass
class Order:
    number: int
    at: datetime
    lines: list[Place]
    note: str | None = None


ORDER = Order(7, NOON, [Place(1.5, 2.5)])
VALUES = [
    pytest.param(int, 7, id="int"),
    pytest.param(int, 1 << 60, id="a large int"),
    pytest.param(str, "grüß\n", id="str"),
    pytest.param(bool, False, id="False"),
    pytest.param(int, 0, id="0"),
    pytest.param(str, "", id="an empty text"),
    pytest.param(list[int], [], id="an empty list"),
    pytest.param(float, 0.1, id="float"),
    pytest.param(bytes, b"\0\xff", id="bytes"),
    pytest.param(datetime, NOON, id="datetime"),
    pytest.param(date, NOON.date(), id="date"),
    pytest.param(timedelta, timedelta(days=1, microseconds=1), id="timedelta"),
    pytest.param(UUID, UUID(int=5), id="UUID"),
    pytest.param(Decimal, Decimal("1.10"), id="Decimal"),
    pytest.param(Path, Path("/tmp/x"), id="Path"),
    pytest.param(Colour, Colour.RED, id="Enum"),
    pytest.param(Level, Level.HIGH, id="IntEnum"),
    pytest.param(Order, ORDER, id="dataclass"),
    pytest.param(Place, Place(1, 2), id="Struct"),
    pytest.param(Pair, Pair(1, "r"), id="NamedTuple"),
    pytest.param(dict[int, Order], {3: ORDER}, id="dict by int"),
    pytest.param(set[int], {1, 2}, id="set"),
    pytest.param(tuple[int, str], (1, "a"), id="tuple"),
    pytest.param(Order | None, ORDER, id="one of two"),
    pytest.param(Order | None, None, id="or None"),
    pytest.param(None, None, id="None"),
    pytest.param(Awaitable[UUID], UUID(int=6), id="awaited"),
    pytest.param(Any, {"a": [1, None, "x"]}, id="Any"),
    pytest.param(dict, {"a": {"b": [1.5]}}, id="dict"),
]


def returning(mq: EchoMQ, annotation: Any, value: object, **options: Any) -> Any:
    async def function() -> Any:
        return value

    function.__annotations__["return"] = annotation
    return mq.job(name="returning", **options)(function)


@pytest.mark.parametrize(("annotation", "value"), VALUES)
async def test_a_result_arrives_as_its_annotation_says(mq: EchoMQ, working, annotation: Any, value: object) -> None:
    job = returning(mq, annotation, value)
    async with working():
        got = await (await job.aenqueue()).result(SOON)
    assert got == value
    assert type(got) is type(value)


async def test_a_plain_function_returns_too_and_so_does_one_in_a_thread_that_waits(mq: EchoMQ, working) -> None:
    @mq.job
    def order() -> Order:
        return ORDER

    async with working():
        assert await asyncio.to_thread(lambda: order.enqueue().get(SOON)) == ORDER
        assert await (await order.aenqueue()).result(SOON) == ORDER


async def test_a_pydantic_model_comes_back(mq: EchoMQ, working) -> None:
    pydantic = pytest.importorskip("pydantic")
    model = pydantic.create_model("Model", number=(int, ...), at=(datetime, ...))
    job = returning(mq, model, model(number=1, at=NOON))
    async with working():
        got = await (await job.aenqueue()).result(SOON)
    assert got == model(number=1, at=NOON)


UNKEPT = [
    pytest.param(Any, object(), "object is not JSON", id="an object"),
    pytest.param(Any, {1, 2}, "a set arrives as something else", id="a set without an annotation"),
    pytest.param(Any, {"a": [NOON]}, r"at \[<str>\]\[0\]", id="a datetime within"),
    pytest.param(float, float("nan"), "NaN", id="NaN"),
    pytest.param(str, "\ud800", "surrogates", id="half a surrogate pair"),
    pytest.param(str, "x" * (1 << 20), "1,048,578 bytes, and at most 1,048,576", id="above the limit"),
]


@pytest.mark.parametrize(("annotation", "value", "why"), UNKEPT)
async def test_a_value_that_cannot_be_kept_costs_the_job_nothing_and_the_waiter_is_told_why(
    mq: EchoMQ, queue: str, working, annotation: Any, value: object, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    job = returning(mq, annotation, value)
    with caplog.at_level(logging.WARNING, "echomq.worker"):
        async with working():
            for _ in range(2):
                sent = await job.aenqueue()
                with pytest.raises(ResultError, match=f"{sent.id} .*could not be kept.*{why}") as caught:
                    await sent.result(SOON)
                assert type(caught.value) is ResultError
    assert mq.run(metrics.counts(queue)).completed == 2
    said = [record for record in caplog.records if "is not kept" in record.message]
    assert len(said) == 1, "the log says it once for a job"


async def test_a_result_that_does_not_fit_its_annotation_is_an_error_that_says_so(mq: EchoMQ, working) -> None:
    job = returning(mq, int, "seven")
    async with working():
        sent = await job.aenqueue()
        with pytest.raises(ResultError, match="does not fit the annotation: Expected `int`, got `str`"):
            await sent.result(SOON)


async def test_an_annotation_that_is_not_there_at_run_time_harms_no_job(mq: EchoMQ, working) -> None:
    async def function() -> Any:
        return [1]

    function.__annotations__["return"] = "NotImported"
    job = mq.job(name="loose")(function)
    async with working():
        assert await (await job.aenqueue()).result(SOON) == [1]


async def test_a_result_is_kept_for_an_hour_and_for_as_long_as_it_is_told(
    mq: EchoMQ, queue: str, server: Server, working
) -> None:
    hour, minute = returning(mq, int, 1), mq.job(name="minute", result_ttl=timedelta(minutes=1))(lambda: None)
    async with working():
        sent = [
            await hour.aenqueue(),
            await minute.aenqueue(),
            await minute.options(result_ttl=timedelta(days=2)).aenqueue(),
        ]
        await asyncio.gather(*[job.result(SOON) for job in sent])
    with server.client() as client:
        left = [client.execute("PTTL", f"{keys(queue).job(job.id)}:result") for job in sent]
        assert client.execute("GET", f"{keys(queue).job(sent[1].id)}:result") == b""
    for ttl_ms, most in zip(left, (3_600_000, 60_000, 2 * 86_400_000), strict=True):
        assert most - 30_000 < ttl_ms <= most


async def test_a_late_waiter_learns_that_a_job_that_returned_nothing_is_done(mq: EchoMQ, working) -> None:
    @mq.job
    async def nothing() -> None: ...

    async with working():
        job = await nothing.aenqueue()
        await job.result(SOON)
    assert await job.result(SOON) is None
    assert await job.astate() is State.ABSENT


async def test_a_job_that_keeps_nothing_is_not_waited_for(mq: EchoMQ, queue: str, server: Server, working) -> None:
    kept_not = returning(mq, int, 1, result_ttl=timedelta(0))
    kept = await kept_not.options(result_ttl=timedelta(hours=1)).aenqueue()
    (many,) = await mq.aenqueue_many([kept_not.s()])
    for job in (await kept_not.aenqueue(), await kept_not.options(result_ttl=timedelta(0)).aenqueue(), many):
        assert not job.keeps_result
        for ask in (job.result(), asyncio.to_thread(job.get)):
            with pytest.raises(NoResultError, match="keeps no result: its result_ttl is zero"):
                await ask
    # Another process does not know; it is told when the job is gone.
    other = mq.handle(many.id)
    async with working(burst=True):
        assert await kept.result(SOON) == 1
        with pytest.raises(NoResultError, match="has left no result"):
            await other.result(SOON)
    with server.client() as client:
        assert client.execute("KEYS", f"{keys(queue).base}*:result") == [f"{keys(queue).job(kept.id)}:result".encode()]


async def test_a_removed_job_and_an_unknown_one_have_no_result(mq: EchoMQ, queue: str) -> None:
    from echomq import admin

    job = await returning(mq, int, 1).aenqueue()
    await mq.arun(admin.remove_job(queue, job.id))
    for gone in (job, mq.handle(mint()), mq.handle(job.id, queue=f"{queue}-other")):
        with pytest.raises(NoResultError, match=f"{gone.id} .*has left no result: it was removed"):
            await gone.result()
        with pytest.raises(NoResultError):
            await asyncio.to_thread(gone.get)


async def test_a_handle_from_an_id_knows_the_type_or_gives_plain_json(mq: EchoMQ, queue: str, working) -> None:
    job = returning(mq, Order, ORDER)
    async with working():
        sent = await job.aenqueue()
        assert await job.handle(sent.id).result(SOON) == ORDER
        assert await mq.handle(sent.id).result(SOON) == msgspec.to_builtins(ORDER)
    for wrong in ("", "JOB", "USR0KHTOWnGLuC", "x" * 14):
        with pytest.raises(IdError):
            job.handle(wrong)
        with pytest.raises(IdError):
            mq.handle(wrong)
    other = f"{queue}-other"
    assert job.options(queue=other).handle(sent.id).queue == other


@pytest.mark.parametrize("wrong", [5, 0.5, "1", timedelta(seconds=-1), True, timedelta.max])
async def test_a_wrong_span_is_refused_before_anything_is_asked(mq: EchoMQ, wrong: Any) -> None:
    one = returning(mq, int, 1)
    job = one.handle(mint())
    with pytest.raises(InvalidInputError, match="timeout"):
        await job.result(wrong)
    with pytest.raises(InvalidInputError, match="timeout"):
        job.get(wrong)
    with pytest.raises(InvalidInputError, match="timeout"):
        job.events(wrong)
    if wrong is not None:
        with pytest.raises(InvalidInputError, match="result_ttl"):
            mq.job(result_ttl=wrong)(lambda: None)
        with pytest.raises(InvalidInputError, match="result_ttl"):
            one.options(result_ttl=wrong)


async def test_a_result_that_another_client_left_is_read_or_refused(mq: EchoMQ, queue: str) -> None:
    job = returning(mq, int, 1)
    for left, expected in ((b"5", 5), (b"", None), (b"\xff", ResultError), (b"{", ResultError)):
        sent = await job.aenqueue()
        claimed = await mq.arun(jobs.claim(queue))
        assert claimed is not None
        await mq.arun(jobs.complete(queue, sent.id, claimed.attempts, result=left, result_ttl_ms=60_000))
        if expected is ResultError:
            with pytest.raises(ResultError):
                await sent.result(SOON)
        else:
            assert await sent.result(SOON) == expected


async def test_the_result_of_a_child_reaches_its_parent(mq: EchoMQ, queue: str, server: Server, working) -> None:
    child = mq.job(name="child", result_ttl=timedelta(0))(lambda number: number * 2)
    silent = mq.job(name="silent")(lambda: None)
    parent = mq.job(name="parent")(lambda: "done")
    nodes = [flows.Node(queue, mint(), child.payload((number,), {})) for number in (1, 2)]
    nodes.append(flows.Node(queue, mint(), silent.payload((), {})))
    top = flows.Node(queue, mint(), parent.payload((), {}), tuple(nodes))
    await mq.arun(flows.add(top))
    async with working():
        assert await parent.handle(top.id).result(SOON) == "done"
    with server.client() as client:
        processed = client.execute("HMGET", f"{keys(queue).job(top.id)}:processed", *(node.id for node in nodes))
    assert processed == [b"2", b"4", b""]


async def test_failures_are_told_from_results(mq: EchoMQ, working) -> None:
    @mq.job(max_attempts=1)
    async def fails() -> int:
        raise ValueError("no")

    async with working():
        with pytest.raises(JobFailed):
            await (await fails.aenqueue()).result(SOON)


class Upside:
    name = "upside"

    def encode(self, data: bytes) -> bytes:
        return data[::-1]

    def decode(self, data: bytes) -> bytes:
        return data[::-1]


async def test_a_codec_has_the_last_word_on_results_too(queue: str, server: Server) -> None:
    async with (
        EchoMQ(server.url, default_queue=queue, codec=Upside()) as mq,
        EchoMQ(server.url, default_queue=queue) as plain,
    ):
        job, silent = returning(mq, Order, ORDER), mq.job(name="silent")(lambda: None)
        sent, quiet = await job.aenqueue(), await silent.aenqueue()
        await Worker(mq, burst=True).serve()
        with server.client() as client:
            left = client.execute("GET", f"{keys(queue).job(sent.id)}:result")
        assert left == b"~upside\n" + msgspec.json.encode(ORDER)[::-1]
        assert await sent.result(SOON) == ORDER
        assert await mq.handle(sent.id).result(SOON) == msgspec.to_builtins(ORDER)
        assert await quiet.result(SOON) is None
        with pytest.raises(ResultError, match="codec 'upside', which this EchoMQ does not have; it has none"):
            await plain.handle(sent.id).result(SOON)


async def test_a_codec_that_fails_costs_the_job_nothing(queue: str, server: Server) -> None:
    class Broken(Upside):
        def encode(self, data: bytes) -> bytes:
            raise RuntimeError("no key")

    async with EchoMQ(server.url, default_queue=queue) as mq:
        job = returning(mq, int, 1)
        sent = await job.aenqueue()
        mq.codecs = Codecs(Broken())  # what it was sent with needed none
        await Worker(mq, burst=True).serve()
        with pytest.raises(ResultError, match="could not be kept, int: no key"):
            await sent.result(SOON)
