"""The model's flat verbs (protocol §5), and the claim that serves flat work and lanes by turn (§12.3)."""

from __future__ import annotations

from collections.abc import Callable

from echomq.protocol.replies import (
    Admission,
    Claimed,
    Counts,
    Extension,
    Idle,
    Rescheduling,
    Retried,
    State,
    Sweep,
)
from support.model import Model, Row, Span


class JobModel(Model):
    """A queue with the flat verbs."""

    # -- admission ----------------------------------------------------------------------------------------------

    def enqueue(self, job_id: str, payload: bytes, group: str | None = None) -> Admission:
        if self.known(job_id):
            return Admission.DUPLICATE
        self.rows[job_id] = Row(payload, group=group)
        self.to_place(job_id)
        return Admission.ADMITTED

    def enqueue_many(self, jobs: list[tuple[str, bytes]]) -> tuple[Admission, ...]:
        return tuple(self.enqueue(job_id, payload) for job_id, payload in jobs)

    def schedule_one(self, job_id: str, payload: bytes, at: Span) -> Admission:
        if self.known(job_id):
            return Admission.DUPLICATE
        self.rows[job_id] = Row(payload)
        self.to_schedule(job_id, at)
        return Admission.SCHEDULED

    def reschedule(self, job_id: str, at: Span) -> Rescheduling | str:
        if job_id not in self.rows:
            return Rescheduling.GONE
        if job_id not in self.schedule:
            return "EMQSTATE reschedule not scheduled"
        self.to_schedule(job_id, at)
        return Rescheduling.MOVED

    # -- claims -------------------------------------------------------------------------------------------------

    def gate(self, want: int) -> tuple[int, Idle | None]:
        """How many the queue lets into hands, and why fewer."""
        if self.paused:
            return 0, Idle.PAUSED
        room = self.room()
        if room is not None and room < want:
            return max(room, 0), Idle.CEILING
        return want, None

    def take(self, job_id: str, deadline: Span, out: list[Claimed]) -> bool:
        """In hand, out of wherever it waits; a job without a payload and a cancelled one are buried instead."""
        row = self.rows[job_id]
        self.leave(job_id)
        if row.payload is None:
            self.bury(job_id, b"payload missing")
            return False
        if row.cancel is not None:
            self.bury(job_id, row.cancel)
            return False
        row.state, row.attempts = "active", row.attempts + 1
        with self.moving():
            self.active[job_id] = deadline
        out.append(Claimed(job_id, row.payload, row.attempts, row.failures or 0, row.stalled or 0, row.group))
        return True

    def take_flat(self, deadline: Span, out: list[Claimed]) -> bool:
        """The lowest flat id."""
        while self.pending:
            if self.take(min(self.pending), deadline, out):
                return True
        return False

    def take_turn(self, share: Callable[[str], int], deadline: Span, out: list[Claimed]) -> bool:
        """One step of the ring: up to `share` jobs of the first lane that gives any."""
        before = len(out)
        while self.ring and len(out) == before:
            group = self.ring[0]
            # To the end first: what the step does to the lane then takes it off or leaves it there.
            self.ring.append(self.ring.pop(0))
            while len(out) - before < share(group) and self.served(group):
                self.take(min(self.lanes[group]), deadline, out)
        return len(out) > before

    def claim(self, n: int, lease_ms: int) -> tuple[list[Claimed], Idle | None]:
        want, why = self.gate(n)
        out: list[Claimed] = []
        deadline = self.now + lease_ms
        while len(out) < want:
            lanes = len(self.ring)
            self.turn = min(self.turn, lanes) if lanes else self.turn
            if lanes and self.turn and self.take_turn(lambda _: 1, deadline, out):
                self.turn -= 1
            elif self.take_flat(deadline, out):
                self.turn = len(self.ring) if lanes else self.turn
            elif not self.take_turn(lambda _: 1, deadline, out):
                why = Idle.EMPTY
                break
        self.swept = not out
        return out, why

    # -- settling -------------------------------------------------------------------------------------------------

    def refusal(self, verb: str, job_id: str, token: int, places: tuple[str, ...]) -> str | None:
        """Why a holder may not: its token, or where the job lies."""
        row = self.rows[job_id]
        if row.attempts != token:
            return f"EMQSTALE {verb} token mismatch"
        return None if self.place_of(job_id) in places else f"EMQSTATE {verb} not active"

    def retry(self, job_id: str, token: int, delay_ms: int, most: int, error: bytes) -> Retried | str:
        if job_id not in self.rows:
            return "EMQSTALE job gone"
        if refused := self.refusal("retry", job_id, token, ("active", "pending")):
            return refused
        row = self.rows[job_id]
        self.leave(job_id)
        row.failures = (row.failures or 0) + 1
        if row.attempts < most and row.cancel is not None:
            error = row.cancel
        elif row.attempts < most:
            row.last_error = error
            self.to_schedule(job_id, self.now + delay_ms)
            return Retried.SCHEDULED
        self.bury(job_id, error)
        return Retried.DEAD

    def minded(self, job_id: str) -> bool:
        """Whether a job out of hand was cancelled, and so is buried."""
        wish = self.rows[job_id].cancel
        if wish is not None:
            self.bury(job_id, wish)
        return wish is not None

    def delay(self, job_id: str, token: int, at: Span) -> Retried | str | None:
        if job_id not in self.rows:
            return "EMQSTALE job gone"
        if refused := self.refusal("delay", job_id, token, ("active",)):
            return refused
        self.leave(job_id)
        if self.minded(job_id):
            return Retried.DEAD
        self.to_schedule(job_id, at)
        return None

    def release(self, job_id: str, token: int) -> Retried | str | None:
        if job_id not in self.rows:
            return "EMQSTALE job gone"
        if refused := self.refusal("release", job_id, token, ("active",)):
            return refused
        self.leave(job_id)
        if self.minded(job_id):
            return Retried.DEAD
        self.to_place(job_id)
        return None

    def extend(self, job_id: str, token: int, lease_ms: int) -> Extension | str:
        if job_id not in self.rows:
            return Extension.GONE
        if refused := self.refusal("extend", job_id, token, ("active",)):
            return refused
        self.active[job_id] = self.now + lease_ms
        return Extension.EXTENDED

    def extend_many(self, jobs: list[tuple[str, int]], lease_ms: int) -> tuple[str, ...]:
        return tuple(i for i, token in jobs if self.extend(i, token, lease_ms) is not Extension.EXTENDED)

    # -- time -------------------------------------------------------------------------------------------------------

    def past(self, members: dict[str, Span], limit: int) -> list[str]:
        """The members whose instant has come, the earliest first."""
        come = sorted((span.low, job_id) for job_id, span in members.items() if span.high <= self.now.low)
        return [job_id for _, job_id in come[:limit]]

    def promote(self, batch: int) -> int:
        come = self.past(self.schedule, batch)
        for job_id in come:
            del self.schedule[job_id]
            self.to_place(job_id)
        return len(come)

    def reap(self, limit: int = 100, group: str | None = None) -> int:
        lapsed = [i for i in self.past(self.active, limit) if group is None or self.rows[i].group == group]
        for job_id in lapsed:
            self.leave(job_id)
            self.to_place(job_id)
        return len(lapsed)

    def sweep(self, max_stalled: int, limit: int) -> Sweep:
        recovered: list[str] = []
        dead: list[str] = []
        cancelled: dict[str, str] = {}
        for job_id in self.past(self.active, limit):
            row = self.rows[job_id]
            row.stalled = (row.stalled or 0) + 1
            self.leave(job_id)
            if self.minded(job_id):
                dead.append(job_id)
                cancelled[job_id] = row.last_error.decode()
            elif row.stalled >= max_stalled:
                self.bury(job_id, b"stalled")
                dead.append(job_id)
            else:
                self.to_place(job_id)
                recovered.append(job_id)
        return Sweep(tuple(recovered), tuple(dead), cancelled=cancelled)

    # -- looking ------------------------------------------------------------------------------------------------------

    def counts(self) -> Counts:
        sizes = (len(self.pending), len(self.active), len(self.schedule), len(self.dead))
        return Counts(*sizes, self.completed, self.failed)

    def state(self, job_id: str) -> State:
        if job_id not in self.rows:
            return State.ABSENT
        return {
            "pending": State.PENDING,
            "active": State.ACTIVE,
            "schedule": State.SCHEDULED,
            "dead": State.DEAD,
            None: State.AWAITING_CHILDREN if self.rows[job_id].state == "awaiting_children" else State.UNKNOWN,
        }[self.place_of(job_id)]
