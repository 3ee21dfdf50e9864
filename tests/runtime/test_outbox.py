"""What a child in one queue signals to its parent in another is delivered: at once, and once in effect."""

from __future__ import annotations

import asyncio

import pytest

from echomq.identity.minter import mint
from echomq.protocol import admin, flows, jobs
from echomq.protocol.flows import Node, OnDeath
from echomq.protocol.replies import Claimed
from echomq.runtime import Bury, Done, Pump
from echomq.runtime.outbox import Outbox
from echomq.wire import aconnect
from support.desk import Desk, until
from support.servers import Server

MINUTE = 60_000


@pytest.fixture
def other(server: Server, desk: Desk):
    with Desk(server, desk.queue + "-parent") as each:
        yield each


async def flow(desk: Desk, other: Desk, children: int = 1, on_death: OnDeath = OnDeath.FAIL_PARENT) -> str:
    """A parent in the queue of `other`, whose children lie in the queue of `desk`."""
    root = Node(
        other.queue,
        mint(),
        b"p",
        tuple(Node(desk.queue, mint(), b"c", on_death=on_death) for _ in range(children)),
    )
    async with aconnect(desk.server.url) as conn:
        await conn.run(flows.add(root))
    return root.id


def outbox(desk: Desk) -> int:
    return int(desk.raw.execute("LLEN", desk.key("flow:outbox")))


async def test_a_completion_releases_the_parent_at_once_with_its_result(desk: Desk, other: Desk) -> None:
    parent = await flow(desk, other, children=3)

    async def handler(job: Claimed) -> Done:
        return Done(b"of " + job.id.encode())

    async with desk.consuming(handler, beat_ms=MINUTE) as child, other.consuming(beat_ms=MINUTE) as above:
        await until(lambda: above.tally.completed == 1)
        assert child.tally.completed == 3
        assert child.tally.refused == 0
    assert [job.id for job in other.seen] == [parent]
    flat = other.raw.execute("HGETALL", other.key(f"job:{parent}:processed"))
    assert flat[1::2] == [b"of " + child_id for child_id in flat[::2]]
    assert outbox(desk) == 0


async def test_a_burial_fails_the_parent_at_once(desk: Desk, other: Desk) -> None:
    parent = await flow(desk, other)

    async def handler(job: Claimed) -> Bury:
        return Bury("no use")

    async with desk.consuming(handler, beat_ms=MINUTE):
        await until(lambda: other.row(parent)["state"] == "dead")
    assert other.row(parent)["last_error"].endswith("failed: no use")
    assert outbox(desk) == 0


async def test_a_sweep_that_buries_signals_too(desk: Desk, other: Desk) -> None:
    parent = await flow(desk, other, on_death=OnDeath.IGNORE)
    async with aconnect(desk.server.url) as conn:
        claims = await conn.run(jobs.claim_many(desk.queue, 1))
    async with desk.consuming(beat_ms=MINUTE, max_stalled=1) as consumer:
        await consumer.parked.reach(1)
        desk.raw.execute("ZADD", desk.key("active"), "1", claims.jobs[0].id)
        await consumer.beat()  # its second: no look of its own accord
        await until(lambda: other.row(parent)["state"] == "pending")
    assert outbox(desk) == 0


async def test_what_a_dead_worker_has_left_is_delivered_at_a_beat(desk: Desk, other: Desk) -> None:
    async with desk.consuming(beat_ms=30) as consumer:
        await consumer.parked.reach(1)
        parent = await flow(desk, other)
        # As if its pump had died between the completion and the delivery.
        async with aconnect(desk.server.url) as conn:
            await until(lambda: consumer.tally.completed == 1)
            await until(lambda: other.row(parent)["state"] == "pending")
            child = mint()
            desk.raw.execute("RPUSH", desk.key("flow:outbox"), f"{other.queue}\0{parent}\0{child}\0late")
            await until(lambda: outbox(desk) == 0)
            assert await conn.run(flows.children_values(other.queue, parent))


