"""A queue in plain Python: what the protocol says each verb does and answers, without any server.

`Model` holds what a queue holds, moves jobs between places and compares itself with a server. The verbs are a class a
family, each on top of the one before: model_jobs, model_repeat, model_lanes, model_flows, model_admin. A verb is a
method that changes the model and gives the reply: a verdict of `echomq.protocol.replies`, or the text of a refusal. An
instant that the server's clock decides is a `Span` until `settle` has read it back.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from support.invariants import Snapshot

LAST = 2**53 - 1


@dataclass(frozen=True, slots=True)
class Span:
    """An instant known to lie from `low` to `high`, both included."""

    low: int
    high: int

    @classmethod
    def at(cls, instant: int) -> Span:
        """Exactly this instant."""
        return cls(instant, instant)

    def __add__(self, ms: int) -> Span:
        return Span(self.low + ms, self.high + ms)

    def __contains__(self, instant: object) -> bool:
        return isinstance(instant, (int, float)) and self.low <= instant <= self.high


@dataclass(slots=True)
class Row:
    """A job as the row knows it."""

    payload: bytes | None
    state: str = "pending"
    attempts: int = 0
    group: str | None = None
    failures: int | None = None
    stalled: int | None = None
    last_error: bytes | None = None
    died: Span | None = None
    parent: str | None = None
    parent_policy: str | None = None
    parent_queue: str | None = None
    dedup: str | None = None
    cancel: bytes | None = None

    def fields(self) -> dict[str, bytes]:
        """The row's fields, but for the instant of a death."""
        values: dict[str, Any] = {
            "state": self.state,
            "attempts": self.attempts,
            "payload": self.payload,
            "group": self.group,
            "failures": self.failures,
            "stalled": self.stalled,
            "last_error": self.last_error,
            "parent": self.parent,
            "parent_policy": self.parent_policy,
            "parent_queue": self.parent_queue,
            "dedup": self.dedup,
            "cancel": self.cancel,
        }
        return {
            name: value if isinstance(value, bytes) else str(value).encode()
            for name, value in values.items()
            if value is not None
        }


