"""A pool of consumers in one process: one of them listens, nobody misses a wake, the longest idle goes first."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from echomq.events import events
from echomq.identity.errors import InvalidInputError
from echomq.protocol import admin, jobs, repeat
from echomq.protocol.replies import Admission, Claimed
from echomq.runtime import Consumer, Metronome, current_token, identity
from echomq.runtime.telemetry import Added, Dead, Stalled, Step, Telemetry
from echomq.wire import aconnect
from support.desk import Desk, until

MINUTE = 60_000


@asynccontextmanager
async def pool(
    desk: Desk, size: int, handler=None, *, beat_ms: int = MINUTE, **options
) -> AsyncIterator[list[Consumer]]:
    async with Metronome(desk.dial, desk.queue, beat_ms=beat_ms) as metronome, AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(desk.consuming(handler, metronome=metronome, **options))
            for _ in range(size)
        ]


async def all_idle(consumers: list[Consumer]) -> None:
    await until(lambda: all(each.idle and each.parked.count for each in consumers))


def blocked(desk: Desk) -> int:
    return sum("cmd=blpop" in line for line in desk.raw.execute("CLIENT", "LIST").decode().splitlines())


async def test_everything_runs_once_over_one_blocked_connection(desk: Desk) -> None:
    async with pool(desk, 5) as consumers:
        await all_idle(consumers)
        await until(lambda: blocked(desk) == 1)
        ids = desk.enqueue(count=100)
        await until(lambda: sum(each.tally.completed for each in consumers) == 100)
        assert sorted(job.id for job in desk.seen) == ids
        await all_idle(consumers)
        await until(lambda: blocked(desk) == 1)


async def test_the_longest_idle_goes_first(desk: Desk) -> None:
    async with pool(desk, 3) as consumers:
        await all_idle(consumers)
        for number in range(1, 7):
            # One token, one claim that finds something, one more that finds nothing.
            desk.enqueue()
            await until(lambda number=number: sum(each.tally.completed for each in consumers) == number)
            await all_idle(consumers)
        assert [each.tally.completed for each in consumers] == [2, 2, 2]


async def test_a_wake_costs_each_idle_consumer_one_claim_at_most(desk: Desk) -> None:
    async with pool(desk, 6) as consumers:
        await all_idle(consumers)
        parked = [each.parked.count for each in consumers]
        desk.raw.execute("LPUSH", desk.key("wake"), "1")
        await until(lambda: [each.parked.count for each in consumers] != parked)
        await all_idle(consumers)
        assert sum(each.parked.count for each in consumers) - sum(parked) == 1, (
            "nothing was found: nobody else is woken"
        )


async def test_as_many_start_as_there_are_jobs(desk: Desk) -> None:
    go = asyncio.Event()

    async def handler(job: Claimed) -> None:
        desk.seen.append(job)
        await go.wait()

    async with pool(desk, 4, handler) as consumers:
        await all_idle(consumers)
        desk.enqueue(count=4)
        await until(lambda: len(desk.seen) == 4)
        go.set()
        await until(lambda: sum(each.tally.completed for each in consumers) == 4)


async def test_no_wake_is_lost_while_a_consumer_registers(desk: Desk) -> None:
    async with Metronome(desk.dial, desk.queue, beat_ms=MINUTE) as metronome:
        for number in range(1, 11):
            desk.enqueue()
            async with desk.consuming(metronome=metronome) as consumer:
                await until(lambda consumer=consumer: consumer.tally.completed == 1)
            assert len(desk.seen) == number


async def test_a_consumer_that_ends_is_forgotten_and_its_wake_goes_on(desk: Desk) -> None:
    async with (
        Metronome(desk.dial, desk.queue, beat_ms=MINUTE) as metronome,
        desk.consuming(metronome=metronome) as other,
    ):
        async with desk.consuming(metronome=metronome) as gone:
            await all_idle([other, gone])
            seat = gone._seat
            assert seat is not None
            # As if it had been woken and had died before its claim.
            metronome._idle.remove(seat)
            metronome._woken = seat
            desk.enqueue(token=False)
        await until(lambda: other.tally.completed == 1)
        assert len(metronome._seats) == 1


async def test_the_metronome_keeps_the_time_and_recovers(desk: Desk) -> None:
    async with pool(desk, 3) as consumers:
        await all_idle(consumers)
        soon = desk.schedule(desk.raw.now_ms() + 100)
        await until(lambda: sum(each.tally.completed for each in consumers) == 1)
        assert [job.id for job in desk.seen] == [soon]
    (lapsed,) = desk.enqueue(token=False)
    desk.raw.execute("ZREM", desk.key("pending"), lapsed)
    desk.raw.execute("HSET", desk.key(f"job:{lapsed}"), "state", "active", "attempts", "1")
    desk.raw.execute("ZADD", desk.key("active"), "1", lapsed)
    async with pool(desk, 3) as consumers:
        await until(lambda: sum(each.tally.completed for each in consumers) == 1)


async def test_a_run_at_whose_token_a_claim_has_taken_away_is_kept(desk: Desk) -> None:
    async with pool(desk, 1) as (first,):
        await all_idle([first])
        desk.schedule(desk.raw.now_ms() + 200, token=False)
        async with desk.consuming(metronome=first._metronome) as second:  # its first claim finds nothing but the run-at
            await until(lambda: first.tally.completed + second.tally.completed == 1)


async def test_a_pool_goes_on_when_a_rate_window_ends(desk: Desk) -> None:
    async with aconnect(desk.server.url) as conn:
        await conn.run(admin.set_rate(desk.queue, 2, period_ms=50))
    async with pool(desk, 2) as consumers:
        await all_idle(consumers)
        desk.enqueue(count=9)
        await until(lambda: sum(each.tally.completed for each in consumers) == 9)


async def test_an_idle_pool_costs_no_more_for_each_consumer(desk: Desk) -> None:
    async def cost(size: int) -> int:
        async with pool(desk, size, beat_ms=MINUTE) as consumers:
            await all_idle(consumers)
            metronome = consumers[0]._metronome
            assert metronome is not None
            await metronome.beats.reach(1)
            before = desk.transitions()
            await metronome.beat()
            return desk.transitions() - before

    assert await cost(1) == await cost(10)


async def test_a_cancel_reaches_a_job_of_the_pool(desk: Desk) -> None:
    async def handler(job: Claimed) -> None:
        desk.seen.append(job)
        await until(current_token().check)
        current_token().raise_if_cancelled()

    (job_id,) = desk.enqueue()
    async with pool(desk, 2, handler) as consumers, aconnect(desk.server.url) as conn:
        await until(lambda: desk.seen)
        await conn.run(admin.cancel_job(desk.queue, job_id))
        await until(lambda: sum(each.tally.buried for each in consumers) == 1)


def test_a_metronome_beats_for_one_queue(desk: Desk) -> None:
    async def main() -> None:
        metronome = Metronome(desk.dial, "other")
        with pytest.raises(InvalidInputError, match="metronome"):
            Consumer(desk.dial, desk.queue, desk.note, metronome=metronome)

    asyncio.run(main())


def said(desk: Desk) -> list[int]:
    """The slots of each worker in the registry."""
    infos = desk.raw.execute("HVALS", desk.key("workers:info"))
    return [json.loads(info)["concurrency"] for info in infos]


async def test_the_pool_says_how_many_jobs_it_runs_at_once(desk: Desk) -> None:
    who = identity((desk.queue,))
    async with Metronome(desk.dial, desk.queue, beat_ms=MINUTE, who=who) as metronome, AsyncExitStack() as stack:
        for size in (3, 4):
            await stack.enter_async_context(
                desk.consuming(metronome=metronome, concurrency=size, beat_ms=MINUTE, who=who)
            )
        await until(lambda: said(desk) == [7])
        await stack.aclose()
        await until(lambda: said(desk) == [0])
    assert said(desk) == []


async def test_a_pool_tells_of_its_lapses_and_its_occurrences(desk: Desk) -> None:
    steps: list[Step] = []
    watch = Telemetry(steps.append)
    metronome = Metronome(desk.dial, desk.queue, beat_ms=MINUTE, max_stalled=1, watch=watch, events=True)
    async with aconnect(desk.server.url) as conn, events(conn, desk.queue) as heard:
        await conn.run(repeat.register(desk.queue, "r", every_ms=MINUTE, template=b"t", first_run_ms=0))
        (lapsed,) = desk.enqueue()
        await conn.run(jobs.claim(desk.queue))
        desk.raw.execute("ZADD", desk.key("active"), "1", lapsed)
        await metronome.beat()
        (occurrence,) = desk.raw.execute("ZRANGE", desk.key("pending"), 0, -1)
        told = [await heard.get() for _ in range(3)]
    await metronome.stop()
    assert steps == [
        Stalled(desk.queue, lapsed, dead=True),
        Dead(desk.queue, lapsed, "stalled"),
        Added(desk.queue, occurrence.decode(), Admission.ADMITTED),
    ]
    assert [event and (event.event, event.job) for event in told] == [
        ("stalled", lapsed),
        ("dead", lapsed),
        ("enqueued", occurrence.decode()),
    ]
