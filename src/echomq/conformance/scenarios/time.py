"""Jobs and time (protocol §4, §5): schedules, promotion and putting off."""

from __future__ import annotations

from echomq.conformance.desk import FAR_MS, PAST, Desk
from echomq.conformance.scenario import scenario
from echomq.protocol import admission, jobs
from echomq.protocol.replies import Admission, Rescheduling


@scenario("schedule", "A scheduled job is invisible to a claim until it is due and promoted.")
def _schedule(desk: Desk) -> None:
    job_id = desk.later()
    desk.expect("a claim", desk.run(jobs.claim(desk.queue)), None)
    desk.expect("promoted before its time", desk.run(jobs.promote(desk.queue)), 0)
    desk.stands(job_id, "scheduled", "schedule")
    desk.fall_due(job_id)
    desk.expect("promoted", desk.run(jobs.promote(desk.queue)), 1)
    desk.stands(job_id, "pending", "pending")
    desk.expect("a claim then", desk.claim().id, job_id)


@scenario("schedule_at", "A run-at that the caller gives is kept as it is; one in the past is due at once.")
def _schedule_at(desk: Desk) -> None:
    past, far = desk.mint(), desk.mint()
    verdict = desk.run(jobs.enqueue_at(desk.queue, past, b"p", at_ms=PAST))
    desk.expect("the verdict", verdict, Admission.SCHEDULED)
    desk.run(jobs.enqueue_at(desk.queue, far, b"p", at_ms=2**53 - 1))
    desk.expect("the schedule", desk.zset(desk.keys.schedule), {past: PAST, far: 2**53 - 1})
    desk.expect("promoted", desk.run(jobs.promote(desk.queue)), 1)
    desk.stands(past, "pending", "pending")


@scenario("promote_bounded", "Promote takes at most its batch, earliest first; with nothing due it takes nothing.")
def _promote_bounded(desk: Desk) -> None:
    ids = [desk.later() for _ in range(5)]
    desk.fall_due(*ids[::-1])
    desk.expect("the first batch", desk.run(jobs.promote(desk.queue, batch=2)), 2)
    desk.expect("pending", desk.members(desk.keys.pending), ids[3:])
    desk.expect("the rest", [desk.run(jobs.promote(desk.queue, batch=100)) for _ in range(2)], [3, 0])
    desk.expect("pending, all", desk.members(desk.keys.pending), ids)
    desk.expect("the schedule", desk.members(desk.keys.schedule), [])


@scenario("promote_slices", "Promote takes a batch above 1,000 in one call.")
def _promote_slices(desk: Desk) -> None:
    ids = desk.mint_many(1_100)
    desk.bench.conn.run_many([jobs.enqueue_at(desk.queue, job_id, b"p", at_ms=PAST) for job_id in ids])
    desk.expect("promoted", desk.run(jobs.promote(desk.queue, batch=5_000)), 1_100)
    desk.expect("pending is whole", desk.members(desk.keys.pending) == ids, True)


@scenario("promote_ghost", "Promote drops a due id without a row, counts it, and creates nothing.", strays=True)
def _promote_ghost(desk: Desk) -> None:
    ghost = desk.mint()
    desk.raw("ZADD", desk.keys.schedule, PAST, ghost)
    real = desk.later()
    desk.fall_due(real)
    desk.expect("selected", desk.run(jobs.promote(desk.queue)), 2)
    desk.expect("the schedule", desk.members(desk.keys.schedule), [])
    desk.expect("pending", desk.members(desk.keys.pending), [real])
    desk.expect("the ghost's row", desk.row(ghost), {})


@scenario(
    "reschedule", "A scheduled job moves in time, alone by its score; without a row it is gone, elsewhere refused."
)
def _reschedule(desk: Desk) -> None:
    job_id = desk.later()
    row = desk.row(job_id)
    desk.expect("to an instant", desk.run(jobs.reschedule(desk.queue, job_id, at_ms=PAST)), Rescheduling.MOVED)
    desk.expect("the score", desk.score("schedule", job_id), PAST)
    before = desk.now_ms()
    desk.run(jobs.reschedule(desk.queue, job_id, delay_ms=FAR_MS))
    desk.between("the score", desk.score("schedule", job_id), before + FAR_MS, desk.now_ms() + FAR_MS)
    desk.expect("the row", desk.row(job_id), row)
    ghost = desk.mint()
    desk.expect("without a row", desk.run(jobs.reschedule(desk.queue, ghost, at_ms=5)), Rescheduling.GONE)
    desk.expect("its score", desk.score("schedule", ghost), None)
    pending = desk.job()
    desk.refused(jobs.reschedule(desk.queue, pending, at_ms=5), "EMQSTATE reschedule not scheduled")


@scenario(
    "delay", "A delay releases the lease and spends nothing; stale and not active are refused, a lane gets its slot."
)
def _delay(desk: Desk) -> None:
    job = desk.in_hand(b"body")
    desk.raw("HSET", desk.row_key(job.id), "failures", "1", "stalled", "2")
    wanted = desk.row(job.id) | {"state": b"scheduled"}
    desk.refused(jobs.delay(desk.queue, job.id, 2, delay_ms=5), "EMQSTALE delay token mismatch")
    before = desk.now_ms()
    desk.run(jobs.delay(desk.queue, job.id, job.token, delay_ms=FAR_MS))
    desk.expect("the row", desk.row(job.id), wanted)
    desk.stands(job.id, "scheduled", "schedule")
    desk.between("the run-at", desk.score("schedule", job.id), before + FAR_MS, desk.now_ms() + FAR_MS)
    desk.refused(jobs.delay(desk.queue, job.id, job.token, delay_ms=5), "EMQSTATE delay not active")
    group = desk.lane("delay")
    desk.raw("HSET", desk.keys.glimit, group, "1")
    first, second = desk.jobs(2, group=group)
    desk.expect("the claimed job", desk.claim().id, first)
    desk.expect("the ring at the limit", desk.ring(), [])
    desk.run(jobs.delay(desk.queue, first, 1, at_ms=2**53 - 1))
    desk.expect("gactive and ring", (desk.hash(desk.keys.gactive), desk.ring()), ({}, [group]))
    desk.expect("the lane's next", desk.claim().id, second)


@scenario(
    "schedule_lane", "A job scheduled into a lane is a scheduled row with its group, and is promoted into the lane."
)
def _schedule_lane(desk: Desk) -> None:
    group, job_id = desk.lane("later"), desk.mint()
    admitted = desk.run(admission.admit(desk.queue, job_id, b"p", at_ms=PAST, group=group))
    desk.expect("the verdict", admitted.verdict, Admission.SCHEDULED)
    row = {"state": b"scheduled", "attempts": b"0", "payload": b"p", "group": group.encode()}
    desk.expect("the row", desk.row(job_id), row)
    desk.expect("the schedule", desk.zset(desk.keys.schedule), {job_id: PAST})
    desk.expect("promoted", desk.run(jobs.promote(desk.queue)), 1)
    desk.stands(job_id, "pending", "lane")
    desk.expect("the ring", desk.ring(), [group])
