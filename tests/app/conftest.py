"""An app on the run's server with a queue of its own, and workers that end with their test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from echomq import EchoMQ, Worker, jobs, metrics
from support.servers import Server

Working = Callable[..., AbstractAsyncContextManager[Worker]]


@pytest.fixture
def mq(server: Server, queue: str) -> Iterator[EchoMQ]:
    with EchoMQ(server.url, default_queue=queue, queues=[f"{queue}-other"]) as mq:
        yield mq


@pytest.fixture
def working(mq: EchoMQ) -> Working:
    """`async with working(...) as worker`: a worker of the app that serves inside the block."""

    @asynccontextmanager
    async def work(**options: Any) -> AsyncGenerator[Worker, None]:
        worker = Worker(mq, **{"grace": timedelta(seconds=1)} | options)
        serving = asyncio.ensure_future(worker.serve())
        try:
            yield worker
        finally:
            worker.stop()
            await serving

    return work


@pytest.fixture
def dead_rows(mq: EchoMQ, queue: str) -> Callable[[], list[dict[str, bytes]]]:
    """The rows in the morgue of the test's queue, oldest first."""

    def rows() -> list[dict[str, bytes]]:
        ids = mq.run(jobs.browse_dead(queue, newest_first=False))
        return [mq.run(metrics.row(queue, job_id)) for job_id in ids]

    return rows
