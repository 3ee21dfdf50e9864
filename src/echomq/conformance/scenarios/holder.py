"""A holder after its lease was lost, its token still right (protocol §5, the table)."""

from __future__ import annotations

from typing import Any

from echomq.conformance.desk import FAR_MS, Desk
from echomq.conformance.scenario import scenario
from echomq.protocol import admin, flows, jobs
from echomq.protocol.call import Call
from echomq.protocol.replies import Completion, Retried

_REFUSED_ANYWHERE = ("extend", "delay", "release")


def _verb(desk: Desk, verb: str, job_id: str) -> Call[Any]:
    match verb:
        case "complete":
            return jobs.complete(desk.queue, job_id, 1)
        case "retry":
            return jobs.retry(desk.queue, job_id, 1, delay_ms=FAR_MS, max_attempts=9, error="late")
        case "extend":
            return jobs.extend(desk.queue, job_id, 1)
        case "delay":
            return jobs.delay(desk.queue, job_id, 1, delay_ms=0)
        case _:
            return jobs.release(desk.queue, job_id, 1)


def _lapsed(desk: Desk, group: str) -> str:
    job = desk.in_hand(group=group)
    desk.lapse(job.id)
    desk.run(jobs.sweep(desk.queue, max_stalled=9))
    return job.id


def _in_lane_or_pending(group: str) -> str:
    return "lane" if group else "pending"


def _groups(desk: Desk) -> tuple[str, str]:
    return "", desk.lane("holder")


@scenario("holder_after_lapse", "Back where it can be claimed, a lapsed job is completed or retried by its old holder.")
def _pending(desk: Desk) -> None:
    for group in _groups(desk):
        job_id = _lapsed(desk, group)
        desk.stands(job_id, "pending", _in_lane_or_pending(group))
        for verb in _REFUSED_ANYWHERE:
            desk.refused(_verb(desk, verb, job_id), f"EMQSTATE {verb} not active")
        desk.expect("complete", desk.run(_verb(desk, "complete", job_id)), Completion.RETIRED)
        desk.expect("what is left", (desk.row(job_id), desk.places(job_id)), ({}, []))
        job_id = _lapsed(desk, group)
        desk.expect("retry", desk.run(_verb(desk, "retry", job_id)), Retried.SCHEDULED)
        desk.stands(job_id, "scheduled", "schedule")
        desk.expect("failures", desk.field(job_id, "failures"), b"1")
        job_id = _lapsed(desk, group)
        burial = jobs.retry(desk.queue, job_id, 1, delay_ms=0, max_attempts=1, error="late")
        desk.expect("retry at the cap", desk.run(burial), Retried.DEAD)
        desk.stands(job_id, "dead", "dead")


@scenario("holder_fan_in", "A lapsed child that its old holder completes counts towards its parent.")
def _fan_in(desk: Desk) -> None:
    parent, child = desk.mint_many(2)
    desk.run(flows.add(flows.Node(desk.queue, parent, b"p", (flows.Node(desk.queue, child, b"c"),))))
    desk.expect("the claimed job", desk.claim().id, child)
    desk.lapse(child)
    desk.run(jobs.sweep(desk.queue, max_stalled=9))
    desk.run(_verb(desk, "complete", child))
    desk.stands(parent, "pending", "pending")


@scenario("holder_elsewhere", "On the schedule, in the morgue or held, a job refuses every verb of its old holder.")
def _elsewhere(desk: Desk) -> None:
    for group in _groups(desk):
        scheduled = _lapsed(desk, group)
        desk.run(_verb(desk, "retry", scheduled))
        dead = desk.in_hand(group=group).id
        desk.lapse(dead)
        desk.run(jobs.sweep(desk.queue, max_stalled=1))
        for job_id in (scheduled, dead):
            for verb in ("complete", "retry", *_REFUSED_ANYWHERE):
                desk.refused(_verb(desk, verb, job_id), f"EMQSTATE {verb} not active")


@scenario("holder_held", "A parent that waits for children again refuses every verb of its old holder.")
def _held(desk: Desk) -> None:
    parent, child = desk.mint_many(2)
    desk.run(flows.add(flows.Node(desk.queue, parent, b"p", (flows.Node(desk.queue, child, b"c"),))))
    desk.raw("HSET", desk.row_key(parent), "attempts", "1")
    for verb in ("complete", "retry", *_REFUSED_ANYWHERE):
        desk.refused(_verb(desk, verb, parent), f"EMQSTATE {verb} not active")
    job = desk.claim()
    desk.run(jobs.retry(desk.queue, job.id, job.token, delay_ms=0, max_attempts=1, error="fatal"))
    desk.run(admin.reprocess_job(desk.queue, parent))
    desk.stands(parent, "awaiting_children", "")
    desk.refused(_verb(desk, "complete", parent), "EMQSTATE complete not active")
