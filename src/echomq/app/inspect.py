"""What an operator reads of a server: queues with their lanes counted in, and jobs with the names that the app gave.

Everything is a `Call` or a `Plan`, runs on either face of a connector, and writes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

import msgspec

from echomq.app.envelope import Envelope, decode
from echomq.app.errors import EnvelopeError
from echomq.protocol import survey, survey_lanes
from echomq.protocol.call import Plan
from echomq.protocol.survey import QueueSurvey, SeenJob
from echomq.protocol.survey_lanes import Lane

__all__ = [
    "Hold",
    "Overview",
    "Waiting",
    "Why",
    "envelope_of",
    "job_name",
    "lanes_of",
    "name_in",
    "overview",
    "waiting_in_lanes",
]

_STEP: Final = 500


class _Named(msgspec.Struct):
    job: str


_decode_name: Final = msgspec.json.Decoder(_Named).decode
_decode_text: Final = msgspec.json.Decoder(str).decode

# The beginning of an envelope as this client writes it: enough for a payload that was cut short.
_BEGINNING: Final = re.compile(rb'\s*\{\s*"v"\s*:\s*\d+\s*,\s*"job"\s*:\s*("(?:[^"\\]|\\.)*")')


def name_in(payload: bytes, size: int) -> str | None:
    """The job's name in a payload of `size` bytes that may be cut short; None when it is no envelope."""
    try:
        if len(payload) >= size:
            return _decode_name(payload).job
        beginning = _BEGINNING.match(payload)
        return _decode_text(beginning[1]) if beginning else None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def job_name(job: SeenJob) -> str | None:
    """The name of a job that was seen; None when its payload is not an app's envelope."""
    return name_in(job.payload, job.payload_bytes)


def envelope_of(payload: bytes) -> Envelope | str:
    """The envelope in a payload, or why there is none."""
    try:
        return decode(payload)
    except EnvelopeError as error:
        return str(error)


class Why(Enum):
    """What keeps jobs from being claimed."""

    PAUSED = "paused"
    CEILING = "ceiling"
    RATE = "rate"
    LANE_PAUSED = "lane_paused"
    LANE_LIMIT = "lane_limit"


@dataclass(frozen=True, slots=True)
class Hold:
    """Jobs that wait and that no claim would be given now: why, how many, in how many lanes, and the oldest of them.

    `lanes` is 0 where it is the whole queue that is held.
    """

    why: Why
    jobs: int
    lanes: int
    oldest: str | None


@dataclass(frozen=True, slots=True)
class Waiting:
    """The jobs that wait in a queue's lanes: how many, in how many lanes; how many of them a lane would give, the
    oldest in such a lane, and the lanes that are shut."""

    jobs: int = 0
    lanes: int = 0
    servable: int = 0
    oldest: str | None = None
    holds: tuple[Hold, ...] = ()


