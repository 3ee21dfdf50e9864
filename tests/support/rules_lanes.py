"""Rules of the state machine: lanes (protocol §6)."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import rule

from echomq.protocol import lanes
from support.machine import GROUPS, HOUR, groups, picks, small
from support.rules_jobs import JobRules


class LaneRules(JobRules):
    @rule()
    def claim_weighted(self) -> None:
        call = lanes.claim_weighted(self.queue, lease_ms=HOUR)
        self.claimed(self.step(call, lambda: self.model.claim_lane(HOUR, weighted=True), self.same_claims))

    @rule()
    def claim_lane(self) -> None:
        job = self.step(
            lanes.claim(self.queue, lease_ms=HOUR),
            lambda: self.model.claim_lane(HOUR, weighted=False),
            lambda job, foreseen: [job] * (job is not None) == foreseen[0],
        )
        if job:
            self.held.append((job.id, job.attempts))

    @rule(pick=picks, group=groups)
    def enqueue_lane(self, pick: int, group: str) -> None:
        job_id = self.ids[pick]
        self.step(lanes.enqueue(self.queue, job_id, b"p", group), lambda: self.model.enqueue(job_id, b"p", group))

    @rule(group=groups)
    def pause_lane(self, group: str) -> None:
        self.step(lanes.pause(self.queue, group), lambda: self.model.pause_lane(group))

    @rule(group=groups)
    def resume_lane(self, group: str) -> None:
        self.step(lanes.resume(self.queue, group), lambda: self.model.resume_lane(group))

    @rule(group=groups, most=st.sampled_from([None, None, 1, 1, 2]))
    def limit_lane(self, group: str, most: int | None) -> None:
        self.step(lanes.limit(self.queue, group, most), lambda: self.model.limit_lane(group, most))

    @rule(group=groups, weight=small)
    def weigh_lane(self, group: str, weight: int) -> None:
        def foresee() -> None:
            self.model.weights[group] = weight

        self.step(lanes.weight(self.queue, group, weight), foresee)

    @rule(pick=picks, group=groups)
    def reassign(self, pick: int, group: str) -> None:
        job_id = self.ids[pick]
        self.step(lanes.reassign(self.queue, job_id, group), lambda: self.model.reassign(job_id, group))

    @rule(group=groups, budget=small)
    def drain_lane(self, group: str, budget: int) -> None:
        self.step(next(lanes.drain(self.queue, group, budget=budget)), lambda: self.model.drain_lane(group, budget))

    @rule(group=groups, scan=small)
    def reap_lane(self, group: str, scan: int) -> None:
        self.step(lanes.reap(self.queue, group, scan=scan), lambda: self.model.reap(scan, group))

    @rule()
    def look_at_lane(self) -> None:
        depth = len(self.model.lanes.get(GROUPS[0], ()))
        self.step(lanes.depth(self.queue, GROUPS[0]), lambda: depth)
