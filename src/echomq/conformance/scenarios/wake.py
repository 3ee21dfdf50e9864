"""Wake tokens and what an idle claim says (protocol §12.2)."""

from __future__ import annotations

from collections.abc import Callable

from echomq.conformance.desk import FAR_MS, PAST, Desk
from echomq.conformance.scenario import scenario
from echomq.protocol import admin, jobs, lanes, repeat
from echomq.protocol.replies import Idle


@scenario("wake_pushed", "Whatever makes work claimable pushes as many tokens as jobs became claimable.")
def _wake_pushed(desk: Desk) -> None:
    group = desk.lane("wake")

    def pushed(what: str, n: int, act: Callable[[], object]) -> None:
        desk.drop_tokens()
        act()
        desk.expect(f"the wake tokens after {what}", desk.tokens(), n)
        desk.expect("each token", set(desk.items(desk.keys.wake)), {"1"} if n else set[str]())

    def held(n: int) -> list[str]:
        ids = desk.jobs(n)
        desk.run(jobs.claim_many(desk.queue, n))
        return ids

    pushed("one admission", 1, desk.job)
    pushed("a batch", 3, lambda: desk.jobs(3))
    desk.run(admin.drain(desk.queue))
    pushed("two admissions to a lane", 2, lambda: desk.jobs(2, group=group))
    desk.run(lanes.pause(desk.queue, group))
    pushed("an admission to a paused lane", 0, lambda: desk.jobs(1, group=group))
    pushed("resuming a lane of 3", 3, lambda: desk.run(lanes.resume(desk.queue, group)))
    desk.run(lanes.drain(desk.queue, group))
    later = [desk.later() for _ in range(3)]
    desk.fall_due(*later)
    pushed("promoting 3", 3, lambda: desk.run(jobs.promote(desk.queue)))
    desk.run(admin.pause_queue(desk.queue))
    pushed("resuming the queue", 3, lambda: desk.run(admin.resume_queue(desk.queue)))
    desk.run(admin.drain(desk.queue))
    (released,) = held(1)
    pushed("a release", 1, lambda: desk.run(jobs.release(desk.queue, released, 1)))
    desk.run(admin.drain(desk.queue))
    desk.lapse(*held(2))
    pushed("a reap of 2", 2, lambda: desk.run(jobs.reap(desk.queue)))
    desk.run(jobs.claim_many(desk.queue, 2))
    desk.lapse(*desk.members(desk.keys.active))
    pushed("a sweep of 2", 2, lambda: desk.run(jobs.sweep(desk.queue, max_stalled=9)))
    desk.run(admin.drain(desk.queue))
    (dead,) = held(1)
    bury = jobs.retry(desk.queue, dead, 1, delay_ms=0, max_attempts=1, error="e")
    pushed("a burial", 0, lambda: desk.run(bury))
    pushed("another life", 1, lambda: desk.run(admin.reprocess_job(desk.queue, dead)))


@scenario("wake_ceiling", "A completion below the queue's ceiling wakes somebody for the work that it lets in.")
def _wake_ceiling(desk: Desk) -> None:
    desk.run(admin.set_ceiling(desk.queue, 1))
    first, _second = desk.jobs(2)
    desk.claim()
    desk.run(jobs.claim(desk.queue))
    desk.expect("the wake tokens at the ceiling", desk.tokens(), 0)
    desk.run(jobs.complete(desk.queue, first, 1))
    desk.expect("the wake tokens after a completion", desk.tokens(), 1)
    desk.claim()
    desk.drop_tokens()
    desk.run(admin.set_ceiling(desk.queue, 5))
    desk.jobs(2)
    desk.expect("the wake tokens for two more", desk.tokens(), 2)
    desk.run(admin.set_ceiling(desk.queue, 1))
    desk.drop_tokens()
    desk.run(admin.set_ceiling(desk.queue, 3))
    desk.expect("the wake tokens for what a higher ceiling lets in", desk.tokens(), 2)


@scenario("wake_cap", "Never more than 64 tokens lie there.")
def _wake_cap(desk: Desk) -> None:
    desk.jobs(70)
    desk.job()
    desk.expect("the wake tokens", desk.tokens(), 64)
    desk.jobs(3, group=desk.lane("cap"))
    desk.run(admin.pause_queue(desk.queue))
    desk.run(admin.resume_queue(desk.queue))
    desk.expect("the wake tokens then", desk.tokens(), 64)