@dataclass(frozen=True, slots=True)
class Overview:
    """A queue as its operator sees it."""

    queue: str
    seen: QueueSurvey
    in_lanes: Waiting

    @property
    def pending(self) -> int:
        """All that wait for a claim, flat and in lanes, also those that are held."""
        return self.seen.pending + self.in_lanes.jobs

    @property
    def _open(self) -> str | None:
        known = [each for each in (self.seen.oldest_pending, self.in_lanes.oldest) if each is not None]
        return min(known, default=None)

    @property
    def oldest(self) -> str | None:
        """The oldest claimable job: the least id, in mint order. None where the queue is held."""
        return self._open if self.claimable else None

    @property
    def oldest_age_ms(self) -> int | None:
        """How long ago the oldest claimable job was minted."""
        return self.age_ms(self.oldest)

    def age_ms(self, job_id: str | None) -> int | None:
        """How long ago a job was minted, by the server's clock; None for none, and for what is no id."""
        minted = None if job_id is None else survey.minted_ms(job_id)
        return None if minted is None else max(0, self.seen.now_ms - minted)

    @property
    def servable(self) -> int:
        """All that a claim would be given now, but for a pause, a ceiling or a rate of the queue."""
        return self.seen.pending + self.in_lanes.servable

    @property
    def _gate(self) -> tuple[int, Why | None]:
        """How many the queue lets into hands now, and why no more than that."""
        seen, room, why = self.seen, self.servable, None
        if seen.paused:
            return 0, Why.PAUSED
        ceiling, most, period_ms = (seen.setting(name) for name in ("concurrency", "max", "period_ms"))
        if ceiling and ceiling > 0 and ceiling - seen.active < room:
            room, why = max(ceiling - seen.active, 0), Why.CEILING
        # A budget that never gets whole again is another client's; the next claim puts it aside.
        endless = seen.rate_whole_in_ms == 0
        if most and most > 0 and period_ms and period_ms > 0 and not endless and most - seen.rate_spent < room:
            room, why = max(most - seen.rate_spent, 0), Why.RATE
        return room, why

    @property
    def claimable(self) -> int:
        """All that a claim would be given now."""
        return self._gate[0]

    @property
    def holds(self) -> tuple[Hold, ...]:
        """What waits and cannot be claimed now, by its reason: the queue's first."""
        room, why = self._gate
        shut = why is not None and room == 0 and self.servable > 0
        return ((Hold(why, self.servable, 0, self._open),) if shut and why else ()) + self.in_lanes.holds

    @property
    def late_ms(self) -> int:
        """How long the schedule or a recurrence has been overdue; 0 when nothing is.

        A job whose run-at lies before its own mint has been due since that.
        """
        seen = self.seen
        heads = [head for head in (seen.repeat_head_ms, seen.cron_head_ms) if head is not None]
        if seen.schedule_head_ms is not None:
            minted = survey.minted_ms(seen.schedule_head) if seen.schedule_head else None
            heads.append(max(seen.schedule_head_ms, minted or 0))
        return max((seen.now_ms - max(head, 0) for head in heads if head <= seen.now_ms), default=0)

    @property
    def lapsed_ms(self) -> int:
        """How long ago a lease ended whose job nobody has taken back; 0 when none did."""
        head = self.seen.active_head_ms
        return 0 if head is None else max(0, self.seen.now_ms - head)

    @property
    def waits(self) -> bool:
        """Whether a worker would have something to do now."""
        return self.servable > 0 or self.late_ms > 0 or self.lapsed_ms > 0 or self.seen.outbox > 0

    @property
    def unserved(self) -> bool:
        """Whether jobs wait, nobody has paused the queue, and no live worker serves it."""
        return self.waits and not self.seen.paused and self.seen.workers_alive == 0


def lanes_of(queue: str, *, waiting: bool = False) -> Plan[tuple[Lane, ...]]:
    """The books of every lane of a queue, in steps; with `waiting`, of those that can hold claimable jobs."""
    groups = yield from survey_lanes.lane_groups(queue, waiting=waiting)
    found: list[Lane] = []
    for start in range(0, len(groups), _STEP):
        found += yield survey_lanes.lanes(queue, groups[start : start + _STEP])
    return tuple(found)


def waiting_in_lanes(queue: str) -> Plan[Waiting]:
    """What waits in a queue's lanes; no row is read."""
    full = [lane for lane in (yield from lanes_of(queue, waiting=True)) if lane.depth]
    return Waiting(
        jobs=sum(lane.depth for lane in full),
        lanes=len(full),
        servable=sum(lane.servable for lane in full),
        oldest=_oldest(lane for lane in full if lane.servable),
        holds=tuple(_held(full)),
    )


def _oldest(lanes: Iterable[Lane]) -> str | None:
    return min((lane.oldest for lane in lanes if lane.oldest), default=None)


def _held(full: Sequence[Lane]) -> Iterator[Hold]:
    shut = [lane for lane in full if not lane.servable]
    for why in (Why.LANE_PAUSED, Why.LANE_LIMIT):
        if these := [lane for lane in shut if lane.paused is (why is Why.LANE_PAUSED)]:
            yield Hold(why, sum(lane.depth for lane in these), len(these), _oldest(these))


def overview(queue: str, *, seen: QueueSurvey | None = None) -> Plan[Overview]:
    """A queue with its lanes counted in. `seen` spares a call where the queue was surveyed just now."""
    found: QueueSurvey = seen if seen is not None else (yield survey.queue(queue))
    in_lanes = (yield from waiting_in_lanes(queue)) if found.lanes_booked else Waiting()
    return Overview(queue, found, in_lanes)
