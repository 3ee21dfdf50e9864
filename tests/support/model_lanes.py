"""The model's lanes (protocol §6)."""

from __future__ import annotations

from echomq.protocol.replies import Claimed, Idle
from support.model_repeat import RepeatModel


class LaneModel(RepeatModel):
    """A queue with lanes."""

    def claim_lane(self, lease_ms: int, *, weighted: bool) -> tuple[list[Claimed], Idle | None]:
        room, why = self.gate(100_000)
        out: list[Claimed] = []

        def share(group: str) -> int:
            return min(self.weights.get(group, 1) if weighted else 1, room)

        if room:
            why = None if self.take_turn(share, self.now + lease_ms, out) else Idle.EMPTY
        self.swept = not out and not (why is Idle.EMPTY and self.pending)
        return out, why

    def pause_lane(self, group: str) -> None:
        with self.moving():
            self.paused_lanes.add(group)

    def resume_lane(self, group: str) -> None:
        with self.moving():
            self.paused_lanes.discard(group)

    def limit_lane(self, group: str, most: int | None) -> None:
        with self.moving():
            if most is None:
                self.limits.pop(group, None)
            else:
                self.limits[group] = most

    def reassign(self, job_id: str, group: str) -> int:
        row = self.rows.get(job_id)
        if row is None or row.group is None:
            return -1
        if job_id not in self.lanes.get(row.group, ()):
            return -2
        if row.group == group:
            return 0
        waiting = self.waiting()
        self.leave(job_id)
        row.group = group
        self.to_place(job_id)
        self.opened = max(self.waiting() - waiting, 0)  # a move between two lanes that are served opens nothing
        return 1
