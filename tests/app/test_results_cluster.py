"""Waiting for a result on a node of a cluster: what passes is waited for, what does not is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import pytest

from echomq import EchoMQ, Job, jobs
from echomq.errors import ServerError
from echomq.protocol.keys import keys
from support.desk import until
from support.raw import RawClient
from support.servers import Server, free_port


def node(start_server: Callable[..., Server]) -> Server:
    return start_server(tcp=True, options=("--cluster-enabled", "yes", "--cluster-port", str(free_port())))


async def serves(client: RawClient) -> None:
    await until(lambda: b"cluster_state:ok" in client.execute("CLUSTER", "INFO"), "the cluster")


def slot(client: RawClient, queue: str) -> int:
    found: int = client.execute("CLUSTER", "KEYSLOT", keys(queue).pending)
    return found


@asynccontextmanager
async def sent(server: Server, queue: str) -> AsyncGenerator[tuple[EchoMQ, Job[int]], None]:
    """A job on a node that serves every slot."""
    with server.client() as client:
        client.execute("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        await serves(client)
    async with EchoMQ(server.url, default_queue=queue) as mq:

        @mq.job
        async def number() -> int:
            return 1

        yield mq, await number.aenqueue()


async def test_a_result_comes_though_nobody_serves_its_queue_for_a_while(
    start_server: Callable[..., Server], queue: str
) -> None:
    server = node(start_server)
    async with sent(server, queue) as (mq, job):
        with server.client() as client:
            client.execute("CLUSTER", "DELSLOTS", slot(client, queue))
            waiting = asyncio.ensure_future(job.result())
            await until(lambda: b"errorstat_CLUSTERDOWN:" in client.execute("INFO", "errorstats"), "a look")
            client.execute("CLUSTER", "ADDSLOTS", slot(client, queue))
            await serves(client)
        claimed = await mq.arun(jobs.claim(queue))
        assert claimed is not None
        await mq.arun(jobs.complete(queue, job.id, claimed.attempts, result=b"1", result_ttl_ms=60_000))
        assert await waiting == 1


async def test_whoever_waits_is_told_that_another_node_has_the_queue(
    start_server: Callable[..., Server], queue: str
) -> None:
    server, other = node(start_server), node(start_server)
    async with sent(server, queue) as (_, job):
        with server.client() as client, other.client() as there:
            mine, its = client.execute("CLUSTER", "MYID"), there.execute("CLUSTER", "MYID")
            port = there.execute("CONFIG", "GET", "cluster-port")[1]
            client.execute("CLUSTER", "MEET", "127.0.0.1", other.port, port)
            await until(lambda: its in client.execute("CLUSTER", "NODES"), "the nodes meet")
            client.execute("FLUSHALL")  # a slot with keys stays
            client.execute("CLUSTER", "SETSLOT", slot(client, queue), "NODE", its)
            with pytest.raises(ServerError, match="MOVED "):
                await job.result()
            client.execute("CLUSTER", "SETSLOT", slot(client, queue), "NODE", mine)
            await serves(client)
