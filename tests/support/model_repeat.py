"""The model's recurrences (protocol §9)."""

from __future__ import annotations

from dataclasses import dataclass, field

from echomq.protocol.repeat import Fired, Firing, Registration
from support.model import LAST, Span
from support.model_jobs import JobModel


@dataclass(slots=True)
class Recurrence:
    """What a name stands for, and when it runs next."""

    every_ms: int
    template: bytes
    at: Span


@dataclass(slots=True)
class RepeatModel(JobModel):
    """A queue with recurrences."""

    repeats: dict[str, Recurrence] = field(default_factory=dict)
    first_name: str | None = None

    def begin(self, now: Span) -> None:
        """A step begins."""
        JobModel.begin(self, now)
        self.first_name = None

    def owed(self, before: int) -> Span:
        """One more token for a recurrence that is now the earliest."""
        owed = JobModel.owed(self, before)
        if self.first_name is not None and not self.swept:
            first = min(self.repeats, key=lambda name: (self.repeats[name].at.low, name))
            owed += first == self.first_name
        return owed

    def next_at(self) -> int | None:
        """The earliest of schedule and recurrences."""
        instants = [span.low for span in self.schedule.values()] + [r.at.low for r in self.repeats.values()]
        return min(instants, default=None)

    def register(self, name: str, every_ms: int, template: bytes, first_ms: int) -> bool:
        if name in self.repeats:
            return False
        self.repeats[name] = Recurrence(every_ms, template, Span.at(first_ms))
        self.first_name = name
        return True

    def upsert(self, name: str, every_ms: int, template: bytes, first_ms: int) -> Registration:
        old = self.repeats.get(name)
        if old is None:
            self.register(name, every_ms, template, first_ms)
            return Registration.REGISTERED
        if (old.every_ms, old.template) == (every_ms, template):
            return Registration.UNCHANGED
        if old.every_ms != every_ms:
            old.at, self.first_name = Span.at(first_ms), name
        old.every_ms, old.template = every_ms, template
        return Registration.UPDATED

    def cancel(self, name: str) -> bool:
        return self.repeats.pop(name, None) is not None

    def due(self, now_ms: int, limit: int) -> list[tuple[str, int, bytes]]:
        come = sorted((r.at.low, name) for name, r in self.repeats.items() if r.at.low <= now_ms)
        return [(name, self.repeats[name].every_ms, self.repeats[name].template) for _, name in come[:limit]]

    def advance(self, name: str, next_ms: int) -> bool:
        if name not in self.repeats:
            return False
        self.repeats[name].at = Span.at(next_ms)
        return True

    def fire(self, name: str, score: int, job_id: str) -> tuple[Firing, Span | None]:
        """The verdict, and where the next score lies."""
        if name not in self.repeats:
            return Firing.LOST, None
        known = self.repeats[name]
        if known.at.low != score:
            return Firing.LOST, known.at
        if score > self.now.high:
            return Firing.EARLY, known.at
        if self.known(job_id):
            return Firing.DUPLICATE, known.at
        self.enqueue(job_id, known.template)

        def following(now: int) -> int:
            return min(score + known.every_ms * ((now - score) // known.every_ms + 1), LAST)

        known.at = Span(following(self.now.low), following(self.now.high))
        return Firing.FIRED, known.at

    def settle_repeats(self, scores: dict[str, float]) -> list[str]:
        """Where the server's recurrences are not the model's."""
        if set(scores) != set(self.repeats):
            return [f"recurrences: the model has {set(self.repeats)}, the server {set(scores)}"]
        out: list[str] = []
        for name, score in scores.items():
            known = self.repeats[name]
            if score not in known.at or (known.at.low != known.at.high and (score - known.at.low) % known.every_ms):
                out.append(f"recurrence {name}: {score} is not within {known.at}, off its grid")
            known.at = Span.at(int(score))
        return out


def agrees(fired: Fired, verdict: Firing, at: Span | None) -> bool:
    """Whether an answer is the one foreseen."""
    return fired.verdict is verdict and (fired.next_ms is None if at is None else fired.next_ms in at)
