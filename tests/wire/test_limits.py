"""What a server does not take is refused before it is sent, and costs the neighbours nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from echomq.protocol import jobs
from echomq.protocol.call import Call, Reply
from echomq.protocol.errors import DisconnectedError, EchoMQError, InvalidInputError, PayloadTooLargeError
from echomq.wire import aconnect, connect, limits
from echomq.wire.limits import Limits
from echomq.wire.url import parse_url
from support.scripted import count, key
from support.servers import Server, wait_until

StartServer = Callable[..., Server]

MIB = 1 << 20
LOW = ["--proto-max-bulk-len", str(MIB)]
NARROW = ["--client-query-buffer-limit", str(MIB)]
ID = "JOB0NVVOQjQIFU"


@pytest.fixture(autouse=True)
def unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test asks as a process does that has not connected yet."""
    monkeypatch.setattr(limits, "_silent", set())


def store(queue: str, size: int, name: str = "n") -> Call[Reply]:
    return Call("store", (key(queue, name),), (b"x" * size,), lambda reply: reply, command="SET", subject=name)


def by_both(url: str, calls: Iterable[Call[Any]], **options: float) -> list[list[Any]]:
    """The outcomes of `calls`, by each face on one connection."""
    work = list(calls)

    async def awaited() -> list[Any]:
        async with aconnect(url, **options) as conn:  # type: ignore[arg-type]
            before = await conn.execute("CLIENT", "ID")
            outcomes = await conn.run_many(work)
            assert await conn.execute("CLIENT", "ID") == before, "the connection is still the same"
            return outcomes

    with connect(url, **options) as conn:  # type: ignore[arg-type]
        before = conn.execute("CLIENT", "ID")
        outcomes = conn.run_many(work)
        assert conn.execute("CLIENT", "ID") == before, "the connection is still the same"
    return [outcomes, asyncio.run(awaited())]


def test_a_payload_above_the_server_s_limit_is_refused_alone(start_server: StartServer, queue: str) -> None:
    server = start_server(options=LOW)
    calls = [count(queue), jobs.enqueue(queue, ID, b"x" * (3 * MIB)), count(queue)]
    for turn, (first, refused, last) in enumerate(by_both(server.url, calls)):
        assert (first, last) == (1 + 2 * turn, 2 + 2 * turn)
        assert isinstance(refused, PayloadTooLargeError)
        for said in (f"enqueue {ID}", "3,145,728 bytes", "1,048,576", "proto-max-bulk-len", "not sent"):
            assert said in str(refused)


async def test_a_call_alone_raises_it_by_either_face(start_server: StartServer, queue: str) -> None:
    server = start_server(options=LOW)
    with connect(server.url) as blocking, pytest.raises(PayloadTooLargeError):
        blocking.run(store(queue, 2 * MIB))
    async with aconnect(server.url) as conn:
        with pytest.raises(InvalidInputError):
            await conn.run(store(queue, 2 * MIB))
        with pytest.raises(PayloadTooLargeError, match=r"^set: the word after 'k' is 2,097,152 bytes"):
            await conn.execute("SET", "k", "ä" * MIB)


def test_one_of_many_payloads_is_named_by_its_job(start_server: StartServer, queue: str) -> None:
    server = start_server(options=LOW)
    ids = [ID[:-1] + end for end in "ABC"]
    batch = jobs.enqueue_many(queue, [(ids[0], b"x"), (ids[1], b"x" * (MIB + 1)), (ids[2], b"x")])
    for [refused] in by_both(server.url, [batch]):
        assert isinstance(refused, PayloadTooLargeError)
        assert f"enqueue_many {queue}: the word after '{ids[1]}' is 1,048,577 bytes" in str(refused)
    with server.client() as client:
        assert client.execute("KEYS", "emq:*") == []


def test_the_limit_itself_is_taken(start_server: StartServer, queue: str) -> None:
    server = start_server(options=LOW)
    for taken, refused in by_both(server.url, [store(queue, MIB), store(queue, MIB + 1)]):
        assert taken == b"OK"
        assert isinstance(refused, PayloadTooLargeError)


def test_many_words_below_the_limit_may_be_above_it_together(start_server: StartServer, queue: str) -> None:
    server = start_server(options=LOW)
    words = Call("many", (key(queue),), ("x" * MIB,) * 3, lambda reply: reply, command="EXISTS")
    assert by_both(server.url, [words]) == [[0], [0]]


