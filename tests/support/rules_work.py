"""Rules of the state machine: whole stretches of work, so that it comes far in few steps."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import rule

from echomq.protocol import admin, jobs
from echomq.protocol.jobs import Finished
from support.machine import HOUR, QUEUES, Bench, legacies, picks
from support.model import Span

# How a job that was claimed ends: cancelled, it is buried by whatever would let it run another time, or by a claim.
ends = st.one_of(
    st.sampled_from(["done", "done", "dies", "dies", "lapses", "late", "stalls", "again", "stays"]),
    st.sampled_from(["fails", "snoozes", "reaped"]),
    st.sampled_from(["again", "fails", "snoozes", "lapses", "stalls", "reaped", "late"]).map("cancelled, {}".format),
)
Fate = tuple[str, tuple[bytes, int]]
fates_ = st.lists(st.tuples(ends, legacies), min_size=2, max_size=6)


class WorkRules(Bench):
    """A worker that claims a few jobs and brings each to an end."""

    @rule(first=st.sampled_from([True, True, False]))
    def turn_to(self, first: bool) -> None:
        """Work on one queue, mostly the first."""
        self.take_up(QUEUES[0 if first else 1])
        self.compare_again("turning to it")

    @rule(fates=fates_, elsewhere=st.booleans())
    def work(self, fates: list[Fate], elsewhere: bool) -> None:
        self.shift(fates, elsewhere=elsewhere)

    # As often again: a worker does more than an operator.
    @rule(fates=fates_, elsewhere=st.booleans())
    def work_on(self, fates: list[Fate], elsewhere: bool) -> None:
        self.shift(fates, elsewhere=elsewhere)

    @rule(fates=fates_)
    def work_here(self, fates: list[Fate]) -> None:
        self.shift(fates, elsewhere=False)

    @rule(fates=fates_)
    def work_there(self, fates: list[Fate]) -> None:
        self.shift(fates, elsewhere=True)

    def shift(self, fates: list[Fate], *, elsewhere: bool) -> None:
        """Claims as many jobs as there are fates, and gives each its own."""
        here = self.queue
        if elsewhere:
            self.take_up(QUEUES[here == QUEUES[0]])
        model, queue = self.model, self.queue
        if model.paused:
            self.step(admin.resume_queue(queue), model.resume_queue)
        call = jobs.claim_many(queue, len(fates), lease_ms=HOUR)
        claims = self.step(call, lambda: model.claim(len(fates), HOUR), self.same_claims)
        self.claimed(claims)
        for job, (fate, leaves) in zip(claims.jobs, fates, strict=False):
            self.end(job.id, job.attempts, fate, leaves)
        self.take_up(here)

    def end(self, job_id: str, token: int, fate: str, leaves: tuple[bytes, int]) -> None:
        """Whatever becomes of a job in hand."""
        model, queue = self.model, self.queue
        if fate == "done":
            done = Finished(job_id, token, *leaves)
            call = jobs.complete(queue, job_id, token, result=done.result, result_ttl_ms=done.result_ttl_ms)
            self.step(call, lambda: model.complete(done))
        elif fate == "dies":
            self.step(
                jobs.retry(queue, job_id, token, delay_ms=0, max_attempts=token, error="died"),
                lambda: model.retry(job_id, token, 0, token, b"died"),
            )
        elif fate == "again":
            self.step(jobs.release(queue, job_id, token), lambda: model.release(job_id, token))
        elif fate.startswith("cancelled, "):
            self.step(admin.cancel_job(queue, job_id), lambda: model.cancel_job(job_id, b"cancelled"))
            self.end(job_id, token, fate.removeprefix("cancelled, "), leaves)
        elif fate == "fails":
            self.step(
                jobs.retry(queue, job_id, token, delay_ms=0, max_attempts=token + 1, error="failed"),
                lambda: model.retry(job_id, token, 0, token + 1, b"failed"),
            )
        elif fate == "snoozes":
            at_ms = self.an_instant_ago()
            self.step(jobs.delay(queue, job_id, token, at_ms=at_ms), lambda: model.delay(job_id, token, Span.at(at_ms)))
        elif fate == "reaped":
            model.active[job_id] = Span.at(self.an_instant_ago())
            self.by_hand("lapse", "ZADD", self.keys.active, "XX", self.past, job_id)
            self.step(jobs.reap(queue), lambda: model.reap(100))
        elif fate in ("lapses", "late", "stalls"):
            model.active[job_id] = Span.at(self.an_instant_ago())
            self.by_hand("lapse", "ZADD", self.keys.active, "XX", self.past, job_id)
            most = 1 if fate == "stalls" else 9
            self.step(jobs.sweep(queue, max_stalled=most), lambda: model.sweep(most, 100))
            if fate == "late":
                self.end(job_id, token, "done", leaves)

    @rule(pick=picks, payload=st.just(b"p"))
    def bring(self, pick: int, payload: bytes) -> None:
        """A flat job."""
        job_id = self.ids[pick]
        self.step(jobs.enqueue(self.queue, job_id, payload), lambda: self.model.enqueue(job_id, payload))
