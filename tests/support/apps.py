"""What the tests of the app share: a burst, waiting for the state of a job, and what there is to be seen of one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from echomq import EchoMQ, Job, JobContext, State, Worker, metrics
from support.desk import until

Rows = Callable[[], list[dict[str, bytes]]]
"""The fixture `dead_rows`: the rows in the morgue, oldest first."""


async def state_is(job: Job[Any], state: State) -> None:
    """Returns once the job is in that state."""

    async def met() -> bool:
        return await job.astate() is state

    await until(met, f"{job.id} is {state.value}")


async def id_is(mq: EchoMQ, queue: str, job_id: str, state: State) -> None:
    """Returns once the job of that id is in that state."""

    async def met() -> bool:
        return await mq.arun(metrics.state(queue, job_id)) is state

    await until(met, f"{job_id} is {state.value}")


def facts(job: JobContext) -> tuple[object, ...]:
    """What a job knows of itself."""
    return job.id, job.name, job.attempt, job.failures, job.lane, job.queue, dict(job.meta)


def burst(mq: EchoMQ, **options: Any) -> None:
    """Runs everything that can be claimed now."""
    Worker(mq, burst=True, **options).run()


def envelope(mq: EchoMQ, job: Job[Any]) -> dict[str, Any]:
    """What a job's payload says."""
    return json.loads(mq.run(metrics.row(job.queue, job.id))["payload"])


def ahead(mq: EchoMQ, queue: str) -> tuple[int, int]:
    """How many jobs of a queue are pending, and how many are scheduled."""
    now = mq.run(metrics.counts(queue))
    return now.pending, now.schedule
