"""Taking away (protocol §7): one job, what waits, a whole queue."""

from __future__ import annotations

from echomq.conformance.desk import Desk
from echomq.conformance.scenario import scenario
from echomq.conformance.scenarios.flows import family
from echomq.conformance.scenarios.operator import bury
from echomq.protocol import admin, admission, jobs, lanes, repeat, workers


@scenario(
    "remove_job", "A job is removed wherever it lies; a locked one is refused, and its deduplication key is freed."
)
def _remove_job(desk: Desk) -> None:
    group = desk.lane("remove")
    dead, active = bury(desk), desk.in_hand().id
    for job_id in (dead, active, desk.later(), desk.job(), desk.job(group=group)):
        desk.run(admin.add_log(desk.queue, job_id, "line"))
        desk.raw("SET", desk.row_key(job_id, ":lock"), "1", "PX", 60_000)
        desk.refused(admin.remove_job(desk.queue, job_id), "EMQLOCK job is locked")
        desk.raw("DEL", desk.row_key(job_id, ":lock"))
        desk.raw("SET", desk.key("de:k"), job_id)
        desk.expect("removed", desk.run(admin.remove_job(desk.queue, job_id, dedup="k")), True)
        gone = [desk.row_key(job_id), desk.row_key(job_id, ":logs"), desk.key("de:k")]
        desk.expect("row, logs and key", desk.raw("EXISTS", *gone), 0)
        desk.expect("its places", desk.places(job_id), [])
    desk.expect("the ring", desk.ring(), [])
    desk.expect("without a row", desk.run(admin.remove_job(desk.queue, dead)), False)


@scenario("dedup_release", "Removal leaves a deduplication key that names another job.")
def _dedup_release(desk: Desk) -> None:
    job_id, other = desk.job(), desk.job()
    desk.raw("SET", desk.key("de:k"), other)
    desk.run(admin.remove_job(desk.queue, job_id, dedup="k"))
    desk.expect("the key", desk.raw("GET", desk.key("de:k")), other.encode())


@scenario("drain", "Draining deletes flat pending jobs, the schedule when asked; active, lanes and recurrences stay.")
def _drain(desk: Desk) -> None:
    active = desk.in_hand().id
    ids = desk.jobs(3)
    desk.run(admin.add_log(desk.queue, ids[0], "line"))
    later = desk.later()
    grouped = desk.job(group=desk.lane("stays"))
    desk.key("repeat:tick")
    desk.run(repeat.register(desk.queue, "tick", every_ms=60_000, template=b"t", first_run_ms=2**52))
    desk.expect("drained", desk.run(admin.drain(desk.queue, budget=2)), 3)
    desk.expect("rows and logs", desk.raw("EXISTS", *(desk.row_key(i, s) for i in ids for s in ("", ":logs"))), 0)
    desk.stands(later, "scheduled", "schedule")
    desk.expect("drained with the schedule", desk.run(admin.drain(desk.queue, scheduled=True)), 1)
    desk.expect("the scheduled row", desk.row(later), {})
    desk.stands(active, "active", "active")
    desk.stands(grouped, "pending", "lane")
    desk.expect("the recurrence", desk.members(desk.keys.repeat), ["tick"])


@scenario("obliterate", "Obliterate is refused unless the queue is paused and idle; force takes jobs in hand, too.")
def _obliterate(desk: Desk) -> None:
    desk.in_hand()
    desk.jobs(3)
    desk.refused(next(admin.obliterate(desk.queue)), "EMQSTATE not paused")
    desk.run(admin.pause_queue(desk.queue))
    desk.refused(next(admin.obliterate(desk.queue)), "EMQSTATE active jobs present")
    desk.run(admin.obliterate(desk.queue, force=True))
    desk.expect("the keys left", desk.present(), [])


@scenario(
    "obliterate_bounded", "One call of obliterate takes away no more than its budget, and says that there is more."
)
def _obliterate_bounded(desk: Desk) -> None:
    desk.jobs(25)
    desk.run(admin.pause_queue(desk.queue))
    step = next(admin.obliterate(desk.queue, budget=10))
    desk.expect("the answer", desk.run(step), 1)
    desk.between("left after one call of 10", desk.raw("ZCARD", desk.keys.pending), 15, 24)
    desk.expect("still paused", desk.raw("HEXISTS", desk.keys.meta, "paused"), 1)
    desk.run(admin.obliterate(desk.queue, budget=10))
    desk.expect("the keys left", desk.present(), [])


@scenario("obliterate_grouped", "No row of any lane is left: on the ring, paused, limited, weighted or named by text.")
def _obliterate_grouped(desk: Desk) -> None:
    ringed, paused, limited, weighted, named = (desk.lane(text) for text in ("r", "p", "l", "w", "n"))
    for group in (ringed, paused, limited, weighted):
        desk.jobs(2, group=group)
    desk.run(lanes.pause(desk.queue, paused))
    desk.run(lanes.limit(desk.queue, limited, 1))
    desk.run(lanes.weight(desk.queue, weighted, 5))
    desk.run(admission.admit(desk.queue, desk.mint(), b"p", group=named, lane_text="n"))
    for _ in range(5):
        desk.claim()
    desk.raw("LREM", desk.keys.ring, 0, weighted)
    desk.raw("LREM", desk.keys.ring, 0, named)
    desk.run(admin.pause_queue(desk.queue))
    desk.run(admin.obliterate(desk.queue, force=True))
    desk.expect("the keys left", desk.present(), [])


@scenario("obliterate_all", "Obliterate leaves no subkey, no outbox and none of our own keys.")
def _obliterate_all(desk: Desk) -> None:
    held = desk.in_hand()
    desk.run(workers.keep(desk.queue, [(held.id, held.token)]))
    desk.run(admin.add_log(desk.queue, held.id, "line"))
    bury(desk)
    desk.later()
    parent, (child,) = family(desk)
    desk.raw("HSET", desk.row_key(parent, ":processed"), child, "r")
    desk.run(admission.admit(desk.queue, desk.mint(), b"p", dedup=admission.Dedup("k")))
    for name in ("de:k", "repeat:tick", "cron:tock"):
        desk.key(name)
    desk.run(repeat.register(desk.queue, "tick", every_ms=60_000, template=b"t", first_run_ms=2**52))
    desk.raw("ZADD", desk.keys.cron, 2**52, "tock")
    desk.raw("HSET", desk.key("cron:tock"), "expression", "@daily")
    desk.raw("SET", desk.keys.limiter, "1", "PX", 60_000)
    desk.raw("RPUSH", desk.keys.outbox, "x")
    desk.raw("RPUSH", desk.keys.rejected, "x")
    desk.raw("SET", desk.key("turn"), "1")
    desk.raw("RPUSH", desk.key("metrics:completed:data"), "1")
    desk.run(workers.beat(desk.queue, "w", b"{}"))
    desk.run(admin.set_ceiling(desk.queue, 9))
    desk.run(admin.pause_queue(desk.queue))
    desk.run(admin.obliterate(desk.queue, force=True))
    desk.expect("the keys left", desk.present(), [])
    desk.expect("a claim afterwards", desk.run(jobs.claim(desk.queue)), None)
