"""Settling (protocol §3, §5): completion, failure, hand-back, and the token that guards each."""

from __future__ import annotations

from typing import Any

from echomq.conformance.desk import FAR_MS, Desk
from echomq.conformance.scenario import BreachError, scenario
from echomq.protocol import admin, backoff, jobs, workers
from echomq.protocol.call import Call
from echomq.protocol.errors import StaleTokenError
from echomq.protocol.replies import Completion, Extension, Retried


def _by_holder(desk: Desk, job_id: str, token: int) -> dict[str, Call[Any]]:
    return {
        "complete": jobs.complete(desk.queue, job_id, token),
        "retry": jobs.retry(desk.queue, job_id, token, delay_ms=0, max_attempts=9, error="e"),
        "extend": jobs.extend(desk.queue, job_id, token),
        "delay": jobs.delay(desk.queue, job_id, token, delay_ms=0),
        "release": jobs.release(desk.queue, job_id, token),
    }


@scenario("stale", "A stale token is refused, also right after the script cache was flushed; the live token settles.")
def _stale(desk: Desk) -> None:
    job = desk.in_hand()
    desk.lapse(job.id)
    desk.run(jobs.sweep(desk.queue, max_stalled=9))
    desk.expect("the second token", desk.claim().attempts, 2)
    for verb, call in _by_holder(desk, job.id, 1).items():
        desk.refused(call, f"EMQSTALE {verb} token mismatch")
    desk.raw("SCRIPT", "FLUSH")
    for verb, call in _by_holder(desk, job.id, 1).items():
        desk.refused(call, f"EMQSTALE {verb} token mismatch")
    desk.expect("the live token", desk.run(jobs.complete(desk.queue, job.id, 2)), Completion.RETIRED)


@scenario("gone", "Settling a job without a row writes nothing: complete and extend say gone, the others are refused.")
def _gone(desk: Desk) -> None:
    job = desk.in_hand()
    desk.run(jobs.complete(desk.queue, job.id, job.token))
    before = desk.dump()
    desk.expect("complete", desk.run(jobs.complete(desk.queue, job.id, job.token)), Completion.GONE)
    desk.expect("extend", desk.run(jobs.extend(desk.queue, job.id, job.token)), Extension.GONE)
    desk.unwritten("complete and extend of a job that is gone", before)
    for verb in ("retry", "delay", "release"):
        desk.refused(_by_holder(desk, job.id, 1)[verb], "EMQSTALE job gone")


@scenario("complete", "A completion leaves nothing: row, logs, lock and lease are gone, and completed is one more.")
def _complete(desk: Desk) -> None:
    job = desk.in_hand()
    desk.run(admin.add_log(desk.queue, job.id, "a line"))
    desk.run(workers.keep(desk.queue, [(job.id, job.token)]))
    desk.expect("the lock beside the row", desk.raw("EXISTS", desk.row_key(job.id, ":lock")), 1)
    desk.expect("the verdict", desk.run(jobs.complete(desk.queue, job.id, job.token)), Completion.RETIRED)
    desk.drop_tokens()
    desk.expect("the keys left", desk.present(), ["metrics:completed"])
    desk.expect("completed", desk.count("completed"), 1)


@scenario("complete_batch", "A batch of completions has one answer a job, in order; a refusal is that job's own.")
def _complete_batch(desk: Desk) -> None:
    live, stale, gone = desk.in_hand(), desk.in_hand(), desk.in_hand()
    desk.run(jobs.complete(desk.queue, gone.id, gone.token))
    held = [(stale.id, 7), (live.id, 1), (gone.id, 1), (live.id, 1)]
    answers = desk.run(jobs.complete_many(desk.queue, held))
    refusal = answers[0]
    if not isinstance(refusal, StaleTokenError):
        raise BreachError(f"the stale token answered {refusal!r}")
    desk.expect("the refusal", refusal.reply, "EMQSTALE complete token mismatch")
    desk.expect("the others", answers[1:], (Completion.RETIRED, Completion.GONE, Completion.GONE))
    desk.stands(stale.id, "active", "active")
    desk.expect("completed", desk.count("completed"), 2)


@scenario("retry", "A failure keeps its error and waits on the schedule; promoted, the next token is 2.")
def _retry(desk: Desk) -> None:
    job = desk.in_hand()
    before = desk.now_ms()
    call = jobs.retry(desk.queue, job.id, job.token, delay_ms=FAR_MS, max_attempts=3, error="it broke")
    desk.expect("the verdict", desk.run(call), Retried.SCHEDULED)
    desk.stands(job.id, "scheduled", "schedule")
    desk.expect("the error", desk.field(job.id, "last_error"), b"it broke")
    desk.between("the run-at", desk.score("schedule", job.id), before + FAR_MS, desk.now_ms() + FAR_MS)
    desk.fall_due(job.id)
    desk.expect("promoted", desk.run(jobs.promote(desk.queue)), 1)
    again = desk.claim()
    desk.expect("the second claim", (again.id, again.attempts, again.failures), (job.id, 2, 1))
    desk.expect("failed", desk.count("failed"), 0)


