"""A stop waits, then cancels, then hands back: no failure is spent and no token is lowered."""

from __future__ import annotations

import asyncio
import threading

import pytest

from echomq.protocol.replies import Claimed
from echomq.runtime import Consumer, Dial, Later, Retry
from echomq.runtime.drain import FAREWELL_S
from support.desk import Desk, until

MINUTE = 60_000


def released(desk: Desk, job_id: str) -> bool:
    row = desk.row(job_id)
    assert "failures" not in row
    assert "last_error" not in row
    return (row["state"], row["attempts"]) == ("pending", "1") and desk.size("active") == 0


async def test_running_jobs_may_finish_within_the_grace(desk: Desk) -> None:
    desk.enqueue(count=5)
    go = asyncio.Event()

    async def handler(job: Claimed) -> None:
        await go.wait()

    async with desk.consuming(handler, concurrency=3, grace_ms=MINUTE) as consumer:
        await until(lambda: consumer.in_hand == 3)
        stopping = asyncio.ensure_future(consumer.stop(MINUTE))
        await asyncio.sleep(0)
        go.set()
        await stopping
    assert consumer.tally.completed == 3
    assert desk.size("pending") == 2, "it claimed while it was stopping"


async def test_what_outlives_the_grace_is_cancelled_and_handed_back(desk: Desk) -> None:
    (job_id,) = desk.enqueue()
    cancelled = asyncio.Event()

    async def handler(job: Claimed) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async with desk.consuming(handler) as consumer:
        await until(lambda: consumer.in_hand == 1)
        await consumer.stop(grace_ms=20)
    assert cancelled.is_set()
    assert released(desk, job_id)
    assert consumer.tally.released == 1


@pytest.mark.parametrize("how", ["raises", "fails", "returns", "snoozes"])
async def test_how_a_handler_answers_its_cancellation(desk: Desk, how: str) -> None:
    (job_id,) = desk.enqueue()

    async def handler(job: Claimed) -> object:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if how == "raises":
                raise ValueError("while cleaning up") from None
            if how == "fails":
                return Retry("while cleaning up")
        return Later(MINUTE) if how == "snoozes" else None

    async with desk.consuming(handler) as consumer:
        await until(lambda: consumer.in_hand == 1)
        await consumer.stop(grace_ms=0)
    match how:
        case "raises" | "fails":
            assert released(desk, job_id)
        case "returns":
            assert consumer.tally.completed == 1
        case _:
            assert desk.size("schedule") == 1


async def test_a_handler_that_swallows_its_cancellation_is_not_waited_for_long(desk: Desk) -> None:
    (job_id,) = desk.enqueue()
    go = asyncio.Event()

    async def handler(job: Claimed) -> None:
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue

    async with desk.consuming(handler) as consumer:
        await until(lambda: consumer.in_hand == 1)
        await consumer.stop(grace_ms=0)
        assert released(desk, job_id)
        go.set()
        await until(lambda: len(asyncio.all_tasks()) == 1)
    assert released(desk, job_id), "its late end was settled"


async def test_a_second_stop_hands_back_at_once(desk: Desk) -> None:
    (job_id,) = desk.enqueue()

    async def handler(job: Claimed) -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if stop_swallowing.is_set():
                    raise

    stop_swallowing = asyncio.Event()
    async with desk.consuming(handler) as consumer:
        await until(lambda: consumer.in_hand == 1)
        first = asyncio.ensure_future(consumer.stop(grace_ms=MINUTE))
        await asyncio.sleep(0)
        assert not first.done()
        await consumer.stop(grace_ms=0)
        await first
        assert released(desk, job_id)
        stop_swallowing.set()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()


