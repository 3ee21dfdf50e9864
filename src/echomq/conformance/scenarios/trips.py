"""One round trip a verb (protocol §12.4), counted between the client and its server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from echomq.conformance.desk import FAR_MS, Desk
from echomq.conformance.scenario import scenario
from echomq.protocol import admin, admission, flows, jobs, lanes, metrics, repeat
from echomq.protocol.call import Call, Plan
from echomq.protocol.flows import Node
from echomq.protocol.jobs import Finished


def _flat(desk: Desk) -> Iterator[Call[Any] | Plan[Any]]:
    q = desk.queue
    first, late, many = desk.mint_many(3)
    yield jobs.enqueue(q, first, b"p")
    yield jobs.enqueue_in(q, late, b"p", delay_ms=FAR_MS)
    yield jobs.reschedule(q, late, delay_ms=0)
    yield jobs.enqueue_many(q, [(many, b"p")])
    desk.key("de:trips")
    yield admission.admit(q, desk.mint(), b"p", dedup=admission.Dedup("trips"))
    yield jobs.claim(q)
    yield jobs.extend(q, first, 1)
    yield jobs.extend_many(q, [(first, 1)])
    yield jobs.delay(q, first, 1, delay_ms=FAR_MS)
    yield jobs.claim_many(q, 1)
    yield jobs.retry(q, many, 1, delay_ms=0, max_attempts=5, error="e")
    yield jobs.promote(q)
    yield jobs.claim_many(q, 9)
    yield jobs.release(q, late, 1)
    yield jobs.complete(q, many, 2)
    yield jobs.claim(q)
    yield jobs.complete_many(q, [Finished(late, "2")])
    yield jobs.sweep(q)
    yield jobs.reap(q)
    yield jobs.browse(q)
    yield metrics.counts(q)
    yield metrics.state(q, first)
    yield admin.add_log(q, first, "a line")
    yield admin.update_progress(q, first, "half")
    yield admin.update_data(q, first, b"q")
    yield admin.cancel_job(q, first)
    yield admin.reprocess_job(q, first)
    yield admin.remove_job(q, first)
    yield admin.pause_queue(q)
    yield admin.resume_queue(q)
    yield admin.set_ceiling(q, 5)
    yield admin.gate(q)
    yield admin.rate_ttl(q)


def _grouped(desk: Desk) -> Iterator[Call[Any] | Plan[Any]]:
    q, (here, there) = desk.queue, (desk.lane("here"), desk.lane("there"))
    job_id = desk.mint()
    yield lanes.enqueue(q, job_id, b"p", here)
    yield lanes.reassign(q, job_id, there)
    yield lanes.pause(q, there)
    yield lanes.resume(q, there)
    yield lanes.limit(q, there, 2)
    yield lanes.weight(q, there, 2)
    yield lanes.claim(q)
    yield lanes.claim_weighted(q)
    yield lanes.reap(q, there)
    yield lanes.depth(q, there)


def _timed(desk: Desk) -> Iterator[Call[Any] | Plan[Any]]:
    q, score = desk.queue, desk.now_ms() - 1
    desk.key("repeat:tick")
    yield repeat.register(q, "tick", every_ms=FAR_MS, template=b"p", first_run_ms=score)
    yield repeat.due(q, now_ms=score)
    yield repeat.fire(q, "tick", score=str(score), job_id=desk.mint())
    yield repeat.advance(q, "tick", next_run_ms=score)
    yield repeat.count(q)
    yield repeat.cancel(q, "tick")


def _kin(desk: Desk) -> Iterator[Call[Any] | Plan[Any]]:
    parent, child = desk.mint_many(2)
    yield flows.add(Node(desk.queue, parent, b"p", (Node(desk.queue, child, b"c"),)))
    yield flows.children_values(desk.queue, parent)
    yield flows.outstanding(desk.queue, parent)
    yield flows.outbox(desk.queue)


@scenario("one_round_trip", "A verb asks once and is answered once, a flow of one queue too.")
def _one_round_trip(desk: Desk) -> None:
    families = (_flat, _grouped, _timed, _kin)
    known = desk.neighbour()
    relay, conn = desk.bench.relayed()
    try:
        for family in families:  # so that the server knows every script, and the connection which commands it may use
            for work in family(known):
                conn.run(work)
        for family in families:
            for work in family(desk):
                before = relay.trips
                name = work.verb if isinstance(work, Call) else "flow add"
                conn.run(work)
                desk.expect(f"the round trips of {name}", relay.trips - before, 1)
    finally:
        conn.close()