@scenario(
    "wake_earliest", "A schedule, retry or delay that becomes the earliest entry pushes one token; a later one none."
)
def _wake_earliest(desk: Desk) -> None:
    def pushed(what: str, n: int) -> None:
        desk.expect(f"the wake tokens after {what}", desk.tokens(), n)
        desk.drop_tokens()

    middle = desk.later(delay_ms=FAR_MS)
    pushed("the first schedule", 1)
    desk.later(delay_ms=2 * FAR_MS)
    pushed("a later one", 0)
    desk.later(delay_ms=FAR_MS // 2)
    pushed("an earlier one", 1)
    job = desk.in_hand()
    desk.drop_tokens()
    desk.run(jobs.retry(desk.queue, job.id, 1, delay_ms=FAR_MS // 4, max_attempts=9, error="e"))
    pushed("a retry that is earliest", 1)
    job = desk.in_hand()
    desk.drop_tokens()
    desk.run(jobs.retry(desk.queue, job.id, 1, delay_ms=FAR_MS, max_attempts=9, error="e"))
    pushed("a retry that is not", 0)
    job = desk.in_hand()
    desk.drop_tokens()
    desk.run(jobs.delay(desk.queue, job.id, 1, delay_ms=FAR_MS // 6))
    pushed("a delay that is earliest", 1)
    desk.run(jobs.reschedule(desk.queue, middle, delay_ms=FAR_MS // 8))
    pushed("a reschedule to the front", 1)


@scenario(
    "wake_swept", "A claim that finds nothing at all deletes wake in the same call; one that finds a job does not."
)
def _wake_swept(desk: Desk) -> None:
    desk.jobs(2)
    desk.claim()
    desk.expect("the wake tokens after a claim", desk.tokens(), 2)
    desk.claim()
    desk.run(jobs.claim(desk.queue))
    desk.expect("wake after a claim of nothing", desk.raw("EXISTS", desk.keys.wake), 0)
    desk.job()
    desk.claim()
    desk.run(lanes.claim(desk.queue))
    desk.expect("wake after a lane claim of nothing", desk.raw("EXISTS", desk.keys.wake), 0)


@scenario("claim_why", "A claim that brings less than asked says why: empty, paused, ceiling or rate.")
def _claim_why(desk: Desk) -> None:
    def why() -> Idle | None:
        return desk.run(jobs.claim_many(desk.queue, 2)).idle

    desk.expect("an empty queue", why(), Idle.EMPTY)
    desk.jobs(5)
    desk.expect("all that was asked for", why(), None)
    desk.run(admin.set_ceiling(desk.queue, 3))
    desk.expect("at the ceiling", why(), Idle.CEILING)
    desk.run(admin.set_ceiling(desk.queue, None))
    desk.run(admin.set_rate(desk.queue, 1, period_ms=FAR_MS))
    desk.expect("at the rate", why(), Idle.RATE)
    desk.run(admin.pause_queue(desk.queue))
    desk.expect("a paused queue", why(), Idle.PAUSED)


@scenario("claim_next", "An idle claim gives the next instant worth trying: the head of schedule, repeat or cron.")
def _claim_next(desk: Desk) -> None:
    def following() -> int | None:
        claims = desk.run(jobs.claim_many(desk.queue, 1))
        desk.between("the server's clock in it", claims.now_ms, before, desk.now_ms())
        return claims.next_at_ms

    before = desk.now_ms()
    desk.expect("with nothing to come", following(), None)
    later = desk.later()
    score = desk.score("schedule", later)
    desk.expect("a schedule", following(), score)
    desk.key("repeat:tick")
    first = before + FAR_MS // 2
    desk.run(repeat.register(desk.queue, "tick", every_ms=1_000, template=b"t", first_run_ms=first))
    desk.expect("an earlier recurrence", following(), first)
    desk.raw("ZADD", desk.keys.cron, first - 5, "tock")
    desk.expect("an earlier cron entry", following(), first - 5)
    desk.fall_due(later)
    desk.expect("something that is due now", following(), PAST)
