"""What both faces promise while the server is there: values, errors, flights, limits, turns."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable
from typing import Any, cast

import pytest

from echomq.identity.errors import InvalidInputError
from echomq.protocol.call import Call, Plan
from echomq.protocol.errors import (
    DisconnectedError,
    EchoMQError,
    OverloadedError,
    ServerError,
    StaleTokenError,
    UnexpectedReplyError,
    WireError,
)
from echomq.protocol.replies import as_int, as_list
from echomq.wire import AsyncConnector, Connector, Options, aconnect, connect
from support.desk import until
from support.scripted import append, count, key, note, refuse
from support.servers import Server, wait_until

StartServer = Callable[..., Server]


def one_then_two(queue: str) -> Plan[tuple[int, int]]:
    first = yield count(queue)
    second = yield count(queue, by=first + 1)
    return first, second


def forgiving(queue: str) -> Plan[str]:
    try:
        yield refuse(queue)
    except StaleTokenError as error:
        yield append(queue, "sorry")
        return str(error)
    return ""


# Values and errors


async def test_a_call_gives_its_value_or_raises_its_error(server: Server, queue: str) -> None:
    async with aconnect(server.url) as conn:
        assert await conn.run(count(queue)) == 1
        with pytest.raises(StaleTokenError, match="complete JOB \\(token 3\\)"):
            await conn.run(refuse(queue))
        assert await conn.run(count(queue)) == 2


def test_a_call_gives_its_value_or_raises_its_error_blocking(server: Server, queue: str) -> None:
    with connect(server.url) as conn:
        assert conn.run(count(queue)) == 1
        with pytest.raises(StaleTokenError, match="complete JOB \\(token 3\\)"):
            conn.run(refuse(queue))
        assert conn.run(count(queue)) == 2


async def test_a_plan_is_run_and_meets_errors_as_exceptions(server: Server, queue: str) -> None:
    async with aconnect(server.url) as conn:
        assert await conn.run(one_then_two(queue)) == (1, 3)
        assert "EMQSTALE" in await conn.run(forgiving(queue))
    with connect(server.url) as blocking:
        assert blocking.run(one_then_two(queue)) == (4, 9)
        assert "EMQSTALE" in blocking.run(forgiving(queue))


async def test_run_many_hides_no_success_behind_an_error(server: Server, queue: str) -> None:
    unsendable = Call("get", (key(queue),), (None,), as_int, command="GET")  # type: ignore[arg-type]
    unreadable = Call("get", (key(queue),), (), as_list, command="GET")
    calls = [count(queue), refuse(queue), unsendable, unreadable, count(queue)]
    async with aconnect(server.url) as conn:
        outcomes = [await conn.run_many(calls)]
    with connect(server.url) as blocking:
        outcomes.append(blocking.run_many(calls))
    for number, (first, refused, unsent, unread, last) in enumerate(outcomes):
        assert (first, last) == (1 + 2 * number, 2 + 2 * number)
        assert isinstance(refused, StaleTokenError)
        assert isinstance(unsent, InvalidInputError)
        assert isinstance(unread, UnexpectedReplyError)


async def test_what_is_no_call_is_refused_in_words_and_alone(server: Server, queue: str) -> None:
    wrong: list[Any] = ["x", None, count, one_then_two(queue)]
    async with aconnect(server.url) as conn:
        outcomes = [await conn.run_many([*wrong, count(queue)])]
        for value in wrong[:3]:
            with pytest.raises(InvalidInputError, match=r"run takes a call such as jobs.claim\('mail'\), not "):
                await conn.run(value)
        with pytest.raises(InvalidInputError, match=r"run_many takes a list of calls .*, not Call: "):
            await conn.run_many(cast("Any", count(queue)))
        with pytest.raises(InvalidInputError, match=r"a plan, .* give it to run alone"):
            conn.submit(wrong[3])
    with connect(server.url) as blocking:
        outcomes.append(blocking.run_many([*wrong, count(queue)]))
        for value in wrong[:3]:
            with pytest.raises(InvalidInputError, match=r"run takes a call such as jobs.claim\('mail'\), not "):
                blocking.run(value)
        with pytest.raises(InvalidInputError, match=r"run_many takes a list of calls .*, not str: 'x'"):
            blocking.run_many(cast("Any", "x"))
    for number, (text, none, function, plan, last) in enumerate(outcomes):
        assert last == 1 + number
        for outcome, says in ((text, "not str: 'x'"), (none, "not NoneType: None"), (function, "not function: ")):
            assert isinstance(outcome, InvalidInputError)
            assert says in str(outcome)
        assert isinstance(plan, InvalidInputError)
        assert "give it to run alone" in str(plan)


def test_a_fault_inside_a_call_is_not_taken_for_a_value_that_is_none(server: Server, queue: str) -> None:
    faulty = Call("get", (key(queue),), (), as_int, script=cast("Any", "no script"))
    with connect(server.url) as blocking, pytest.raises(AttributeError, match=r"sha|native"):
        blocking.run(faulty)


async def test_raw_commands(server: Server) -> None:
    async with aconnect(server.url) as conn:
        assert await conn.execute("PING") == b"PONG"
        with pytest.raises(ServerError, match="unknown command"):
            await conn.execute("NONSENSE")
        with pytest.raises(InvalidInputError, match="use subscribe"):
            await conn.execute("SUBSCRIBE", "c")
    with connect(server.url) as blocking:
        assert blocking.execute("CONFIG", "GET", "databases") == {b"databases": b"16"}
        with pytest.raises(InvalidInputError, match="callers share"):
            blocking.execute("MULTI")


def test_two_connectors_mint_through_one_minter(server: Server) -> None:
    with connect(server.url) as one, connect(server.url) as two:
        ids = [conn.mint(namespace) for namespace in ("JOB", "LAN") for conn in (one, two)]
    assert [each[:3] for each in ids] == ["JOB", "JOB", "LAN", "LAN"]
    assert [each[3:] for each in ids] == sorted(each[3:] for each in ids)


# Flights


async def test_what_is_awaited_at_once_leaves_in_one_write(server: Server, queue: str) -> None:
    async with aconnect(server.url) as conn:
        await conn.run(count(queue))
        link = conn._carrier.link  # type: ignore[union-attr]
        written: list[bytes] = []
        transport = link._transport  # type: ignore[union-attr]

        class Spy:
            def __getattr__(self, name: str) -> object:
                return getattr(transport, name)

            def write(self, data: bytes) -> None:
                written.append(data)
                transport.write(data)  # type: ignore[union-attr]

        link._transport = Spy()  # type: ignore[union-attr, assignment]
        assert await asyncio.gather(*(conn.run(count(queue)) for _ in range(100))) == list(range(2, 102))
        link._transport = transport  # type: ignore[union-attr]
    assert len(written) == 1
    assert written[0].count(b"EVALSHA") == 100


@pytest.mark.parametrize("calls", [1, 3_000])
async def test_a_big_flight_of_big_values_does_not_stall(server: Server, queue: str, calls: int) -> None:
    big = "x" * (4_000_000 // calls)
    work = [Call("echo", (), (big,), len_of, command="ECHO") for _ in range(calls)]
    with connect(server.url) as blocking:
        assert set(blocking.run_many(work)) == {len(big)}
    async with aconnect(server.url) as conn:
        assert set(await conn.run_many(work)) == {len(big)}


def len_of(reply: object) -> int:
    assert isinstance(reply, bytes)
    return len(reply)


async def test_more_calls_than_max_pending_go_in_several_flights(server: Server, queue: str) -> None:
    async with aconnect(server.url, max_pending=10) as conn:
        assert await conn.run_many(count(queue) for _ in range(100)) == list(range(1, 101))
    with connect(server.url, max_pending=10) as blocking:
        assert blocking.run_many(count(queue) for _ in range(100)) == list(range(101, 201))


# Limits


async def test_beyond_max_pending_a_call_is_refused_at_once(server: Server, queue: str) -> None:
    async with aconnect(server.url, max_pending=5) as conn:
        server.freeze()
        try:
            waiting = [conn.submit(count(queue)) for _ in range(5)]
            await asyncio.sleep(0)
            with pytest.raises(OverloadedError, match="max_pending is 5"):
                conn.submit(count(queue))
            with pytest.raises(OverloadedError):
                await conn.run(count(queue))
        finally:
            server.thaw()
        assert await asyncio.gather(*waiting) == [1, 2, 3, 4, 5]
        assert await conn.run(count(queue)) == 6


def test_threads_beyond_max_pending_are_refused_at_once(server: Server, queue: str) -> None:
    with connect(server.url, max_pending=2) as conn:
        server.freeze()
        threads = [threading.Thread(target=conn.run, args=(count(queue),)) for _ in range(2)]
        try:
            for thread in threads:
                thread.start()
            wait_until(lambda: conn._waiting == 2, what="two calls wait")
            with pytest.raises(OverloadedError, match="max_pending is 2"):
                conn.run(count(queue))
        finally:
            server.thaw()
            for thread in threads:
                thread.join()
        assert conn.run(count(queue)) == 3


# Cancellation


async def test_cancelled_callers_never_move_a_reply_to_another(server: Server, queue: str) -> None:
    async with aconnect(server.url) as conn:
        for turn in range(50):
            tasks = [asyncio.create_task(conn.run(echo(f"{turn}-{i}"))) for i in range(20)]
            for _ in range(turn % 4):
                await asyncio.sleep(0)
            for task in tasks[turn % 3 :: 3]:
                task.cancel()
            for i, answer in enumerate(await asyncio.gather(*tasks, return_exceptions=True)):
                assert isinstance(answer, asyncio.CancelledError) or answer == f"{turn}-{i}".encode()
        assert await conn.run(echo("end")) == b"end"


def echo(text: str) -> Call[bytes]:
    return Call("echo", (), (text,), lambda reply: reply, command="ECHO")  # type: ignore[return-value, arg-type]


async def test_a_call_cancelled_before_its_flight_is_not_sent(server: Server, queue: str) -> None:
    async with aconnect(server.url) as conn:
        conn.submit(count(queue)).cancel()
        assert await conn.run(count(queue)) == 1


async def test_a_cancelled_blocking_command_frees_the_connector_and_the_server(server: Server, queue: str) -> None:
    async with aconnect(server.url, name="parked") as conn:
        parked = asyncio.create_task(conn.execute("BLPOP", f"emq:{{{queue}}}:wake", 0, timeout=None))
        with server.client() as client:
            await until(lambda: b"blocked_clients:1" in client.execute("INFO", "clients"))
            parked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await parked
            await until(lambda: b"blocked_clients:0" in client.execute("INFO", "clients"))
        assert await conn.execute("PING") == b"PONG"


# Threads


def test_threads_share_a_connector(server: Server, queue: str) -> None:
    errors: list[Exception] = []
    with connect(server.url) as conn:

        def work(number: int) -> None:
            try:
                for i in range(50):
                    assert conn.run(echo(f"{number}-{i}")) == f"{number}-{i}".encode()
                    conn.run(count(queue))
            except (EchoMQError, AssertionError) as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors
        assert conn.run(count(queue)) == 401


def ring_when_parked(server: Server) -> None:
    """SIGUSR1 to the main thread once its command blocks."""
    with server.client() as client:
        wait_until(lambda: b"blocked_clients:1" in client.execute("INFO", "clients"), what="a parked client")
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, signal.SIGUSR1)


def test_an_interrupted_call_leaves_no_reply_behind(server: Server, queue: str) -> None:
    class RingError(Exception):
        pass

    def ring(number: int, frame: object) -> None:
        raise RingError

    before = signal.signal(signal.SIGUSR1, ring)
    try:
        with connect(server.url) as conn:
            blocker = threading.Thread(target=ring_when_parked, args=(server,))
            blocker.start()
            with pytest.raises(RingError):
                conn.execute("BLPOP", f"emq:{{{queue}}}:wake", 5, timeout=None)
            blocker.join()
            assert conn.run(echo("next")) == b"next"
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_signal_handler_that_uses_the_busy_connector_is_told(server: Server, queue: str) -> None:
    met: list[Exception] = []
    wake = f"emq:{{{queue}}}:wake"
    with connect(server.url) as conn:

        def ring(number: int, frame: object) -> None:
            try:
                conn.run(count(queue))
            except WireError as error:
                met.append(error)

        def ring_then_release() -> None:
            ring_when_parked(server)
            with server.client() as client:
                wait_until(lambda: met, what="the handler's error")
                client.execute("LPUSH", wake, "1")

        before = signal.signal(signal.SIGUSR1, ring)
        try:
            ringer = threading.Thread(target=ring_then_release)
            ringer.start()
            conn.execute("BLPOP", wake, 0, timeout=None)
            ringer.join()
        finally:
            signal.signal(signal.SIGUSR1, before)
        assert "signal handler" in str(met[0])
        assert conn.run(count(queue)) == 1


# Life


async def test_a_connector_opens_at_its_first_call_and_closes_once(server: Server, queue: str) -> None:
    conn = AsyncConnector(server.url)
    assert "not connected" in repr(conn)
    assert await conn.run(count(queue)) == 1
    assert "connected" in repr(conn)
    await conn.close()
    await conn.close()
    with pytest.raises(DisconnectedError, match="closed") as refusal:
        await conn.run(count(queue))
    assert not refusal.value.sent


def test_a_blocking_connector_opens_at_its_first_call_and_closes_once(server: Server, queue: str) -> None:
    conn = Connector(server.url, Options(name="lazy"))
    assert conn.run(count(queue)) == 1
    conn.close()
    conn.close()
    with pytest.raises(DisconnectedError, match="closed") as refusal:
        conn.run(count(queue))
    assert not refusal.value.sent


async def test_aconnect_is_awaited_or_entered(server: Server) -> None:
    conn = await aconnect(server.url)
    assert await conn.execute("PING") == b"PONG"
    await conn.close()
    async with aconnect(server.url) as entered:
        assert await entered.execute("PING") == b"PONG"
    with server.client() as client:
        await until(lambda: b"name=echomq" not in client.execute("CLIENT", "LIST"))


async def test_closing_waits_for_the_answers_under_way(server: Server, queue: str) -> None:
    conn = await aconnect(server.url)
    calls = [asyncio.create_task(conn.run(note(queue, "x"))) for _ in range(100)]
    await asyncio.sleep(0)
    await conn.close()
    assert await asyncio.gather(*calls) == list(range(1, 101))


async def test_closing_does_not_wait_for_a_blocking_command(server: Server, queue: str) -> None:
    timeout = 30.0  # what it waits for the answers to other commands
    conn = await aconnect(server.url, timeout=timeout)
    parked = asyncio.create_task(conn.execute("BLPOP", f"emq:{{{queue}}}:wake", 0, timeout=None))
    with server.client() as client:
        await until(lambda: b"blocked_clients:1" in client.execute("INFO", "clients"))
    began = time.monotonic()
    await conn.close()
    assert time.monotonic() - began < timeout
    with pytest.raises(DisconnectedError, match="the connector was closed"):
        await parked


def test_closing_ends_another_thread_s_blocking_command(server: Server, queue: str) -> None:
    conn = connect(server.url, timeout=0.2)
    met: list[BaseException] = []

    def park() -> None:
        try:
            conn.execute("BLPOP", f"emq:{{{queue}}}:wake", 0, timeout=None)
        except DisconnectedError as error:
            met.append(error)

    thread = threading.Thread(target=park)
    thread.start()
    with server.client() as client:
        wait_until(lambda: b"blocked_clients:1" in client.execute("INFO", "clients"), what="a parked client")
    conn.close()
    thread.join(40)
    assert len(met) == 1
