"""Rules of the state machine: the morgue, and jobs that are removed, cancelled and drained (protocol §7)."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import rule

from echomq.protocol import admin, morgue
from support.machine import HOUR, KEYS, Bench, picks, small, some
from support.model import Span


class DeadRules(Bench):
    """Deaths of every kind, and lives after them."""

    # -- the morgue ---------------------------------------------------------------------------------------------------

    @rule(
        most=st.sampled_from([None, None, None, 0, 2, 3]),
        age_ms=st.sampled_from([None, None, 0, HOUR, HOUR, HOUR]),
        budget=small,
    )
    def retain(self, most: int | None, age_ms: int | None, budget: int) -> None:
        """A few steps of the pump under new settings."""
        model = self.model

        def foresee() -> None:
            model.setting("dead_max", most)
            model.setting("dead_age_ms", age_ms)

        self.step(admin.set_retention(self.queue, dead_max=most, dead_age_ms=age_ms), foresee)
        after = ""
        for _ in range(2):
            call = admin.retain(self.queue, after=after, budget=budget)
            _, after = self.step(call, lambda after=after: model.retain(after, budget))

    @rule(pick=picks, died_ms=st.sampled_from([None, 1_000]))
    def age_dead(self, pick: int, died_ms: int | None) -> None:
        """A dead job has lain there for long, or another client has buried it."""
        if self.model.dead:
            job_id = sorted(self.model.dead)[pick % len(self.model.dead)]
            self.model.rows[job_id].died = None if died_ms is None else Span.at(died_ms)
            words = ("HDEL", self.keys.job(job_id), "died_ms")
            self.by_hand("age dead", *(words if died_ms is None else ("HSET", *words[1:], died_ms)))

    @rule(chosen=some)
    def purge(self, chosen: list[int]) -> None:
        ids = [self.among(self.model.dead, pick) for pick in chosen]
        self.step(morgue.purge(self.queue, ids), lambda: self.model.purge(ids))

    @rule(pick=picks)
    def reprocess(self, pick: int) -> None:
        job_id = self.among(self.model.dead, pick)
        self.step(admin.reprocess_job(self.queue, job_id), lambda: self.model.reprocess_job(job_id))

    @rule(pick=picks, key=st.sampled_from(["", "", *KEYS]))
    def remove(self, pick: int, key: str) -> None:
        job_id = self.among(set(self.model.active), pick) if pick % 2 else self.ids[pick]
        self.step(admin.remove_job(self.queue, job_id, dedup=key), lambda: self.model.remove_job(job_id, key))

    @rule(pick=picks, reason=st.sampled_from(["cancelled", "cancelled: no", "why"]))
    def cancel_job(self, pick: int, reason: str) -> None:
        job_id = self.ids[pick]
        text = reason if reason.startswith("cancelled") else f"cancelled: {reason}"
        self.step(
            admin.cancel_job(self.queue, job_id, reason=reason),
            lambda: self.model.cancel_job(job_id, text.encode()),
        )

    @rule(children=st.booleans(), parents=st.booleans())
    def second_lives(self, children: bool, parents: bool) -> None:
        """All the dead of one generation run again."""
        for job_id in sorted(self.model.dead):
            if parents if job_id in self.model.books else children:
                call = admin.reprocess_job(self.queue, job_id)
                self.step(call, lambda job_id=job_id: self.model.reprocess_job(job_id))

    # -- many jobs ----------------------------------------------------------------------------------------------------

    @rule(budget=st.integers(1, 3), scheduled=st.booleans())
    def drain(self, budget: int, scheduled: bool) -> None:
        call = next(admin.drain(self.queue, scheduled=scheduled, budget=budget))
        self.step(call, lambda: self.model.drain(budget, scheduled=scheduled))
