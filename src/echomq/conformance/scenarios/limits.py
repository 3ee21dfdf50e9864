"""What a queue lets into hands (protocol §7): pause, ceiling, rate."""

from __future__ import annotations

from echomq.conformance.desk import Desk
from echomq.conformance.scenario import scenario
from echomq.protocol import admin, jobs, lanes
from echomq.protocol.replies import Admission, Completion, Idle

_PERIOD_MS = 60_000


@scenario(
    "queue_pause", "A paused queue serves no claim and takes admissions and settlements; resumed, it serves again."
)
def _queue_pause(desk: Desk) -> None:
    held = desk.in_hand()
    first = desk.job()
    desk.jobs(1, group=desk.lane("pause"))
    desk.run(admin.pause_queue(desk.queue))
    desk.expect("meta", desk.hash(desk.keys.meta), {"paused": b"1"})
    desk.expect("a claim", desk.run(jobs.claim(desk.queue)), None)
    desk.expect("a lane claim", desk.run(lanes.claim(desk.queue)), None)
    desk.expect("why", desk.run(jobs.claim_many(desk.queue, 5)).idle, Idle.PAUSED)
    verdict = desk.run(jobs.enqueue(desk.queue, desk.mint(), b"p"))
    desk.expect("an admission", verdict, Admission.ADMITTED)
    desk.expect("a completion", desk.run(jobs.complete(desk.queue, held.id, 1)), Completion.RETIRED)
    desk.raw("HSET", desk.keys.meta, "paused", "no")
    desk.expect("any value pauses", desk.run(jobs.claim(desk.queue)), None)
    desk.run(admin.resume_queue(desk.queue))
    desk.expect("meta", desk.hash(desk.keys.meta), {})
    desk.expect("the claim", desk.claim().id, first)


@scenario("rate", "The gate refuses at the concurrency ceiling and lets pass below it.")
def _rate(desk: Desk) -> None:
    desk.run(admin.gate(desk.queue))
    desk.run(admin.set_ceiling(desk.queue, 2))
    desk.expect("meta", desk.hash(desk.keys.meta), {"concurrency": b"2"})
    job = desk.in_hand()
    desk.run(admin.gate(desk.queue))
    desk.in_hand()
    desk.refused(admin.gate(desk.queue), "EMQRATE at concurrency ceiling")
    desk.run(jobs.complete(desk.queue, job.id, 1))
    desk.run(admin.gate(desk.queue))


@scenario("ceiling_claim", "A claim at the queue's ceiling brings nothing, in the same call; below it, up to the room.")
def _ceiling_claim(desk: Desk) -> None:
    desk.run(admin.set_ceiling(desk.queue, 2))
    ids = desk.jobs(3)
    desk.jobs(1, group=desk.lane("ceiling"))
    claims = desk.run(jobs.claim_many(desk.queue, 9))
    desk.expect("claimed and why no more", (len(claims.jobs), claims.idle), (2, Idle.CEILING))
    desk.expect("a claim", desk.run(jobs.claim(desk.queue)), None)
    desk.expect("a lane claim", desk.run(lanes.claim(desk.queue)), None)
    desk.run(jobs.complete(desk.queue, claims.jobs[0].id, 1))
    desk.expect("after a completion", len(desk.run(jobs.claim_many(desk.queue, 9)).jobs), 1)
    desk.run(admin.set_ceiling(desk.queue, None))
    desk.expect("the rest", len(desk.run(jobs.claim_many(desk.queue, 9)).jobs), 1)
    desk.expect("pending", set(desk.members(desk.keys.pending)) & set(ids), set())


@scenario("rate_limit", "n claims a period, on the server's clock, inside the claim; a window opens with its first.")
def _rate_limit(desk: Desk) -> None:
    desk.run(admin.set_rate(desk.queue, 3, period_ms=_PERIOD_MS))
    desk.jobs(6)
    before = desk.now_ms()
    claims = desk.run(jobs.claim_many(desk.queue, 2))
    desk.expect("claimed and why", (len(claims.jobs), claims.idle), (2, None))
    desk.expect("the spent budget", desk.raw("GET", desk.keys.limiter), b"2")
    desk.between("its PTTL", desk.raw("PTTL", desk.keys.limiter), 1, _PERIOD_MS)
    claims = desk.run(jobs.claim_many(desk.queue, 4))
    desk.expect("claimed and why no more", (len(claims.jobs), claims.idle), (1, Idle.RATE))
    desk.between("the next instant", claims.next_at_ms, before + _PERIOD_MS, desk.now_ms() + _PERIOD_MS + 1)
    desk.expect("a claim", desk.run(jobs.claim(desk.queue)), None)
    desk.expect("a lane claim", desk.run(lanes.claim(desk.queue)), None)
    desk.raw("PEXPIRE", desk.keys.limiter, 1)
    desk.until("the window ends", lambda: not desk.raw("EXISTS", desk.keys.limiter))
    desk.expect("in the next window", len(desk.run(jobs.claim_many(desk.queue, 9)).jobs), 3)


@scenario("rate_consult", "The rate TTL is the limiter's PTTL when its budget is spent, else 0; it spends nothing.")
def _rate_consult(desk: Desk) -> None:
    desk.expect("without a limiter", desk.run(admin.rate_ttl(desk.queue, n=1)), 0)
    desk.raw("SET", desk.keys.limiter, "5", "PX", _PERIOD_MS)
    desk.expect("below", desk.run(admin.rate_ttl(desk.queue, n=6)), 0)
    desk.between("at the budget", desk.run(admin.rate_ttl(desk.queue, n=5)), 1, _PERIOD_MS)
    desk.expect("without a budget", desk.run(admin.rate_ttl(desk.queue)), 0)
    desk.raw("HSET", desk.keys.meta, "max", "4")
    desk.between("at meta's", desk.run(admin.rate_ttl(desk.queue)), 1, _PERIOD_MS)
    desk.expect("the limiter", desk.raw("GET", desk.keys.limiter), b"5")
