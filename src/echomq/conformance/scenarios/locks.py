"""Leases and the marks of presence (protocol §2, §5, §7): extending, locking, and what a lock guards."""

from __future__ import annotations

from echomq.conformance.desk import Desk
from echomq.conformance.scenario import scenario
from echomq.protocol import admin, jobs, workers
from echomq.protocol.replies import Extension

_LEASE_MS = 60_000
_HASH_TTL = "hash-field TTL"


@scenario("lock_extend", "An extended lease outlives its first deadline; a stale token is refused, a missing job gone.")
def _lock_extend(desk: Desk) -> None:
    job = desk.in_hand()
    desk.lapse(job.id)
    before = desk.now_ms()
    extended = desk.run(jobs.extend(desk.queue, job.id, job.token, lease_ms=_LEASE_MS))
    desk.expect("extend", extended, Extension.EXTENDED)
    score = desk.score("active", job.id)
    desk.between("the deadline", score, before + _LEASE_MS, desk.now_ms() + _LEASE_MS)
    desk.expect("a sweep recovers", desk.run(jobs.sweep(desk.queue, max_stalled=9)).recovered, ())
    desk.refused(jobs.extend(desk.queue, job.id, 2), "EMQSTALE extend token mismatch")
    desk.expect("extend of no job", desk.run(jobs.extend(desk.queue, desk.mint(), 1)), Extension.GONE)


@scenario("extend_locks_batch", "Of a live, a stale and a missing job exactly the last two come back as not extended.")
def _extend_locks_batch(desk: Desk) -> None:
    live, stale = desk.in_hand(), desk.in_hand()
    gone = desk.mint()
    desk.lapse(live.id, stale.id)
    held: list[tuple[str, jobs.Token]] = [(live.id, live.token), (stale.id, 7), (gone, 1)]
    before = desk.now_ms()
    lost = desk.run(jobs.extend_many(desk.queue, held, lease_ms=_LEASE_MS))
    desk.expect("not extended", lost, (stale.id, gone))
    score = desk.score("active", live.id)
    desk.between("the live deadline", score, before + _LEASE_MS, desk.now_ms() + _LEASE_MS)
    desk.expect("the stale deadline", desk.score("active", stale.id), 1_001)


@scenario("keep", "The keeper extends every job in hand in one call and marks each for two leases, with its token.")
def _keep(desk: Desk) -> None:
    live, stale = desk.in_hand(), desk.in_hand()
    gone = desk.mint()
    before = desk.now_ms()
    held: list[tuple[str, jobs.Token]] = [(live.id, live.token), (stale.id, 7), (gone, 1)]
    kept = desk.run(workers.keep(desk.queue, held, lease_ms=_LEASE_MS))
    desk.expect("lost", (kept.lost, kept.cancelled), ((stale.id, gone), {}))
    score = desk.score("active", live.id)
    desk.between("the deadline", score, before + _LEASE_MS, desk.now_ms() + _LEASE_MS)
    marker = desk.row_key(live.id, ":lock")
    desk.expect("the marker", desk.raw("GET", marker), b"1")
    desk.between("its PTTL", desk.raw("PTTL", marker), _LEASE_MS, 2 * _LEASE_MS)
    desk.expect("other markers", desk.raw("EXISTS", desk.row_key(stale.id, ":lock"), desk.row_key(gone, ":lock")), 0)


@scenario("native_lock_field", "Where the server has hash-field TTL, the row's lock field holds the token and expires.")
def _native_lock_field(desk: Desk) -> None:
    desk.needs("HPEXPIRE", _HASH_TTL)
    job = desk.in_hand()
    desk.run(workers.keep(desk.queue, [(job.id, job.token)], lease_ms=_LEASE_MS, field=True))
    desk.expect("the field", desk.field(job.id, "lock"), b"1")
    (left,) = desk.raw("HPTTL", desk.row_key(job.id), "FIELDS", 1, "lock")
    desk.between("its PTTL", left, _LEASE_MS, 2 * _LEASE_MS)
    desk.expect("the row's other fields", desk.row(job.id).keys() - {"lock"}, {"state", "attempts", "payload"})


@scenario("native_lock_refuses", "A live lock field refuses removal by itself, and lets go once it has expired.")
def _native_lock_refuses(desk: Desk) -> None:
    desk.needs("HPEXPIRE", _HASH_TTL)
    job = desk.in_hand()
    desk.run(workers.keep(desk.queue, [(job.id, job.token)], lease_ms=_LEASE_MS, field=True))
    desk.raw("DEL", desk.row_key(job.id, ":lock"))
    desk.refused(admin.remove_job(desk.queue, job.id), "EMQLOCK job is locked")
    desk.raw("HPEXPIRE", desk.row_key(job.id), 1, "FIELDS", 1, "lock")
    desk.until("the field expires", lambda: desk.field(job.id, "lock") is None)
    desk.expect("removed", desk.run(admin.remove_job(desk.queue, job.id)), True)
    desk.expect("the row", desk.row(job.id), {})


@scenario("lock_heals", "A marker that has expired no longer locks: removal heals by itself.")
def _lock_heals(desk: Desk) -> None:
    job = desk.in_hand()
    desk.run(workers.keep(desk.queue, [(job.id, job.token)]))
    desk.refused(admin.remove_job(desk.queue, job.id), "EMQLOCK job is locked")
    desk.raw("PEXPIRE", desk.row_key(job.id, ":lock"), 1)
    desk.until("the marker expires", lambda: not desk.raw("EXISTS", desk.row_key(job.id, ":lock")))
    desk.expect("removed", desk.run(admin.remove_job(desk.queue, job.id)), True)
    desk.expect("the places", desk.places(job.id), [])


@scenario("workers", "A worker says that it lives on the server's clock, is listed, and is forgotten.")
def _workers(desk: Desk) -> None:
    before = desk.now_ms()
    desk.expect("live workers", desk.run(workers.beat(desk.queue, "w1", b'{"host": "h"}')), 1)
    desk.expect("live workers", desk.run(workers.beat(desk.queue, "w2", b"{}")), 2)
    desk.between("the last seen of w1", desk.score("workers", "w1"), before, desk.now_ms())
    desk.expect("the hash beside", desk.hash(desk.keys.workers_info), {"w1": b'{"host": "h"}', "w2": b"{}"})
    desk.raw("ZADD", desk.keys.workers, 1_000, "w1")
    desk.run(workers.beat(desk.queue, "w2", b"{}"))
    desk.expect("those not forgotten", [seen.name for seen in desk.run(workers.seen(desk.queue))], ["w2"])
    desk.run(workers.farewell(desk.queue, "w2"))
    desk.expect("the keys after the last farewell", desk.present(), [])
