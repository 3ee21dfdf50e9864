"""The minter's node is leased: one a process and server, renewed while it is ours, replaced when it is lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator

import pytest

from echomq.identity.minter import minter
from echomq.protocol.call import Call, Plan, Reply
from echomq.protocol.errors import DisconnectedError
from echomq.wire import AsyncConnector, Connector, aconnect, connect, node
from support.raw import RawClient
from support.servers import Server

StartServer = Callable[..., Server]


@pytest.fixture
def client(server: Server) -> Iterator[RawClient]:
    with server.client() as raw:
        yield raw


def leased(client: RawClient) -> list[int]:
    return sorted(int(name.rpartition(b":")[2]) for name in client.execute("KEYS", "{emq}:node:*"))


def lease_of(conn: Connector | AsyncConnector) -> node.NodeLease:
    assert conn._lease is not None
    return conn._lease


def make_due(conn: Connector | AsyncConnector) -> None:
    lease_of(conn)._due = 0.0


def test_a_connector_leases_the_minter_s_node_and_gives_it_back(server: Server, client: RawClient) -> None:
    with connect(server.url):
        assert leased(client) == [minter.node]
        assert 50_000 < client.execute("PTTL", f"{{emq}}:node:{minter.node}") <= node.LEASE_MS
    assert leased(client) == []


async def test_an_awaited_connector_does_the_same(server: Server, client: RawClient) -> None:
    async with aconnect(server.url):
        assert leased(client) == [minter.node]
    assert leased(client) == []


async def test_connectors_of_a_process_share_one_lease(server: Server, client: RawClient) -> None:
    with connect(server.url):
        async with aconnect(server.url):
            with connect(server.url):
                assert leased(client) == [minter.node]
        assert leased(client) == [minter.node]
    assert leased(client) == []


def test_a_connector_may_do_without(server: Server, client: RawClient) -> None:
    with connect(server.url, lease_node=False):
        assert leased(client) == []


def test_a_node_that_is_taken_is_left_alone(server: Server, client: RawClient) -> None:
    taken = minter.node
    client.execute("SET", f"{{emq}}:node:{taken}", "somebody else", "PX", 60_000)
    with connect(server.url):
        assert minter.node != taken
        assert leased(client) == sorted([taken, minter.node])
    assert client.execute("GET", f"{{emq}}:node:{taken}") == b"somebody else"


def test_it_is_renewed_when_a_third_has_passed_and_not_before(server: Server, client: RawClient) -> None:
    with connect(server.url) as conn:
        name = f"{{emq}}:node:{minter.node}"
        client.execute("PEXPIRE", name, 1_000)
        conn.execute("PING")
        assert client.execute("PTTL", name) <= 1_000
        make_due(conn)
        conn.execute("PING")
        assert client.execute("PTTL", name) > 50_000
        assert 19 < lease_of(conn).wait_s() <= 20


def test_a_lost_lease_is_replaced_and_the_new_holder_s_is_not_touched(server: Server, client: RawClient) -> None:
    with connect(server.url) as conn:
        lost = minter.node
        client.execute("SET", f"{{emq}}:node:{lost}", "somebody else", "PX", 60_000)
        make_due(conn)
        conn.execute("PING")
        assert minter.node != lost
        assert leased(client) == sorted([lost, minter.node])
    assert client.execute("GET", f"{{emq}}:node:{lost}") == b"somebody else"


async def test_the_awaited_face_renews_in_the_background(server: Server, client: RawClient) -> None:
    async with aconnect(server.url) as conn:
        lost = minter.node
        client.execute("DEL", f"{{emq}}:node:{lost}")
        make_due(conn)
        assert conn._keeper is not None
        conn._keeper.cancel()
        await asyncio.wait([conn._keeper])
        assert conn._leased is not None
        conn._keeper = asyncio.create_task(conn._keep_node(lease_of(conn), conn._leased))
        async with asyncio.timeout(40):
            while not leased(client):
                await asyncio.sleep(0.005)
        assert leased(client) == [minter.node]


def test_with_every_node_taken_the_node_is_random_and_it_says_so_once(
    server: Server, client: RawClient, caplog: pytest.LogCaptureFixture
) -> None:
    client.execute_all(("SET", f"{{emq}}:node:{n}", "other", "PX", 60_000) for n in range(1024))
    with caplog.at_level(logging.WARNING, "echomq"), connect(server.url) as conn:
        for _ in range(2):
            make_due(conn)
            conn.execute("PING")
        assert [r.message for r in caplog.records if "1024 nodes" in r.message] == [
            r.message for r in caplog.records if "nodes are leased" in r.message
        ]
        assert len([r for r in caplog.records if "1024 nodes" in r.message]) == 1
        client.execute("DEL", "{emq}:node:77")
        make_due(conn)
        conn.execute("PING")
        assert minter.node == 77
    assert client.execute("EXISTS", "{emq}:node:77") == 0


def test_a_lease_that_ran_out_unrenewed_is_not_used_any_more() -> None:
    lease = node.NodeLease("nowhere")
    drive(lease.keep(), lambda call: True)
    held = lease.node
    assert held is not None
    lease._due = lease._until = 0.0

    def gone(call: Call[Reply]) -> Reply:
        raise DisconnectedError("gone", sent=True)

    drive(lease.keep(), gone)
    assert lease.node is None


def test_a_wire_error_before_the_end_keeps_the_node() -> None:
    lease = node.NodeLease("nowhere")
    drive(lease.keep(), lambda call: True)
    held = lease.node
    lease._due = 0.0

    def gone(call: Call[Reply]) -> Reply:
        raise DisconnectedError("gone", sent=True)

    drive(lease.keep(), gone)
    assert lease.node == held
    assert lease.wait_s() > 19


def drive(plan: Plan[None], answer: Callable[[Call[Reply]], Reply]) -> None:
    try:
        call = next(plan)
        while True:
            try:
                value = answer(call)
            except DisconnectedError as error:
                call = plan.throw(error)
            else:
                call = plan.send(value)
    except StopIteration:
        return
