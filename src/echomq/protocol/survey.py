"""Looking at a queue as an operator does (protocol §7, ours): whole pages in one call, each at one instant.

Nothing here writes, and nothing reads more than a page: every long value is cut at `LONG` bytes, its true length given
beside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from echomq.identity.branded import check, unix_ms
from echomq.protocol.call import Arg, Call, Plan, Reply
from echomq.protocol.checks import integer
from echomq.protocol.errors import InvalidInputError
from echomq.protocol.keys import keys
from echomq.protocol.replies import State, as_bytes, as_int, as_list
from echomq.protocol.scripts import script

__all__ = [
    "LIVE_MS",
    "LONG",
    "Jobs",
    "Lane",
    "QueueSurvey",
    "Recurrence",
    "Recurrences",
    "SeenJob",
    "dead_after",
    "jobs",
    "lane_groups",
    "lanes",
    "minted_ms",
    "page",
    "queue",
    "recurrence",
    "recurrences",
    "said",
    "score_ms",
    "template",
]

LIVE_MS = 60_000
"""A worker that was seen within so many ms counts as alive."""

LONG = 4_096
"""How many bytes of a payload or an error are read for a listing."""

_QUEUE = script("survey_queue")
_JOBS = script("survey_jobs")
_LANES = script("survey_lanes")
_REPEATS = script("survey_repeats")


@dataclass(frozen=True, slots=True)
class QueueSurvey:
    """A queue at one instant of the server's clock. Heads are the earliest scores, None where nothing lies.

    `lanes_booked` is 0 where no lane can hold a claimable job.
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


@dataclass(frozen=True, slots=True)
class Lane:
    """The books of a lane. `servable` is how many of its jobs could be claimed now; `text` is what named it."""

    group: str
    depth: int
    oldest: str | None
    in_hand: int
    limit: int | None
    weight: int | None
    text: str | None
    paused: bool
    servable: int


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A recurrence with what its record holds beside the template."""

    name: str
    next_ms: int | None
    template_bytes: int
    template: bytes
    record: dict[str, str]


@dataclass(frozen=True, slots=True)
class Recurrences:
    """A page of recurrences of one kind; `total` is how many there are."""

    now_ms: int
    total: int
    recurrences: tuple[Recurrence, ...]


def minted_ms(job_id: str) -> int | None:
    """When an id was minted; None for what is no id."""
    try:
        return unix_ms(job_id)
    except InvalidInputError:
        return None


def said(reply: Reply) -> str:
    """A string of anybody's, as text."""
    return as_bytes(reply).decode("utf-8", "replace")


def _maybe(reply: Reply) -> str | None:
    return None if reply is None or reply == b"" else said(reply)


def score_ms(reply: Reply) -> int | None:
    """A score as whole ms, rounded up: never early. None for none, and for what is no time."""
    text = _maybe(reply)
    try:
        value = float(text) if text is not None else math.nan
    except ValueError:
        return None
    return math.ceil(value) if math.isfinite(value) else None


def _number(reply: Reply) -> int | None:
    text = _maybe(reply)
    return int(text) if text is not None and text.isascii() and text.isdigit() else None


def _pairs(items: list[Reply]) -> dict[str, str]:
    return {said(items[i]): said(items[i + 1]) for i in range(0, len(items), 2)}


def _survey(reply: Reply) -> QueueSurvey:
    items = as_list(reply)
    numbers = iter([as_int(item) for item in items[:14]])
    heads = iter([score_ms(item) for item in items[16:20]])
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
        oldest_pending=_maybe(items[14]),
        schedule_head=_maybe(items[15]),
        active_head_ms=next(heads),
        schedule_head_ms=next(heads),
        repeat_head_ms=next(heads),
        cron_head_ms=next(heads),
        meta=_pairs(items[20:]),
    )


def queue(name: str, *, live_ms: int = LIVE_MS) -> Call[QueueSurvey]:
    """A queue's numbers, heads and settings. Its lanes' depths are not among them: see `lane_groups` and `lanes`."""
    args = (integer("live_ms", live_ms, least=1),)
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
        attempts=_number(items[5]) or 0,
        failures=_number(items[6]) or 0,
        stalled=_number(items[7]) or 0,
        group=_maybe(items[8]),
        last_error=_maybe(items[9]),
        died_ms=_number(items[10]),
        cancel=_maybe(items[11]),
        parent=_maybe(items[12]),
        parent_queue=_maybe(items[13]),
        dedup=_maybe(items[14]),
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


