"""Messages of channels: in order, restored after a reconnect, bounded for slow readers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from echomq.identity.errors import InvalidInputError
from echomq.protocol.errors import DisconnectedError, ServerError
from echomq.wire import AsyncConnector, AsyncSubscription, Message, aconnect, connect
from support.desk import until
from support.scripted import count
from support.servers import Server, wait_until

StartServer = Callable[..., Server]


def publish(server: Server, channel: str, *texts: str) -> None:
    with server.client() as client:
        client.execute_all(("PUBLISH", channel, text) for text in texts)


def subscribers(server: Server, channel: str) -> int:
    with server.client() as client:
        return int(client.execute("PUBSUB", "NUMSUB", channel)[1])


def failures(conn: AsyncConnector) -> int:
    """How many connects in a row have failed."""
    return conn._carrier._failures if conn._carrier is not None else 0


async def texts(subscription: AsyncSubscription, number: int) -> list[str]:
    out: list[str] = []
    while len(out) < number:
        message = await subscription.get()
        assert message is not None
        out.append(message.data.decode())
    return out


async def test_messages_come_between_replies_on_one_connection(server: Server, queue: str) -> None:
    channel = f"emq:{{{queue}}}:events"
    async with aconnect(server.url) as conn, conn.subscribe(channel) as subscription:
        for i in range(1, 51):
            assert await conn.run(count(queue)) == i
            await conn.execute("PUBLISH", channel, str(i))
        assert await texts(subscription, 50) == [str(i) for i in range(1, 51)]


async def test_iterating_alone_subscribes_and_leaving_unsubscribes(server: Server, queue: str) -> None:
    async with aconnect(server.url) as conn:
        seen: list[Message] = []

        async def read() -> None:
            async for message in conn.subscribe(queue, queue + "2"):
                seen.append(message)
                if len(seen) == 3:
                    break

        reading = asyncio.create_task(read())
        await until(lambda: subscribers(server, queue + "2"))
        publish(server, queue, "a", "b")
        publish(server, queue + "2", "c")
        await reading
        assert seen == [Message(queue, b"a"), Message(queue, b"b"), Message(queue + "2", b"c")]
        await until(lambda: not subscribers(server, queue))
        assert await conn.execute("PING") == b"PONG"


async def test_two_readers_of_one_channel(server: Server, queue: str) -> None:
    async with aconnect(server.url) as conn:
        async with conn.subscribe(queue) as one:
            async with conn.subscribe(queue) as two:
                publish(server, queue, "x")
                assert await texts(one, 1) == await texts(two, 1) == ["x"]
            publish(server, queue, "y")
            assert await texts(one, 1) == ["y"]
        await until(lambda: not subscribers(server, queue))


async def test_a_subscription_survives_a_killed_connection(server: Server, queue: str) -> None:
    async with aconnect(server.url) as conn, conn.subscribe(queue) as subscription:
        for turn in range(1, 4):
            with server.client() as client:
                # On Valkey and Redis 7 a RESP3 subscriber counts as pubsub.
                client.execute("CLIENT", "KILL", "TYPE", "pubsub", "SKIPME", "yes")
            await until(lambda turn=turn: subscription.restored == turn and subscribers(server, queue))
            publish(server, queue, f"m{turn}")
            assert await texts(subscription, 1) == [f"m{turn}"]
            assert await conn.execute("PING") == b"PONG"


async def test_a_subscription_survives_the_server_s_death(start_server: StartServer, queue: str) -> None:
    server = start_server()
    async with aconnect(server.url, timeout=0.5) as conn, conn.subscribe(queue) as subscription:
        await asyncio.to_thread(server.kill9)
        await until(lambda: failures(conn) > 1)
        await asyncio.to_thread(server.start)
        await until(lambda: subscribers(server, queue))
        publish(server, queue, "back")
        assert await texts(subscription, 1) == ["back"]


async def test_a_slow_reader_keeps_the_newest_and_knows_how_many_it_lost(server: Server, queue: str) -> None:
    async with aconnect(server.url) as conn, conn.subscribe(queue, buffer=10) as subscription:
        publish(server, queue, *map(str, range(100)))
        await until(lambda: subscription.dropped == 90)
        assert await texts(subscription, 10) == [str(i) for i in range(90, 100)]


async def test_closing_the_connector_ends_the_iteration(server: Server, queue: str) -> None:
    conn = await aconnect(server.url)

    async def read() -> list[Message]:
        return [message async for message in conn.subscribe(queue)]

    reading = asyncio.create_task(read())
    await until(lambda: subscribers(server, queue))
    publish(server, queue, "last")
    await conn.close()
    assert [message.data for message in await reading] == [b"last"]


async def test_a_channel_without_rights_is_refused_and_spoils_nothing(start_server: StartServer, queue: str) -> None:
    server = start_server()
    with server.client() as client:
        client.execute("ACL", "SETUSER", "ann", "on", ">pw", "~*", "+@all", "resetchannels", "&open")
    async with aconnect(f"unix://ann:pw@{server.socket_path}") as conn:
        with pytest.raises(ServerError, match="NOPERM"):
            async with conn.subscribe("secret"):
                pass
        async with conn.subscribe("open") as subscription:
            publish(server, "open", "x")
            assert await texts(subscription, 1) == ["x"]
        assert await conn.run(count(queue)) == 1


async def test_a_cancelled_reader_misses_nothing(server: Server, queue: str) -> None:
    async with aconnect(server.url) as conn, conn.subscribe(queue) as subscription:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await subscription.get()
        publish(server, queue, "x")
        assert await texts(subscription, 1) == ["x"]


@pytest.mark.parametrize("channels", [(), ("a", 1), ("",)])
async def test_channels_are_names(server: Server, channels: tuple[str, ...]) -> None:
    async with aconnect(server.url) as conn:
        with pytest.raises(InvalidInputError):
            conn.subscribe(*channels)


# Blocking


def test_a_thread_reads_messages(server: Server, queue: str) -> None:
    with connect(server.url) as conn, conn.subscribe(queue) as subscription:
        publish(server, queue, "a", "b")
        assert [subscription.get(timeout=40) for _ in range(2)] == [Message(queue, b"a"), Message(queue, b"b")]
        assert subscription.get(timeout=0.05) is None
        assert conn.run(count(queue)) == 1


def test_a_blocking_subscription_survives_a_killed_connection(server: Server, queue: str) -> None:
    with connect(server.url) as conn, conn.subscribe(queue) as subscription:
        for turn in range(1, 4):
            with server.client() as client:
                client.execute("CLIENT", "KILL", "TYPE", "pubsub", "SKIPME", "yes")
            while subscription.restored < turn:
                assert subscription.get(timeout=0.05) is None
            publish(server, queue, f"m{turn}")
            assert subscription.get(timeout=40) == Message(queue, f"m{turn}".encode())


def test_a_blocking_subscription_waits_for_a_server_that_is_away(start_server: StartServer, queue: str) -> None:
    server = start_server()
    with connect(server.url, timeout=0.3) as conn, conn.subscribe(queue) as subscription:
        server.kill9()
        assert subscription.get(timeout=0.1) is None
        server.start()
        while not subscribers(server, queue):
            assert subscription.get(timeout=0.05) is None
        publish(server, queue, "back")
        assert subscription.get(timeout=40) == Message(queue, b"back")


def test_closing_the_connector_ends_a_thread_s_iteration(server: Server, queue: str) -> None:
    conn = connect(server.url)
    seen: list[Message] = []

    def read() -> None:
        with conn.subscribe(queue) as subscription:
            seen.extend(subscription)

    reading = threading.Thread(target=read)
    reading.start()
    wait_until(lambda: subscribers(server, queue), what="a subscription")
    publish(server, queue, "last")
    wait_until(lambda: seen, what="the message")
    conn.close()
    reading.join(40)
    assert not reading.is_alive()
    with pytest.raises(DisconnectedError):
        conn.subscribe(queue)
