"""Timed work starts when its time has come by the server's clock, and one parked consumer keeps that time."""

from __future__ import annotations

import asyncio
import math
from contextlib import AsyncExitStack

from echomq import jobs
from echomq.identity.minter import minter
from echomq.protocol.backoff import Fixed
from echomq.protocol.replies import Claimed
from echomq.runtime import Later
from echomq.runtime.retention import RETAIN_BEATS
from echomq.wire import aconnect
from support.desk import Desk, until

MINUTE = 60_000


class Hold:
    """A handler that keeps its jobs in hand until it is let go."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.busy: list[str] = []

    async def __call__(self, job: Claimed) -> None:
        self.busy.append(job.id)
        await self.go.wait()


async def test_a_parked_consumer_starts_scheduled_jobs_at_their_instants(desk: Desk) -> None:
    base = desk.raw.now_ms()
    runs: dict[str, int] = {}

    async def handler(job: Claimed) -> None:
        runs[job.id] = desk.raw.now_ms()

    async with desk.consuming(handler, beat_ms=MINUTE) as consumer:
        await consumer.parked.reach(1)
        due = {desk.schedule(base + 100 + 37 * n): base + 100 + 37 * n for n in range(10)}
        await until(lambda: consumer.tally.completed == 10)
    assert all(runs[job_id] >= due[job_id] for job_id in due), "started early"


async def test_a_job_scheduled_ahead_of_the_others_is_heard_of(desk: Desk) -> None:
    async with desk.consuming(beat_ms=MINUTE) as consumer:
        desk.schedule(desk.raw.now_ms() + MINUTE)
        await until(lambda: consumer.next_run_ms is not None)
        early = desk.schedule(desk.raw.now_ms() + 100)
        await until(lambda: consumer.tally.completed == 1)
    assert [job.id for job in desk.seen] == [early]


async def test_a_retry_and_a_snooze_come_back_without_a_beat(desk: Desk) -> None:
    desk.enqueue()

    async def handler(job: Claimed) -> object:
        if job.attempts == 1:
            raise ValueError
        return Later(50) if job.attempts == 2 else None

    async with desk.consuming(handler, beat_ms=MINUTE, retry_delay=Fixed(50)) as consumer:
        await until(lambda: consumer.tally.completed == 1)


async def test_what_was_due_before_it_started_runs_at_once_in_batches(desk: Desk) -> None:
    now = desk.raw.now_ms()
    for number in range(25):
        desk.schedule(now - 1_000 + number, token=False)
    async with desk.consuming(beat_ms=MINUTE, concurrency=3, promote_batch=4) as consumer:
        await until(lambda: consumer.tally.completed == 25)


async def test_timed_work_and_lapses_are_seen_to_in_the_middle_of_a_backlog(desk: Desk) -> None:
    timed = desk.schedule(desk.raw.now_ms() + 50, token=False)
    (lapsed,) = desk.enqueue(token=False)
    desk.raw.execute("ZREM", desk.key("pending"), lapsed)
    desk.raw.execute("HSET", desk.key(f"job:{lapsed}"), "state", "active", "attempts", "1")
    desk.raw.execute("ZADD", desk.key("active"), desk.raw.now_ms() + 50, lapsed)
    ids = minter.mint_many(6_000)
    async with aconnect(desk.server.url) as conn:
        for start in range(0, len(ids), 1_000):
            await conn.run(jobs.enqueue_many(desk.queue, [(each, b"") for each in ids[start : start + 1_000]]))
    async with desk.consuming(concurrency=100, beat_ms=20) as consumer:
        await until(lambda: consumer.tally.completed == 6_002)
    order = [job.id for job in desk.seen]
    assert order.index(timed) < 5_900
    assert order.index(lapsed) < 5_900


async def test_a_recurrence_fires_on_its_grid_without_a_beat(desk: Desk) -> None:
    first = desk.raw.now_ms() + 100
    desk.recur("tick", 100, first)
    async with desk.consuming(beat_ms=MINUTE) as consumer:
        await until(lambda: consumer.tally.completed >= 5)
    assert len({job.id for job in desk.seen}) == len(desk.seen)
    assert {job.payload for job in desk.seen} == {b"r"}
    score = int(desk.raw.execute("ZSCORE", desk.key("repeat"), "tick"))
    assert (score - first) % 100 == 0
    assert len(desk.seen) <= (score - first) // 100


async def test_a_full_consumer_goes_on_firing(desk: Desk) -> None:
    """Nobody else is there to do it, and a slot that is missed is missed for good."""
    desk.enqueue("first")
    go = asyncio.Event()

    async def handler(job: Claimed) -> None:
        if job.payload == b"first":
            await go.wait()

    async with desk.consuming(handler, beat_ms=MINUTE) as consumer:
        await until(lambda: consumer.in_hand == 1)
        first = desk.raw.now_ms()
        desk.recur("tick", 50, first)
        # It hears of it by its beat: a token needs a free slot.
        await consumer.beat()
        await until(lambda: desk.size("pending") >= 5)
        fired = desk.size("pending")
        score = int(desk.raw.execute("ZSCORE", desk.key("repeat"), "tick"))
        go.set()
        assert fired <= (score - first) // 50 + 1


async def test_a_recurrence_that_cannot_be_read_stops_nothing_else(desk: Desk, caplog) -> None:
    now = desk.raw.now_ms()
    desk.raw.execute("HSET", desk.key("repeat:broken"), "every_ms", "often", "template", "x")
    desk.raw.execute("ZADD", desk.key("repeat"), now - MINUTE, "broken")
    desk.recur("tick", 100, now + 50)
    async with desk.consuming(beat_ms=20) as consumer:
        await until(lambda: consumer.tally.completed >= 5)
        desk.schedule(desk.raw.now_ms() + 20)
        await until(lambda: any(job.payload == b"x" for job in desk.seen))
    assert len([r for r in caplog.records if "broken" in r.getMessage()]) == 1


async def test_a_recurrence_that_nobody_may_fire_is_not_spun_on(desk: Desk) -> None:
    desk.recur("tick", 100, desk.raw.now_ms())
    async with desk.consuming(beat_ms=MINUTE, pump=False) as consumer:
        await consumer.parked.reach(1)
        before = desk.transitions()
        for _ in range(5):
            await consumer.beat()
        assert desk.transitions() - before <= 5 * 4
    assert desk.size("repeat") == 1


async def test_one_of_many_parked_consumers_keeps_the_time(desk: Desk) -> None:
    parked, timers = 12, 40
    async with AsyncExitStack() as stack:
        group = [await stack.enter_async_context(desk.consuming(beat_ms=MINUTE)) for _ in range(parked)]
        for each in group:
            await each.parked.reach(1)
        base = desk.raw.now_ms() + 200
        for number in range(timers):
            desk.schedule(base + 25 * number, token=number == 0)
        before = desk.transitions()
        await until(lambda: len(desk.seen) == timers)
        await until(lambda: desk.size("active") == 0)
        spent = desk.transitions() - before
    # Some keep the time: promote, claim, complete. All of them at every run-at would be 2 x `parked` a timer.
    assert spent < timers * parked, f"{spent} script calls for {timers} timers"


async def test_a_keeper_whose_slots_are_full_hands_the_time_on(desk: Desk) -> None:
    hold = Hold()
    async with desk.consuming(hold, beat_ms=MINUTE) as keeper:
        await keeper.parked.reach(1)
        timed = desk.schedule(desk.raw.now_ms() + 1_500)
        await until(lambda: keeper.next_run_ms is not None)
        async with desk.consuming(beat_ms=MINUTE) as other:
            await until(lambda: other.next_run_ms is not None)
            other._turns.time.keeps = False
            # Without a token, so that only the hand-over can wake the other one.
            desk.enqueue(token=False)
            await keeper.beat()
            await until(lambda: hold.busy and other._turns.time.keeps)
            await until(lambda: desk.seen)
            hold.go.set()
    assert [job.id for job in desk.seen] == [timed]


async def test_a_keeper_that_dies_costs_one_beat_once(desk: Desk) -> None:
    async with desk.consuming(beat_ms=MINUTE) as other:
        await other.parked.reach(1)
        # As after the death of the keeper: nobody keeps the time, and nobody tells of what is scheduled.
        other._turns.time.keeps = False
        base = desk.raw.now_ms()
        for number in range(8):
            desk.schedule(base + 200 * number, token=False)
        await other.beat()
        beats = other.beats.count
        await until(lambda: len(desk.seen) == 8)
        assert other.beats.count == beats


async def test_a_full_consumer_whose_beat_finds_the_keeper_gone_takes_the_time_over(desk: Desk) -> None:
    hold = Hold()
    async with desk.consuming(hold, beat_ms=MINUTE) as full:
        desk.enqueue()
        await until(lambda: hold.busy)
        full._turns.time.keeps = False
        async with desk.consuming(beat_ms=MINUTE) as other:
            await other.parked.reach(1)
            timed = desk.schedule(desk.raw.now_ms() - 1, token=False)
            await full.beat()
            await until(lambda: desk.seen)
            hold.go.set()
    assert [job.id for job in desk.seen] == [timed]


async def test_an_idle_beat_costs_two_commands(desk: Desk) -> None:
    def spent() -> int:
        calls = desk.calls()
        return desk.transitions() + sum(calls.get(name, 0) for name in ("blpop", "lpush", "ltrim", "hgetall"))

    desk.schedule(desk.raw.now_ms() + MINUTE)
    async with desk.consuming(beat_ms=20) as consumer:
        await consumer.beats.next()
        before, beats = spent(), consumer.beats.count
        await consumer.beats.next(20)
        after = spent()
        beats = consumer.beats.count - beats
    looks = 1 + math.ceil(beats / RETAIN_BEATS)  # into the morgue, beside the beats: the first may be still to come
    assert after - before <= 2 * (beats + 1) + looks
