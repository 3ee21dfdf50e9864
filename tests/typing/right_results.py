"""Uses of results that a type checker must accept; `assert_type` says what it must understand."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import assert_type

from echomq import EchoMQ, Job, JobCancelled, JobFailed, State
from echomq.errors import NoResultError, ResultError, ResultTimeoutError
from echomq.events import Event

mq = EchoMQ("valkey://localhost:6379/0")


@dataclass
class Order:
    number: int


@mq.job(result_ttl=timedelta(days=1))
async def order(number: int) -> Order:
    return Order(number)


@mq.job
def count(words: list[str]) -> int:
    return len(words)


@mq.job
async def nothing() -> None: ...


async def awaited() -> None:
    job = await order.aenqueue(1)
    assert_type(job, Job[Order])
    assert_type(await job.result(), Order)
    assert_type(await job.result(timedelta(seconds=5)), Order)
    assert_type(await job.result(timeout=None), Order)
    assert_type((await job.result()).number, int)
    assert_type(await asyncio.gather(*[each.result() for each in await mq.aenqueue_many([order.s(1)])]), list[Order])
    assert_type(await (await count.aenqueue(["a"])).result(), int)
    assert_type(await nothing.aenqueue(), Job[None])
    async for event in job.events(timedelta(minutes=1)):
        assert_type(event, Event)


def blocking() -> None:
    job = order.options(result_ttl=timedelta(minutes=1)).enqueue(1)
    assert_type(job.get(), Order)
    assert_type(job.get(timedelta(seconds=5)), Order)
    assert_type(job.keeps_result, bool)
    for event in job.events():
        assert_type(event.progress, str | None)
    assert_type(count.handle("JOB0KHTOWnGLuC"), Job[int])
    assert_type(count.options(queue="other").handle("JOB0KHTOWnGLuC").get(), int)
    assert_type(mq.handle("JOB0KHTOWnGLuC", queue="other").get(), object)


def failures(job: Job[int]) -> None:
    try:
        job.get()
    except JobCancelled as error:
        assert_type(error.error, str)
    except JobFailed as error:
        assert_type(error.attempt, int)
        assert_type(error.traceback, str)
    except ResultTimeoutError as error:
        assert_type(error.state, State)
    except (NoResultError, ResultError):
        pass


def wider(job: Job[bool]) -> Job[int]:
    return job  # what it gives can be used wherever the wider type can
