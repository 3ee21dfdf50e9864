"""The books of a lane (protocol §6): every way out of hand gives its slot back, every way back leads to the lane."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from echomq.conformance.desk import FAR_MS, Desk
from echomq.conformance.scenario import scenario
from echomq.protocol import admin, jobs, lanes
from echomq.protocol.call import Call


def _lapsing(desk: Desk, job_id: str, call: Call[Any]) -> Call[Any]:
    desk.lapse(job_id)
    return call


@scenario("slot_freed", "Complete, retry, burial, release, delay, reap and sweep each give a full lane its slot back.")
def _slot_freed(desk: Desk) -> None:
    ways: dict[str, Callable[[str], Call[Any]]] = {
        "complete": lambda i: jobs.complete(desk.queue, i, 1),
        "complete_many": lambda i: jobs.complete_many(desk.queue, [(i, 1)]),
        "retry": lambda i: jobs.retry(desk.queue, i, 1, delay_ms=FAR_MS, max_attempts=9, error="e"),
        "burial": lambda i: jobs.retry(desk.queue, i, 1, delay_ms=0, max_attempts=1, error="e"),
        "release": lambda i: jobs.release(desk.queue, i, 1),
        "delay": lambda i: jobs.delay(desk.queue, i, 1, delay_ms=FAR_MS),
        "reap": lambda i: _lapsing(desk, i, jobs.reap(desk.queue)),
        "reap group": lambda i: _lapsing(desk, i, lanes.reap(desk.queue, desk.lane("reap group"))),
        "sweep": lambda i: _lapsing(desk, i, jobs.sweep(desk.queue, max_stalled=9)),
        "sweep at the cap": lambda i: _lapsing(desk, i, jobs.sweep(desk.queue, max_stalled=1)),
        "remove": lambda i: admin.remove_job(desk.queue, i),
    }
    desk.later(delay_ms=FAR_MS // 2)  # so that nothing below becomes the earliest entry, which has a token of its own
    for way, call in ways.items():
        group = desk.lane(way)
        desk.run(lanes.limit(desk.queue, group, 1))
        first, second = desk.jobs(2, group=group)
        desk.expect("the claimed job", desk.claim().id, first)
        desk.expect(f"gactive before {way}", desk.hash(desk.keys.gactive), {group: b"1"})
        desk.expect(f"the ring before {way}", desk.ring(), [])
        desk.drop_tokens()
        desk.run(call(first))
        desk.expect(f"gactive after {way}", desk.hash(desk.keys.gactive), {})
        desk.expect(f"the ring after {way}", desk.ring(), [group])
        desk.expect(f"the wake tokens after {way}", desk.tokens(), 1)
        desk.run(lanes.drain(desk.queue, group))
        desk.expect(f"{second} drained", desk.row(second), {})


@scenario("back_to_lane", "Promote, release, reap, sweep and another life bring a grouped job back into its lane.")
def _back_to_lane(desk: Desk) -> None:
    group = desk.lane("back")
    job_id = desk.job(group=group)

    def back(way: str, call: Call[Any]) -> None:
        desk.run(call)
        desk.expect(f"its place after {way}", desk.places(job_id), ["lane"])
        desk.stands(job_id, "pending", "lane")
        desk.expect(f"the ring after {way}", desk.ring(), [group])

    back("release", jobs.release(desk.queue, job_id, desk.claim().token))
    desk.run(jobs.retry(desk.queue, job_id, desk.claim().token, delay_ms=FAR_MS, max_attempts=9, error="e"))
    desk.fall_due(job_id)
    back("promote", jobs.promote(desk.queue))
    desk.claim()
    back("reap", _lapsing(desk, job_id, jobs.reap(desk.queue)))
    desk.claim()
    back("sweep", _lapsing(desk, job_id, jobs.sweep(desk.queue, max_stalled=9)))
    desk.claim()
    desk.run(_lapsing(desk, job_id, jobs.sweep(desk.queue, max_stalled=1)))
    back("another life", admin.reprocess_job(desk.queue, job_id))


@scenario("reassign", "A waiting job moves to another lane and counts against that lane's ceiling.")
def _reassign(desk: Desk) -> None:
    src, dst = desk.lane("src"), desk.lane("dst")
    desk.run(lanes.limit(desk.queue, dst, 1))
    job_id = desk.job(group=src)
    desk.expect("to its own lane", desk.run(lanes.reassign(desk.queue, job_id, src)), 0)
    desk.expect("moved", desk.run(lanes.reassign(desk.queue, job_id, dst)), 1)
    desk.expect("its group", desk.field(job_id, "group"), dst.encode())
    desk.expect("the lanes", [desk.members(desk.keys.lane(group)) for group in (src, dst)], [[], [job_id]])
    desk.expect("the ring", desk.ring(), [dst])
    second = desk.job(group=dst)
    desk.expect("the claimed job", desk.claim().id, job_id)
    desk.expect("gactive", desk.hash(desk.keys.gactive), {dst: b"1"})
    desk.expect("at the new lane's ceiling", desk.run(jobs.claim(desk.queue)), None)
    desk.expect("a job in hand", desk.run(lanes.reassign(desk.queue, job_id, src)), -2)
    flat = desk.job()
    desk.expect("a flat job", desk.run(lanes.reassign(desk.queue, flat, src)), -1)
    desk.expect("no row", desk.run(lanes.reassign(desk.queue, desk.mint(), src)), -1)
    desk.run(lanes.pause(desk.queue, src))
    desk.run(lanes.reassign(desk.queue, second, src))
    desk.expect("into a paused lane: the ring", desk.ring(), [])


@scenario("lane_drain", "Draining a lane deletes its waiting jobs; its jobs in hand and its siblings are untouched.")
def _lane_drain(desk: Desk) -> None:
    group, sibling = desk.lane("drained"), desk.lane("sibling")
    held = desk.in_hand(group=group).id
    ids = desk.jobs(3, group=group)
    desk.run(admin.add_log(desk.queue, ids[0], "a line"))
    (beside,) = desk.jobs(1, group=sibling)
    flat = desk.job()
    desk.expect("drained", desk.run(lanes.drain(desk.queue, group)), 3)
    desk.expect("their rows", [desk.row(job_id) for job_id in ids], [{}, {}, {}])
    desk.expect("their logs", desk.items(desk.row_key(ids[0], ":logs")), [])
    desk.stands(held, "active", "active")
    desk.stands(beside, "pending", "lane")
    desk.stands(flat, "pending", "pending")
    desk.expect("ring and gactive", (desk.ring(), desk.hash(desk.keys.gactive)), ([sibling], {group: b"1"}))
