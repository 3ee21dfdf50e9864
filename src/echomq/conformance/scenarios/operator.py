"""The operator's reads and small verbs (protocol §7): counts, states, payload, progress, logs, cancellation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple
from typing import Any

from echomq.conformance.desk import FAR_MS, Desk
from echomq.conformance.scenario import BreachError, scenario
from echomq.conformance.scenarios.flows import family
from echomq.protocol import admin, jobs, metrics
from echomq.protocol.admin import Cancellation
from echomq.protocol.call import Call
from echomq.protocol.errors import InvalidInputError
from echomq.protocol.replies import Claimed, Completion, Retried, State


def bury(desk: Desk, error: str = "fatal", *, group: str = "") -> str:
    """A job in the morgue."""
    job = desk.in_hand(group=group)
    desk.run(jobs.retry(desk.queue, job.id, job.token, delay_ms=0, max_attempts=job.attempts, error=error))
    return job.id


@scenario("counts", "The counts are those of flat pending, active, schedule and dead, and of both terminal counters.")
def _counts(desk: Desk) -> None:
    bury(desk)
    for job in [desk.in_hand() for _ in range(3)]:
        desk.run(jobs.complete(desk.queue, job.id, job.token))
    desk.in_hand()
    desk.in_hand()
    desk.later()
    desk.jobs(4)
    desk.jobs(2, group=desk.lane("not counted"))
    counts = desk.run(metrics.counts(desk.queue))
    names = ("pending", "active", "schedule", "dead")
    cards = [desk.raw("ZCARD", desk.keys.base + name) for name in names]
    desk.expect("the server's own", cards, [4, 2, 1, 1])
    desk.expect("the counts", astuple(counts), (4, 2, 1, 1, 3, 1))


@scenario("state", "A job's state is its place: pending also in a lane, scheduled, active, dead, awaiting_children.")
def _state(desk: Desk) -> None:
    dead, active = bury(desk), desk.in_hand().id
    parent, (child,) = family(desk)
    wanted = {
        dead: State.DEAD,
        active: State.ACTIVE,
        parent: State.AWAITING_CHILDREN,
        child: State.PENDING,
        desk.job(): State.PENDING,
        desk.job(group=desk.lane("state")): State.PENDING,
        desk.later(): State.SCHEDULED,
    }
    seen = {job_id: desk.run(metrics.state(desk.queue, job_id)) for job_id in wanted}
    desk.expect("the states", list(seen.values()), list(wanted.values()))


@scenario(
    "unknown_state", "A row in no set is unknown, no row is absent; counting another name is an error.", strays=True
)
def _unknown_state(desk: Desk) -> None:
    stray = desk.mint()
    desk.raw("HSET", desk.row_key(stray), "state", "pending", "attempts", "0", "payload", "p")
    states = [desk.run(metrics.state(desk.queue, job_id)) for job_id in (stray, desk.mint())]
    desk.expect("the states", states, [State.UNKNOWN, State.ABSENT])
    desk.expect("a count by its name", desk.run(metrics.count(desk.queue, "pending")), 0)
    try:
        metrics.count(desk.queue, "sleeping")
    except InvalidInputError:
        return
    raise BreachError("a state named sleeping was counted")


@scenario("metrics", "No phantom count: what is refused, gone, retried or handed back counts nowhere.")
def _metrics(desk: Desk) -> None:
    job = desk.in_hand()
    desk.outcome(jobs.complete(desk.queue, job.id, 7))
    desk.outcome(jobs.complete(desk.queue, desk.mint(), 1))
    desk.run(jobs.release(desk.queue, job.id, 1))
    desk.run(jobs.retry(desk.queue, desk.claim().id, 2, delay_ms=0, max_attempts=9, error="e"))
    desk.expect("completed and failed", (desk.count("completed"), desk.count("failed")), (0, 0))
    desk.fall_due(job.id)
    desk.run(jobs.promote(desk.queue))
    desk.claim()
    verdicts = [desk.run(jobs.complete(desk.queue, job.id, 3)) for _ in range(2)]
    desk.expect("the verdicts", verdicts, [Completion.RETIRED, Completion.GONE])
    desk.expect("completed", desk.count("completed"), 1)


@scenario("update_data", "A job's payload can be replaced while it has a row; the rest of the row stays.")
def _update_data(desk: Desk) -> None:
    job_id, gone = desk.job(b"old"), desk.mint()
    wanted = desk.row(job_id) | {"payload": b"new\0\xff"}
    desk.expect("updated", desk.run(admin.update_data(desk.queue, job_id, b"new\0\xff")), True)
    desk.expect("the row", desk.row(job_id), wanted)
    desk.expect("without a row", desk.run(admin.update_data(desk.queue, gone, b"new")), False)
    desk.expect("the row of none", desk.row(gone), {})
    desk.expect("the claimed payload", desk.claim().payload, b"new\0\xff")


@scenario("job_logs", "A job keeps the newest n lines of its log, and none without a row.")
def _job_logs(desk: Desk) -> None:
    job_id, gone = desk.job(), desk.mint()
    kept = [desk.run(admin.add_log(desk.queue, job_id, f"line {n}", keep=3)) for n in range(5)]
    desk.expect("lines kept", kept, [1, 2, 3, 3, 3])
    desk.expect("the list", desk.items(desk.row_key(job_id, ":logs")), ["line 2", "line 3", "line 4"])
    desk.expect("without a bound", desk.run(admin.add_log(desk.queue, job_id, "more")), 4)
    desk.expect("the read", desk.run(admin.logs(desk.queue, job_id)), ("line 2", "line 3", "line 4", "more"))
    desk.expect("without a row", desk.run(admin.add_log(desk.queue, gone, "line")), None)
    desk.expect("its list", desk.items(desk.row_key(gone, ":logs")), [])


@scenario("reprocess_job", "Only a dead job gets another life: error, lapses and failures cleared, attempts kept.")
def _reprocess(desk: Desk) -> None:
    job_id = bury(desk)
    desk.raw("HSET", desk.row_key(job_id), "stalled", "2")
    desk.drop_tokens()
    desk.expect("reprocessed", desk.run(admin.reprocess_job(desk.queue, job_id)), True)
    desk.stands(job_id, "pending", "pending")
    desk.expect("the row", desk.row(job_id), {"state": b"pending", "attempts": b"1", "payload": b"p"})
    desk.expect("the wake tokens", desk.tokens(), 1)
    desk.refused(admin.reprocess_job(desk.queue, job_id), "EMQSTATE not dead")
    desk.expect("without a row", desk.run(admin.reprocess_job(desk.queue, desk.mint())), False)
    group = desk.lane("life")
    desk.claim()
    grouped = bury(desk, group=group)
    desk.run(admin.reprocess_job(desk.queue, grouped))
    desk.stands(grouped, "pending", "lane")
    desk.expect("the ring", desk.ring(), [group])


@scenario("reprocess_parent", "A dead parent that still waits for children is held again.")
def _reprocess_parent(desk: Desk) -> None:
    parent, (a, _b) = family(desk, 2)
    desk.run(jobs.retry(desk.queue, a, desk.claim().token, delay_ms=0, max_attempts=1, error="fatal"))
    desk.stands(parent, "dead", "dead")
    desk.run(admin.reprocess_job(desk.queue, parent))
    desk.stands(parent, "awaiting_children", "")
    desk.expect("its error", desk.field(parent, "last_error"), None)


@scenario(
    "cancel", "A job not in hand is buried as cancelled, wherever it waits; one in hand keeps the wish in its row."
)
def _cancel(desk: Desk) -> None:
    group = desk.lane("cancel")
    for job_id in (desk.job(), desk.later(), desk.job(group=group)):
        verdict = desk.run(admin.cancel_job(desk.queue, job_id, reason="not needed"))
        desk.expect("the verdict", verdict, Cancellation.DEAD)
        desk.stands(job_id, "dead", "dead")
        desk.expect("the error", desk.field(job_id, "last_error"), b"cancelled: not needed")
    buried = bury(desk)
    desk.expect("a dead job", desk.run(admin.cancel_job(desk.queue, buried)), Cancellation.DEAD)
    desk.expect("how it died", desk.field(buried, "last_error"), b"fatal")
    held = desk.in_hand()
    wish = admin.cancel_job(desk.queue, held.id)
    desk.expect("in hand", desk.run(wish), Cancellation.REQUESTED)
    desk.stands(held.id, "active", "active")
    desk.expect("the wish in the row", desk.field(held.id, "cancel"), b"cancelled")
    desk.expect("no row", desk.run(admin.cancel_job(desk.queue, desk.mint())), Cancellation.GONE)


@scenario("cancel_survives", "A wish to cancel outlives its worker: the job is never handed out again, but buried.")
def _cancel_survives(desk: Desk) -> None:
    held = desk.in_hand()
    desk.run(admin.cancel_job(desk.queue, held.id))
    desk.lapse(held.id)
    desk.run(jobs.sweep(desk.queue, max_stalled=9))
    desk.expect("a claim", desk.run(jobs.claim(desk.queue)), None)
    desk.stands(held.id, "dead", "dead")
    desk.expect("the error", desk.field(held.id, "last_error"), b"cancelled")
    desk.run(admin.reprocess_job(desk.queue, held.id))
    desk.expect("in another life", desk.claim().id, held.id)


@scenario("cancel_minded", "A job cancelled in hand is buried as cancelled by whatever would let it run another time.")
def _cancel_minded(desk: Desk) -> None:
    ways: dict[str, Callable[[Claimed], Call[Any]]] = {
        "retry": lambda job: jobs.retry(desk.queue, job.id, job.token, delay_ms=FAR_MS, max_attempts=9, error="e"),
        "delay": lambda job: jobs.delay(desk.queue, job.id, job.token, delay_ms=FAR_MS),
        "release": lambda job: jobs.release(desk.queue, job.id, job.token),
        "sweep": lambda _: jobs.sweep(desk.queue, max_stalled=9),
    }
    group = desk.lane("minded")
    for lane in ("", group):
        for way, call in ways.items():
            job = desk.in_hand(group=lane)
            desk.run(admin.cancel_job(desk.queue, job.id, reason="stop"))
            if way == "sweep":
                desk.lapse(job.id)
            verdict = desk.run(call(job))
            if way == "sweep":
                desk.expect("sweep", (verdict.dead, verdict.cancelled), ((job.id,), {job.id: "cancelled: stop"}))
            else:
                desk.expect(way, verdict, Retried.DEAD)
            desk.stands(job.id, "dead", "dead")
            desk.expect("the error", desk.field(job.id, "last_error"), b"cancelled: stop")
            desk.expect("gactive", desk.hash(desk.keys.gactive), {})
    desk.expect("failed", desk.count("failed"), 2 * len(ways))


@scenario("retention", "The morgue keeps what meta allows: the newest by count, and none beyond its age.")
def _retention(desk: Desk) -> None:
    ids = [bury(desk) for _ in range(4)]
    desk.run(admin.set_retention(desk.queue, dead_max=3, dead_age_ms=FAR_MS))
    desk.expect("purged by count", desk.run(admin.retain(desk.queue))[0], 1)
    desk.expect("the morgue", desk.members(desk.keys.dead), ids[1:])
    desk.raw("HSET", desk.row_key(ids[2]), "died_ms", "1000")
    desk.expect("purged by age", desk.run(admin.retain(desk.queue))[0], 1)
    desk.expect("the morgue", desk.members(desk.keys.dead), [ids[1], ids[3]])
    desk.expect("the purged rows", [desk.row(job_id) for job_id in (ids[0], ids[2])], [{}, {}])