async def test_a_malformed_entry_is_set_aside_said_and_counted(
    desk: Desk, other: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    parent = await flow(desk, other)
    for bad in (b"", b"nonsense", b"\0fail\0a\0b", f"q{{\0{parent}\0{parent}\0r".encode()):
        desk.raw.execute("LPUSH", desk.key("flow:outbox"), bad)
    pump = Pump(desk.dial, desk.queue)
    async with desk.consuming(beat_ms=MINUTE) as consumer:
        await until(lambda: consumer.tally.completed == 1)
        await pump.beat()
        await until(lambda: outbox(desk) == 0)
    await pump.stop()
    assert other.row(parent)["state"] == "pending"
    assert desk.raw.execute("LLEN", desk.key("flow:rejected")) == 4
    assert sum("set aside" in record.getMessage() for record in caplog.records) >= 4


async def test_batches_are_bounded_and_everything_goes(desk: Desk, other: Desk) -> None:
    parent = await flow(desk, other, children=25)
    async with aconnect(desk.server.url) as conn:
        claims = await conn.run(jobs.claim_many(desk.queue, 25))
        await conn.run(jobs.complete_many(desk.queue, [(job.id, job.attempts) for job in claims.jobs]))
        box = Outbox(desk.queue, batch=10)
        assert await box.deliver(conn) == 25
        assert await box.deliver(conn) == 0
    assert other.row(parent)["state"] == "pending"


async def test_an_entry_that_its_parents_server_refuses_stays_and_holds_no_other_up(
    desk: Desk, other: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    parent = await flow(desk, other, children=2)
    refused = mint()
    row = other.key(f"job:{refused}")
    other.raw.execute("HSET", row, "state", "awaiting_children", "attempts", "0", "payload", "x")
    other.raw.execute("SET", row + ":dependencies", "5")
    other.raw.execute("SET", row + ":processed", "no hash, so every signal is refused")
    entries = [f"{other.queue}\0{refused}\0{mint()}\0r" for _ in range(5)]
    for entry in entries:
        desk.raw.execute("RPUSH", desk.key("flow:outbox"), entry)
    async with aconnect(desk.server.url) as conn:
        claims = await conn.run(jobs.claim_many(desk.queue, 2))
        await conn.run(jobs.complete_many(desk.queue, [(job.id, job.attempts) for job in claims.jobs]))
        box = Outbox(desk.queue, batch=3)
        for _ in range(4):
            await box.deliver(conn)
        assert other.row(parent)["state"] == "pending"
        assert box.stuck == outbox(desk) == 5
        assert sum("stays in the outbox" in record.getMessage() for record in caplog.records) == 5
        other.raw.execute("DEL", row + ":processed")
        assert await box.deliver(conn) == 5
    assert outbox(desk) == 0
    assert other.row(refused)["state"] == "pending"


async def test_two_pumps_side_by_side_lose_nothing_and_count_once(desk: Desk, other: Desk) -> None:
    parent = await flow(desk, other, children=60)
    async with aconnect(desk.server.url) as conn, aconnect(desk.server.url) as second:
        claims = await conn.run(jobs.claim_many(desk.queue, 60))
        await conn.run(jobs.complete_many(desk.queue, [(job.id, job.attempts) for job in claims.jobs]))
        boxes = [Outbox(desk.queue, batch=7) for _ in range(4)]
        links = [conn, second, conn, second]
        await asyncio.gather(*(box.deliver(link) for box, link in zip(boxes, links, strict=True)))
        assert await conn.run(flows.outstanding(other.queue, parent)) == 0
    assert sum(box.delivered for box in boxes) == 60
    assert outbox(desk) == 0


async def test_the_last_settlements_of_a_drain_are_signalled_too(desk: Desk, other: Desk) -> None:
    parent = await flow(desk, other)
    go = asyncio.Event()

    async def handler(job: Claimed) -> None:
        desk.seen.append(job)
        await go.wait()

    async with desk.consuming(handler, beat_ms=MINUTE, grace_ms=10_000):
        await until(lambda: desk.seen)
        asyncio.get_running_loop().call_later(0.05, go.set)
    assert other.row(parent)["state"] == "pending"


async def chain(desk: Desk, *above: Desk, on_death: OnDeath = OnDeath.FAIL_PARENT) -> list[str]:
    """A flow of one node a queue, its leaf in the queue of `desk`; the ids from there upwards."""
    node = Node(desk.queue, mint(), b"c")
    ids = [node.id]
    for each in above:
        node = Node(each.queue, mint(), b"p", (node,), on_death)
        ids.append(node.id)
    async with aconnect(desk.server.url) as conn:
        await conn.run(flows.add(node))
    return ids


async def test_a_death_goes_up_through_all_queues_at_once(desk: Desk, other: Desk, server: Server) -> None:
    with Desk(server, desk.queue + "-third") as third, Desk(server, desk.queue + "-fourth") as fourth:
        desks = (other, third, other, fourth, third, desk, fourth)  # 8 levels with the leaf's
        _, *parents = await chain(desk, *desks)

        async def handler(job: Claimed) -> Bury:
            return Bury("no use")

        # Nobody serves the queues above, and the next beat is a minute away.
        async with desk.consuming(handler, beat_ms=MINUTE):
            await until(lambda: desks[-1].row(parents[-1])["state"] == "dead")
            await until(lambda: all(outbox(each) == 0 for each in desks))
        assert {each.row(parent)["state"] for each, parent in zip(desks, parents, strict=True)} == {"dead"}


async def test_a_relayed_death_that_is_ignored_releases_at_once(desk: Desk, other: Desk, server: Server) -> None:
    with Desk(server, desk.queue + "-third") as third:
        _, middle, root = await chain(desk, other, third)
        async with aconnect(desk.server.url) as conn:
            row = other.key(f"job:{middle}")
            other.raw.execute("HSET", row, "parent_policy", "id")
            claims = await conn.run(jobs.claim_many(desk.queue, 1))
            job = claims.jobs[0]
            await conn.run(jobs.retry(desk.queue, job.id, job.attempts, delay_ms=0, max_attempts=1, error="e"))
            assert await Outbox(desk.queue).deliver(conn) == 1
            assert third.row(root)["state"] == "pending"
            assert outbox(other) == 0


async def test_a_relayed_death_that_its_parents_server_refuses_stays_for_the_next_pump(
    desk: Desk, other: Desk, server: Server
) -> None:
    with Desk(server, desk.queue + "-third") as third:
        _, middle, root = await chain(desk, other, third)
        third.raw.execute("SET", third.key(f"job:{root}:failed"), "no hash, so the signal is refused")
        async with aconnect(desk.server.url) as conn:
            claims = await conn.run(jobs.claim_many(desk.queue, 1))
            job = claims.jobs[0]
            await conn.run(jobs.retry(desk.queue, job.id, job.attempts, delay_ms=0, max_attempts=1, error="e"))
            assert await Outbox(desk.queue).deliver(conn) == 1
            assert (other.row(middle)["state"], outbox(desk), outbox(other)) == ("dead", 0, 1)
            third.raw.execute("DEL", third.key(f"job:{root}:failed"))
            assert await Outbox(other.queue).deliver(conn) == 1
        assert third.row(root)["state"] == "dead"


async def test_a_death_that_comes_again_when_all_live_again_is_taken_out_without_effect(
    desk: Desk, other: Desk
) -> None:
    parent = await flow(desk, other)
    async with aconnect(desk.server.url) as conn:
        box = Outbox(desk.queue)
        for token in (1, 2):  # the second life ends like the first, and counts like it
            (job,) = (await conn.run(jobs.claim_many(desk.queue, 1))).jobs
            await conn.run(jobs.retry(desk.queue, job.id, token, delay_ms=0, max_attempts=1, error="e"))
            (entry,) = await conn.run(flows.outbox(desk.queue))
            assert await box.deliver(conn) == 1
            assert (other.row(parent)["state"], outbox(desk)) == ("dead", 0)
            await conn.run(admin.reprocess_job(other.queue, parent))
            await conn.run(admin.reprocess_job(desk.queue, job.id))
            # As if the pump had died before it settled, and another client had given the child its life.
            desk.raw.execute("RPUSH", desk.key("flow:outbox"), entry)
            await box.deliver(conn)
            assert (other.row(parent)["state"], outbox(desk), box.stuck) == ("awaiting_children", 0, 0)
        (job,) = (await conn.run(jobs.claim_many(desk.queue, 1))).jobs
        await conn.run(jobs.complete_many(desk.queue, [(job.id, job.attempts)]))
        await box.deliver(conn)
    assert other.row(parent)["state"] == "pending"


async def test_a_death_that_comes_again_while_the_child_is_still_dead_kills_the_parent_again(
    desk: Desk, other: Desk
) -> None:
    parent = await flow(desk, other)
    async with aconnect(desk.server.url) as conn:
        (job,) = (await conn.run(jobs.claim_many(desk.queue, 1))).jobs
        await conn.run(jobs.retry(desk.queue, job.id, 1, delay_ms=0, max_attempts=1, error="e"))
        (entry,) = await conn.run(flows.outbox(desk.queue))
        box = Outbox(desk.queue)
        await box.deliver(conn)
        await conn.run(admin.reprocess_job(other.queue, parent))
        desk.raw.execute("RPUSH", desk.key("flow:outbox"), entry)
        await box.deliver(conn)  # the child is dead as it says, so it stands
    assert (other.row(parent)["state"], outbox(desk)) == ("dead", 0)
