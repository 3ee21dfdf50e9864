"""Looking at a queue as an operator does (protocol §7, ours): whole pages in one call, each at one instant.

Nothing here writes, and nothing reads more than a page: every long value is cut at `LONG` bytes, its true length given
beside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from echomq.identity.branded import check, unix_ms
from echomq.protocol.call import Arg, Call, Reply
from echomq.protocol.checks import integer
from echomq.protocol.errors import InvalidInputError
from echomq.protocol.jobs import LEASE_MS
from echomq.protocol.keys import keys
from echomq.protocol.replies import State, as_bytes, as_int, as_list
from echomq.protocol.scripts import script

__all__ = [
    "LIVE_MS",
    "LONG",
    "QUIET_MS",
    "Jobs",
    "QueueSurvey",
    "SeenJob",
    "dead_after",
    "jobs",
    "maybe",
    "minted_ms",
    "number",
    "page",
    "pairs",
    "queue",
    "said",
    "score_ms",
]

LIVE_MS = 60_000
"""A worker that was seen within so many ms counts as alive."""

QUIET_MS = 10_000
"""A worker that was seen within so many ms counts as alive whatever its leases are: it says so every 5,000."""

LONG = 4_096
"""How many bytes of a payload or an error are read for a listing."""

_QUEUE = script("survey_queue")
_JOBS = script("survey_jobs")


@dataclass(frozen=True, slots=True)
class QueueSurvey:
    """A queue at one instant of the server's clock. Heads are the earliest scores, None where nothing lies.

    `lanes_booked` is 0 where no lane can hold a claimable job. `workers_alive` leaves out who has something in hand and
    is silent for longer than a lease; `lapsed` counts the jobs in hand whose lease has ended.
    """

    now_ms: int
    pending: int
    active: int
    scheduled: int
    dead: int
    repeats: int
    crons: int
    completed: int
    failed: int
    outbox: int
    rejected: int
    lanes_booked: int
    workers_alive: int
    workers_known: int
    lapsed: int
    rate_spent: int
    rate_whole_in_ms: int
    oldest_pending: str | None
    schedule_head: str | None
    active_head_ms: int | None
    schedule_head_ms: int | None
    repeat_head_ms: int | None
    cron_head_ms: int | None
    meta: dict[str, str] = field(default_factory=dict)

    @property
    def paused(self) -> bool:
        """Whether no claim is served (any value counts)."""
        return "paused" in self.meta

    def setting(self, name: str) -> int | None:
        """A number among the settings; None when it is absent or no number."""
        try:
            return int(self.meta[name])
        except (KeyError, ValueError):
            return None


@dataclass(frozen=True, slots=True)
class SeenJob:
    """A job as it was seen. `at_ms` is the end of its lease or its run-at; `payload` is cut at the asked length."""

    id: str
    state: State
    at_ms: int | None
    payload_bytes: int
    payload: bytes
    attempts: int
    failures: int
    stalled: int
    group: str | None
    last_error: str | None
    died_ms: int | None
    cancel: str | None
    parent: str | None
    parent_queue: str | None
    dedup: str | None


@dataclass(frozen=True, slots=True)
class Jobs:
    """A page of jobs; `total` is how many lie in the place it was taken from."""

    now_ms: int
    total: int
    jobs: tuple[SeenJob, ...]


def minted_ms(job_id: str) -> int | None:
    """When an id was minted; None for what is no id."""
    try:
        return unix_ms(job_id)
    except InvalidInputError:
        return None


def said(reply: Reply) -> str:
    """A string of anybody's, as text."""
    return as_bytes(reply).decode("utf-8", "replace")


def maybe(reply: Reply) -> str | None:
    """The same, or None for nothing and for the empty string."""
    return None if reply is None or reply == b"" else said(reply)


def score_ms(reply: Reply) -> int | None:
    """A score as whole ms, rounded up: never early. None for none, and for what is no time."""
    text = maybe(reply)
    try:
        value = float(text) if text is not None else math.nan
    except ValueError:
        return None
    return math.ceil(value) if math.isfinite(value) else None


def number(reply: Reply) -> int | None:
    """A count as a script gives it; None for none, and for what is no count."""
    text = maybe(reply)
    return int(text) if text is not None and text.isascii() and text.isdigit() else None


