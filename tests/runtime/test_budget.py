"""Consumers of one process share their slots: no more jobs at once than there are, and nobody starves."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack

import pytest

from echomq.identity.errors import InvalidInputError
from echomq.protocol.replies import Claimed
from echomq.runtime import Budget, Consumer
from support.desk import Desk, until
from support.servers import Server

MINUTE = 60_000


@pytest.fixture
def desks(server: Server, queue: str):
    made = [Desk(server, f"{queue}-{number}") for number in range(5)]
    yield made
    for each in made:
        each.raw.close()


class Hall:
    """Counts who runs, over all queues."""

    def __init__(self) -> None:
        self.running: Counter[int] = Counter()
        self.most = 0
        self.order: list[int] = []
        self.go = asyncio.Event()

    def handler(self, number: int):
        async def handler(job: Claimed) -> None:
            self.order.append(number)
            self.running[number] += 1
            self.most = max(self.most, self.running.total())
            try:
                await self.go.wait()
                await asyncio.sleep(0.001)
            finally:
                self.running[number] -= 1

        return handler


async def serve(
    stack: AsyncExitStack,
    desks: list[Desk],
    hall: Hall,
    budget: Budget,
    first: int = 0,
    weights: tuple[int, ...] = (1,) * 5,
) -> list[Consumer]:
    return [
        await stack.enter_async_context(
            each.consuming(
                *(hall.handler(number),),
                concurrency=budget.slots,
                beat_ms=MINUTE,
                budget=budget,
                weight=weights[number - first],
            )
        )
        for number, each in enumerate(desks, first)
    ]


@pytest.mark.parametrize("slots", [1, 4, 20])
async def test_all_together_run_no_more_than_the_slots_and_nothing_is_left(desks: list[Desk], slots: int) -> None:
    for each in desks:
        each.enqueue(count=30)
    hall = Hall()
    hall.go.set()
    async with AsyncExitStack() as stack:
        consumers = await serve(stack, desks, hall, Budget(slots))
        await until(lambda: sum(each.tally.completed for each in consumers) == 150)
    assert 1 <= hall.most <= slots


async def test_one_alone_may_have_all_slots(desks: list[Desk]) -> None:
    desks[0].enqueue(count=8)
    hall = Hall()
    async with AsyncExitStack() as stack:
        await serve(stack, desks, hall, Budget(8))
        await until(lambda: hall.running[0] == 8)
        hall.go.set()


@pytest.mark.parametrize(("slots", "late"), [(6, 1), (1, 4), (3, 2)])
async def test_who_comes_late_is_served_beside_a_long_backlog(desks: list[Desk], slots: int, late: int) -> None:
    desks[0].enqueue(count=200)
    hall = Hall()
    async with AsyncExitStack() as stack:
        consumers = await serve(stack, desks[: late + 1], hall, Budget(slots))
        await until(lambda: hall.running[0] == slots)
        for each in desks[1 : late + 1]:
            each.enqueue(count=3)
        hall.go.set()
        await until(lambda: all(each.tally.completed == 3 for each in consumers[1:]))
        assert consumers[0].tally.completed < 150, "the late ones waited for the backlog"
        await until(lambda: consumers[0].tally.completed == 200)
    assert hall.most == slots


async def test_a_consumer_that_stops_gives_its_slots_back(desks: list[Desk]) -> None:
    budget = Budget(1)
    hall = Hall()
    desks[0].enqueue()
    desks[1].enqueue()
    async with AsyncExitStack() as stack:
        async with AsyncExitStack() as first:
            await serve(first, desks[:1], hall, budget)
            await until(lambda: hall.running[0] == 1)
            await serve(stack, desks[1:2], hall, budget, 1)
            assert hall.running[1] == 0
        await until(lambda: hall.running[1] == 1)
        hall.go.set()


async def test_a_queue_that_cannot_be_served_keeps_no_slot(desks: list[Desk]) -> None:
    hall = Hall()
    desks[0].raw.execute("SET", desks[0].key("pending"), "no set, so every claim fails")
    desks[1].enqueue(count=4)
    try:
        async with AsyncExitStack() as stack:
            broken, _ = await serve(stack, desks[:2], hall, Budget(4))
            await broken.degraded.reach(1)
            await until(lambda: hall.running[1] == 4)
            hall.go.set()
    finally:
        desks[0].raw.execute("DEL", desks[0].key("pending"))


def test_a_budget_has_a_slot_at_least() -> None:
    with pytest.raises(InvalidInputError):
        Budget(0)


async def test_one_that_finds_all_slots_taken_listens_all_the_same(desks: list[Desk]) -> None:
    desks[0].enqueue(count=300)
    hall = Hall()
    hall.go.set()
    budget = Budget(1)
    async with AsyncExitStack() as stack:
        (busy,) = await serve(stack, desks[:1], hall, budget)
        (late,) = await serve(stack, desks[1:2], hall, budget, 1)
        await until(lambda: late._turns.waits)
        assert late._turns.last is not None
        desks[1].enqueue()
        await until(lambda: late.tally.completed == 1)
        assert busy.tally.completed < 300, "it waited for the backlog"


async def test_a_queue_that_never_had_a_slot_fires_its_recurrences_on_time(desks: list[Desk]) -> None:
    busy, clock = desks[:2]
    busy.enqueue(count=1)
    hall, budget = Hall(), Budget(1)
    async with AsyncExitStack() as stack:
        await serve(stack, [busy], hall, budget)
        await until(lambda: hall.running.total() == 1)  # the one slot is taken, and stays so
        await stack.enter_async_context(clock.consuming(hall.handler(1), concurrency=1, beat_ms=50, budget=budget))
        now_ms = clock.raw.execute("TIME")
        first = int(now_ms[0]) * 1_000
        clock.raw.execute("HSET", clock.key("repeat:tick"), "every_ms", "100", "template", "p")
        clock.raw.execute("ZADD", clock.key("repeat"), first, "tick")
        await until(lambda: clock.size("pending") >= 3, "three occurrences")
        clock.raw.execute("DEL", clock.key("repeat"), clock.key("repeat:tick"))
        hall.go.set()
        await until(lambda: clock.size("pending") == 0 and clock.size("active") == 0)


@pytest.mark.parametrize("slots", [1, 2, 3, 10])
async def test_who_weighs_more_is_served_more_often(desks: list[Desk], slots: int) -> None:
    for each in desks[:2]:
        each.enqueue(count=400)
    hall = Hall()
    async with AsyncExitStack() as stack:
        await serve(stack, desks[:2], hall, Budget(slots), weights=(3, 1))
        await until(lambda: hall.running.total() == slots)
        hall.go.set()
        await until(lambda: len(hall.order) > 300)
    heavy = hall.order[100:300].count(0)
    assert 146 <= heavy <= 154, f"{heavy} of 200 for a weight of 3 in 4"


@pytest.mark.parametrize("slots", [1, 4])
async def test_in_a_strict_order_the_first_is_empty_before_the_next_is_served(desks: list[Desk], slots: int) -> None:
    for each in desks[:3]:
        each.enqueue(count=40)
    hall = Hall()
    hall.go.set()
    async with AsyncExitStack() as stack:
        consumers = await serve(stack, desks[:3], hall, Budget(slots, strict=True))
        await until(lambda: sum(each.tally.completed for each in consumers) == 120)
    early = hall.order[slots:]  # the first claims of all may leave before the first queue has joined
    ends = [max(place for place, number in enumerate(early) if number == which) for which in range(3)]
    starts = [early.index(which) for which in range(3)]
    assert ends[0] - starts[1] <= 2 * slots
    assert ends[1] - starts[2] <= 2 * slots


@pytest.mark.parametrize("most", [1, 7, 60])
async def test_a_budget_for_so_many_jobs_claims_no_more_over_all_queues(desks: list[Desk], most: int) -> None:
    for each in desks[:3]:
        each.enqueue(count=30)
    hall = Hall()
    hall.go.set()
    budget = Budget(20, most=most)
    async with AsyncExitStack() as stack:
        consumers = await serve(stack, desks[:3], hall, budget)
        await budget.spent.reach(1)
        await until(lambda: sum(each.tally.completed for each in consumers) == most)
        await asyncio.gather(*(each.beat() for each in consumers))
    assert len(hall.order) == most
    assert sum(each.size("pending") for each in desks[:3]) == 90 - most
