"""A handle tells what happens to its job, until it has ended, whatever is published."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta

import pytest

from echomq import EchoMQ, Job, current_job, jobs
from echomq.errors import ResultTimeoutError
from echomq.events import Event
from echomq.protocol.keys import keys
from support.desk import until
from support.servers import Server

SOON = timedelta(seconds=40)
HOUR_MS = 3_600_000


def listeners(server: Server, queue: str) -> int:
    with server.client() as client:
        return int(client.execute("PUBSUB", "NUMSUB", keys(queue).events)[1])


async def followed(job: Job[object]) -> list[Event]:
    return [event async for event in job.events(SOON)]


async def blocked(job: Job[object]) -> list[Event]:
    return await asyncio.to_thread(lambda: list(job.events(SOON)))


FACES = pytest.mark.parametrize("follow", [followed, blocked], ids=["awaited", "blocking"])


def words(heard: list[Event]) -> list[str]:
    return [event.event for event in heard]


@FACES
async def test_progress_and_the_end_are_told_where_nothing_else_is_published(
    mq: EchoMQ, queue: str, server: Server, working, follow
) -> None:
    @mq.job(name="works")
    async def works() -> int:
        await current_job().aprogress(50)
        await current_job().aprogress("nearly")
        return 1

    @mq.job(name="other")
    async def other() -> None:
        await current_job().aprogress(1)

    job = await works.aenqueue()
    following = asyncio.ensure_future(follow(job))
    await until(lambda: listeners(server, queue))
    await other.aenqueue()
    async with working():
        heard = await following
    assert words(heard) == ["progress", "progress", "completed"]
    assert [event.progress for event in heard[:2]] == ["50", "nearly"]
    assert {event.job for event in heard} == {job.id}


@FACES
async def test_with_events_every_step_is_told_and_the_end_once(server: Server, queue: str, follow) -> None:
    from echomq import Worker

    with EchoMQ(server.url, default_queue=queue, events=True) as mq:
        failed = list[int]()

        @mq.job(name="works", backoff=lambda failures: 1)
        async def works() -> None:
            if not failed:
                failed.append(1)
                raise ValueError("once")

        job = await works.aenqueue()
        following = asyncio.ensure_future(follow(job))
        await until(lambda: listeners(server, queue))
        worker = Worker(mq)
        serving = asyncio.ensure_future(worker.serve())
        heard = await following
        worker.stop()
        await serving
        await mq.aclose()
    assert words(heard) == ["active", "retried", "active", "completed"]
    assert heard[1].error is not None
    assert heard[1].error.startswith("ValueError: once")


@FACES
async def test_a_death_is_the_last_event_with_its_reason(mq: EchoMQ, queue: str, server: Server, follow) -> None:
    job = await mq.job(name="dies")(_nothing).aenqueue()
    following = asyncio.ensure_future(follow(job))
    await until(lambda: listeners(server, queue))
    claimed = await mq.arun(jobs.claim(queue))
    assert claimed is not None
    await mq.arun(jobs.retry(queue, job.id, claimed.attempts, delay_ms=0, max_attempts=1, error="broken"))
    assert await following == [Event("dead", job.id, {"error": "broken"})]
    assert await follow(job) == [Event("dead", job.id, {"error": "broken"})], "also for whoever comes late"


@FACES
async def test_a_cancelled_job_ends_it(mq: EchoMQ, queue: str, server: Server, follow) -> None:
    job = await mq.job(name="waits")(_nothing).aenqueue()
    following = asyncio.ensure_future(follow(job))
    await until(lambda: listeners(server, queue))
    await job.acancel()
    (event,) = await following
    assert (event.event, event.error, event.more["state"]) == ("cancelled", "cancelled", "dead")


@FACES
async def test_a_job_that_is_gone_ends_it_at_once(mq: EchoMQ, follow) -> None:
    done = mq.job(name="done")(_nothing)
    assert await follow(done.handle("JOB0KHTOWnGLuC")) == []


@FACES
async def test_a_completed_job_is_told_late(mq: EchoMQ, queue: str, follow) -> None:
    job = await mq.job(name="done")(_nothing).aenqueue()
    claimed = await mq.arun(jobs.claim(queue))
    assert claimed is not None
    await mq.arun(jobs.complete(queue, job.id, claimed.attempts, result_ttl_ms=HOUR_MS))
    assert await follow(job) == [Event("completed", job.id, {})]


async def test_a_time_that_is_over_ends_it_with_an_error(mq: EchoMQ) -> None:
    job = await mq.job(name="waits")(_nothing).aenqueue()
    with pytest.raises(ResultTimeoutError, match=r"has not ended after 0\.05 s: it is pending"):
        async for _ in job.events(timedelta(milliseconds=50)):
            pass
    with pytest.raises(ResultTimeoutError):
        await asyncio.to_thread(lambda: list(job.events(timedelta(milliseconds=50))))


async def test_who_stops_listening_leaves_nothing(mq: EchoMQ, queue: str, server: Server) -> None:
    job = await mq.job(name="waits")(_nothing).aenqueue()
    before = asyncio.all_tasks()
    following = asyncio.ensure_future(followed(job))
    await until(lambda: listeners(server, queue))
    following.cancel()
    await asyncio.wait([following])
    await until(lambda: not listeners(server, queue))
    await until(lambda: not any("echomq" not in task.get_name() for task in asyncio.all_tasks() - before))

    def first() -> None:
        for _ in job.events():
            break

    listening = asyncio.ensure_future(asyncio.to_thread(first))
    await until(lambda: listeners(server, queue))
    with server.client() as client:
        said = json.dumps({"event": "progress", "job": job.id, "progress": "1"})
        client.execute("PUBLISH", keys(queue).events, said)
    await listening
    await until(lambda: not listeners(server, queue))


async def test_what_is_no_event_and_what_is_about_others_is_left_out(mq: EchoMQ, queue: str, server: Server) -> None:
    job = await mq.job(name="waits")(_nothing).aenqueue()
    following = asyncio.ensure_future(followed(job))
    await until(lambda: listeners(server, queue))
    with server.client() as client:
        for text in (job.id, f'"{job.id}"', f'{{"event": "progress", "job": "x", "progress": "{job.id}"}}', "\xff"):
            client.execute("PUBLISH", keys(queue).events, text)
    await job.acancel()
    assert words(await following) == ["cancelled"]


async def _nothing() -> None: ...


async def test_no_time_to_wait_is_one_look(mq: EchoMQ, queue: str) -> None:
    @mq.job(name="works")
    async def works() -> int:
        return 1

    job = await works.aenqueue()
    for timeout in (timedelta(0), timedelta(milliseconds=1)):
        with pytest.raises(ResultTimeoutError, match="it is pending"):
            [event async for event in job.events(timeout)]
    claimed = await mq.arun(jobs.claim(queue))
    assert claimed is not None
    await mq.arun(jobs.complete(queue, claimed.id, claimed.attempts, result=b"1", result_ttl_ms=HOUR_MS))
    for timeout in (timedelta(0), timedelta(milliseconds=1)):
        assert words([event async for event in job.events(timeout)]) == ["completed"]
        assert await job.result(timeout) == 1
