"""Connections that die: what was sent fails and is never repeated, what was not waits for the next one."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from echomq.protocol.call import Call
from echomq.protocol.errors import ConnectError, DisconnectedError, EchoMQError, FenceError
from echomq.wire import AsyncConnector, Connector, Options, aconnect, connect
from echomq.wire.source import FixedSource
from echomq.wire.url import Target
from support.desk import until
from support.scripted import count, key
from support.servers import Server, wait_until

StartServer = Callable[..., Server]

ALWAYS = ["--appendfsync", "always"]

PATIENT = 40.0
"""The time of a call that is to be answered, on a connector that is short with those that are not."""


def counted(server: Server, queue: str, names: list[str]) -> dict[str, int]:
    with server.client() as client:
        values = client.execute("MGET", *(key(queue, name) for name in names))
    return {name: int(value or 0) for name, value in zip(names, values, strict=True)}


def park(queue: str) -> Call[Any]:
    """A call that the server answers when it dies, or somebody wakes it."""
    return Call("park", (f"emq:{{{queue}}}:wake",), (0,), lambda reply: reply, command="BLPOP")


def sent(conn: AsyncConnector) -> int:
    """How many calls are written and not answered."""
    link = conn._carrier.link if conn._carrier is not None else None
    return len(link.pipe.sent) if link is not None else 0


# A server that is killed with calls in flight


async def test_calls_in_flight_when_the_server_is_killed_fail_and_never_run_twice(
    start_server: StartServer, queue: str
) -> None:
    server = start_server(aof=True, options=ALWAYS)
    names = [f"n{i}" for i in range(3_000)]
    async with aconnect(server.url) as conn:
        await conn.run(count(queue, "before"))  # or every call waits for the script to be loaded
        calls = [asyncio.ensure_future(conn.run(count(queue, name))) for name in names[:1_500]]
        parked = asyncio.ensure_future(conn.run(park(queue)))  # what is behind it is never answered
        calls += [asyncio.ensure_future(conn.run(count(queue, name))) for name in names[1_500:]]
        await until(lambda: sum(call.done() for call in calls) > 100)
        server.kill9()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        await asyncio.wait([parked])
        assert isinstance(parked.exception(), DisconnectedError)
        server.start()
        assert await conn.run(count(queue, "after")) == 1
    ran = counted(server, queue, names)
    for name, outcome in zip(names, outcomes, strict=True):
        if isinstance(outcome, DisconnectedError):
            assert outcome.sent
            assert ran[name] in (0, 1), "never repeated"
        else:
            assert outcome == ran[name] == 1, "what was acknowledged is there"
    assert any(isinstance(outcome, DisconnectedError) for outcome in outcomes)


def test_a_blocking_flight_when_the_server_is_killed(start_server: StartServer, queue: str) -> None:
    server = start_server(aof=True, options=ALWAYS)
    names = [f"n{i}" for i in range(8_000)]
    outcomes: list[int | EchoMQError] = []
    with connect(server.url, max_pending=100_000) as conn:
        conn.run(count(queue, "before"))
        work = [count(queue, name) for name in names]
        work.insert(4_000, park(queue))  # so that the flight is under way until the server dies
        flight = threading.Thread(target=lambda: outcomes.extend(conn.run_many(work)))
        flight.start()
        with server.client() as client:
            wait_until(lambda: client.execute("EXISTS", key(queue, "n50")), what="the flight is under way")
        server.kill9()
        flight.join()
        assert isinstance(outcomes.pop(4_000), DisconnectedError)
        server.start()
        assert conn.run(count(queue, "after")) == 1
    ran = counted(server, queue, names)
    for name, outcome in zip(names, outcomes, strict=True):
        if isinstance(outcome, DisconnectedError):
            assert ran[name] in ((0, 1) if outcome.sent else (0,))
        else:
            assert outcome == ran[name] == 1
    assert any(isinstance(outcome, DisconnectedError) for outcome in outcomes)


async def test_frozen_calls_that_the_server_never_read_are_not_sent_again(
    start_server: StartServer, queue: str
) -> None:
    server = start_server(aof=True, options=ALWAYS)
    async with aconnect(server.url) as conn:
        server.freeze()
        calls = [asyncio.ensure_future(conn.run(count(queue, f"n{i}"))) for i in range(50)]
        await until(lambda: sent(conn) == 50)
        server.kill9()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(outcome, DisconnectedError) and outcome.sent for outcome in outcomes)
        server.start()
        assert await conn.run(count(queue, "after")) == 1
    assert set(counted(server, queue, [f"n{i}" for i in range(50)]).values()) == {0}


# Reconnecting


async def test_calls_made_while_the_server_is_away_wait_for_it(start_server: StartServer, queue: str) -> None:
    server = start_server(aof=True, options=ALWAYS)
    async with aconnect(server.url) as conn:
        assert await conn.run(count(queue)) == 1
        server.kill9()
        await until(lambda: "not connected" in repr(conn))
        calls = [asyncio.ensure_future(conn.run(count(queue))) for _ in range(20)]
        await until(lambda: conn._carrier is not None and len(conn._carrier._unsent) == 20 and conn._carrier._failures)
        await asyncio.to_thread(server.start)
        assert await asyncio.gather(*calls) == list(range(2, 22))


def test_a_blocking_call_made_while_the_server_is_away_waits_for_it(start_server: StartServer, queue: str) -> None:
    server = start_server(aof=True, options=ALWAYS)
    with connect(server.url) as conn:
        assert conn.run(count(queue)) == 1
        server.kill9()

        def return_when_missed() -> None:
            wait_until(lambda: conn._waiting and conn._link is None, what="a call that waits")
            server.start()

        back = threading.Thread(target=return_when_missed)
        back.start()
        assert conn.run(count(queue)) == 2
        back.join()


async def test_waiting_ends_after_the_timeout_and_names_the_address(start_server: StartServer, queue: str) -> None:
    server = start_server()
    async with aconnect(server.url, timeout=2) as conn:
        server.kill9()
        await until(lambda: "not connected" in repr(conn))
        began = time.monotonic()
        with pytest.raises(DisconnectedError, match=server.socket_path) as refusal:
            await conn.run(count(queue))
        assert not refusal.value.sent
        assert 1.5 < time.monotonic() - began < 20


def test_blocking_waiting_ends_after_the_timeout_and_names_the_address(start_server: StartServer, queue: str) -> None:
    server = start_server()
    with connect(server.url, timeout=2) as conn:
        server.kill9()
        with pytest.raises(DisconnectedError, match=server.socket_path) as refusal:
            conn.run(count(queue))
        assert not refusal.value.sent


async def test_a_connector_that_never_reached_its_server_says_so(queue: str) -> None:
    options = Options(timeout=0.2)
    nowhere = FixedSource(Target(path="/tmp/no-such-emq.sock"))
    conn = AsyncConnector(nowhere, options)
    with pytest.raises(ConnectError, match="no-such-emq"):
        await conn.run(count(queue))
    await conn.close()
    blocking = Connector(nowhere, options)
    with pytest.raises(ConnectError, match="no-such-emq"):
        blocking.run(count(queue))
    blocking.close()


async def test_a_connection_killed_by_an_operator_is_made_again(server: Server, queue: str) -> None:
    async with aconnect(server.url) as conn:
        with connect(server.url) as blocking, server.client() as client:
            for turn in range(1, 6):
                client.execute("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
                assert blocking.run(count(queue, "blocking")) == turn
                await until(lambda: "not connected" in repr(conn))
                assert await conn.run(count(queue, "awaited")) == turn


async def test_a_deployment_that_was_upgraded_meanwhile_is_refused_at_once(server: Server, queue: str) -> None:
    async with aconnect(server.url) as conn:
        with connect(server.url) as blocking, server.client() as client:
            client.execute("SET", "{emq}:version", "echomq:5.0.0")
            client.execute("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            await until(lambda: "not connected" in repr(conn))
            with pytest.raises(FenceError):
                await conn.run(count(queue))
            with pytest.raises(FenceError):
                blocking.run(count(queue))
            client.execute("SET", "{emq}:version", "echomq:4.0.0")
            assert await conn.run(count(queue)) == 1
            assert blocking.run(count(queue)) == 2


async def test_many_lost_connections_under_load_lose_and_repeat_nothing(server: Server, queue: str) -> None:
    names = [f"n{i}" for i in range(2_000)]
    outcomes: dict[str, int | None] = {}

    async def work(conn: AsyncConnector, mine: list[str]) -> None:
        for name in mine:
            try:
                outcomes[name] = await conn.run(count(queue, name))
            except DisconnectedError as error:
                outcomes[name] = None if error.sent else -1

    async with aconnect(server.url) as conn:
        workers = [asyncio.ensure_future(work(conn, names[i::20])) for i in range(20)]
        with server.client() as client:
            while not all(worker.done() for worker in workers):
                client.execute("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
                await asyncio.sleep(0.01)
        await asyncio.gather(*workers)
    ran = counted(server, queue, names)
    assert all(outcomes[name] in (None, ran[name]) and ran[name] <= 1 for name in names)


async def test_only_one_connection_is_made_for_many_waiting_calls(start_server: StartServer, queue: str) -> None:
    server = start_server()
    async with aconnect(server.url, lease_node=False) as conn:
        server.restart()
        await until(lambda: "not connected" in repr(conn))
        assert len(set(await asyncio.gather(*(conn.run(count(queue)) for _ in range(50))))) == 50
        with server.client() as client:
            stats = client.execute("INFO", "commandstats").decode()
        assert "cmdstat_hello:calls=1," in stats


# A frozen server


async def test_a_frozen_server_does_not_hold_a_call_for_ever(start_server: StartServer, queue: str) -> None:
    server = start_server()
    async with aconnect(server.url, call_timeout=0.2) as conn:
        assert await conn.run(count(queue), timeout=PATIENT) == 1
        server.freeze()
        with pytest.raises(DisconnectedError, match=r"no answer within 0.2 s.*frozen") as refusal:
            await conn.run(count(queue))
        assert refusal.value.sent
        server.thaw()
        await until_counts(conn, queue)


def test_a_frozen_server_does_not_hold_a_thread_for_ever(start_server: StartServer, queue: str) -> None:
    server = start_server()
    with connect(server.url, call_timeout=0.2) as conn:
        assert conn.run(count(queue), timeout=PATIENT) == 1
        server.freeze()
        with pytest.raises(DisconnectedError, match=r"no answer within 0.2 s.*frozen") as refusal:
            conn.run(count(queue))
        assert refusal.value.sent
        server.thaw()
        assert conn.run(count(queue), timeout=PATIENT) >= 2


async def until_counts(conn: AsyncConnector, queue: str) -> None:
    # The server may still answer the call that was given up.
    assert await conn.run(count(queue), timeout=PATIENT) in (2, 3)


async def test_a_call_s_own_limit_is_kept_beside_longer_ones(start_server: StartServer, queue: str) -> None:
    server = start_server()
    async with aconnect(server.url) as conn:
        server.freeze()
        began = time.monotonic()
        long = asyncio.ensure_future(conn.run(count(queue)))
        await until(lambda: sent(conn) == 1)
        with pytest.raises(DisconnectedError):
            await conn.run(count(queue), timeout=0.2)
        with pytest.raises(DisconnectedError):
            await long
        assert time.monotonic() - began < 5
        server.thaw()


async def test_no_limit_means_none(server: Server, queue: str) -> None:
    async with aconnect(server.url, call_timeout=0.1) as conn:
        wake = f"emq:{{{queue}}}:wake"
        assert await conn.execute("BLPOP", wake, "0.4", timeout=None) is None
        assert await conn.execute("PING", timeout=PATIENT) == b"PONG"
    with connect(server.url, call_timeout=0.1) as blocking:
        assert blocking.execute("BLPOP", wake, "0.4", timeout=None) is None


# Loops and forks


def test_a_connector_reopens_in_a_new_event_loop(server: Server, queue: str) -> None:
    conn = AsyncConnector(server.url)

    async def call() -> int:
        return await conn.run(count(queue))

    assert [asyncio.run(call()) for _ in range(3)] == [1, 2, 3]
    with server.client() as client:
        wait_until(
            lambda: b"name=echomq" not in client.execute("CLIENT", "LIST"), what="no connection outlives its loop"
        )
    asyncio.run(conn.close())


def test_two_running_loops_cannot_share_a_connector(server: Server, queue: str) -> None:
    conn = AsyncConnector(server.url)

    async def call() -> int:
        return await conn.run(count(queue))

    async def main() -> None:
        assert await call() == 1
        with pytest.raises(EchoMQError, match="another event loop"):
            await asyncio.to_thread(asyncio.run, call())
        assert await call() == 2
        await conn.close()

    asyncio.run(main())