def test_a_string_that_the_server_s_buffer_cannot_hold_is_refused_too(start_server: StartServer, queue: str) -> None:
    server = start_server(options=NARROW)
    for taken, refused in by_both(server.url, [store(queue, MIB - 2), store(queue, MIB - 1)]):
        assert taken == b"OK"
        assert isinstance(refused, PayloadTooLargeError)
        assert "1,048,574 (client-query-buffer-limit)" in str(refused)


async def test_each_connection_learns_the_limit_of_its_server(start_server: StartServer, queue: str) -> None:
    server = start_server()
    async with aconnect(server.url) as conn:
        with connect(server.url) as blocking, server.client() as client:
            assert await conn.run(store(queue, 2 * MIB)) == b"OK"
            client.execute("CONFIG", "SET", "proto-max-bulk-len", MIB)
            client.execute("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            await asyncio.to_thread(wait_until, lambda: "not connected" in repr(conn), what="a lost connection")
            waiting = [conn.submit(call) for call in (store(queue, 2 * MIB), count(queue, "c"))]
            with pytest.raises(PayloadTooLargeError):
                await waiting[0]
            assert await waiting[1] == 1
            assert blocking.run(count(queue, "c")) == 2
            with pytest.raises(PayloadTooLargeError):
                blocking.run(store(queue, 2 * MIB))


def test_a_server_that_does_not_tell_is_taken_for_an_ordinary_one_and_asked_once(start_server: StartServer) -> None:
    server = start_server()

    def refusals() -> int:
        stats = client.execute("INFO", "commandstats").decode()
        return int(stats.partition("cmdstat_config|get:")[2].partition("rejected_calls=")[2].partition(",")[0])

    with server.client() as client:
        client.execute("ACL", "SETUSER", "ann", "on", ">pw", "~*", "&*", "+@all", "-config")
        url = f"unix://ann:pw@{server.socket_path}"
        connect(url).close()
        asked = refusals()
        with connect(url) as conn:
            assert conn._link is not None
            assert conn._link.pipe.limits == Limits()
        assert refusals() == asked


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ({}, Limits()),
        ({b"proto-max-bulk-len": b"2000000"}, Limits(2_000_000)),
        ({b"proto-max-bulk-len": b"", b"client-query-buffer-limit": b"none"}, Limits()),
        (
            {b"proto-max-bulk-len": b"9999999999", b"client-query-buffer-limit": b"2000002"},
            Limits(2_000_000, "client-query-buffer-limit", 1_000_001),
        ),
    ],
)
def test_limits_are_read_as_the_server_words_them(answer: dict[Reply, Reply], told: Limits) -> None:
    assert limits.read(parse_url("valkey://h"), answer) == told


# Flights


def test_a_server_that_lets_clients_wait_is_not_flooded(start_server: StartServer, queue: str) -> None:
    """A paused server goes on reading, up to its query buffer's limit, and then closes the connection."""
    server = start_server(options=NARROW)
    calls = [store(queue, 100_000, f"n{i}") for i in range(50)]

    async def awaited() -> list[Reply | EchoMQError]:
        async with aconnect(server.url) as conn:
            with server.client() as client:
                client.execute("CLIENT", "PAUSE", 500, "WRITE")
            return await conn.run_many(calls)

    assert asyncio.run(awaited()) == [b"OK"] * 50
    with connect(server.url) as conn:
        with server.client() as client:
            client.execute("CLIENT", "PAUSE", 500, "WRITE")
        assert conn.run_many(calls) == [b"OK"] * 50


def test_what_waited_for_its_turn_surely_never_ran(start_server: StartServer, queue: str) -> None:
    server = start_server(options=NARROW)
    with connect(server.url, call_timeout=0.2) as conn:
        server.freeze()
        outcomes = conn.run_many(store(queue, 100_000, f"n{i}") for i in range(50))
        server.thaw()
        conn.execute("PING", timeout=5)
        with server.client() as client:
            for i, outcome in enumerate(outcomes):
                assert isinstance(outcome, DisconnectedError)
                assert outcome.sent or not client.execute("EXISTS", key(queue, f"n{i}"))
    assert sum(not outcome.sent for outcome in outcomes if isinstance(outcome, DisconnectedError)) >= 40
