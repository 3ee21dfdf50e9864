"""Admission (protocol §3, §5): what a new job writes, and that it is written once."""

from __future__ import annotations

from dataclasses import replace

from echomq.conformance.desk import FAR_MS, Desk
from echomq.conformance.scenario import BreachError, scenario
from echomq.protocol import admission, jobs, lanes
from echomq.protocol.errors import WireError
from echomq.protocol.replies import Admission, Completion

RESULT_MS = 60_000


@scenario("mint", "An admission writes a row of exactly state, attempts and payload, and the id in its set.")
def _mint(desk: Desk) -> None:
    payload = b"any \x00\xff bytes"
    now = desk.job(payload)
    desk.expect("the row", desk.row(now), {"state": b"pending", "attempts": b"0", "payload": payload})
    desk.expect("pending", desk.zset(desk.keys.pending), {now: 0})
    before = desk.now_ms()
    later = desk.mint()
    verdict = desk.run(jobs.enqueue_in(desk.queue, later, payload, delay_ms=FAR_MS))
    desk.expect("the verdict", verdict, Admission.SCHEDULED)
    desk.expect("the scheduled row", desk.row(later), {"state": b"scheduled", "attempts": b"0", "payload": payload})
    desk.between("the run-at", desk.score("schedule", later), before + FAR_MS, desk.now_ms() + FAR_MS)


@scenario("duplicate", "An id that has a row is a duplicate for every admission, and nothing changes.")
def _duplicate(desk: Desk) -> None:
    held, pending, later = desk.in_hand(b"held").id, desk.job(b"first"), desk.later()
    group = desk.lane("duplicate")
    for job_id in (pending, held, later):
        calls = (
            jobs.enqueue(desk.queue, job_id, b"second"),
            jobs.enqueue_in(desk.queue, job_id, b"second", delay_ms=1),
            lanes.enqueue(desk.queue, job_id, b"second", group),
        )
        for call in calls:
            before = desk.dump()
            desk.expect(f"the verdict of {call.verb}", desk.run(call), Admission.DUPLICATE)
            desk.unwritten(f"a duplicate {call.verb}", before)
        before = desk.dump()
        admitted = desk.run(admission.admit(desk.queue, job_id, b"second", group=group))
        desk.expect("the verdict of admit", admitted.verdict, Admission.DUPLICATE)
        desk.unwritten("a duplicate admit", before)


@scenario(
    "mint_again", "Only a minted id that its first send finds taken is minted anew: none that was given or may be sent."
)
def _mint_again(desk: Desk) -> None:
    taken = [desk.in_hand(b"first").id, desk.job(b"second")]
    fresh = desk.mint()
    ids = iter([*taken, fresh])
    before = {job_id: desk.row(job_id) for job_id in taken}
    admitted = desk.run(
        admission.admit_fresh("the job", lambda: next(ids), lambda job_id: jobs.enqueue(desk.queue, job_id, b"third"))
    )
    desk.expect("the admission", admitted, admission.Admitted(Admission.ADMITTED, fresh))
    desk.expect("the payload", desk.field(fresh, "payload"), b"third")
    desk.expect("the rows that were there", {job_id: desk.row(job_id) for job_id in taken}, before)
    desk.expect("a given id", desk.run(jobs.enqueue(desk.queue, fresh, b"fourth")), Admission.DUPLICATE)
    dedup = admission.Dedup("key")
    desk.key("de:key")
    living = desk.mint()
    desk.run(admission.admit(desk.queue, living, b"p", dedup=dedup))
    held = desk.run(
        admission.admit_fresh(
            "the job", desk.mint, lambda job_id: admission.admit(desk.queue, job_id, b"p", dedup=dedup)
        )
    )
    desk.expect("behind a key", held, admission.Admitted(Admission.DUPLICATE, living))
    minted: list[str] = []

    def mint() -> str:
        minted.append(desk.mint())
        return minted[-1]

    sending = admission.admit_fresh("the job", mint, lambda job_id: jobs.enqueue(desk.queue, job_id, b"p"))
    next(sending)
    try:
        sending.throw(WireError("the answer was lost"))
    except WireError:
        desk.expect("ids minted when the answer was lost", len(minted), 1)
    else:
        raise BreachError("a send whose answer was lost was sent again under another id")


@scenario("order", "Pending walked in reverse by lex is newest first: the order of the ids is that of their mints.")
def _order(desk: Desk) -> None:
    ids = desk.mint_many(5)
    for job_id in (ids[3], ids[0], ids[4], ids[1], ids[2]):
        desk.run(jobs.enqueue(desk.queue, job_id, b"p"))
    newest_first = [each.decode() for each in desk.raw("ZRANGE", desk.keys.pending, "+", "-", "BYLEX", "REV")]
    desk.expect("pending in reverse", newest_first, ids[::-1])
    desk.expect("browse", list(desk.run(jobs.browse(desk.queue, limit=2))), ids[:2:-1])


