"""Deduplication keys (protocol §7): one living job a key, whatever its id."""

from __future__ import annotations

from collections.abc import Callable

from echomq.conformance.desk import FAR_MS, Desk
from echomq.conformance.scenario import scenario
from echomq.protocol import admin, admission, jobs
from echomq.protocol.admission import Admitted, Dedup
from echomq.protocol.replies import Admission


def _admit(desk: Desk, dedup: Dedup, payload: bytes = b"p", *, delay_ms: int | None = None) -> tuple[str, Admitted]:
    desk.key(f"de:{dedup.key}")
    job_id = desk.mint()
    return job_id, desk.run(admission.admit(desk.queue, job_id, payload, dedup=dedup, delay_ms=delay_ms))


@scenario("dedup", "While a living row holds a key, another admission under it writes nothing and gives that job's id.")
def _dedup(desk: Desk) -> None:
    first, admitted = _admit(desk, Dedup("k"), b"first")
    desk.expect("the first verdict", admitted, Admitted(Admission.ADMITTED, first))
    desk.expect("the key", desk.raw("GET", desk.key("de:k")), first.encode())
    desk.expect("the row's own note", desk.field(first, "dedup"), b"k")
    before = desk.dump()
    second, admitted = _admit(desk, Dedup("k"), b"second")
    desk.expect("the second verdict", admitted, Admitted(Admission.DUPLICATE, first))
    desk.unwritten("an admission under a key that is held", before)
    desk.claim()
    _third, admitted = _admit(desk, Dedup("k"), b"third", delay_ms=FAR_MS)
    desk.expect("while in hand", admitted, Admitted(Admission.DUPLICATE, first))
    desk.expect("the row of the second", desk.row(second), {})
    other, admitted = _admit(desk, Dedup("another"))
    desk.expect("under another key", admitted, Admitted(Admission.ADMITTED, other))


@scenario("dedup_replace", "With replace the living job gets the new payload, unless it is in hand.")
def _dedup_replace(desk: Desk) -> None:
    first, _ = _admit(desk, Dedup("k"), b"first")
    _admit(desk, Dedup("k", replace=True), b"second")
    desk.expect("the payload while it waits", desk.field(first, "payload"), b"second")
    desk.claim()
    _admit(desk, Dedup("k", replace=True), b"third")
    desk.expect("the payload in hand", desk.field(first, "payload"), b"second")


@scenario("dedup_freed", "Completion, burial, the sweep, cancellation, drain and removal free the key.")
def _dedup_freed(desk: Desk) -> None:
    def lapsing(job_id: str) -> None:
        desk.lapse(job_id)
        desk.run(jobs.sweep(desk.queue, max_stalled=1))

    endings: dict[str, Callable[[str], object]] = {
        "complete": lambda i: desk.run(jobs.complete(desk.queue, i, desk.claim().token)),
        "complete_many": lambda i: desk.run(jobs.complete_many(desk.queue, [(i, desk.claim().token)])),
        "burial": lambda i: desk.run(
            jobs.retry(desk.queue, i, desk.claim().token, delay_ms=0, max_attempts=1, error="e")
        ),
        "sweep": lambda _: lapsing(desk.claim().id),
        "cancel": lambda i: desk.run(admin.cancel_job(desk.queue, i)),
        "drain": lambda _: desk.run(admin.drain(desk.queue)),
        "remove": lambda i: desk.run(admin.remove_job(desk.queue, i)),
    }
    for ending, end in endings.items():
        job_id, _ = _admit(desk, Dedup("k"))
        end(job_id)
        desk.expect(f"the key after {ending}", desk.raw("EXISTS", desk.key("de:k")), 0)
        again, admitted = _admit(desk, Dedup("k"))
        desk.expect(f"an admission after {ending}", admitted, Admitted(Admission.ADMITTED, again))
        desk.run(admin.remove_job(desk.queue, again))


@scenario("dedup_kept", "A retry, a delay and a lapse keep the key: the job lives on.")
def _dedup_kept(desk: Desk) -> None:
    job_id, _ = _admit(desk, Dedup("k"))
    desk.run(jobs.retry(desk.queue, job_id, desk.claim().token, delay_ms=FAR_MS, max_attempts=9, error="e"))
    desk.fall_due(job_id)
    desk.run(jobs.promote(desk.queue))
    desk.claim()
    desk.lapse(job_id)
    desk.run(jobs.sweep(desk.queue, max_stalled=9))
    _second, admitted = _admit(desk, Dedup("k"))
    desk.expect("the verdict", admitted, Admitted(Admission.DUPLICATE, job_id))


@scenario(
    "dedup_window", "A key with a window ends with it; the older job's end then leaves its successor's key alone."
)
def _dedup_window(desk: Desk) -> None:
    old, _ = _admit(desk, Dedup("k", window_ms=60_000))
    desk.between("the window", desk.raw("PTTL", desk.key("de:k")), 1, 60_000)
    desk.raw("PEXPIRE", desk.key("de:k"), 1)
    desk.until("the window ends", lambda: not desk.raw("EXISTS", desk.key("de:k")))
    new, admitted = _admit(desk, Dedup("k"))
    desk.expect("the verdict", admitted, Admitted(Admission.ADMITTED, new))
    desk.run(jobs.complete(desk.queue, old, desk.claim().token))
    desk.expect("the key", desk.raw("GET", desk.key("de:k")), new.encode())


@scenario("dedup_dead_holder", "A key that names a dead job, or none, holds nobody up.")
def _dedup_dead(desk: Desk) -> None:
    desk.raw("SET", desk.key("de:k"), desk.mint())
    job_id, admitted = _admit(desk, Dedup("k"))
    desk.expect("the verdict", admitted, Admitted(Admission.ADMITTED, job_id))
    desk.expect("the key", desk.raw("GET", desk.key("de:k")), job_id.encode())