async def test_a_function_in_its_thread_is_handed_back_last(desk: Desk) -> None:
    plain, coroutine = desk.enqueue("plain"), desk.enqueue("coroutine")
    go, awaited = threading.Event(), threading.Event()
    order: list[str] = []

    async def forever() -> None:
        awaited.set()
        await asyncio.Event().wait()

    def handler(job: Claimed) -> object:
        if job.payload == b"plain":
            go.wait(30)
            return None
        return forever()

    async with desk.consuming(handler, concurrency=2) as consumer:
        await until(lambda: consumer.in_hand == 2)
        await until(awaited.is_set)  # its own thread is done with it
        await until(lambda: desk.size("active") == 2)
        channel = desk.server.client()
        channel.execute("CONFIG", "SET", "slowlog-log-slower-than", "0")
        channel.execute("SLOWLOG", "RESET")
        await consumer.stop(grace_ms=0)
        for entry in reversed(channel.execute("SLOWLOG", "GET", "1000")):
            words = [word.decode(errors="replace") for word in entry[3]]
            for kind, ids in (("plain", plain), ("coroutine", coroutine)):
                if words[0].upper() == "EVALSHA" and any(word.endswith(f"job:{ids[0]}") for word in words):
                    order.append(kind)
        channel.execute("CONFIG", "SET", "slowlog-log-slower-than", "10000")
        channel.close()
        assert released(desk, plain[0])
        assert released(desk, coroutine[0])
        assert order == ["coroutine", "plain"]
        go.set()
    assert consumer.tally.completed == 0


async def test_a_claim_that_nobody_waits_for_is_handed_back(desk: Desk) -> None:
    """The stop comes while the claim is under way."""
    async with desk.consuming(beat_ms=MINUTE) as consumer:
        await consumer.parked.reach(1)
        (job_id,) = desk.enqueue(token=False)
        desk.server.freeze()
        beat = asyncio.ensure_future(consumer.beat())
        await until(lambda: consumer._turns.asking)
        stop = asyncio.ensure_future(consumer.stop(MINUTE))
        await asyncio.sleep(0)
        desk.server.thaw()
        await stop
        beat.cancel()
    assert desk.seen == []
    assert consumer.tally.claimed == 1
    assert released(desk, job_id)


async def test_cancelling_every_task_loses_nothing(desk: Desk) -> None:
    ids = desk.enqueue(count=4)

    async def handler(job: Claimed) -> None:
        await asyncio.Event().wait()

    async with desk.consuming(handler, concurrency=2) as consumer:
        await until(lambda: consumer.in_hand == 2)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await until(lambda: consumer.tally.released == 2)
    assert all(released(desk, job_id) for job_id in ids[:2])


async def test_a_stop_before_a_start_and_after_a_stop_does_nothing(desk: Desk) -> None:
    async with desk.consuming() as consumer:
        pass
    await consumer.stop()
    await consumer.stop(0)


async def test_a_stop_hands_on_the_token_that_it_may_have_taken(desk: Desk) -> None:
    async with desk.consuming(beat_ms=MINUTE) as other:
        await other.parked.reach(1)
        async with desk.consuming(beat_ms=MINUTE) as consumer:
            await consumer.parked.reach(1)
            parked = other.parked.count
        await other.parked.reach(parked + 1)


async def test_a_drain_ends_while_the_server_is_gone(start_server, queue) -> None:
    server = start_server(aof=True)
    with Desk(server, queue) as desk:
        desk.enqueue()

        async def handler(job: Claimed) -> None:
            await asyncio.Event().wait()

        async with desk.consuming(handler, beat_ms=20) as consumer:
            await until(lambda: consumer.in_hand == 1)
            server.kill9()
            await consumer.stop(grace_ms=0)
        server.start()
        desk.reconnect()
        assert desk.size("active") == 1, "its lease will lapse"


async def test_a_drain_whose_server_is_gone_ends_within_its_farewell(start_server, queue) -> None:
    server = start_server(aof=True)
    with Desk(server, queue) as desk:
        desk.enqueue(count=3)

        async def handler(job: Claimed) -> None:
            desk.seen.append(job)
            await asyncio.Event().wait()

        timeout = 30.0  # what a call waits for a server that is gone
        consumer = Consumer(Dial(server.url, timeout=timeout), desk.queue, handler, concurrency=3)
        await consumer.start()
        await until(lambda: len(desk.seen) == 3)
        server.kill9()
        began = asyncio.get_running_loop().time()
        await consumer.stop(grace_ms=0)
        # Its cancelled coroutines end at once; what is left is the farewell, and room for a slow machine.
        assert asyncio.get_running_loop().time() - began < FAREWELL_S + timeout / 2
        server.start()
