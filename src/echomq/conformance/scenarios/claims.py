"""Claims (protocol §5, §12.3): one job or many in hand, and what a claim never hands out."""

from __future__ import annotations

from itertools import pairwise

from echomq.conformance.desk import Desk
from echomq.conformance.scenario import scenario
from echomq.protocol import jobs, lanes
from echomq.protocol.jobs import LEASE_MS
from echomq.protocol.replies import Claimed


@scenario("claim", "A claim takes the lowest id: token 1, its payload, the row active, a lease on the server's clock.")
def _claim(desk: Desk) -> None:
    first, second = desk.jobs(2, b"body")
    before = desk.now_ms()
    claimed = desk.run(jobs.claim(desk.queue))
    desk.expect("the claim", claimed, Claimed(first, b"body", 1, 0, 0))
    desk.expect("the row", desk.row(first), {"state": b"active", "attempts": b"1", "payload": b"body"})
    desk.stands(first, "active", "active")
    desk.between("the deadline", desk.score("active", first), before + LEASE_MS, desk.now_ms() + LEASE_MS)
    desk.expect("pending", desk.members(desk.keys.pending), [second])


@scenario("claim_empty", "A claim of an empty queue brings nothing and leaves no key.")
def _claim_empty(desk: Desk) -> None:
    desk.expect("the claim", desk.run(jobs.claim(desk.queue)), None)
    desk.expect("the lane claim", desk.run(lanes.claim(desk.queue)), None)
    desk.expect("the claim of 10", desk.run(jobs.claim_many(desk.queue, 10)).jobs, ())
    desk.expect("the keys", desk.present(), [])


@scenario("claim_ghost", "A claim drops an id without a row, creates nothing for it, and takes the next.", strays=True)
def _claim_ghost(desk: Desk) -> None:
    ghosts = desk.mint_many(3)
    for ghost in ghosts:
        desk.raw("ZADD", desk.keys.pending, 0, ghost)
    real = desk.job()
    desk.expect("the claimed id", desk.claim().id, real)
    desk.expect("pending", desk.members(desk.keys.pending), [])
    desk.expect("the ghosts' rows", [desk.row(ghost) for ghost in ghosts], [{}, {}, {}])
    no_hash, real = desk.mint_many(2)
    desk.raw("SET", desk.row_key(no_hash), "a string")
    desk.raw("ZADD", desk.keys.pending, 0, no_hash)
    desk.run(jobs.enqueue(desk.queue, real, b"p"))
    desk.expect("the id claimed beside a row that is no hash", desk.claim().id, real)
    desk.raw("DEL", desk.row_key(no_hash))
    group = desk.lane("ghost")
    in_lane = desk.job(group=group)
    desk.raw("ZADD", desk.keys.lane(group), 0, ghosts[0])
    desk.expect("the id claimed from the lane", desk.claim().id, in_lane)
    desk.expect("the lane", desk.members(desk.keys.lane(group)), [])
    desk.expect("the ghost's row", desk.row(ghosts[0]), {})


@scenario("ghosts_elsewhere", "Whatever meets an id without a row drops it and creates nothing.", strays=True)
def _ghosts(desk: Desk) -> None:
    ghost = desk.mint()
    for verb, call in (("sweep", jobs.sweep(desk.queue, max_stalled=1)), ("reap", jobs.reap(desk.queue))):
        desk.raw("ZADD", desk.keys.active, 1_000, ghost)
        desk.run(call)
        desk.expect(f"what {verb} leaves", desk.present(), [])
    desk.raw("ZADD", desk.keys.active, desk.now_ms() + LEASE_MS, ghost)
    desk.run(jobs.complete(desk.queue, ghost, 1))
    desk.expect("what complete leaves", desk.present(), [])
    desk.raw("ZADD", desk.keys.active, desk.now_ms() + LEASE_MS, ghost)
    desk.run(jobs.extend(desk.queue, ghost, 1))
    desk.expect("what extend leaves", desk.present(), [])


@scenario("claim_payload", "A row without a payload never reaches a handler.")
def _claim_payload(desk: Desk) -> None:
    empty, whole = desk.jobs(2)
    desk.raw("HDEL", desk.row_key(empty), "payload")
    desk.expect("the claimed id", desk.claim().id, whole)
    desk.expect("the place of the other", "active" in desk.places(empty), False)
    desk.expect("another claim", desk.run(jobs.claim(desk.queue)), None)


@scenario("claim_batch", "A claim of n equals n single claims in sequence, under one deadline.")
def _claim_batch(desk: Desk) -> None:
    other = desk.neighbour()
    seen: list[list[tuple[str, str | None]]] = []
    for each in (desk, other):
        names: dict[str, str] = {}
        for text in ("a", "b", "c"):
            for i, job_id in enumerate(each.jobs(3, group=each.lane(text))):
                names[job_id] = f"{text}{i}"
        names |= {job_id: f"flat{i}" for i, job_id in enumerate(each.jobs(4))}
        if each is desk:
            batch = [*each.run(jobs.claim_many(each.queue, 7)).jobs, *each.run(jobs.claim_many(each.queue, 9)).jobs]
            desk.expect("distinct deadlines", len(set(each.zset(each.keys.active).values())) <= 2, True)
        else:
            batch = [each.claim() for _ in range(13)]
        seen.append([(names[job.id], job.group) for job in batch])
    desk.expect("the batch beside single claims", seen[0], seen[1])


@scenario("turn", "Flat work and lanes alternate on the server: with L lanes, none waits for more than L other claims.")
def _turn(desk: Desk) -> None:
    names = {desk.lane(text): text for text in ("a", "b", "c")}
    for group in names:
        desk.jobs(6, group=group)
    desk.jobs(6)
    seats = [names.get(desk.claim().group or "", "flat") for _ in range(20)]
    for seat in ("a", "b", "c", "flat"):
        turns = [-1, *(i for i, each in enumerate(seats) if each == seat)]
        gaps = [later - earlier for earlier, later in pairwise(turns)]
        desk.between(f"claims until the turn of {seat} came again, in {seats}", max(gaps), 1, 4)