def _lane(reply: Reply) -> Lane:
    group, depth, oldest, in_hand, limit, weight, text, paused, servable = as_list(reply)
    return Lane(
        said(group),
        as_int(depth),
        _maybe(oldest),
        _number(in_hand) or 0,
        _number(limit),
        _number(weight),
        _maybe(text),
        as_int(paused) == 1,
        as_int(servable),
    )


def _lanes(reply: Reply) -> tuple[Lane, ...]:
    return tuple(map(_lane, as_list(reply)))


def lanes(name: str, groups: Sequence[str]) -> Call[tuple[Lane, ...]]:
    """The books of up to 1,000 lanes."""
    integer("number of lanes", len(groups), least=1, most=1_000)
    names = tuple(check(group) for group in groups)
    return Call("survey lanes", (keys(name).pending,), names, _lanes, _LANES, subject=name)


_STEP = 1_000


def _valid(items: list[Reply]) -> list[str]:
    """The lane ids among what a book holds: another client's stray text is left to `audit`."""
    out: list[str] = []
    for item in items:
        try:
            out.append(check(said(item)))
        except InvalidInputError:
            continue
    return out


def _slice(key: str, start: int) -> Call[list[Reply]]:
    return Call("survey ring", (key,), (start, start + _STEP - 1), as_list, command="LRANGE")


def _scan(key: str, command: str, cursor: bytes) -> Call[tuple[bytes, list[Reply]]]:
    def decode(reply: Reply) -> tuple[bytes, list[Reply]]:
        following, items = as_list(reply)
        found = as_list(items)
        return as_bytes(following), found if command == "SSCAN" else found[::2]

    return Call("survey books", (key,), (cursor, "COUNT", _STEP), decode, command=command)


def lane_groups(name: str, *, waiting: bool = False) -> Plan[tuple[str, ...]]:
    """The lanes that the queue's books name, in steps; with `waiting`, all that can hold claimable jobs.

    A lane with jobs is on the ring, or paused, or has a limit (protocol §12.1).
    """
    k = keys(name)
    found: dict[str, None] = {}
    start = 0
    while part := (yield _slice(k.ring, start)):
        found.update(dict.fromkeys(_valid(part)))
        start += _STEP
    books = [(k.paused, "SSCAN"), (k.glimit, "HSCAN")]
    if not waiting:
        books += [(k.gactive, "HSCAN"), (k.gweight, "HSCAN"), (k.lanes, "HSCAN")]
    for key, command in books:
        cursor = b"0"
        while True:
            cursor, items = yield _scan(key, command, cursor)
            found.update(dict.fromkeys(_valid(items)))
            if cursor == b"0":
                break
    return tuple(found)


def _recurrence(reply: Reply) -> Recurrence:
    name, score, size, given, *record = as_list(reply)
    return Recurrence(said(name), score_ms(score), as_int(size), as_bytes(given), _pairs(record))


def _recurrences(reply: Reply) -> Recurrences:
    now_ms, total, *found = as_list(reply)
    return Recurrences(as_int(now_ms), as_int(total), tuple(map(_recurrence, found)))


def _kind(name: str, cron: bool) -> str:
    return keys(name).cron if cron else keys(name).repeat


def recurrences(
    name: str, *, cron: bool = False, first: int = 0, count: int = 100, cut: int = LONG
) -> Call[Recurrences]:
    """A page of the queue's recurrences, the next one first; `cron` for those that say more than a period."""
    span = (integer("first", first, least=0), integer("count", count, least=1, most=1_000))
    return Call("survey repeats", (_kind(name, cron),), (cut, "rank", *span), _recurrences, _REPEATS, subject=name)


def recurrence(name: str, which: str, *, cron: bool = False, cut: int = LONG) -> Call[Recurrences]:
    """The recurrence of one name, or none."""
    return Call("survey repeats", (_kind(name, cron),), (cut, "name", which), _recurrences, _REPEATS, subject=which)


def template(name: str, which: str, *, cron: bool = False) -> Call[bytes | None]:
    """The whole template of a recurrence; None when there is none."""

    def decode(reply: Reply) -> bytes | None:
        return None if reply is None else as_bytes(reply)

    record = f"{_kind(name, cron)}:{which}"
    return Call("survey template", (record,), ("template",), decode, command="HGET", subject=which)