@scenario(
    "pool_enqueue", "A batch is admitted in one call with an answer a job, in order; a repeated id is a duplicate."
)
def _pool_enqueue(desk: Desk) -> None:
    first = desk.job(b"first")
    a, b = desk.mint_many(2)
    verdicts = desk.run(jobs.enqueue_many(desk.queue, [(a, b"a"), (first, b"no"), (b, b"b"), (a, b"no")]))
    new, old = Admission.ADMITTED, Admission.DUPLICATE
    desk.expect("the verdicts", verdicts, (new, old, new, old))
    payloads = [desk.field(job_id, "payload") for job_id in (first, a, b)]
    desk.expect("the payloads", payloads, [b"first", b"a", b"b"])
    desk.expect("pending", desk.members(desk.keys.pending), [first, a, b])


@scenario("pool_enqueue_kind", "One id of another kind refuses the whole batch before its first write.")
def _pool_enqueue_kind(desk: Desk) -> None:
    call = jobs.enqueue_many(desk.queue, [(desk.mint(), b"a"), (desk.mint(), b"b")])
    args = (*call.args[:2], "ORD0KHTOWnGLuC", *call.args[3:])
    desk.refused(replace(call, args=args), "EMQKIND job id must be JOB-namespaced")


@scenario("pool_order", "What a batch admitted is claimed in mint order.")
def _pool_order(desk: Desk) -> None:
    ids = desk.mint_many(12)
    desk.run(jobs.enqueue_many(desk.queue, [(job_id, job_id) for job_id in ids[::-1]]))
    desk.expect("the first", desk.claim().id, ids[0])
    rest = desk.run(jobs.claim_many(desk.queue, 20)).jobs
    desk.expect("the rest", [(job.id, job.payload) for job in rest], [(each, each.encode()) for each in ids[1:]])


@scenario("batch_slices", "A batch above 1,000 is admitted, claimed and completed in one call each.")
def _batch_slices(desk: Desk) -> None:
    ids = desk.jobs(1_100)
    desk.expect("pending", desk.raw("ZCARD", desk.keys.pending), 1_100)
    claims = desk.run(jobs.claim_many(desk.queue, 1_100)).jobs
    desk.expect("the claimed ids are all, in order", [job.id for job in claims] == ids, True)
    desk.expect("active", desk.raw("ZCARD", desk.keys.active), 1_100)
    answers = desk.run(jobs.complete_many(desk.queue, [(job.id, job.token) for job in claims]))
    desk.expect("the answers", set(answers), {Completion.RETIRED})
    desk.expect("active, done", desk.raw("ZCARD", desk.keys.active), 0)
    desk.expect("completed", desk.count("completed"), 1_100)


@scenario("receipt_after_completion", "An id whose result still lives is a duplicate for every admission.")
def _receipt(desk: Desk) -> None:
    job = desk.in_hand()
    desk.run(jobs.complete(desk.queue, job.id, job.token, result=b"the result", result_ttl_ms=RESULT_MS))
    result = desk.row_key(job.id, ":result")
    desk.expect("the kept result", desk.raw("GET", result), b"the result")
    desk.between("its PTTL", desk.raw("PTTL", result), 1, RESULT_MS)
    before = desk.dump()
    group = desk.lane("receipt")
    verdicts = [
        desk.run(jobs.enqueue(desk.queue, job.id, b"p")),
        *desk.run(jobs.enqueue_many(desk.queue, [(job.id, b"p")])),
        desk.run(jobs.enqueue_in(desk.queue, job.id, b"p", delay_ms=1)),
        desk.run(lanes.enqueue(desk.queue, job.id, b"p", group)),
        desk.run(admission.admit(desk.queue, job.id, b"p")).verdict,
    ]
    desk.expect("the verdicts", verdicts, [Admission.DUPLICATE] * 5)
    desk.unwritten("an admission of a finished job", before)
    silent = desk.in_hand()
    desk.run(jobs.complete(desk.queue, silent.id, silent.token, result_ttl_ms=RESULT_MS))
    desk.expect("what a job without a result leaves", desk.raw("GET", desk.row_key(silent.id, ":result")), b"")
    desk.raw("DEL", result)
    desk.expect("once the result has gone", desk.run(jobs.enqueue(desk.queue, job.id, b"p")), Admission.ADMITTED)


@scenario("foreign_fields", "Fields that a client does not know are kept through every move of the row.")
def _foreign_fields(desk: Desk) -> None:
    job_id = desk.job()
    desk.raw("HSET", desk.row_key(job_id), "colour", "blue")
    token = desk.claim().attempts
    desk.run(jobs.retry(desk.queue, job_id, token, delay_ms=FAR_MS, max_attempts=9, error="e"))
    desk.fall_due(job_id)
    desk.run(jobs.promote(desk.queue))
    token = desk.claim().attempts
    desk.run(jobs.delay(desk.queue, job_id, token, delay_ms=FAR_MS))
    desk.expect("the foreign field", desk.field(job_id, "colour"), b"blue")
