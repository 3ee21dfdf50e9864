"""The consumer runs what there is, as often as it should, as many at once as it may."""

from __future__ import annotations

import asyncio

import pytest

from echomq.identity.errors import InvalidInputError
from echomq.protocol.errors import ConnectError
from echomq.protocol.replies import Claimed
from echomq.runtime import Consumer, Dial
from support.desk import Desk, until

MINUTE = 60_000


async def test_every_job_runs_once_and_is_gone(desk: Desk) -> None:
    ids = desk.enqueue(count=300)
    async with desk.consuming(concurrency=40) as consumer:
        await until(lambda: consumer.tally.completed == 300)
    assert sorted(job.id for job in desk.seen) == ids
    assert desk.completed() == 300
    assert desk.raw.execute("KEYS", desk.key("job:*")) == []
    assert desk.size("active") == 0


async def test_the_handler_is_given_the_job_as_it_was_claimed(desk: Desk) -> None:
    (job_id,) = desk.enqueue("päyload")
    async with desk.consuming() as consumer:
        await until(lambda: consumer.tally.completed == 1)
    assert desk.seen == [Claimed(job_id, "päyload".encode(), attempts=1, failures=0, stalled=0)]


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_no_more_run_at_once_than_allowed_and_no_fewer(desk: Desk, concurrency: int) -> None:
    running: set[str] = set()
    most = 0
    go = asyncio.Event()

    async def handler(job: Claimed) -> None:
        nonlocal most
        running.add(job.id)
        most = max(most, len(running))
        await go.wait()
        running.discard(job.id)

    desk.enqueue(count=concurrency + 4)
    async with desk.consuming(handler, concurrency=concurrency) as consumer:
        await until(lambda: len(running) == concurrency)
        await consumer.beat()
        assert desk.size("active") == concurrency
        go.set()
        await until(lambda: consumer.tally.completed == concurrency + 4)
    assert most == concurrency


async def test_a_parked_consumer_starts_what_is_admitted_without_waiting_for_its_beat(desk: Desk) -> None:
    async with desk.consuming(beat_ms=MINUTE) as consumer:
        for number in range(1, 6):
            await consumer.parked.reach(number)
            desk.enqueue()
            await until(lambda number=number: consumer.tally.completed == number)


async def test_a_token_that_was_left_before_it_parked_wakes_it(desk: Desk) -> None:
    blocked, go = asyncio.Event(), asyncio.Event()

    async def handler(job: Claimed) -> None:
        blocked.set()
        await go.wait()

    desk.enqueue()
    async with desk.consuming(handler, beat_ms=MINUTE) as consumer:
        await blocked.wait()
        desk.enqueue(count=3)
        go.set()
        await until(lambda: consumer.tally.completed == 4)


async def test_work_admitted_without_a_token_starts_within_a_beat(desk: Desk) -> None:
    async with desk.consuming(beat_ms=50) as consumer:
        await consumer.parked.reach(1)
        desk.enqueue(token=False)
        await until(lambda: consumer.tally.completed == 1)


async def test_old_tokens_are_not_spun_on(desk: Desk) -> None:
    for _ in range(64):
        desk.raw.execute("LPUSH", desk.key("wake"), "1")
    async with desk.consuming(beat_ms=MINUTE) as consumer:
        await consumer.parked.reach(1)
        await until(lambda: desk.size("wake") == 0)
        before = desk.transitions()
        await consumer.beat()
        assert desk.transitions() - before <= 4


async def test_a_token_for_which_no_slot_is_free_goes_to_another(desk: Desk) -> None:
    """The first consumer is parked when its only slot fills: the token that comes then is not its own to keep."""
    go = asyncio.Event()
    first: list[str] = []
    second: list[str] = []

    async def hold(job: Claimed) -> None:
        first.append(job.id)
        await go.wait()

    async def note(job: Claimed) -> None:
        second.append(job.id)

    async with desk.consuming(hold, beat_ms=MINUTE) as one:
        await one.parked.reach(1)
        # Admitted without a token and found by a beat, so the ear is still listening when the slot is taken.
        desk.enqueue(token=False)
        await one.beat()
        await until(lambda: len(first) == 1)
        async with desk.consuming(note, beat_ms=MINUTE) as two:
            await two.parked.reach(1)
            desk.enqueue()
            await until(lambda: len(second) == 1)
            go.set()
            await until(lambda: one.tally.completed == 1)


async def test_one_that_has_run_all_there_was_is_idle_without_another_token_or_beat(desk: Desk) -> None:
    desk.enqueue(count=3, token=False)
    async with desk.consuming(concurrency=10, beat_ms=MINUTE) as consumer:
        await consumer.parked.reach(1)
        while not consumer.idle:
            await consumer.parked.next()
        assert consumer.tally.completed == 3


async def test_two_consumers_share_the_work_and_run_nothing_twice(desk: Desk) -> None:
    ids = desk.enqueue(count=200)
    runs: list[tuple[int, str]] = []

    def handler_of(number: int):
        async def handler(job: Claimed) -> None:
            runs.append((number, job.id))
            await asyncio.sleep(0)

        return handler

    async with desk.consuming(handler_of(1), concurrency=5) as one, desk.consuming(handler_of(2), concurrency=5) as two:
        await until(lambda: one.tally.completed + two.tally.completed == 200)
    assert sorted(job_id for _, job_id in runs) == ids
    assert {number for number, _ in runs} == {1, 2}


async def test_a_beat_can_be_called_by_hand(desk: Desk) -> None:
    desk.enqueue(count=2)
    consumer = Consumer(desk.dial, desk.queue, desk.note)
    await consumer.beat()
    await until(lambda: len(desk.seen) == 1)
    assert desk.completed() == 0
    await consumer.beat()
    assert desk.completed() == 1
    await until(lambda: len(desk.seen) == 2)
    await consumer.stop()
    assert desk.completed() == 2


async def test_a_paused_queue_is_left_alone_until_it_is_resumed(desk: Desk) -> None:
    desk.raw.execute("HSET", desk.key("meta"), "paused", "1")
    desk.enqueue()
    async with desk.consuming(beat_ms=MINUTE) as consumer:
        await consumer.parked.reach(1)
        await consumer.beat()
        assert desk.seen == []
        desk.raw.execute("HDEL", desk.key("meta"), "paused")
        desk.raw.execute("LPUSH", desk.key("wake"), "1")
        await until(lambda: consumer.tally.completed == 1)


async def test_a_server_that_is_not_there_is_said_at_the_start(tmp_path) -> None:
    async def handler(job: Claimed) -> None: ...

    consumer = Consumer(Dial(f"unix://{tmp_path}/none", timeout=0.2), "q", handler)
    with pytest.raises(ConnectError):
        await consumer.start()
    await consumer.stop()


@pytest.mark.parametrize(
    "options",
    [
        {"concurrency": 0},
        {"lease_ms": 0},
        {"beat_ms": 0},
        {"max_attempts": 0},
        {"max_stalled": 0},
        {"promote_batch": 0},
        {"retry_delay": "soon"},
        {"stuck_ms": 0},
    ],
)
def test_nonsense_is_refused_before_anything_starts(options) -> None:
    async def handler(job: Claimed) -> None: ...

    with pytest.raises(InvalidInputError):
        Consumer(Dial("unix:///nowhere"), "q", handler, **options)
    with pytest.raises(InvalidInputError):
        Consumer(Dial("unix:///nowhere"), "q", "no handler")
    with pytest.raises(InvalidInputError):
        Consumer(Dial("unix:///nowhere"), "q{", handler)
