"""Lapsed leases (protocol §5, §6): reap and the sweep that counts."""

from __future__ import annotations

from echomq.conformance.desk import Desk
from echomq.conformance.scenario import scenario
from echomq.protocol import flows, jobs, lanes


@scenario("reap", "An expired lease returns its job to where it can be claimed, uncounted; a live lease stays.")
def _reap(desk: Desk) -> None:
    lapsed, live = desk.in_hand(), desk.in_hand()
    desk.lapse(lapsed.id)
    desk.expect("reaped", desk.run(jobs.reap(desk.queue)), 1)
    desk.stands(lapsed.id, "pending", "pending")
    desk.stands(live.id, "active", "active")
    desk.expect("lapses counted", desk.field(lapsed.id, "stalled"), None)
    desk.expect("the next token", desk.claim().attempts, 2)


@scenario("reap_bounded", "A reap returns at most 100 leases.")
def _reap_bounded(desk: Desk) -> None:
    ids = desk.jobs(105)
    desk.run(jobs.claim_many(desk.queue, 105))
    desk.lapse(*ids)
    desk.expect("reaped", [desk.run(jobs.reap(desk.queue)) for _ in range(3)], [100, 5, 0])


@scenario("stalled", "The sweep counts each lapse: below the cap the job is recovered, at it buried as stalled.")
def _stalled(desk: Desk) -> None:
    job_id = desk.in_hand().id
    live = desk.in_hand().id
    desk.lapse(job_id)
    swept = desk.run(jobs.sweep(desk.queue, max_stalled=2))
    desk.expect("recovered and dead", (swept.recovered, swept.dead), ((job_id,), ()))
    desk.stands(job_id, "pending", "pending")
    desk.expect("stalled", desk.field(job_id, "stalled"), b"1")
    held = desk.claim()
    desk.expect("what the claim tells", (held.id, held.stalled), (job_id, 1))
    desk.lapse(job_id)
    swept = desk.run(jobs.sweep(desk.queue, max_stalled=2))
    desk.expect("recovered and dead", (swept.recovered, swept.dead), ((), (job_id,)))
    desk.stands(job_id, "dead", "dead")
    desk.expect("the error", desk.field(job_id, "last_error"), b"stalled")
    desk.expect("failed", desk.count("failed"), 1)
    desk.stands(live, "active", "active")


@scenario("stalled_bounded", "The sweep takes at most its limit, the earliest deadlines first.")
def _stalled_bounded(desk: Desk) -> None:
    ids = desk.jobs(3)
    desk.run(jobs.claim_many(desk.queue, 3))
    desk.lapse(*ids[::-1])
    swept = desk.run(jobs.sweep(desk.queue, max_stalled=9, limit=2))
    desk.expect("recovered", swept.recovered, (ids[2], ids[1]))


@scenario("stalled_group", "A lapsed job of a lane returns into its lane; buried, it gives the lane its slot back.")
def _stalled_group(desk: Desk) -> None:
    group = desk.lane("stalled")
    desk.run(lanes.limit(desk.queue, group, 1))
    job_id, other = desk.jobs(2, group=group)
    for cap, state, place, served in ((9, "pending", "lane", job_id), (1, "dead", "dead", other)):
        desk.expect("the claimed job", desk.claim().id, job_id)
        desk.expect("the ring at the limit", desk.ring(), [])
        desk.lapse(job_id)
        desk.run(jobs.sweep(desk.queue, max_stalled=cap))
        desk.stands(job_id, state, place)
        desk.expect("gactive and ring", (desk.hash(desk.keys.gactive), desk.ring()), ({}, [group]))
        desk.expect("the lane's head", desk.members(desk.keys.lane(group))[0], served)


@scenario("stalled_flow", "A child that the sweep buries is a death: its parent dies of it.")
def _stalled_flow(desk: Desk) -> None:
    parent, child = desk.mint_many(2)
    desk.run(flows.add(flows.Node(desk.queue, parent, b"p", (flows.Node(desk.queue, child, b"c"),))))
    desk.claim()
    desk.lapse(child)
    desk.run(jobs.sweep(desk.queue, max_stalled=1))
    desk.stands(child, "dead", "dead")
    desk.stands(parent, "dead", "dead")
    desk.expect("failed children", desk.hash(desk.row_key(parent, ":failed")), {child: b"stalled"})


@scenario("reap_group", "Reaping one group returns only its lapsed jobs, and looks at no more leases than its limit.")
def _reap_group(desk: Desk) -> None:
    mine, theirs = desk.lane("mine"), desk.lane("theirs")
    flat = desk.in_hand().id
    other = desk.in_hand(group=theirs).id
    own = desk.in_hand(group=mine).id
    desk.lapse(flat, other, own)
    desk.expect("with a limit of 2", desk.run(lanes.reap(desk.queue, mine, scan=2)), 0)
    desk.expect("reaped", desk.run(lanes.reap(desk.queue, mine)), 1)
    desk.stands(own, "pending", "lane")
    desk.stands(other, "active", "active")
    desk.stands(flat, "active", "active")
    desk.expect("gactive and ring", (list(desk.hash(desk.keys.gactive)), desk.ring()), ([theirs], [mine]))