@dataclass(slots=True)
class Model:
    """One queue. `now` is when the verb runs, as far as its caller knows."""

    now: Span = field(default_factory=lambda: Span.at(0))
    rows: dict[str, Row] = field(default_factory=dict)
    pending: set[str] = field(default_factory=set)
    active: dict[str, Span] = field(default_factory=dict)
    schedule: dict[str, Span] = field(default_factory=dict)
    dead: set[str] = field(default_factory=set)
    lanes: dict[str, set[str]] = field(default_factory=dict)
    ring: list[str] = field(default_factory=list)
    paused_lanes: set[str] = field(default_factory=set)
    limits: dict[str, int] = field(default_factory=dict)
    weights: dict[str, int] = field(default_factory=dict)
    turn: int = 0
    paused: bool = False
    ceiling: int = 0
    completed: int = 0
    failed: int = 0
    tokens: int = 0
    # What the step at hand has done, for the tokens that it owes.
    opened: int = 0
    freed: int = 0
    first: str | None = None
    swept: bool = False
    pushed: int | None = None

    def known(self, job_id: str) -> bool:
        """Whether an admission of this id is a duplicate."""
        return job_id in self.rows

    # -- where jobs lie ---------------------------------------------------------------------------------------

    def place_of(self, job_id: str) -> str | None:
        """pending (flat or lane), active, schedule, dead, or None."""
        row = self.rows.get(job_id)
        if job_id in self.active:
            return "active"
        if job_id in self.pending or (row and row.group and job_id in self.lanes.get(row.group, ())):
            return "pending"
        if job_id in self.schedule:
            return "schedule"
        return "dead" if job_id in self.dead else None

    def in_hand(self, group: str) -> int:
        """How many jobs of a lane are in hand."""
        return sum(self.rows[job_id].group == group for job_id in self.active)

    def served(self, group: str) -> int:
        """How many jobs of a lane could be claimed now."""
        depth = len(self.lanes.get(group, ()))
        if group in self.paused_lanes:
            return 0
        if group in self.limits:
            return max(min(depth, self.limits[group] - self.in_hand(group)), 0)
        return depth

    def waiting(self) -> int:
        """How many jobs could be claimed but for a pause of the queue and its ceiling."""
        return len(self.pending) + sum(self.served(group) for group in self.lanes)

    def room(self) -> int | None:
        """How many more jobs may be in hand, None without a ceiling."""
        return self.ceiling - len(self.active) if self.ceiling > 0 else None

    def claimable(self) -> int:
        """How many jobs could be claimed now."""
        if self.paused:
            return 0
        room = self.room()
        return self.waiting() if room is None else min(self.waiting(), max(room, 0))

    @contextmanager
    def moving(self) -> Iterator[None]:
        """Around one move of one job: minds the ring, and what the move made claimable."""
        before = self.waiting()
        yield
        self.opened += max(self.waiting() - before, 0)
        for group in self.lanes:
            on = group in self.ring
            if self.served(group) and not on:
                self.ring.append(group)
            elif on and not self.served(group):
                self.ring.remove(group)

    def leave(self, job_id: str) -> None:
        """Out of pending or active."""
        row = self.rows[job_id]
        with self.moving():
            self.freed += self.active.pop(job_id, None) is not None
            self.pending.discard(job_id)
            if row.group:
                self.lanes.get(row.group, set()).discard(job_id)

    def to_place(self, job_id: str) -> None:
        """Claimable again, flat or in its lane."""
        row = self.rows[job_id]
        row.state = "pending"
        with self.moving():
            (self.lanes.setdefault(row.group, set()) if row.group else self.pending).add(job_id)

    def to_schedule(self, job_id: str, at: Span) -> None:
        """Onto the schedule."""
        self.rows[job_id].state = "scheduled"
        self.schedule[job_id] = at
        self.first = job_id

    def bury(self, job_id: str, reason: bytes) -> None:
        """Into the morgue."""
        row = self.rows[job_id]
        row.state, row.last_error, row.died = "dead", reason, self.now
        self.dead.add(job_id)
        self.failed += 1

    # -- against the server -----------------------------------------------------------------------------------------

    def begin(self, now: Span) -> None:
        """A step begins: it owes no tokens yet."""
        self.now = now
        self.opened = self.freed = 0
        self.first, self.swept, self.pushed = None, False, None

    def owed(self, before: int) -> Span:
        """How many tokens the step may have pushed, `before` being what was claimable when it began."""
        if self.swept:
            return Span.at(0)
        if self.pushed is not None:
            return Span.at(self.pushed)
        head = 0
        if self.first is not None and self.first in self.schedule:
            head = self.first == min(self.schedule, key=lambda i: (self.schedule[i].low, i))
        if self.ceiling <= 0 and not self.paused:
            return Span.at(self.opened + head)
        return Span(max(self.claimable() - before, 0) + head, self.opened + self.freed + head)

    def settle(self, shot: Snapshot) -> list[str]:
        """Where the server's state is not the model's; instants that it decided are taken from it."""
        out: list[str] = []

        def same(what: str, ours: object, theirs: object) -> None:
            if ours != theirs:
                out.append(f"{what}: the model has {ours!r}, the server {theirs!r}")

        same("pending", self.pending, set(shot.places["pending"]))
        same("dead", self.dead, set(shot.places["dead"]))
        same("lanes", {g: ids for g, ids in self.lanes.items() if ids}, {g: set(m) for g, m in shot.lanes.items()})
        same("ring", self.ring, shot.ring)
        same("paused lanes", self.paused_lanes, shot.paused)
        same("limits", {g: str(n).encode() for g, n in self.limits.items()}, shot.glimit)
        for name, members in (("active", self.active), ("schedule", self.schedule)):
            theirs = shot.places[name]
            same(name, set(members), set(theirs))
            for job_id in set(members) & set(theirs):
                if theirs[job_id] not in members[job_id]:
                    out.append(f"{job_id} in {name}: {theirs[job_id]} is not within {members[job_id]}")
                members[job_id] = Span.at(int(theirs[job_id]))
        same("jobs", set(self.rows), set(shot.rows))
        for job_id in set(self.rows) & set(shot.rows):
            theirs_row = dict(shot.rows[job_id])
            died, row = theirs_row.pop("died_ms", None), self.rows[job_id]
            same(f"row of {job_id}", row.fields(), theirs_row)
            if (died is None) != (row.died is None) or (row.died and died and int(died) not in row.died):
                out.append(f"death of {job_id}: the model has {row.died}, the server {died!r}")
            row.died = Span.at(int(died)) if died else None
        return out

    def settle_tokens(self, owed: Span, tokens: int) -> list[str]:
        """What is wrong with the number of wake tokens."""
        kept = 0 if self.swept else self.tokens
        low, high = min(kept + owed.low, 64), min(kept + owed.high, 64)
        self.tokens = tokens
        if low <= tokens <= high:
            return []
        return [f"wake: {kept} tokens and {owed} more make {tokens}"]
