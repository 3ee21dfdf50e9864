"""Scripts that the server forgot, in the middle of flights: loaded once, in order, and nothing runs twice."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from echomq.protocol.call import Call
from echomq.protocol.errors import EchoMQError, ServerError
from echomq.wire import aconnect, connect
from support.scripted import TextScript, append, count, flush_scripts, key, note
from support.servers import Server

NOTES = [TextScript(f"note{i}", f"local n = {i}; return redis.call('APPEND', KEYS[1], ARGV[1])") for i in range(5)]

RunMany = Callable[[Server, list[Call[Any]]], list[Any]]


def blocking(server: Server, calls: list[Call[Any]]) -> list[Any]:
    with connect(server.url) as conn:
        return conn.run_many(calls)


def awaited(server: Server, calls: list[Call[Any]]) -> list[Any]:
    async def run() -> list[Any]:
        async with aconnect(server.url) as conn:
            return await asyncio.gather(*(conn.run(call) for call in calls), return_exceptions=True)

    return asyncio.run(run())


@pytest.fixture(params=[blocking, awaited], ids=["blocking", "awaited"])
def run_many(request: pytest.FixtureRequest) -> RunMany:
    fixture: RunMany = request.param
    return fixture


def notes(server: Server, queue: str) -> str:
    with server.client() as client:
        return (client.execute("GET", key(queue, "notes")) or b"").decode()


def loads(server: Server) -> int:
    with server.client() as client:
        return client.calls().get("script|load", 0)


def test_one_load_serves_a_whole_flight(server: Server, queue: str, run_many: RunMany) -> None:
    run_many(server, [])
    before = loads(server)
    assert run_many(server, [count(queue) for _ in range(500)]) == list(range(1, 501))
    assert loads(server) - before == 1


def test_a_flight_of_mixed_scripts_keeps_its_order(server: Server, queue: str, run_many: RunMany) -> None:
    order = random.Random(7).choices(range(5), k=300)
    calls = [note(queue, str(i), NOTES[i]) for i in order]
    assert run_many(server, calls) == list(range(1, 301))
    assert notes(server, queue) == "".join(map(str, order))


def test_a_flush_in_the_middle_of_a_flight_runs_nothing_twice(server: Server, queue: str, run_many: RunMany) -> None:
    a, b = NOTES[:2]
    calls: list[Call[Any]] = [
        note(queue, "1", a),
        flush_scripts(),
        note(queue, "2", b),
        note(queue, "3", a),
        append(queue, "p"),
        note(queue, "4", b),
    ]
    # On a new connection each script is in doubt until it has run, so what follows it waits.
    assert run_many(server, calls)[1] == b"OK"
    assert notes(server, queue) == "123p4"
    assert run_many(server, calls)[1] == b"OK"
    assert notes(server, queue) == "123p4123p4"


def test_many_flushes_among_many_calls(server: Server, queue: str, run_many: RunMany) -> None:
    calls: list[Call[Any]] = []
    for i in range(400):
        calls.append(count(queue, f"n{i}"))
        if i % 7 == 0:
            calls.append(flush_scripts())
    outcomes = run_many(server, calls)
    assert not [each for each in outcomes if isinstance(each, EchoMQError)]
    with server.client() as client:
        assert client.execute("MGET", *(key(queue, f"n{i}") for i in range(400))) == [b"1"] * 400


def test_a_script_that_does_not_compile_fails_with_the_server_s_words(
    server: Server, queue: str, run_many: RunMany
) -> None:
    broken = TextScript("broken", "return (")
    bad, good = run_many(server, [note(queue, "x", broken), count(queue)])
    assert isinstance(bad, ServerError)
    assert "SCRIPT LOAD of broken answered" in str(bad)
    assert good == 1


async def test_what_is_submitted_meanwhile_does_not_overtake(server: Server, queue: str) -> None:
    async with aconnect(server.url) as conn:

        def on_first_answer(_: object) -> None:
            later.append(conn.submit(append(queue, "f")))

        later: list[asyncio.Future[int]] = []
        plain = conn.submit(append(queue, "."))
        plain.add_done_callback(on_first_answer)
        await asyncio.gather(plain, conn.submit(note(queue, "d")), conn.submit(note(queue, "e")))
        await asyncio.gather(*later)
        assert await conn.execute("GET", key(queue, "notes")) == b".def"


async def test_a_flight_after_a_flush_by_somebody_else(server: Server, queue: str) -> None:
    async with aconnect(server.url) as conn:
        with server.client() as other:
            for i in range(1, 21):
                other.execute("SCRIPT", "FLUSH")
                assert await conn.run(count(queue)) == i


def test_a_cancelled_caller_s_script_is_not_sent_again(server: Server, queue: str) -> None:
    async def run() -> None:
        async with aconnect(server.url) as conn:
            gone = conn.submit(count(queue, "gone"))
            kept = conn.submit(count(queue, "kept"))
            await asyncio.sleep(0)
            gone.cancel()
            assert await kept == 1

    asyncio.run(run())
    with server.client() as client:
        assert client.execute("MGET", key(queue, "gone"), key(queue, "kept")) == [None, b"1"]
