"""Every step of a job's life can be observed in one place, and an observer can do no harm."""

from __future__ import annotations

import asyncio

import pytest

from echomq.identity.errors import InvalidInputError
from echomq.protocol import admin, repeat
from echomq.protocol.backoff import Fixed
from echomq.protocol.replies import Admission, Claimed, Idle
from echomq.runtime import Bury, Later, current_token, hub
from echomq.runtime.telemetry import (
    Added,
    Cancelled,
    Completed,
    Dead,
    Delayed,
    Failed,
    LimitHit,
    Retried,
    Stalled,
    Started,
    Step,
    Telemetry,
    WorkerStarted,
    WorkerStopped,
)
from echomq.wire import aconnect
from support.desk import Desk, until

MINUTE = 60_000


async def test_a_life_is_told_step_by_step(desk: Desk) -> None:
    (job_id,) = desk.enqueue()
    steps: list[Step] = []

    async def handler(job: Claimed) -> object:
        if job.attempts == 1:
            return Later(1)
        if job.failures == 0:
            raise ValueError("no")
        return None

    watch = Telemetry(steps.append)
    async with desk.consuming(handler, beat_ms=MINUTE, retry_delay=Fixed(1), watch=watch) as consumer:
        await until(lambda: consumer.tally.completed == 1)
        name = consumer._who.name
    q = desk.queue
    assert isinstance(steps[4], Failed)
    error = steps[4].error
    assert error.startswith("ValueError: no")
    assert steps == [
        WorkerStarted(q, name),
        Started(q, job_id, 1),
        Delayed(q, job_id, 1),
        Started(q, job_id, 1),
        Failed(q, job_id, 1, error),
        Retried(q, job_id, 1, error),
        Started(q, job_id, 2),
        Completed(q, job_id, 2),
        WorkerStopped(q, name),
    ]


async def test_an_occurrence_is_told_by_the_consumer_that_fires_it(desk: Desk) -> None:
    steps: list[Step] = []
    async with aconnect(desk.server.url) as conn:
        await conn.run(repeat.register(desk.queue, "r", every_ms=MINUTE, template=b"t", first_run_ms=0))
        async with desk.consuming(beat_ms=MINUTE, watch=Telemetry(steps.append)) as consumer:
            await until(lambda: consumer.tally.completed == 1)
    (job,) = desk.seen
    assert [step for step in steps if isinstance(step, Added)] == [Added(desk.queue, job.id, Admission.ADMITTED)]


async def test_the_ways_to_the_morgue_are_told_apart(desk: Desk) -> None:
    steps: list[Step] = []

    async def handler(job: Claimed) -> object:
        desk.seen.append(job)
        if job.payload == b"bury":
            return Bury("no use")
        if job.payload == b"fail":
            raise ValueError
        await until(current_token().check)
        current_token().raise_if_cancelled()
        return None

    ids = [desk.enqueue(payload)[0] for payload in ("bury", "fail", "cancel")]
    watch = Telemetry(steps.append)
    async with desk.consuming(handler, concurrency=3, max_attempts=1, beat_ms=MINUTE, watch=watch) as consumer:
        await until(lambda: len(desk.seen) == 3)
        async with aconnect(desk.server.url) as conn:
            await conn.run(admin.cancel_job(desk.queue, ids[2]))
        await until(lambda: consumer.tally.buried == 3)
    ends = {step.job: step for step in steps if isinstance(step, Dead | Cancelled)}
    assert ends[ids[0]] == Dead(desk.queue, ids[0], "no use")
    assert isinstance(ends[ids[1]], Dead)
    assert ends[ids[2]] == Cancelled(desk.queue, ids[2], "cancelled")
    assert [step.job for step in steps if isinstance(step, Failed)] == [ids[1]]


async def test_lapses_are_told(desk: Desk) -> None:
    steps: list[Step] = []
    ids = desk.enqueue(count=2)
    for job_id, stalled in zip(ids, ("0", "1"), strict=True):
        desk.raw.execute("ZREM", desk.key("pending"), job_id)
        desk.raw.execute("HSET", desk.key(f"job:{job_id}"), "state", "active", "stalled", stalled, "attempts", "1")
        desk.raw.execute("ZADD", desk.key("active"), "1", job_id)
    async with desk.consuming(beat_ms=MINUTE, max_stalled=2, watch=Telemetry(steps.append)) as consumer:
        await until(lambda: consumer.tally.completed == 1)
    told = [step for step in steps if isinstance(step, Stalled | Dead)]
    assert told == [
        Stalled(desk.queue, ids[0], dead=False),
        Stalled(desk.queue, ids[1], dead=True),
        Dead(desk.queue, ids[1], "stalled"),
    ]


async def test_a_limit_that_was_hit_is_told(desk: Desk) -> None:
    steps: list[Step] = []
    go = asyncio.Event()

    async def handler(job: Claimed) -> None:
        await go.wait()

    async with aconnect(desk.server.url) as conn:
        await conn.run(admin.set_ceiling(desk.queue, 1))
    desk.enqueue(count=2)
    async with desk.consuming(handler, concurrency=2, beat_ms=MINUTE, watch=Telemetry(steps.append)) as consumer:
        await until(lambda: LimitHit(desk.queue, Idle.CEILING) in steps)
        go.set()
        await until(lambda: consumer.tally.completed == 2)


async def test_an_observer_that_raises_is_said_once_and_harms_no_job(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    def faulty(step: Step) -> None:
        raise RuntimeError("observer")

    steps: list[Step] = []
    watch = Telemetry(faulty, steps.append)
    desk.enqueue(count=5)
    async with desk.consuming(beat_ms=MINUTE, watch=watch) as consumer:
        await until(lambda: consumer.tally.completed == 5)
    assert sum(isinstance(step, Completed) for step in steps) == 5
    assert sum("observer" in record.getMessage() for record in caplog.records) == 1


async def test_the_process_has_one_place_that_consumers_tell_unless_given_another(desk: Desk) -> None:
    steps: list[Step] = []
    end = hub.observe(steps.append)
    try:
        desk.enqueue()
        async with desk.consuming(beat_ms=MINUTE) as consumer:
            await until(lambda: consumer.tally.completed == 1)
    finally:
        end()
    assert sum(isinstance(step, Completed) for step in steps) == 1
    assert hub.observers == ()


def test_an_observer_is_callable() -> None:
    with pytest.raises(InvalidInputError):
        Telemetry().observe("me")  # type: ignore[arg-type]  (the mistake that is refused)