@scenario("dead", "At the cap a failure buries the job: error kept, failed one more, browsable, stamped with its hour.")
def _dead(desk: Desk) -> None:
    job = desk.in_hand(b"poison")
    before = desk.now_ms()
    call = jobs.retry(desk.queue, job.id, job.token, delay_ms=0, max_attempts=1, error="the last")
    desk.expect("the verdict", desk.run(call), Retried.DEAD)
    desk.stands(job.id, "dead", "dead")
    row = desk.row(job.id)
    desk.expect("the row", (row["last_error"], row["payload"], row["attempts"]), (b"the last", b"poison", b"1"))
    desk.between("died_ms", int(row.get("died_ms", b"0")), before, desk.now_ms())
    desk.expect("the morgue", desk.zset(desk.keys.dead), {job.id: 0})
    desk.expect("browse_dead", desk.run(jobs.browse_dead(desk.queue)), (job.id,))
    desk.expect("failed", desk.count("failed"), 1)
    desk.expect("a claim afterwards", desk.run(jobs.claim(desk.queue)), None)


@scenario("backoff", "A job that always fails, its delays priced by Exponential(1, 10), dies at attempt 3 of 3.")
def _backoff(desk: Desk) -> None:
    policy = backoff.Exponential(1, 10)
    job_id = desk.job()
    delays: list[int] = []
    verdicts: list[Retried] = []
    for attempt in (1, 2, 3):
        desk.until(f"attempt {attempt} falls due", lambda: _due(desk))
        job = desk.claim()
        desk.expect("the token", job.attempts, attempt)
        delays.append(backoff.delay_ms(policy, attempt))
        before = desk.now_ms()
        error = f"error {attempt}"
        call = jobs.retry(desk.queue, job_id, job.token, delay_ms=delays[-1], max_attempts=3, error=error)
        verdicts.append(desk.run(call))
        if verdicts[-1] is Retried.SCHEDULED:
            score = desk.score("schedule", job_id)
            desk.between("the run-at", score, before + delays[-1], desk.now_ms() + delays[-1])
    desk.expect("the delays", delays, [1, 2, 4])
    desk.expect("the verdicts", verdicts, [Retried.SCHEDULED, Retried.SCHEDULED, Retried.DEAD])
    desk.stands(job_id, "dead", "dead")
    desk.expect("the error", desk.field(job_id, "last_error"), b"error 3")


def _due(desk: Desk) -> bool:
    desk.run(jobs.promote(desk.queue))
    return bool(desk.raw("ZCARD", desk.keys.pending))


@scenario("failures", "Only a settled failure counts as one: a delay, a release and a lapse spend none.")
def _failures(desk: Desk) -> None:
    job = desk.in_hand()
    desk.run(jobs.delay(desk.queue, job.id, 1, delay_ms=FAR_MS))
    desk.fall_due(job.id)
    desk.run(jobs.promote(desk.queue))
    desk.run(jobs.release(desk.queue, job.id, desk.claim().token))
    desk.claim()
    desk.lapse(job.id)
    desk.run(jobs.sweep(desk.queue, max_stalled=9))
    held = desk.claim()
    desk.expect("attempts, failures, stalled", (held.attempts, held.failures, held.stalled), (4, 0, 1))
    desk.run(jobs.retry(desk.queue, job.id, held.token, delay_ms=0, max_attempts=9, error="e"))
    desk.expect("failures after a retry", desk.field(job.id, "failures"), b"1")


@scenario("token_never_falls", "Only a claim raises attempts, and nothing lowers or resets it, not even another life.")
def _token(desk: Desk) -> None:
    job = desk.in_hand()
    desk.run(jobs.release(desk.queue, job.id, 1))
    desk.expect("after a release", desk.field(job.id, "attempts"), b"1")
    desk.claim()
    desk.run(jobs.extend(desk.queue, job.id, 2))
    desk.run(jobs.retry(desk.queue, job.id, 2, delay_ms=0, max_attempts=2, error="e"))
    desk.expect("in the morgue", desk.field(job.id, "attempts"), b"2")
    desk.run(admin.reprocess_job(desk.queue, job.id))
    desk.expect("in another life", desk.field(job.id, "attempts"), b"2")
    desk.expect("the next token", desk.claim().attempts, 3)


@scenario("release", "A hand-back keeps the token, spends no failure and is claimable at once, with a wake token.")
def _release(desk: Desk) -> None:
    job = desk.in_hand()
    desk.drop_tokens()
    desk.run(jobs.release(desk.queue, job.id, job.token))
    desk.stands(job.id, "pending", "pending")
    row = desk.row(job.id)
    desk.expect("attempts and failures", (row["attempts"], row.get("failures", b"0")), (b"1", b"0"))
    desk.expect("the wake tokens", desk.tokens(), 1)
    desk.refused(jobs.release(desk.queue, job.id, job.token), "EMQSTATE release not active")
    desk.expect("the next token", desk.claim().attempts, 2)
