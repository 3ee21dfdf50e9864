"""Lanes (protocol §6): served in turn, paused, limited, weighted."""

from __future__ import annotations

from hashlib import sha256

from echomq.conformance.desk import Desk
from echomq.conformance.scenario import scenario
from echomq.identity import branded
from echomq.protocol import admission, jobs, lanes
from echomq.protocol.replies import Admission


@scenario("lane_mint", "An admission to a lane writes the row with its group, the lane, the ring once, and wakes.")
def _lane_mint(desk: Desk) -> None:
    group = desk.lane("mint")
    first = desk.mint()
    verdict = desk.run(lanes.enqueue(desk.queue, first, b"body", group))
    desk.expect("the verdict", verdict, Admission.ADMITTED)
    row = {"state": b"pending", "attempts": b"0", "payload": b"body", "group": group.encode()}
    desk.expect("the row", desk.row(first), row)
    second = desk.job(group=group)
    desk.expect("the lane", desk.zset(desk.keys.lane(group)), {first: 0, second: 0})
    desk.expect("the ring", desk.ring(), [group])
    desk.expect("the wake tokens", desk.tokens(), 2)
    desk.expect("flat pending", desk.members(desk.keys.pending), [])


@scenario("rotate", "Two lanes alternate: a, b, a, b, and within a lane mint order rules.")
def _rotate(desk: Desk) -> None:
    a, b = desk.lane("a"), desk.lane("b")
    a1, a2 = desk.jobs(2, group=a)
    b1, b2 = desk.jobs(2, group=b)
    claimed = [desk.run(lanes.claim(desk.queue)) for _ in range(4)]
    served = [(job.id, job.group) if job else None for job in claimed]
    desk.expect("the claims", served, [(a1, a), (b1, b), (a2, a), (b2, b)])
    desk.expect("gactive", desk.hash(desk.keys.gactive), {a: b"2", b: b"2"})
    desk.expect("the ring, all empty", desk.ring(), [])
    desk.expect("a claim then", desk.run(lanes.claim(desk.queue)), None)


@scenario("pause", "A paused lane keeps its backlog and is passed over; resumed, it is served again.")
def _pause(desk: Desk) -> None:
    group, other = desk.lane("pause"), desk.lane("other")
    ids = desk.jobs(2, group=group)
    desk.run(lanes.pause(desk.queue, group))
    desk.expect("the paused set", [each.decode() for each in desk.raw("SMEMBERS", desk.keys.paused)], [group])
    desk.expect("a claim", desk.run(jobs.claim(desk.queue)), None)
    ids += desk.jobs(1, group=group)
    desk.expect("the backlog", desk.members(desk.keys.lane(group)), ids)
    beside = desk.in_hand(group=other)
    desk.expect("its sibling is served", beside.group, other)
    desk.drop_tokens()
    desk.run(lanes.resume(desk.queue, group))
    desk.expect("ring and tokens", (desk.ring(), desk.tokens()), ([group], 3))
    desk.expect("the claims", [desk.claim().id for _ in ids], ids)


@scenario("limit", "A lane at its ceiling gives nothing, and is open again after a completion.")
def _limit(desk: Desk) -> None:
    group = desk.lane("limit")
    desk.run(lanes.limit(desk.queue, group, 1))
    first, second = desk.jobs(2, group=group)
    desk.expect("the claimed job", desk.claim().id, first)
    desk.expect("at the ceiling", desk.run(jobs.claim(desk.queue)), None)
    desk.expect("a lane claim", desk.run(lanes.claim(desk.queue)), None)
    desk.run(jobs.complete(desk.queue, first, 1))
    desk.expect("the ring", desk.ring(), [group])
    desk.expect("after a completion", desk.claim().id, second)


