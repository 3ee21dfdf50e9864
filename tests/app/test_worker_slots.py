"""A worker's concurrency is its own, not each queue's; a cancelled coroutine is interrupted; both are seen outside."""

from __future__ import annotations

import asyncio

from echomq import EchoMQ, Worker, admin, metrics
from echomq.events import events
from echomq.protocol import workers
from echomq.protocol.replies import State
from support.servers import Server

QUEUES = 3


async def test_all_queues_share_the_concurrency_and_none_waits_for_another(server: Server, queue: str) -> None:
    mq = EchoMQ(server.url, default_queue=queue)
    running = most = 0
    order: list[int] = []

    def job_of(number: int):
        @mq.job(name=f"job{number}", queue=f"{queue}-{number}")
        async def work() -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            order.append(number)
            await asyncio.sleep(0.001)
            running -= 1

        return work

    jobs = [job_of(number) for number in range(QUEUES)]
    for number, job in enumerate(jobs):
        for _ in range(100 if number == 0 else 5):
            await job.aenqueue()
    await Worker(mq, concurrency=4, burst=True).serve()
    assert most == 4
    assert len(order) == 110
    for number in range(1, QUEUES):
        last = max(place for place, which in enumerate(order) if which == number)
        assert last < 80, f"queue {number} waited for the backlog of another"
    await mq.aclose()


async def test_a_coroutine_that_is_cancelled_ends_in_the_morgue_and_is_heard_of(server: Server, queue: str) -> None:
    mq = EchoMQ(server.url, default_queue=queue)
    started = asyncio.Event()

    @mq.job(name="long")
    async def long() -> None:
        started.set()
        await asyncio.Event().wait()

    job = await long.aenqueue()
    async with events(await mq.aconnection(), queue) as heard:
        worker = Worker(mq, events=True)
        serving = asyncio.ensure_future(worker.serve())
        await started.wait()
        assert await mq.arun(admin.cancel_job(queue, job.id, reason="enough")) is admin.Cancellation.REQUESTED
        found = []
        while not found or found[-1].more.get("state") != "dead":
            event = await heard.get()
            assert event is not None
            found.append(event)
        assert [event.event for event in found] == ["active", "cancelled", "cancelled"]
        assert found[-1].error == "cancelled: enough"
        assert await mq.arun(metrics.state(queue, job.id)) is State.DEAD
        (seen,) = await mq.arun(workers.seen(queue))
        assert seen.silent_ms < 60_000
        worker.stop()
        await serving
    assert await mq.arun(workers.seen(queue)) == ()
    await mq.aclose()
