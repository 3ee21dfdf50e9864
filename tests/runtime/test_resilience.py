"""Connections and servers die; the loops degrade, go on, and settle what was finished."""

from __future__ import annotations

import asyncio

import pytest

from echomq import jobs
from echomq.protocol.backoff import Fixed
from echomq.protocol.errors import DisconnectedError
from echomq.protocol.replies import Claimed
from echomq.runtime import Dial, Done, Pump, Retry, StalledSweep
from echomq.runtime.hand import Hand, Held
from echomq.runtime.loops import told
from echomq.runtime.settle import Settler
from echomq.wire import aconnect
from support.desk import Desk, until

MINUTE = 60_000


async def test_a_server_that_is_killed_and_comes_back_is_worked_for_again(start_server, queue) -> None:
    server = start_server(aof=True, options=("--appendfsync", "always"))
    with Desk(server, queue) as desk:
        desk.dial = Dial(server.url, timeout=1.0)
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


@pytest.mark.parametrize("ran", [True, False])
async def test_a_failure_whose_answer_is_lost_is_counted_once(desk: Desk, ran: bool) -> None:
    """It is looked up before it is sent again: its job may be claimable under the same token."""
    async with aconnect(desk.server.url) as conn:
        desk.enqueue()
        job = await conn.run(jobs.claim(desk.queue))
        assert job is not None
        held = Held(job)
        held.outcome = Retry("x")
        in_hand = {held}
        settler = Settler(desk.queue, retry_delay=Fixed(0), max_attempts=3, held=in_hand)
        settler.waiting.append(held)
        batch, (retry,) = settler.take(10)
        if ran:
            await conn.run(retry)
            await conn.run(jobs.promote(desk.queue))
        assert settler.answered(batch, iter([DisconnectedError("gone", sent=True)])) is not None
        assert in_hand == {held}
        await settler.clear_doubts(conn)
        for again in settler.take(10)[1]:
            await conn.run(again)
        assert settler.tally.retried == ran
        assert in_hand == (set() if ran else {held})
    assert desk.row(job.id)["failures"] == "1"


@pytest.mark.strays("a row of a wrong type, and fields that are no text")
@pytest.mark.parametrize("kind", ["field", "type", "value"])
async def test_a_row_that_cannot_be_looked_at_costs_nobody_else_anything(desk: Desk, kind: str) -> None:
    async with aconnect(desk.server.url) as conn:
        desk.enqueue(count=2)
        claims = await conn.run(jobs.claim_many(desk.queue, 2))
        in_hand = {Held(job) for job in claims.jobs}
        settler = Settler(desk.queue, retry_delay=Fixed(0), max_attempts=3, held=in_hand)
        for held in in_hand:
            held.outcome = Retry("x")
        settler.waiting += in_hand
        batch, calls = settler.take(10)
        settler.answered(batch, iter([DisconnectedError("gone", sent=True)] * len(calls)))
        row = desk.key(f"job:{claims.jobs[0].id}")
        if kind == "field":
            desk.raw.execute("HSET", row, b"\xff\xfe", "v")
        elif kind == "value":
            desk.raw.execute("HSET", row, "state", b"\xff\xfe")
        else:
            desk.raw.execute("SET", row, "junk")
        await settler.clear_doubts(conn)
        assert not settler.doubtful
        batch, calls = settler.take(10)
        assert settler.answered(batch, iter(await conn.run_many(calls))) is None
        assert not in_hand
        assert settler.tally.retried == (1 if kind == "type" else 2)
        assert settler.tally.refused == (1 if kind == "type" else 0)


@pytest.mark.strays("scores that are no times")
@pytest.mark.parametrize("score", ["-inf", "+inf", "1e300", "-1e300"])
@pytest.mark.parametrize("name", ["schedule", "repeat", "cron"])
async def test_a_score_that_is_no_time_stops_nobody(desk: Desk, name: str, score: str) -> None:
    go = asyncio.Event()

    async def handler(job: Claimed) -> None:
        desk.seen.append(job)
        if job.payload == b"wait":
            await go.wait()

    desk.raw.execute("ZADD", desk.key(name), score, "JOB0000000000a" if name == "schedule" else "odd")
    desk.enqueue("wait")
    async with desk.consuming(handler, beat_ms=20) as consumer:
        await consumer.beats.reach(3)  # without a slot it looks at the heads
        go.set()
        await until(lambda: consumer.tally.completed == 1)
        await consumer.beats.next(2)  # with one, the claim does
        desk.enqueue(count=3)
        await until(lambda: consumer.tally.completed == 4)
        assert consumer.degraded.count == 0


def test_what_a_log_quotes_is_cut() -> None:
    long = "x" * 10_000
    assert len(told(DisconnectedError(long, sent=True))) <= 200
    assert len(told(ValueError(long))) <= 200
    with pytest.raises(ValueError, match="xxx") as raised:
        raise ValueError(long)
    text = told(raised.value)
    assert "in test_what_a_log_quotes_is_cut" in text
    assert len(text.split("\n")[0]) <= 200


def stranger(job: Claimed) -> Held:
    """A job in hand that no builder takes."""
    return Held(job._replace(id="nobody"))


async def test_a_job_that_no_call_can_settle_leaves_the_others_alone(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    async with aconnect(desk.server.url) as conn:
        ids = desk.enqueue(count=4)
        claims = await conn.run(jobs.claim_many(desk.queue, 4))
        in_hand: set[Held] = set()
        settler = Settler(desk.queue, retry_delay=Fixed(MINUTE), max_attempts=3, held=in_hand)
        for number, job in enumerate(claims.jobs):
            for held in (Held(job), stranger(job)):
                held.outcome = Retry("x") if number % 2 else Done()
                in_hand.add(held)
                settler.waiting.append(held)
        batch, calls = settler.take(100)
        assert settler.answered(batch, iter(await conn.run_many(calls))) is None
        assert (settler.tally.completed, settler.tally.retried, settler.tally.refused) == (2, 2, 4)
        assert not in_hand
        assert not settler.waiting
        assert settler.leaving == 0
    assert sum("cannot be settled" in record.getMessage() for record in caplog.records) == 4
    assert desk.size("schedule") == 2
    assert not desk.size("active")
    assert len(ids) == 4


async def test_a_job_that_no_call_can_extend_leaves_the_others_alone(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    async with aconnect(desk.server.url) as conn:
        desk.enqueue(count=2)
        claims = await conn.run(jobs.claim_many(desk.queue, 2))
        held = {Held(job) for job in claims.jobs}
        odd = stranger(claims.jobs[0])
        hand = Hand(desk.queue, held | {odd}, MINUTE)
        for _ in range(2):
            extension = hand.extension(field=False)
            assert extension is not None
            call, kept = extension
            assert set(kept) == held
            assert not (await conn.run(call)).lost
        assert odd.lost
        for job in claims.jobs:
            await conn.run(jobs.complete(desk.queue, job.id, job.token))
    assert sum("loses its lease" in record.getMessage() for record in caplog.records) == 1


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
    dial = Dial(server.url, timeout=1.0)
    async with Pump(dial, queue, beat_ms=5) as pump, StalledSweep(dial, queue, beat_ms=5) as sweep:
        await pump.beats.reach(2)
        await sweep.beats.reach(2)
        server.kill9()
        await pump.degraded.reach(1)
        await sweep.degraded.reach(1)
        server.start()
        await pump.beats.next(2)
        await sweep.beats.next(2)
