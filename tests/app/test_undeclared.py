"""A queue that no worker of the app serves is said once, whatever names it: nothing there would ever have an effect."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest

from echomq import EchoMQ
from echomq.app.job import JobFunction
from echomq.errors import UndeclaredQueueWarning
from support.servers import Server

JOB_ID = "JOB0NgWEfAEJfs"
HOUR = timedelta(hours=1)

Way = Callable[[EchoMQ, JobFunction[[], None], str], object]

BLOCKING: dict[str, Way] = {
    "lane.pause": lambda mq, job, queue: mq.lane("a", queue=queue).pause(),
    "lane.resume": lambda mq, job, queue: mq.lane("a", queue=queue).resume(),
    "lane.limit": lambda mq, job, queue: mq.lane("a", queue=queue).limit(None),
    "lane.weight": lambda mq, job, queue: mq.lane("a", queue=queue).weight(1),
    "lane.depth": lambda mq, job, queue: mq.lane("a", queue=queue).depth(),
    "schedule.info": lambda mq, job, queue: mq.schedule("a", queue=queue).info(),
    "schedule.cancel": lambda mq, job, queue: mq.schedule("a", queue=queue).cancel(),
    "schedule.pause": lambda mq, job, queue: mq.schedule("a", queue=queue).pause(),
    "schedule.resume": lambda mq, job, queue: mq.schedule("a", queue=queue).resume(),
    "schedules": lambda mq, job, queue: mq.schedules(queue=queue),
    "register": lambda mq, job, queue: job.options(queue=queue).every(hours=1, name="a").register(),
    "cancel": lambda mq, job, queue: mq.cancel(JOB_ID, queue=queue),
    "handle": lambda mq, job, queue: mq.handle(JOB_ID, queue=queue),
    "job.handle": lambda mq, job, queue: job.options(queue=queue).handle(JOB_ID),
}
AWAITED: dict[str, Callable[[EchoMQ, JobFunction[[], None], str], Coroutine[Any, Any, object]]] = {
    "lane.apause": lambda mq, job, queue: mq.lane("a", queue=queue).apause(),
    "lane.aresume": lambda mq, job, queue: mq.lane("a", queue=queue).aresume(),
    "lane.alimit": lambda mq, job, queue: mq.lane("a", queue=queue).alimit(None),
    "lane.aweight": lambda mq, job, queue: mq.lane("a", queue=queue).aweight(1),
    "lane.adepth": lambda mq, job, queue: mq.lane("a", queue=queue).adepth(),
    "schedule.ainfo": lambda mq, job, queue: mq.schedule("a", queue=queue).ainfo(),
    "schedule.acancel": lambda mq, job, queue: mq.schedule("a", queue=queue).acancel(),
    "schedule.apause": lambda mq, job, queue: mq.schedule("a", queue=queue).apause(),
    "schedule.aresume": lambda mq, job, queue: mq.schedule("a", queue=queue).aresume(),
    "aschedules": lambda mq, job, queue: mq.aschedules(queue=queue),
    "aregister": lambda mq, job, queue: job.options(queue=queue).every(hours=1, name="a").aregister(),
    "acancel": lambda mq, job, queue: mq.acancel(JOB_ID, queue=queue),
}


async def awaited(way: Callable[..., Coroutine[Any, Any, object]], mq: EchoMQ, *more: object) -> None:
    try:
        await way(mq, *more)
    finally:
        await mq.aclose()


@pytest.mark.parametrize("way", [*BLOCKING, *AWAITED])
def test_a_queue_that_nobody_has_is_said_once_where_it_was_named(server: Server, queue: str, way: str) -> None:
    with EchoMQ(server.url, default_queue=queue, queues=[f"{queue}-own"]) as mq:

        @mq.job(name="work")
        def work() -> None: ...

        def go(where: str) -> None:
            if way in BLOCKING:
                BLOCKING[way](mq, work, where)
            else:
                asyncio.run(awaited(AWAITED[way], mq, work, where))

        go(queue)
        go(f"{queue}-own")
        with pytest.warns(UndeclaredQueueWarning) as caught:
            go(f"{queue}-owm")
        assert str(caught[0].message) == (
            f"no job of this app is in queue '{queue}-owm', so none of its workers serves it: declare it with "
            f"EchoMQ(queues=['{queue}-owm']), or use one of '{queue}-own', '{queue}'"
        )
        assert [each.filename for each in caught] == [__file__]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            go(f"{queue}-owm")


def test_the_default_queue_is_no_job_s_unless_one_is_in_it(server: Server, queue: str) -> None:
    with EchoMQ(server.url) as mq:
        mq.job(name="work", queue=queue)(print)
        with pytest.warns(UndeclaredQueueWarning, match=f"in queue 'default', .* one of '{queue}'"):
            mq.lane("acme").depth()


def test_an_app_without_a_queue_steers_those_of_others(server: Server, queue: str) -> None:
    with EchoMQ(server.url) as mq:
        mq.lane("acme", queue=queue).pause()
        mq.lane("acme", queue=queue).resume()
        lane = mq.lane("acme", queue=f"{queue}-typo")
        mq.job(name="work", queue=queue)(print)
        with pytest.warns(UndeclaredQueueWarning, match=f"'{queue}-typo'"):
            lane.depth()


def test_run_now_of_a_recurrence_is_warned_about_where_it_was_written(server: Server, queue: str) -> None:
    with EchoMQ(server.url, default_queue=queue) as mq:
        job = mq.job(name="work")(print)
        hourly = job.options(queue=f"{queue}-typo").every(HOUR, name="a")
        mq.run(hourly.plan((), {}))
        with pytest.warns(UndeclaredQueueWarning) as caught:
            hourly.run_now()
        assert [each.filename for each in caught] == [__file__]
