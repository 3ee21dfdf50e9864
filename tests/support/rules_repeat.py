"""Rules of the state machine: recurrences (protocol §9)."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import rule

from echomq.protocol import repeat
from support.machine import HOUR, Bench, instants, payloads, picks, small
from support.model_repeat import agrees

names = st.sampled_from(["a", "b"])


class RepeatRules(Bench):
    @rule(name=names, every_ms=st.sampled_from([1_000, HOUR]), template=payloads, first_ms=instants)
    def register(self, name: str, every_ms: int, template: bytes, first_ms: int) -> None:
        self.step(
            repeat.register(self.queue, name, every_ms=every_ms, template=template, first_run_ms=first_ms),
            lambda: self.model.register(name, every_ms, template, first_ms),
        )

    @rule(name=names, every_ms=st.sampled_from([1_000, HOUR]), template=payloads, first_ms=instants)
    def upsert(self, name: str, every_ms: int, template: bytes, first_ms: int) -> None:
        self.step(
            repeat.upsert(self.queue, name, every_ms=every_ms, template=template, first_run_ms=first_ms),
            lambda: self.model.upsert(name, every_ms, template, first_ms),
        )

    @rule(name=names)
    def cancel(self, name: str) -> None:
        self.step(repeat.cancel(self.queue, name), lambda: self.model.cancel(name))

    @rule(at_ms=instants, limit=small)
    def due(self, at_ms: int, limit: int) -> None:
        self.step(
            repeat.due(self.queue, now_ms=at_ms, limit=limit),
            lambda: self.model.due(at_ms, limit),
            lambda due, foreseen: [(d.name, d.every_ms, d.template) for d in due] == foreseen,
        )

    @rule(name=names, next_ms=instants)
    def advance(self, name: str, next_ms: int) -> None:
        self.step(repeat.advance(self.queue, name, next_run_ms=next_ms), lambda: self.model.advance(name, next_ms))

    @rule(name=names, pick=picks, off=st.sampled_from([0, 0, 0, 1]))
    def fire(self, name: str, pick: int, off: int) -> None:
        known, job_id = self.model.repeats.get(name), self.ids[pick]
        score = (known.at.low if known else 5) + off
        self.step(
            repeat.fire(self.queue, name, score=str(score), job_id=job_id),
            lambda: self.model.fire(name, score, job_id),
            lambda fired, foreseen: agrees(fired, *foreseen),
        )

    @rule()
    def look_at_recurrences(self) -> None:
        self.step(repeat.count(self.queue), lambda: len(self.model.repeats))
