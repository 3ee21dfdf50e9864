"""In a rolling deploy a worker that does not know a job leaves it to one that does."""

from __future__ import annotations

import asyncio

from echomq.protocol.replies import Claimed
from echomq.runtime import Later
from support.desk import Desk, until

MINUTE = 60_000
JOBS = 10


async def test_a_job_that_a_worker_hands_on_is_claimed_by_another_next_time(desk: Desk) -> None:
    old: list[str] = []

    async def unknown(job: Claimed) -> Later:
        old.append(job.id)
        return Later(20, yield_time=True)

    async with desk.consuming(unknown, beat_ms=MINUTE) as one:
        await one.parked.reach(1)
        desk.enqueue()
        await until(lambda: len(old) == 1)  # it keeps the time now, and has met the job
        async with desk.consuming(beat_ms=MINUTE) as two:
            await until(lambda: two.tally.completed == 1)
            for number in range(2, JOBS + 1):
                desk.enqueue()
                await until(lambda number=number: two.tally.completed == number)
        assert all(old.count(job_id) <= 1 for job_id in old[1:])
        assert one.tally.completed == 0


async def test_two_that_do_not_know_it_do_not_play_ball_with_the_tokens(desk: Desk) -> None:
    async def unknown(job: Claimed) -> Later:
        desk.seen.append(job)
        return Later(MINUTE, yield_time=True)

    async with desk.consuming(unknown, beat_ms=MINUTE) as one, desk.consuming(unknown, beat_ms=MINUTE) as two:
        await one.parked.reach(1)
        await two.parked.reach(1)
        desk.enqueue()
        await until(lambda: desk.seen)
        # However long they play: a round trip takes a tenth of this.
        await asyncio.sleep(0.2)
        assert one.parked.count + two.parked.count < 12


async def test_one_that_is_alone_takes_the_time_back_at_its_beat(desk: Desk) -> None:
    async def unknown(job: Claimed) -> Later:
        desk.seen.append(job)
        return Later(20, yield_time=True)

    desk.enqueue()
    async with desk.consuming(unknown, beat_ms=100):
        await until(lambda: len(desk.seen) == 3)
