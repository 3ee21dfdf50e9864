"""Jobs, many at once, codecs and instructions, as a type checker must accept them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

from echomq import Bound, Cancel, Codec, Discard, EchoMQ, EchoMQError, Job, Retry, current_job
from echomq.errors import EnqueueManyError

mq = EchoMQ("valkey://localhost:6379/0", default_queue="mail")


@mq.job
async def send(to: str, subject: str = "hi") -> str:
    return f"{subject}, {to}"


@mq.job(name="mail.count", queue="mail", max_attempts=5)
def count(*words: str, upto: int = 10) -> int:
    return min(len(words), upto)


@mq.job(backoff=lambda attempts: attempts * 1_000)
def nothing() -> None: ...


@mq.job(
    name="mail.all",
    aliases=["mail.every"],
    queue="mail",
    lane="acme",
    retry_on=(ConnectionError, TimeoutError),
    discard_on=ValueError,
    timeout=timedelta(minutes=2),
    expires=timedelta(hours=1),
    meta={"team": "ops"},
)
async def mail_all(order: int, *, express: bool = False) -> list[str]:
    job = current_job()
    assert_type(job.extend(minutes=5), datetime | None)
    job.extend(timedelta(minutes=5))
    if express:
        raise Retry("too many requests", minutes=1)
    if order:
        raise Retry(after=timedelta(minutes=1))
    if job.cancelled:
        raise Cancel("nobody wants it")
    raise Discard("no such order")


class Zip:
    name = "zlib"

    def encode(self, data: bytes, /) -> bytes:
        return data

    def decode(self, data: bytes, /) -> bytes:
        return data


def set_up(codec: Codec) -> None:
    EchoMQ(prefix="staging", queues=["ops"], codec=codec, max_payload=1_000)
    EchoMQ(codec=[Zip(), codec])
    EchoMQ(codec=Zip())
    assert_type(mq.queue_name("mail"), str)
    assert_type(mq.queues, tuple[str, ...])


def many() -> None:
    assert_type(send.s("a@b.c"), Bound[str])
    assert_type(count.options(lane="acme").s("a", upto=3), Bound[int])
    assert_type(send.after(minutes=5).s("a@b.c", subject="ho"), Bound[str])
    assert_type(mq.enqueue_many([send.s("a@b.c"), send.at(datetime.now(UTC)).s("a@b.c")]), list[Job[str]])
    assert_type(mq.enqueue_many(count.s("a") for _ in range(5)), list[Job[int]])
    mixed: list[Bound[str | int]] = [send.s("a@b.c"), count.s("a")]
    assert_type(mq.enqueue_many(mixed), list[Job[str | int]])
    some: list[Bound[object]] = [nothing.s(), mail_all.s(5)]
    assert_type(mq.enqueue_many(some)[0].id, str)
    try:
        mq.enqueue_many(some)
    except EnqueueManyError as error:
        assert_type(error.jobs, tuple[Job[Any], ...])
        assert_type(error.sent, list[Job[Any]])
        assert_type(error.errors, dict[int, EchoMQError])


async def awaited() -> None:
    assert_type(await mq.aenqueue_many([send.s("a@b.c")]), list[Job[str]])
    assert_type(await mail_all.aenqueue(5, express=True), Job[list[str]])
    assert_type(await mail_all.s(5).job.aenqueue(5), Job[list[str]])