def pairs(items: list[Reply]) -> dict[str, str]:
    """A hash that came as field, value ..."""
    return {said(items[i]): said(items[i + 1]) for i in range(0, len(items), 2)}


def _survey(reply: Reply) -> QueueSurvey:
    items = as_list(reply)
    numbers = iter([as_int(item) for item in items[:17]])
    heads = iter([score_ms(item) for item in items[19:23]])
    return QueueSurvey(
        now_ms=next(numbers),
        pending=next(numbers),
        active=next(numbers),
        scheduled=next(numbers),
        dead=next(numbers),
        repeats=next(numbers),
        crons=next(numbers),
        completed=next(numbers),
        failed=next(numbers),
        outbox=next(numbers),
        rejected=next(numbers),
        lanes_booked=next(numbers),
        workers_alive=next(numbers),
        workers_known=next(numbers),
        lapsed=next(numbers),
        rate_spent=next(numbers),
        rate_whole_in_ms=next(numbers),
        oldest_pending=maybe(items[17]),
        schedule_head=maybe(items[18]),
        active_head_ms=next(heads),
        schedule_head_ms=next(heads),
        repeat_head_ms=next(heads),
        cron_head_ms=next(heads),
        meta=pairs(items[23:]),
    )


def queue(name: str, *, live_ms: int = LIVE_MS) -> Call[QueueSurvey]:
    """A queue's numbers, heads and settings. Its lanes' depths are not among them: see `lane_groups` and `lanes`."""
    args = (integer("live_ms", live_ms, least=1), QUIET_MS, LEASE_MS)
    return Call("survey queue", (keys(name).pending,), args, _survey, _QUEUE, subject=name)


def _job(reply: Reply) -> SeenJob:
    items = as_list(reply)
    if len(items) < 15:  # no row, no fields
        items = [*items, *[None] * (15 - len(items))]
    return SeenJob(
        id=said(items[0]),
        state=State(said(items[1])),
        at_ms=score_ms(items[2]),
        payload_bytes=as_int(items[3]),
        payload=as_bytes(items[4]),
        attempts=number(items[5]) or 0,
        failures=number(items[6]) or 0,
        stalled=number(items[7]) or 0,
        group=maybe(items[8]),
        last_error=maybe(items[9]),
        died_ms=number(items[10]),
        cancel=maybe(items[11]),
        parent=maybe(items[12]),
        parent_queue=maybe(items[13]),
        dedup=maybe(items[14]),
    )


def _page(reply: Reply) -> Jobs:
    now_ms, total, *found = as_list(reply)
    return Jobs(as_int(now_ms), as_int(total), tuple(map(_job, found)))


def _jobs(name: str, places: tuple[str, ...], cut: int, *args: Arg) -> Call[Jobs]:
    words = (integer("cut", cut, least=0), *args)
    return Call("survey jobs", (keys(name).pending, *places), words, _page, _JOBS, subject=name)


def jobs(name: str, ids: Sequence[str], *, cut: int = LONG) -> Call[Jobs]:
    """Some jobs by their ids; one without a row is ABSENT."""
    return _jobs(name, (), cut, "ids", *ids)


def page(
    name: str,
    state: State,
    *,
    group: str | None = None,
    first: int = 0,
    count: int = 100,
    reverse: bool = False,
    cut: int = LONG,
) -> Call[Jobs]:
    """The jobs of rank `first` and after in the set of a state, or in a lane; a rank costs no reading up to it."""
    k = keys(name)
    places = {State.PENDING: k.pending, State.ACTIVE: k.active, State.SCHEDULED: k.schedule, State.DEAD: k.dead}
    if group is not None:
        place = k.lane(check(group))
    elif state in places:
        place = places[state]
    else:
        raise InvalidInputError(f"jobs that are {state.value} lie in no set that could be paged through")
    mode = "reverse" if reverse else "rank"
    span = (integer("first", first, least=0), integer("count", count, least=1, most=1_000))
    return _jobs(name, (place,), cut, mode, *span)


def dead_after(name: str, after: str = "", *, count: int = 500, cut: int = LONG) -> Call[Jobs]:
    """The dead jobs after an id, in mint order: a walk that misses nobody, whatever dies or is purged meanwhile."""
    return _jobs(name, (keys(name).dead,), cut, "after", after, integer("count", count, least=1, most=1_000))
