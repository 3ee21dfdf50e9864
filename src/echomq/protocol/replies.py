"""What the verbs answer: verdicts, and the decoders that turn a server's reply into one."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, TypeVar

from echomq.protocol.call import Reply
from echomq.protocol.errors import UnexpectedReplyError

E = TypeVar("E", bound=Enum)


class Admission(Enum):
    """What an admission did. A duplicate is a success: the id already has a row, or a kept result."""

    ADMITTED = "admitted"
    SCHEDULED = "scheduled"
    DUPLICATE = "duplicate"


class Completion(Enum):
    """Whether a completion retired the row, or found it gone.

    SIGNALLED is RETIRED with a signal to a parent in another queue, which the pump now has to deliver.
    """

    RETIRED = "retired"
    SIGNALLED = "signalled"
    GONE = "gone"


class Retried(Enum):
    """Where a failure sent the job: back to the schedule, or to the morgue."""

    SCHEDULED = "scheduled"
    DEAD = "dead"


class Extension(Enum):
    """Whether the lease was extended, or its row is gone."""

    EXTENDED = "extended"
    GONE = "gone"


class Rescheduling(Enum):
    """Whether a scheduled job was moved in time, or has no row."""

    MOVED = "moved"
    GONE = "gone"


class Idle(Enum):
    """Why a claim brought less than it asked for (protocol §12.2)."""

    EMPTY = "empty"
    PAUSED = "paused"
    CEILING = "ceiling"
    RATE = "rate"


class State(Enum):
    """The state of a job, by its place (protocol §7)."""

    PENDING = "pending"
    SCHEDULED = "scheduled"
    ACTIVE = "active"
    DEAD = "dead"
    AWAITING_CHILDREN = "awaiting_children"
    UNKNOWN = "unknown"
    ABSENT = "absent"


class Claimed(NamedTuple):
    """A job in hand. `attempts` is the fencing token that every later move of it presents."""

    id: str
    payload: bytes
    attempts: int
    failures: int
    stalled: int
    group: str | None = None

    @property
    def token(self) -> str:
        """The attempts count as the scripts compare it."""
        return str(self.attempts)


@dataclass(frozen=True, slots=True)
class Claims:
    """What a claim brought. `jobs` may be fewer than asked for, and `idle` then says why.

    `now_ms` is the server's clock in this call. `next_at_ms` is the next instant worth claiming at
    (the earliest of schedule and recurrences, a rate window's end), on the server's clock; None when
    nothing is waiting for time. It may lie in the past: then something is due now.
    """

    jobs: tuple[Claimed, ...]
    idle: Idle | None
    now_ms: int
    next_at_ms: int | None


@dataclass(frozen=True, slots=True)
class Sweep:
    """What the stalled sweep did with the leases that had expired."""

    recovered: tuple[str, ...]
    dead: tuple[str, ...]
    unknown: bool = False
    """The registry does not know the worker that has swept: its queue was obliterated, or its server emptied."""
    cancelled: dict[str, str] = field(default_factory=dict[str, str])
    """Those of `dead` that had been cancelled, and the reasons."""


@dataclass(frozen=True, slots=True)
class Counts:
    """How many jobs lie where, and how many ended how."""

    pending: int
    active: int
    schedule: int
    dead: int
    completed: int
    failed: int


def unexpected(reply: Reply, what: str) -> UnexpectedReplyError:
    """The error for a reply that is not `what`. Only its beginning is told: it may be long, and hold payloads."""
    text = f"{type(reply).__name__} of {len(reply)}" if isinstance(reply, (bytes, list, dict)) else repr(reply)
    if isinstance(reply, bytes) and len(reply) <= 80:
        text = repr(reply)
    return UnexpectedReplyError(f"expected {what}, the server answered {text}", reply=text)


def as_int(reply: Reply) -> int:
    """An integer reply, also when it comes as digits."""
    if isinstance(reply, (int, bytes)):
        try:
            return int(reply)
        except ValueError:
            pass
    raise unexpected(reply, "an integer")


def as_bytes(reply: Reply) -> bytes:
    """A bulk string."""
    if isinstance(reply, bytes):
        return reply
    raise unexpected(reply, "a string")


def as_text(reply: Reply) -> str:
    """A bulk string of ASCII, such as an id or a verdict."""
    return as_bytes(reply).decode()


def as_list(reply: Reply) -> list[Reply]:
    """An array."""
    if isinstance(reply, list):
        return reply
    raise unexpected(reply, "an array")


def as_texts(reply: Reply) -> tuple[str, ...]:
    """An array of ids or names."""
    return tuple(as_text(item) for item in as_list(reply))


def as_blobs(reply: Reply) -> tuple[bytes, ...]:
    """An array of bulk strings."""
    return tuple(as_bytes(item) for item in as_list(reply))


def as_flag(reply: Reply) -> bool:
    """An integer, of which 1 is a yes."""
    return as_int(reply) == 1


def as_done(reply: Reply) -> None:
    """An integer that says no more than that the call was served."""
    as_int(reply)


def ignored(reply: Reply) -> None:
    """Any reply at all: nobody asks what it says."""
    del reply


def admitted(reply: Reply) -> Admission:
    """Decodes an admission's 1 or 0."""
    return Admission.ADMITTED if as_int(reply) == 1 else Admission.DUPLICATE


def admissions(reply: Reply) -> tuple[Admission, ...]:
    """Decodes an array of them."""
    return tuple(admitted(item) for item in as_list(reply))


def claims_of(reply: Reply) -> Claims:
    """Decodes the reply of every claim."""
    items = as_list(reply)
    if len(items) < 3 or (len(items) - 3) % 6:
        raise unexpected(reply, "a claim")
    why = as_text(items[1])
    nearest = as_int(items[2])
    rest = iter(items[3:])
    try:
        jobs = tuple(
            [
                Claimed(job_id.decode(), payload, int(attempts), int(failures), int(stalled), group.decode() or None)
                for job_id, payload, attempts, failures, stalled, group in zip(*[rest] * 6, strict=True)
            ]
        )
    except (AttributeError, TypeError, ValueError):
        raise unexpected(reply, "a claim") from None
    return Claims(jobs, Idle(why) if why else None, as_int(items[0]), nearest if nearest >= 0 else None)


def first_claim(reply: Reply) -> Claimed | None:
    """Decodes a claim of one job."""
    jobs = claims_of(reply).jobs
    return jobs[0] if jobs else None
