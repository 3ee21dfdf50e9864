"""Rules of the state machine: the flat verbs (protocol §5)."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import rule

from echomq.protocol import jobs, metrics
from echomq.protocol.jobs import Finished
from support.machine import (
    HOUR,
    Bench,
    Holder,
    delays,
    holders,
    instants,
    legacies,
    payloads,
    picks,
    plain,
    small,
    some,
)
from support.model import Span


class JobRules(Bench):
    # -- admission --------------------------------------------------------------------------------------------------

    @rule(pick=picks, payload=payloads)
    def enqueue(self, pick: int, payload: bytes) -> None:
        job_id = self.ids[pick]
        self.step(jobs.enqueue(self.queue, job_id, payload), lambda: self.model.enqueue(job_id, payload))

    @rule(chosen=st.lists(picks, min_size=1, max_size=6), payload=payloads)
    def enqueue_many(self, chosen: list[int], payload: bytes) -> None:
        batch = [(self.ids[pick], payload) for pick in chosen]
        self.step(jobs.enqueue_many(self.queue, batch), lambda: self.model.enqueue_many(batch))

    @rule(pick=picks, delay_ms=delays)
    def enqueue_in(self, pick: int, delay_ms: int) -> None:
        job_id = self.ids[pick]
        self.step(
            jobs.enqueue_in(self.queue, job_id, b"p", delay_ms=delay_ms),
            lambda: self.model.schedule_one(job_id, b"p", self.model.now + delay_ms),
        )

    @rule(pick=picks, at_ms=instants)
    def enqueue_at(self, pick: int, at_ms: int) -> None:
        job_id = self.ids[pick]
        self.step(
            jobs.enqueue_at(self.queue, job_id, b"p", at_ms=at_ms),
            lambda: self.model.schedule_one(job_id, b"p", Span.at(at_ms)),
        )

    @rule(pick=picks, delay_ms=delays)
    def reschedule_in(self, pick: int, delay_ms: int) -> None:
        job_id = self.ids[pick]
        self.step(
            jobs.reschedule(self.queue, job_id, delay_ms=delay_ms),
            lambda: self.model.reschedule(job_id, self.model.now + delay_ms),
        )

    @rule(pick=picks, at_ms=instants)
    def reschedule_at(self, pick: int, at_ms: int) -> None:
        job_id = self.ids[pick]
        self.step(
            jobs.reschedule(self.queue, job_id, at_ms=at_ms),
            lambda: self.model.reschedule(job_id, Span.at(at_ms)),
        )

    # -- claims -------------------------------------------------------------------------------------------------------

    @rule()
    def claim(self) -> None:
        job = self.step(
            jobs.claim(self.queue, lease_ms=HOUR),
            lambda: self.model.claim(1, HOUR),
            lambda job, foreseen: [job] * (job is not None) == foreseen[0],
        )
        if job:
            self.held.append((job.id, job.attempts))

    @rule(n=st.integers(1, 9))
    def claim_many(self, n: int) -> None:
        call = jobs.claim_many(self.queue, n, lease_ms=HOUR)
        self.claimed(self.step(call, lambda: self.model.claim(n, HOUR), self.same_claims))

    # -- settling -----------------------------------------------------------------------------------------------------

    @rule(who=holders, leaves=legacies)
    def complete(self, who: Holder, leaves: tuple[bytes, int]) -> None:
        job = Finished(*self.holder(who), *leaves)
        self.step(
            jobs.complete(self.queue, job.id, job.token, result=job.result, result_ttl_ms=job.result_ttl_ms),
            lambda: self.model.complete(job),
        )

    @rule(who=st.lists(st.tuples(holders, legacies), min_size=1, max_size=5))
    def complete_many(self, who: list[tuple[Holder, tuple[bytes, int]]]) -> None:
        batch = [Finished(*self.holder(each), *leaves) for each, leaves in who]
        self.step(
            jobs.complete_many(self.queue, batch),
            lambda: self.model.complete_many(batch),
            lambda answers, foreseen: tuple(map(plain, answers)) == foreseen,
        )

    @rule(pick=picks)
    def result_ends(self, pick: int) -> None:
        """A kept result has lived its time."""
        if self.model.results:
            job_id = sorted(self.model.results)[pick % len(self.model.results)]
            del self.model.results[job_id]
            self.by_hand("result ends", "DEL", f"{self.keys.job(job_id)}:result")

    @rule(who=holders, delay_ms=delays, lives=st.sampled_from([-1, 0, 1, 1, 1]))
    def retry(self, who: Holder, delay_ms: int, lives: int) -> None:
        job_id, token = self.holder(who)
        most = token + lives
        self.step(
            jobs.retry(self.queue, job_id, token, delay_ms=delay_ms, max_attempts=most, error=f"e{token}"),
            lambda: self.model.retry(job_id, token, delay_ms, most, f"e{token}".encode()),
        )

    @rule(who=holders, delay_ms=delays)
    def delay(self, who: Holder, delay_ms: int) -> None:
        job_id, token = self.holder(who)
        self.step(
            jobs.delay(self.queue, job_id, token, delay_ms=delay_ms),
            lambda: self.model.delay(job_id, token, self.model.now + delay_ms),
        )

    @rule(who=holders, at_ms=instants)
    def delay_until(self, who: Holder, at_ms: int) -> None:
        job_id, token = self.holder(who)
        self.step(
            jobs.delay(self.queue, job_id, token, at_ms=at_ms),
            lambda: self.model.delay(job_id, token, Span.at(at_ms)),
        )

    @rule(who=holders)
    def release(self, who: Holder) -> None:
        job_id, token = self.holder(who)
        self.step(jobs.release(self.queue, job_id, token), lambda: self.model.release(job_id, token))

    @rule(who=holders, lease_ms=st.sampled_from([HOUR, 2 * HOUR]))
    def extend(self, who: Holder, lease_ms: int) -> None:
        job_id, token = self.holder(who)
        self.step(
            jobs.extend(self.queue, job_id, token, lease_ms=lease_ms),
            lambda: self.model.extend(job_id, token, lease_ms),
        )

    @rule(who=st.lists(holders, min_size=1, max_size=5))
    def extend_many(self, who: list[Holder]) -> None:
        batch = [self.holder(each) for each in who]
        self.step(jobs.extend_many(self.queue, batch, lease_ms=HOUR), lambda: self.model.extend_many(batch, HOUR))

    # -- time ---------------------------------------------------------------------------------------------------------

    def come(self, members: dict[str, Span], key: str, chosen: list[int]) -> None:
        for pick in chosen:
            if members:
                job_id = sorted(members)[pick % len(members)]
                members[job_id] = Span.at(self.an_instant_ago())
                self.by_hand(key, "ZADD", key, "XX", self.past, job_id)

    @rule(chosen=some)
    def lapse(self, chosen: list[int]) -> None:
        """Leases have ended."""
        self.come(self.model.active, self.keys.active, chosen)

    @rule(chosen=some)
    def fall_due(self, chosen: list[int]) -> None:
        """Run-ats have come."""
        self.come(self.model.schedule, self.keys.schedule, chosen)

    @rule(pick=picks)
    def lose_payload(self, pick: int) -> None:
        """Another client has spoilt a row."""
        row = self.model.rows.get(self.ids[pick])
        if row and row.payload is not None:
            row.payload = None
            self.by_hand("lose payload", "HDEL", self.keys.job(self.ids[pick]), "payload")

    @rule(batch=small)
    def promote(self, batch: int) -> None:
        self.step(jobs.promote(self.queue, batch), lambda: self.model.promote(batch))

    @rule()
    def reap(self) -> None:
        self.step(jobs.reap(self.queue), lambda: self.model.reap())

    @rule(most=small, limit=small)
    def sweep(self, most: int, limit: int) -> None:
        self.step(jobs.sweep(self.queue, max_stalled=most, limit=limit), lambda: self.model.sweep(most, limit))

    # -- looking ------------------------------------------------------------------------------------------------------

    @rule(pick=picks)
    def look(self, pick: int) -> None:
        job_id, model = self.ids[pick], self.model
        self.step(metrics.counts(self.queue), model.counts)
        self.step(metrics.state(self.queue, job_id), lambda: model.state(job_id))
        self.step(jobs.pending_size(self.queue), lambda: len(model.pending))
        self.step(jobs.browse(self.queue, limit=3), lambda: tuple(sorted(model.pending, reverse=True)[:3]))
        self.step(jobs.browse_dead(self.queue, limit=3), lambda: tuple(sorted(model.dead, reverse=True)[:3]))
