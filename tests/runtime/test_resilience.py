"""Connections and servers die; the loops degrade, go on, and settle what was finished."""

from __future__ import annotations

import asyncio

from echomq.protocol.backoff import Fixed
from echomq.protocol.replies import Claimed
from echomq.runtime import Dial, Pump, StalledSweep
from support.desk import Desk, until

MINUTE = 60_000


async def test_a_server_that_is_killed_and_comes_back_is_worked_for_again(start_server, queue) -> None:
    server = start_server(aof=True, options=("--appendfsync", "always"))
    with Desk(server, queue) as desk:
        go = asyncio.Event()

        async def handler(job: Claimed) -> None:
            desk.seen.append(job)
            await go.wait()

        ids = desk.enqueue(count=6)
        async with desk.consuming(handler, concurrency=3, beat_ms=20) as consumer:
            await until(lambda: len(desk.seen) == 3)
            server.kill9()
            go.set()  # finished while nobody can be told
            await until(lambda: consumer.degraded.count >= 2)
            server.start()
            desk.reconnect()
            await until(lambda: consumer.tally.completed == 6)
        assert sorted(job.id for job in desk.seen) == ids, "each ran once"
        assert desk.size("active") == desk.size("pending") == 0


async def test_a_failure_whose_answer_was_lost_is_counted_once(desk: Desk) -> None:
    """The retry ran on the server, its job is claimable again under the same token, and the answer never came."""
    (job_id,) = desk.enqueue()
    started, go = asyncio.Event(), asyncio.Event()

    async def handler(job: Claimed) -> None:
        started.set()
        await go.wait()
        raise ValueError("once")

    async with desk.consuming(handler, beat_ms=MINUTE, retry_delay=Fixed(MINUTE)) as consumer:
        await started.wait()
        desk.server.freeze()
        go.set()
        await until(lambda: not consumer._settler.waiting)  # the retry has left
        # What the server does with it, done by hand; then the connection dies before the answer is read.
        desk.server.thaw()
        await until(lambda: consumer.tally.retried == 1 or consumer.degraded.count)
    assert desk.row(job_id)["failures"] == "1"


async def test_a_lost_answer_to_a_failure_is_looked_up_before_it_is_sent_again(desk: Desk) -> None:
    from echomq.protocol.errors import DisconnectedError
    from echomq.runtime.hand import Held
    from echomq.runtime.outcome import Retry
    from echomq.runtime.settle import Settler

    settled: list[Held] = []
    settler = Settler(desk.queue, retry_delay=Fixed(0), max_attempts=3, settled=settled.append)
    held = Held(Claimed("JOB0NgWEfAEJfs", b"", attempts=1, failures=0, stalled=0))
    held.outcome = Retry("x")
    settler.waiting.append(held)
    settler.take()
    error = settler.answered([DisconnectedError("gone", sent=True)])
    assert error is not None
    assert settler.doubts() == [held]
    settler.looked(held, {"attempts": b"1", "state": b"active"})
    assert settler.waiting == [held], "it never ran: sent again"
    held.doubt = True
    settler.looked(held, {"attempts": b"1", "failures": b"1", "state": b"pending"})
    assert settler.waiting == []
    assert settled == [held]
    assert settler.tally.retried == 1


async def test_a_parked_connection_that_is_cut_listens_again_at_once(desk: Desk) -> None:
    async with desk.consuming(beat_ms=MINUTE) as consumer:
        await consumer.parked.reach(1)
        await until(lambda: desk.kill_clients(":park"))
        # Its token went to nobody.
        desk.enqueue(token=False)
        await until(lambda: consumer.tally.completed == 1)
        await consumer.parked.reach(2)
        desk.enqueue()
        await until(lambda: consumer.tally.completed == 2)


async def test_a_working_connection_that_is_cut_costs_a_degraded_beat_at_most(desk: Desk) -> None:
    async with desk.consuming(beat_ms=50) as consumer:
        await consumer.parked.reach(1)
        assert desk.kill_clients(":consumer")
        desk.enqueue()
        await until(lambda: consumer.tally.completed == 1)


async def test_lapsed_jobs_are_recovered_and_buried_at_the_cap(desk: Desk) -> None:
    (job_id,) = desk.enqueue()
    runs: list[Claimed] = []

    async def handler(job: Claimed) -> None:
        runs.append(job)
        # As if its worker had died.
        desk.raw.execute("ZADD", desk.key("active"), "1", job_id)
        await asyncio.Event().wait()

    async with desk.consuming(handler, concurrency=5, beat_ms=20, max_stalled=3):
        await until(lambda: desk.size("dead") == 1)
    assert [(job.attempts, job.stalled) for job in runs] == [(1, 0), (2, 1), (3, 2)]
    row = desk.row(job_id)
    assert (row["last_error"], row["stalled"]) == ("stalled", "3")
    assert "failures" not in row


async def test_more_lapsed_jobs_than_one_sweep_takes_come_back_without_another_beat(desk: Desk) -> None:
    ids = desk.enqueue(count=250, token=False)
    for job_id in ids:
        desk.raw.execute("ZREM", desk.key("pending"), job_id)
        desk.raw.execute("HSET", desk.key(f"job:{job_id}"), "state", "active", "attempts", "1")
        desk.raw.execute("ZADD", desk.key("active"), "1", job_id)
    async with desk.consuming(beat_ms=MINUTE, concurrency=50) as consumer:
        await until(lambda: consumer.tally.completed == 250)
    assert {job.stalled for job in desk.seen} == {1}


async def test_loops_survive_their_server(start_server, queue) -> None:
    server = start_server()
    dial = Dial(server.url, timeout=0.2)
    async with Pump(dial, queue, beat_ms=5) as pump, StalledSweep(dial, queue, beat_ms=5) as sweep:
        await pump.beats.reach(2)
        await sweep.beats.reach(2)
        server.kill9()
        await pump.degraded.reach(1)
        await sweep.degraded.reach(1)
        server.start()
        await pump.beats.next(2)
        await sweep.beats.next(2)
