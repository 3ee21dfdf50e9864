"""A lane steered from the app: paused, limited and looked at by the name that its jobs were sent with."""

from __future__ import annotations

import asyncio

import pytest

from echomq import EchoMQ, InvalidInputError, Lane, lanes
from echomq.errors import QueueNameError
from support.desk import until
from support.servers import Server


@pytest.fixture
def send(mq: EchoMQ):
    @mq.job(name="send")
    def send(n: int) -> None: ...

    return send


def test_a_lane_is_known_by_its_name(mq: EchoMQ, queue: str) -> None:
    lane = mq.lane("acme")
    assert isinstance(lane, Lane)
    assert (lane.id, lane.name, lane.queue) == (lanes.lane_id("acme"), "acme", queue)
    assert mq.lane("acme", queue="mail").queue == "mail"
    assert repr(mq.lane("acme", queue="mail")) == "<lane acme of mail>"


def test_a_paused_lane_keeps_its_jobs(mq: EchoMQ, queue: str, send) -> None:
    lane = mq.lane("acme")
    for n in range(3):
        send.options(lane="acme").enqueue(n)
    lane.pause()
    assert mq.run(lanes.claim(queue)) is None
    assert lane.depth() == 3
    lane.resume()
    claimed = mq.run(lanes.claim(queue))
    assert claimed is not None
    assert claimed.group == lane.id
    assert lane.depth() == 2


def test_a_limit_holds_over_all_claims_until_it_is_lifted(mq: EchoMQ, queue: str, send) -> None:
    lane = mq.lane("acme")
    lane.limit(2)
    for n in range(5):
        send.options(lane="acme").enqueue(n)
    taken = [mq.run(lanes.claim(queue)) for _ in range(4)]
    assert [job is not None for job in taken] == [True, True, False, False]
    lane.limit(None)
    assert mq.run(lanes.claim(queue)) is not None


def test_a_weight_is_the_share_of_a_weighted_turn(mq: EchoMQ, queue: str, send) -> None:
    mq.lane("acme").weight(3)
    for n in range(5):
        send.options(lane="acme").enqueue(n)
    assert len(mq.run(lanes.claim_weighted(queue)).jobs) == 3


async def test_the_awaited_twins_do_the_same(mq: EchoMQ, queue: str, send) -> None:
    lane = mq.lane("acme")
    await asyncio.gather(*(send.options(lane="acme").aenqueue(n) for n in range(3)))
    await lane.apause()
    assert await mq.arun(lanes.claim(queue)) is None
    await lane.aresume()
    await lane.alimit(1)
    await lane.aweight(2)
    assert len((await mq.arun(lanes.claim_weighted(queue))).jobs) == 1
    assert await mq.arun(lanes.claim(queue)) is None
    assert await lane.adepth() == 2
    await mq.aclose()


def test_a_worker_serves_lanes_and_flat_work_and_minds_the_limit(mq: EchoMQ, server: Server, working) -> None:
    running, most, seen = 0, 0, list[str]()

    @mq.job(name="work")
    async def work(lane: str) -> None:
        nonlocal running, most
        if lane == "acme":
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1
        seen.append(lane)

    mq.lane("acme").limit(1)
    for lane in ("acme", "other", ""):
        for _ in range(4):
            work.options(lane=lane or None).enqueue(lane)

    async def serve() -> None:
        async with working():
            await until(lambda: len(seen) == 12)

    asyncio.run(serve())
    assert (sorted(seen), most) == (sorted(["acme", "other", ""] * 4), 1)


@pytest.mark.parametrize("name", ["", "a\nb", 5, None])
def test_a_name_that_is_no_text_is_refused(mq: EchoMQ, name) -> None:
    with pytest.raises(InvalidInputError, match="lane"):
        mq.lane(name)


def test_wrong_numbers_and_queues_are_refused_before_anything_is_sent(mq: EchoMQ) -> None:
    mq.job(name="work")(print)
    lane = mq.lane("acme")
    for wrong in (0, -1, 1.5, "2", True):
        with pytest.raises(InvalidInputError, match="limit must be"):
            lane.limit(wrong)
        with pytest.raises(InvalidInputError, match="weight must be"):
            lane.weight(wrong)
    with pytest.raises(QueueNameError):
        mq.lane("acme", queue="a b")