@scenario("limit_lowered", "A limit lowered to the jobs in hand parks the lane; raised or lifted, it is served again.")
def _limit_lowered(desk: Desk) -> None:
    group = desk.lane("lowered")
    ids = desk.jobs(5, group=group)
    desk.expect("in hand", [desk.claim().id for _ in range(2)], ids[:2])
    desk.run(lanes.limit(desk.queue, group, 1))
    desk.expect("the ring below", desk.ring(), [])
    desk.run(jobs.complete(desk.queue, ids[0], 1))
    desk.expect("the ring at the limit", desk.ring(), [])
    desk.drop_tokens()
    desk.run(lanes.limit(desk.queue, group, 3))
    desk.expect("ring and tokens, raised", (desk.ring(), desk.tokens()), ([group], 2))
    desk.run(lanes.limit(desk.queue, group, None))
    desk.expect("the rest", [desk.claim().id for _ in range(3)], ids[2:])


@scenario("lane_depth", "The depth of a lane is what waits in it, and says nothing of its siblings.")
def _lane_depth(desk: Desk) -> None:
    a, b = desk.lane("a"), desk.lane("b")
    desk.jobs(3, group=a)
    desk.jobs(1, group=b)
    depths = [desk.run(lanes.depth(desk.queue, group)) for group in (a, b, desk.lane("none"))]
    desk.expect("the depths", depths, [3, 1, 0])
    desk.claim()
    desk.expect("after a claim", desk.run(lanes.depth(desk.queue, a)), 2)


@scenario("weight", "A weighted turn serves min(weight, depth, limit - in hand) jobs of one lane, under one deadline.")
def _weight(desk: Desk) -> None:
    heavy, light = desk.lane("heavy"), desk.lane("light")
    desk.run(lanes.weight(desk.queue, heavy, 3))
    ids = desk.jobs(5, group=heavy)
    (beside,) = desk.jobs(1, group=light)
    turns = [[job.id for job in desk.run(lanes.claim_weighted(desk.queue)).jobs] for _ in range(4)]
    desk.expect("the turns", turns, [ids[:3], [beside], ids[3:], []])
    scores = desk.zset(desk.keys.active)
    desk.expect("deadlines of a turn", len({scores[job_id] for job_id in ids[:3]}), 1)
    more = desk.jobs(4, group=heavy)
    desk.run(lanes.limit(desk.queue, heavy, 7))
    last = [job.id for job in desk.run(lanes.claim_weighted(desk.queue)).jobs]
    desk.expect("below the limit", last, more[:2])


@scenario("lane_text", "A lane named by text is LAN and the first 63 bits of its SHA-256, noted under its text.")
def _lane_text(desk: Desk) -> None:
    text = "Ärzte & co"
    number = int.from_bytes(sha256(text.encode()).digest()[:8], "big") >> 1
    group = desk.lane(text)
    desk.expect("the lane", group, branded.encode("LAN", number))
    desk.run(admission.admit(desk.queue, desk.mint(), b"p", group=group, lane_text=text))
    desk.expect("lanes", desk.hash(desk.keys.lanes), {group: text.encode()})
    desk.expect("the ring", desk.ring(), [group])


@scenario("ring_strays", "A ring entry that cannot be served is taken off and the next is tried, once round at most.")
def _ring_strays(desk: Desk) -> None:
    empty, paused, full, good = (desk.lane(text) for text in ("empty", "paused", "full", "good"))
    desk.jobs(1, group=paused)
    desk.run(lanes.pause(desk.queue, paused))
    desk.jobs(2, group=full)
    desk.run(lanes.limit(desk.queue, full, 1))
    desk.claim()
    (job_id,) = desk.jobs(1, group=good)
    desk.raw("DEL", desk.keys.ring)
    desk.raw("RPUSH", desk.keys.ring, empty, paused, full, good)
    claimed = desk.run(lanes.claim(desk.queue))
    desk.expect("the claimed job", claimed.id if claimed else None, job_id)
    desk.expect("the ring", desk.ring(), [])
    desk.raw("RPUSH", desk.keys.ring, empty, paused, full)
    desk.expect("with strays alone", desk.run(lanes.claim(desk.queue)), None)
    desk.expect("the ring then", desk.ring(), [])
