"""A parent that dies with its child is told like any other death, once, by whoever has seen the child die."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from echomq.identity.minter import mint
from echomq.protocol import admin, flows, jobs
from echomq.protocol.flows import Node, OnDeath
from echomq.protocol.replies import Claimed
from echomq.runtime import Bury, Metronome, Pump, StalledSweep
from echomq.runtime.bereaved import Bereaved
from echomq.runtime.listening import events
from echomq.runtime.outbox import Outbox
from echomq.runtime.telemetry import Cancelled, Dead, Step, Telemetry
from echomq.wire import aconnect
from support.desk import Desk, until
from support.servers import Server

MINUTE = 60_000


@pytest.fixture
def other(server: Server, desk: Desk) -> Iterator[Desk]:
    with Desk(server, desk.queue + "-parent") as each:
        yield each


class Ears:
    """Observers who remember the deaths."""

    def __init__(self) -> None:
        self.dead: list[Dead] = []
        self.watch = Telemetry(self._hear)

    def _hear(self, step: Step) -> None:
        if isinstance(step, Dead):
            self.dead.append(step)

    def above(self, *leaves: str) -> list[tuple[str, str, str]]:
        """The deaths of others than these, with their reasons."""
        return [(step.queue, step.job, step.error) for step in self.dead if step.job not in leaves]


async def bury(_: Claimed) -> Bury:
    return Bury("no use")


async def add(desk: Desk, *queues: str, leaves: int = 1, on_death: OnDeath = OnDeath.FAIL_PARENT) -> list[list[str]]:
    """A flow with a parent in each queue, one above the other, and leaves in the last one; the ids by level."""
    levels = [[mint()] for _ in queues[:-1]] + [[mint() for _ in range(leaves)]]
    below = tuple(Node(queues[-1], leaf, b"leaf", on_death=on_death) for leaf in levels[-1])
    for queue, (job_id,) in zip(queues[-2::-1], levels[-2::-1], strict=True):
        below = (Node(queue, job_id, b"parent", below),)
    async with aconnect(desk.server.url) as conn:
        await conn.run(flows.add(below[0]))
    return levels


async def lapse(desk: Desk, job_id: str) -> None:
    """A job in hand, and its lease long over."""
    async with aconnect(desk.server.url) as conn:
        claimed = await conn.run(jobs.claim(desk.queue))
        assert claimed is not None
        assert claimed.id == job_id
    desk.raw.execute("ZADD", desk.key("active"), "1", job_id)


async def dies(desk: Desk, error: str = "e") -> str:
    """The next job of a queue, dead by hand, so that nobody has seen it."""
    async with aconnect(desk.server.url) as conn:
        job = await conn.run(jobs.claim(desk.queue))
        assert job is not None
        await conn.run(jobs.retry(desk.queue, job.id, job.attempts, delay_ms=0, max_attempts=1, error=error))
        return job.id


def chained(leaf: str, *above: tuple[str, str], error: str) -> list[tuple[str, str, str]]:
    """The deaths above a leaf, lowest first, as they are to be told."""
    out: list[tuple[str, str, str]] = []
    for queue, job_id in above:
        error = f"child {leaf} failed: {error}"
        out.append((queue, job_id, error))
        leaf = job_id
    return out


async def test_a_verdict_that_buries_tells_every_level_once(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    q, ears = desk.queue, Ears()
    (top,), (mid,), (leaf,) = await add(desk, q, q, q)
    async with desk.consuming(bury, beat_ms=MINUTE, watch=ears.watch):
        await until(lambda: len(ears.dead) == 3)
    assert ears.dead[0] == Dead(q, leaf, "no use")
    assert ears.above(leaf) == chained(leaf, (q, mid), (q, top), error="no use")
    said = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert [sum(f"job {job_id} of {q} buried" in line for line in said) for job_id in (leaf, mid, top)] == [1, 1, 1]


async def test_a_tree_of_eight_levels_is_told_to_its_root(desk: Desk) -> None:
    ears = Ears()
    *above, (leaf,) = await add(desk, *[desk.queue] * flows.MAX_LEVELS)
    async with desk.consuming(bury, beat_ms=MINUTE, watch=ears.watch):
        await until(lambda: len(ears.dead) == flows.MAX_LEVELS)
    assert [job for _, job, _ in ears.above(leaf)] == [job_id for (job_id,) in reversed(above)]


async def test_of_many_children_that_die_in_many_hands_one_tells_of_the_parent(desk: Desk) -> None:
    q, ears = desk.queue, Ears()
    (top,), (mid,), leaves = await add(desk, q, q, q, leaves=20)
    async with AsyncExitStack() as stack:
        for _ in range(2):
            await stack.enter_async_context(desk.consuming(bury, concurrency=3, beat_ms=MINUTE, watch=ears.watch))
        await until(lambda: len({step.job for step in ears.dead}) == 22)
    assert sorted(job for _, job, _ in ears.above(*leaves)) == sorted((mid, top))


async def test_a_child_whose_death_is_ignored_tells_of_nobody(desk: Desk) -> None:
    ears = Ears()
    (parent,), (leaf,) = await add(desk, desk.queue, desk.queue, on_death=OnDeath.IGNORE)

    async def handler(job: Claimed) -> Bury | None:
        return Bury("no use") if job.id == leaf else None

    async with desk.consuming(handler, beat_ms=MINUTE, watch=ears.watch) as consumer:
        await until(lambda: consumer.tally.completed == 1)
    assert (ears.above(leaf), desk.row(parent)) == ([], {})


@pytest.mark.parametrize("sweeper", ["consumer", "metronome", "loop"])
async def test_a_sweep_tells_of_the_parents_too(desk: Desk, sweeper: str) -> None:
    q, ears = desk.queue, Ears()
    (top,), (mid,), (leaf,) = await add(desk, q, q, q)
    await lapse(desk, leaf)
    loop: Any = None
    if sweeper == "consumer":
        loop = desk.consuming(beat_ms=MINUTE, max_stalled=1, watch=ears.watch)
    elif sweeper == "metronome":
        loop = Metronome(desk.dial, q, beat_ms=MINUTE, max_stalled=1, watch=ears.watch)
    else:
        loop = StalledSweep(desk.dial, q, watch=ears.watch)
    async with loop:
        await until(lambda: len(ears.dead) == 3)
    assert ears.above(leaf) == chained(leaf, (q, mid), (q, top), error="stalled")


async def test_a_signal_that_a_worker_delivers_tells_of_the_parents_in_the_other_queue(desk: Desk, other: Desk) -> None:
    p, ears = other.queue, Ears()
    (top,), (mid,), (leaf,) = await add(desk, p, p, desk.queue)
    async with desk.consuming(bury, beat_ms=MINUTE, watch=ears.watch):
        await until(lambda: len(ears.dead) == 3)
    assert ears.above(leaf) == chained(leaf, (p, mid), (p, top), error="no use")


async def test_two_pumps_tell_of_each_parent_once(desk: Desk, other: Desk) -> None:
    ears, p = Ears(), other.queue
    parents = [(await add(desk, p, desk.queue))[0][0] for _ in range(20)]
    for _ in parents:
        await dies(desk)
    pumps = [Pump(desk.dial, desk.queue, watch=ears.watch) for _ in range(2)]
    await asyncio.gather(*(pump.beat() for pump in pumps))
    for pump in pumps:
        await pump.stop()
    assert sorted(step.job for step in ears.dead) == sorted(parents)


async def test_a_death_that_is_relayed_over_three_queues_is_told_at_each(desk: Desk, other: Desk) -> None:
    ears, q, p, t = Ears(), desk.queue, other.queue, desk.queue + "-third"
    (top,), (high,), (mid,), _ = await add(desk, t, p, p, q)
    leaf = await dies(desk)
    async with aconnect(desk.server.url) as conn:
        await Outbox(q, bereaved=Bereaved(q, ears.watch)).deliver(conn)
    told = sorted((step.queue, step.job, step.error) for step in ears.dead)
    assert told == sorted(chained(leaf, (p, mid), (p, high), (t, top), error="e"))


async def test_a_parent_that_was_dead_already_is_not_told_again(desk: Desk, other: Desk) -> None:
    q, p, ears = desk.queue, other.queue, Ears()
    (near,), (leaf,) = await add(desk, q, q)
    (far,), _ = await add(desk, p, q)
    async with desk.consuming(bury, beat_ms=MINUTE, watch=ears.watch) as consumer:
        await until(lambda: len(ears.dead) == 4)
        ears.dead.clear()
        other.raw.execute("HINCRBY", other.key(f"job:{far}"), "died_ms", "-5000")  # some time has passed
        desk.raw.execute("HINCRBY", desk.key(f"job:{near}"), "died_ms", "-5000")
        async with aconnect(desk.server.url) as conn:
            dead = await conn.run(jobs.browse_dead(q))
            children = [job_id for job_id in dead if job_id != near]
            for job_id in children:
                await conn.run(admin.reprocess_job(q, job_id))
            await until(lambda: consumer.tally.buried == 4)
            await until(lambda: desk.raw.execute("LLEN", desk.key("flow:outbox")) == 0)
            # The end of a child that is taken away is a signal as well, and kills nobody.
            await conn.run(admin.remove_job(q, next(job_id for job_id in children if job_id != leaf)))
            await consumer.beat()
            await consumer.beat()
            await until(lambda: desk.raw.execute("LLEN", desk.key("flow:outbox")) == 0)
    assert sorted(step.job for step in ears.dead) == sorted(children)
    assert other.row(far)["state"] == desk.row(near)["state"] == "dead"


async def test_another_life_and_another_death_are_told_anew(desk: Desk) -> None:
    q, ears = desk.queue, Ears()
    (parent,), (leaf,) = await add(desk, q, q)
    async with desk.consuming(bury, beat_ms=MINUTE, watch=ears.watch), aconnect(desk.server.url) as conn:
        await until(lambda: len(ears.dead) == 2)
        await conn.run(admin.reprocess_job(q, parent))
        await conn.run(admin.reprocess_job(q, leaf))
        await until(lambda: len(ears.dead) == 4)
    assert [step.job for step in ears.dead] == [leaf, parent] * 2


async def test_a_cancelled_job_in_hand_tells_of_its_parent(desk: Desk) -> None:
    q, steps = desk.queue, list[Step]()
    (parent,), (leaf,) = await add(desk, q, q)

    async def handler(job: Claimed) -> None:
        desk.seen.append(job)
        await asyncio.Event().wait()

    async with (
        desk.consuming(handler, beat_ms=MINUTE, interrupt=True, watch=Telemetry(steps.append)),
        aconnect(desk.server.url) as conn,
    ):
        await until(lambda: desk.seen)
        await conn.run(admin.cancel_job(q, leaf, reason="why"))
        await until(lambda: any(isinstance(step, Dead) for step in steps))
    ends = [step for step in steps if isinstance(step, Dead | Cancelled)]
    assert [type(step) for step in ends] == [Cancelled, Dead]
    assert ends[1].job == parent


async def test_they_are_published_with_the_others(desk: Desk) -> None:
    q = desk.queue
    (top,), (mid,), (leaf,) = await add(desk, q, q, q)
    found: list[str | None] = []
    async with (
        aconnect(desk.server.url) as conn,
        events(conn, q) as heard,
        desk.consuming(bury, beat_ms=MINUTE, events=True, watch=Telemetry()),
    ):
        while len(found) < 3:
            event = await heard.get()
            assert event is not None
            found += [event.job] if event.event == "dead" else []
    assert found == [leaf, mid, top]


async def test_it_is_told_before_a_worker_has_stopped(desk: Desk) -> None:
    q, ears = desk.queue, Ears()
    _, (leaf,) = await add(desk, q, q)
    go = asyncio.Event()

    async def handler(job: Claimed) -> Bury:
        desk.seen.append(job)
        await go.wait()
        return Bury("no use")

    async with desk.consuming(handler, beat_ms=MINUTE, watch=ears.watch) as consumer:
        await until(lambda: desk.seen)
        stopping = asyncio.ensure_future(consumer.stop(MINUTE))
        go.set()
        await stopping
        assert len(ears.above(leaf)) == 1


async def test_an_outbox_that_cannot_be_read_keeps_nobody_from_being_told(desk: Desk) -> None:
    q, ears = desk.queue, Ears()
    desk.raw.execute("SET", desk.key("flow:outbox"), "no list")
    _, (leaf,) = await add(desk, q, q)
    async with desk.consuming(bury, beat_ms=MINUTE, watch=ears.watch):
        await until(lambda: len(ears.above(leaf)) == 1)
        _, (again,) = await add(desk, q, q)
        await until(lambda: len(ears.above(leaf, again)) == 2)
    desk.raw.execute("DEL", desk.key("flow:outbox"))


async def test_nothing_is_looked_at_while_nobody_observes(desk: Desk, other: Desk) -> None:
    for queue in (desk.queue, other.queue):
        await add(desk, queue, desk.queue)
    spent: list[int] = []
    for watch in (Telemetry(), Telemetry(lambda _: None)):
        async with aconnect(desk.server.url) as conn:
            bereaved = Bereaved(desk.queue, watch)
            job_id = await dies(desk)
            before = sum(desk.calls().values())
            bereaved.saw(job_id)
            for entry in await conn.run(flows.outbox(desk.queue)):
                bereaved.delivered(desk.queue, entry)
            await bereaved.tell(conn)
            spent.append(sum(desk.calls().values()) - before - 2)  # beside the outbox, and the count itself
    assert spent[0] == 0
    assert spent[1] > 0


async def test_a_job_without_a_parent_costs_one_look(desk: Desk) -> None:
    desk.enqueue()
    job_id = await dies(desk)
    bereaved = Bereaved(desk.queue, Telemetry(lambda _: None))
    async with aconnect(desk.server.url) as conn:
        before = desk.calls().get("hmget", 0)
        bereaved.saw(job_id)
        await bereaved.tell(conn)
        assert desk.calls().get("hmget", 0) - before == 1


async def test_a_look_that_fails_is_said_and_harms_nobody(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    q, ears = desk.queue, Ears()
    (parent,), (leaf,) = await add(desk, q, q)
    odd, gone = desk.enqueue(count=2)
    desk.raw.execute("SET", desk.key(f"job:{gone}x"), "no row")
    desk.raw.execute("HSET", desk.key(f"job:{odd}"), "parent", b"\xff")
    async with desk.consuming(bury, beat_ms=MINUTE, watch=Telemetry()) as consumer:
        await until(lambda: consumer.tally.buried == 3)
    bereaved = Bereaved(q, ears.watch)
    async with aconnect(desk.server.url) as conn:
        bereaved.saw(gone + "x", odd, leaf)
        await bereaved.tell(conn)
        assert [step.job for step in ears.dead] == [parent]
        bereaved.saw(leaf)
    await bereaved.tell(conn)  # closed
    desk.raw.execute("DEL", desk.key(f"job:{gone}x"))
    desk.raw.execute("HDEL", desk.key(f"job:{odd}"), "parent")
    assert not bereaved
    said = [record.getMessage() for record in caplog.records if "nobody is told" in record.getMessage()]
    assert [next(job_id for job_id in (gone + "x", odd, leaf) if job_id in line) for line in said] == [
        gone + "x",
        odd,
        leaf,
    ]
