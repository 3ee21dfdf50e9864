"""Uses of the app's surface that a type checker must accept; `assert_type` says what it must understand."""

from __future__ import annotations

from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

from echomq import EchoMQ, Exponential, Fixed, Jitter, Job, Snooze, aconnect, connect, jobs, metrics, mint, repeat
from echomq.protocol.repeat import Registration
from echomq.protocol.replies import Admission, Claims, Counts

mq = EchoMQ("valkey://localhost:6379/0", default_queue="mail")


@mq.job
async def send(to: str, subject: str = "hi") -> str:
    return f"{subject}, {to}"


@mq.job(name="mail.count", queue="mail", max_attempts=5, backoff=Jitter(Exponential(base=1_000, cap=300_000)))
def count(*words: str, upto: int = 10) -> int:
    return min(len(words), upto)


@mq.job(backoff=lambda attempts: attempts * 1_000)
def nothing() -> None:
    raise Snooze(minutes=5)


@mq.job(backoff=Fixed(10))
async def nothing_async() -> None:
    raise Snooze(timedelta(minutes=5))


def blocking() -> None:
    assert_type(send.enqueue("a@b.c"), Job[str])
    assert_type(send.enqueue("a@b.c", subject="ho"), Job[str])
    assert_type(send.enqueue(to="a@b.c").id, str)
    assert_type(count.enqueue("a", "b", upto=3), Job[int])
    assert_type(nothing.enqueue(), Job[None])
    assert_type(count("a", "b"), int)
    coroutine = send("a@b.c")
    assert_type(coroutine, Coroutine[Any, Any, str]).close()
    assert_type(send.at(datetime.now(UTC)).enqueue("a@b.c"), Job[str])
    assert_type(count.after(minutes=5, seconds=1.5).enqueue("a"), Job[int])
    assert_type(count.after(timedelta(minutes=5)).enqueue("a"), Job[int])
    assert_type(send.every(hours=1, name="digest").register("all"), Registration)
    assert_type(send.every(timedelta(hours=1), name="digest", first_in=timedelta(hours=1)).cancel(), bool)
    assert_type(mq.run(metrics.counts("mail")), Counts)
    assert_type(mq.run(repeat.cancel("mail", "digest")), bool)
    with connect("valkey://localhost") as conn:
        assert_type(conn.run(jobs.enqueue("mail", mint(), b"{}")), Admission)
    with mq:
        assert_type(mq.connection().run(jobs.claim_many("mail", 10)), Claims)


async def awaited() -> None:
    assert_type(await send.aenqueue("a@b.c"), Job[str])
    assert_type(await nothing_async.aenqueue(), Job[None])
    assert_type(await send("a@b.c"), str)
    assert_type(await count.after(hours=1).aenqueue("a", upto=1), Job[int])
    assert_type(await send.every(hours=1, name="digest").aregister("all", subject="news"), Registration)
    assert_type(await mq.arun(metrics.counts("mail")), Counts)
    async with aconnect("valkey://localhost") as conn:
        assert_type(await conn.run(jobs.pending_size("mail")), int)
    async with mq:
        assert_type(await (await mq.aconnection()).run(jobs.pending_size("mail")), int)
