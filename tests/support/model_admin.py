"""The model's operator verbs, rate limit and deduplicated admission (protocol §7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from echomq.protocol.admin import Cancellation
from echomq.protocol.admission import Admitted
from echomq.protocol.replies import Admission, Claimed, Idle
from echomq.protocol.workers import Kept
from support.model import Row, Span
from support.model_flows import FlowModel


@dataclass
class AdminModel(FlowModel):
    """A queue with everything."""

    rate: tuple[int, int] | None = None
    spent: int = 0
    window: Span | None = None
    """When the open rate window ends; None with something spent: another client has left it without an end."""
    dead_max: int | None = None
    dead_age_ms: int | None = None
    locks: set[str] = field(default_factory=set)
    rejected: list[bytes] = field(default_factory=list)

    # -- settings -----------------------------------------------------------------------------------------------

    def meta(self) -> dict[str, bytes]:
        """The settings as the server keeps them."""
        values = {
            "paused": 1 if self.paused else None,
            "concurrency": self.ceiling or None,
            "max": self.rate and self.rate[0],
            "period_ms": self.rate and self.rate[1],
            "dead_max": self.dead_max,
            "dead_age_ms": self.dead_age_ms,
        }
        return {name: b"%d" % value for name, value in values.items() if value is not None}

    def gate(self, want: int) -> tuple[int, Idle | None]:
        want, why = FlowModel.gate(self, want)
        if self.rate is None or self.paused:
            return want, why
        left = self.rate[0] - self.spent
        if left < 1 and self.spent and self.window is None:
            left, self.spent = self.rate[0], 0
        return (max(left, 0), Idle.RATE) if left < want else (want, why)

    def spend(self, n: int) -> None:
        if self.rate and n:
            self.spent += n
            if self.spent == n:
                self.window = self.now + self.rate[1]

    def servable(self) -> int:
        """How many jobs a claim of 64 would bring."""
        return min(self.waiting(), self.gate(64)[0])

    def setting(self, name: str, value: object) -> None:
        before = self.servable()
        setattr(self, name, value)
        self.pushed = max(self.servable() - before, 0)
        if self.rate and self.spent and self.window:
            end = self.now + self.rate[1]
            if self.window.high > end.high:
                self.window, self.pushed = end, max(self.pushed, 1)

    def resume_queue(self) -> None:
        was, self.paused = self.paused, False
        self.pushed = self.servable() if was else 0

    def claim(self, n: int, lease_ms: int) -> tuple[list[Claimed], Idle | None]:
        out, why = FlowModel.claim(self, n, lease_ms)
        self.spend(len(out))
        return out, why

    def claim_lane(self, lease_ms: int, *, weighted: bool) -> tuple[list[Claimed], Idle | None]:
        out, why = FlowModel.claim_lane(self, lease_ms, weighted=weighted)
        self.spend(len(out))
        return out, why

    def worth_at(self, why: Idle | None, now_ms: int) -> Span | None:
        """The next instant worth claiming at, as a claim answers it."""
        nearest, end = self.next_at(), None
        if why is Idle.RATE:
            end = self.window if self.spent and self.window else Span.at(now_ms)
            end = Span(max(end.low, now_ms) - 2, max(end.high, now_ms) + 2)
        if end is None or (nearest is not None and nearest < end.low):
            return None if nearest is None else Span.at(nearest)
        return end if nearest is None else Span(end.low, min(end.high, nearest))

    def ceiling_gate(self) -> str | None:
        full = 0 < self.ceiling <= len(self.active)
        return "EMQRATE at concurrency ceiling" if full else None

    def rate_ttl(self, n: int) -> Span:
        most = n or (self.rate[0] if self.rate else 0)
        if not most or self.spent < most or self.window is None:
            return Span.at(0)
        return Span(max(self.window.low - self.now.high - 2, 0), max(self.window.high - self.now.low + 2, 0))

    # -- one job ------------------------------------------------------------------------------------------------

    def leave(self, job_id: str) -> None:
        if job_id in self.active:
            self.locks.discard(job_id)
        FlowModel.leave(self, job_id)

    def keep(self, held: Sequence[tuple[str, int]], lease_ms: int) -> Kept:
        """The lease keeper's beat."""
        lost = self.extend_many(list(held), lease_ms)
        ours = [(job_id, token) for job_id, token in held if self.in_hand_under(job_id, token)]
        self.locks |= {job_id for job_id, _ in ours}
        wishes = {job_id: self.rows[job_id].cancel for job_id, _ in ours}
        said = {job_id: wish.decode() for job_id, wish in wishes.items() if wish is not None}
        return Kept(lost, said)

    def in_hand_under(self, job_id: str, token: int) -> bool:
        return job_id in self.active and self.rows[job_id].attempts == token

    def remove_job(self, job_id: str, key: str) -> bool | str:
        if job_id not in self.rows:
            return False
        if job_id in self.locks:
            return "EMQLOCK job is locked"
        self.leave(job_id)
        self.schedule.pop(job_id, None)
        self.dead.discard(job_id)
        if key and self.claims.get(key, ("", False))[0] == job_id:
            del self.claims[key]
        self.forget(job_id, b"removed")
        return True

    def reprocess_job(self, job_id: str) -> bool | str:
        row = self.rows.get(job_id)
        if row is None:
            return False
        if job_id not in self.dead:
            return "EMQSTATE not dead"
        self.dead.discard(job_id)
        if row.parent and row.parent_queue:
            self.settle_entry(self.death_entry(job_id, row.last_error or b""))
        if row.dedup is not None and self.living_holder(row.dedup) not in (None, job_id):
            row.dedup = None
        elif row.dedup is not None and self.claims.get(row.dedup, ("", False))[0] != job_id:
            self.claims[row.dedup] = job_id, False
        row.last_error = row.stalled = row.failures = row.died = row.cancel = None
        if job_id in self.books and self.books[job_id].left:
            row.state = "awaiting_children"
        else:
            self.to_place(job_id)
        return True

    def update_data(self, job_id: str, payload: bytes) -> bool:
        if job_id not in self.rows:
            return False
        self.rows[job_id].payload = payload
        return True

    def cancel_job(self, job_id: str, reason: bytes) -> Cancellation:
        row = self.rows.get(job_id)
        if row is None:
            return Cancellation.GONE
        if job_id in self.dead:
            return Cancellation.DEAD
        if job_id in self.active:
            row.cancel = reason
            return Cancellation.REQUESTED
        self.leave(job_id)
        self.schedule.pop(job_id, None)
        self.bury(job_id, reason)
        return Cancellation.DEAD

    def living_holder(self, key: str) -> str | None:
        """The job that holds a deduplication key; one that is dead or gone holds nothing."""
        holder = self.claims.get(key, ("", False))[0]
        row = self.rows.get(holder)
        return holder if row and row.state != "dead" else None

    def admit(
        self,
        job_id: str,
        payload: bytes,
        *,
        at: Span | None,
        group: str | None,
        key: str | None,
        windowed: bool,
        replace: bool,
    ) -> Admitted:
        if self.known(job_id):
            return Admitted(Admission.DUPLICATE, job_id)
        if key is not None:
            holder = self.living_holder(key)
            if holder is not None:
                row = self.rows[holder]
                if replace and row.state != "active":
                    row.payload = payload
                return Admitted(Admission.DUPLICATE, holder)
            self.claims[key] = job_id, windowed
        self.rows[job_id] = Row(payload, group=group, dedup=key)
        if at is None:
            self.to_place(job_id)
            return Admitted(Admission.ADMITTED, job_id)
        self.to_schedule(job_id, at)
        return Admitted(Admission.SCHEDULED, job_id)

    # -- many jobs ----------------------------------------------------------------------------------------------

    def drain(self, budget: int, *, scheduled: bool) -> int:
        drained = 0
        if scheduled:
            order = sorted(self.schedule, key=lambda job_id: (self.schedule[job_id].low, job_id))[:budget]
            for job_id in order:
                del self.schedule[job_id]
            for job_id in order:
                self.forget(job_id, b"drained")
            drained = len(order)
        while self.pending and drained < budget:
            order = sorted(self.pending)[: budget - drained]
            self.pending -= set(order)
            for job_id in order:
                self.forget(job_id, b"drained")
            drained += len(order)
        return drained

    def drain_lane(self, group: str, budget: int) -> int:
        drained = sorted(self.lanes.get(group, ()))[:budget]
        for job_id in drained:
            self.leave(job_id)
            self.forget(job_id, b"drained")
        return len(drained)

    def purge(self, chosen: Sequence[str]) -> int:
        purged = 0
        for job_id in chosen:
            if job_id in self.dead:
                self.dead.discard(job_id)
                self.forget(job_id, b"purged")
                purged += 1
        return purged

    def retain(self, after: str, budget: int) -> tuple[int, str]:
        if self.dead_max is None and self.dead_age_ms is None:
            return 0, ""
        purged, last = 0, ""
        if self.dead_max is not None:
            over = max(min(len(self.dead) - self.dead_max, budget), 0)
            purged += self.purge(sorted(self.dead)[:over])
        if self.dead_age_ms is not None:
            looked = sorted(job_id for job_id in self.dead if job_id > after)[:budget]
            for job_id in looked:
                row = self.rows[job_id]
                if row.died is None:
                    row.died = self.now
                elif row.died.low <= self.now.high - self.dead_age_ms:
                    purged += self.purge([job_id])
            last = looked[-1] if len(looked) == budget else ""
        return purged, last
