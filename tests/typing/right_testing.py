"""Uses of testing that a type checker must accept; `assert_type` says what it must understand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import assert_type

from echomq import EchoMQ
from echomq.testing import Drained, Eager, End, Enqueued, Ran, ServerTrial, Throwaway

mq = EchoMQ()


@mq.job
def send(to: str, *, copies: int = 1) -> str:
    return to * copies


def blocking() -> None:
    with mq.testing() as trial:
        assert_type(trial, ServerTrial)
        url: str = trial.url
        assert url
        assert_type(mq.drain_blocking(retries=True, raise_errors=True, timeout=None), Drained)
        mq.clock.advance(hours=1.5)
        mq.clock.advance(timedelta(hours=1))
        ahead: timedelta = mq.clock.ahead
        assert ahead
        assert_type(mq.enqueued(send), list[Enqueued])
        assert_type(mq.assert_enqueued(send, "ada", queue="mail", at=datetime.now(UTC), times=2), Enqueued)
        mq.assert_enqueued(send.s("ada", copies=2), within=timedelta(seconds=5))
        mq.assert_enqueued(send.options(lane="acme").after(hours=1))
        mq.assert_not_enqueued("send", lane="acme")
    with Throwaway() as server, mq.testing(server):
        server.empty()
    with mq.testing("valkey://localhost"):
        pass


async def awaited() -> None:
    async with mq.testing() as trial:
        assert_type(trial, ServerTrial)
        done = await mq.drain(concurrency=1, schedules=True)
        first: Ran = done.runs[0]
        assert_type(first.end, End)
        assert_type(first.error, BaseException | None)
        assert_type(done.completed + done.dead, int)
        moved = await mq.clock.aadvance(days=1)
        assert moved.jobs + moved.recurrences
        assert_type(await mq.aenqueued(), list[Enqueued])
        assert_type(await mq.aassert_enqueued(send), Enqueued)
        await mq.aassert_not_enqueued(send, "ada")


async def eager() -> None:
    with mq.eager(raise_errors=True) as one:
        assert_type(one, Eager)
        assert_type(send.enqueue("ada").get(), str)
    async with mq.testing(eager=True) as other:
        assert_type(other, Eager)
        assert_type(await (await send.aenqueue("ada")).result(), str)
