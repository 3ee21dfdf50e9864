"""The flat verbs (protocol §5): each builds a `Call` and does no I/O.

A job id is a `JOB` branded id, a token the attempts count that the claim returned. Times end in `_ms`: `at_ms` is
Unix time on the caller's clock, `delay_ms` and `lease_ms` count from the server's now. Every builder raises
`InvalidInputError` (or a subclass) for what it can see is wrong; what only the server sees comes back as a
`ServerError` when the call is run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from echomq.protocol.call import Arg, Call, Reply
from echomq.protocol.checks import check_job, error_of, integer, milliseconds, moment, payload_of, span, token_of
from echomq.protocol.errors import InvalidInputError, ServerError, from_reply
from echomq.protocol.follow import Follow, words
from echomq.protocol.keys import keys
from echomq.protocol.replies import (
    Admission,
    Claimed,
    Claims,
    Completion,
    Extension,
    Rescheduling,
    Retried,
    Sweep,
    admissions,
    admitted,
    as_bytes,
    as_done,
    as_flag,
    as_int,
    as_list,
    as_text,
    as_texts,
    claims_of,
    first_claim,
    unexpected,
)
from echomq.protocol.scripts import script

__all__ = [
    "LEASE_MS",
    "Finished",
    "browse",
    "browse_dead",
    "claim",
    "claim_many",
    "complete",
    "complete_many",
    "delay",
    "enqueue",
    "enqueue_at",
    "enqueue_in",
    "enqueue_many",
    "extend",
    "extend_many",
    "pending_size",
    "promote",
    "reap",
    "release",
    "reschedule",
    "retry",
    "sweep",
]

LEASE_MS = 30_000
"""The original's lease, also ours."""

Token = int | str

_ENQUEUE = script("enqueue")
_ENQUEUE_MANY = script("enqueue_many")
_SCHEDULE = script("schedule")
_RESCHEDULE = script("reschedule")
_CLAIM = script("claim")
_COMPLETE = script("complete")
_COMPLETE_MANY = script("complete_many")
_RETRY = script("retry")
_DELAY = script("delay")
_RELEASE = script("release")
_PROMOTE = script("promote")
_REAP = script("reap")
_SWEEP = script("sweep")
_EXTEND = script("extend")
_EXTEND_MANY = script("extend_many")


def _scheduled(reply: Reply) -> Admission:
    return Admission.SCHEDULED if as_int(reply) == 1 else Admission.DUPLICATE


def enqueue(queue: str, job_id: str, payload: bytes | str) -> Call[Admission]:
    """Admits a job that can be claimed at once."""
    k = keys(queue)
    return Call(
        "enqueue",
        (k.job(check_job(job_id)), k.pending),
        (job_id, payload_of(payload)),
        admitted,
        _ENQUEUE,
        subject=job_id,
    )


def enqueue_many(queue: str, jobs: Iterable[tuple[str, bytes | str]]) -> Call[tuple[Admission, ...]]:
    """Admits jobs in one call, one answer each, in order. An id that comes twice is a duplicate the second time."""
    args: list[Arg] = []
    for job_id, payload in jobs:
        args += (check_job(job_id), payload_of(payload))
    if not args:
        raise InvalidInputError("enqueue_many needs at least one job")
    return Call("enqueue_many", (keys(queue).pending,), tuple(args), admissions, _ENQUEUE_MANY, subject=queue)


def _schedule(queue: str, job_id: str, payload: bytes | str, mode: str, value: int) -> Call[Admission]:
    k = keys(queue)
    return Call(
        "schedule",
        (k.job(check_job(job_id)), k.schedule),
        (job_id, payload_of(payload), mode, value),
        _scheduled,
        _SCHEDULE,
        subject=job_id,
    )


def enqueue_at(queue: str, job_id: str, payload: bytes | str, *, at_ms: int) -> Call[Admission]:
    """Admits a job that can be claimed from the instant `at_ms` on, never earlier."""
    return _schedule(queue, job_id, payload, "at", milliseconds("at_ms", at_ms))


def enqueue_in(queue: str, job_id: str, payload: bytes | str, *, delay_ms: int) -> Call[Admission]:
    """Admits a job that can be claimed `delay_ms` after the server's now."""
    return _schedule(queue, job_id, payload, "in", span("delay_ms", delay_ms))


def _moved(reply: Reply) -> Rescheduling:
    return Rescheduling.MOVED if as_int(reply) == 1 else Rescheduling.GONE


def reschedule(queue: str, job_id: str, *, at_ms: int | None = None, delay_ms: int | None = None) -> Call[Rescheduling]:
    """Moves a scheduled job in time; `StateError` when it is not on the schedule."""
    k = keys(queue)
    return Call(
        "reschedule",
        (k.job(check_job(job_id)), k.schedule),
        (job_id, *moment(at_ms, delay_ms)),
        _moved,
        _RESCHEDULE,
        subject=job_id,
    )


def claim(queue: str, *, lease_ms: int = LEASE_MS) -> Call[Claimed | None]:
    """Takes the next job in hand, flat or from a lane, for `lease_ms`; None when none can be served."""
    k = keys(queue)
    args = (span("lease_ms", lease_ms, least=1), 1)
    return Call("claim", (k.pending, k.active), args, first_claim, _CLAIM, subject=queue)


def claim_many(queue: str, n: int, *, lease_ms: int = LEASE_MS) -> Call[Claims]:
    """Takes up to `n` jobs in hand under one deadline, as `n` single claims in sequence would (protocol §12.3)."""
    k = keys(queue)
    args = (span("lease_ms", lease_ms, least=1), integer("n", n, least=1, most=100_000))
    return Call("claim", (k.pending, k.active), args, claims_of, _CLAIM, subject=queue)


def _completed(reply: Reply) -> Completion:
    return (Completion.GONE, Completion.RETIRED, Completion.SIGNALLED)[as_int(reply)]


class Finished(NamedTuple):
    """A completion with what the job leaves.

    `result` goes to the parent, if the job has one, and is kept as the job's own for `result_ttl_ms` (0: not at all).
    """

    id: str
    token: Token
    result: bytes | str = b""
    result_ttl_ms: int = 0

    def words(self) -> tuple[Arg, ...]:
        """Its four arguments, checked."""
        ttl = milliseconds("result_ttl_ms", self.result_ttl_ms)
        return check_job(self.id), token_of(self.token), payload_of(self.result), ttl


def complete(
    queue: str,
    job_id: str,
    token: Token,
    *,
    result: bytes | str = b"",
    result_ttl_ms: int = 0,
    then: Follow | None = None,
) -> Call[Completion]:
    """Retires a job: its row is deleted. `StaleTokenError` when it was claimed again since.

    `result` goes to its parent, and is kept as the job's own for `result_ttl_ms`: until then its id is a duplicate.
    `then` is admitted in the same step, if this one is retired.
    """
    k = keys(queue)
    _, text, *rest = Finished(job_id, token, result, result_ttl_ms).words()
    return Call(
        "complete",
        (k.active, k.job(job_id)),
        (job_id, text, k.base, *rest, *words(then)),
        _completed,
        _COMPLETE,
        subject=job_id,
        token=str(text),
    )


def complete_many(
    queue: str, jobs: Sequence[tuple[str, Token] | Finished], *, result: bytes | str = b"", result_ttl_ms: int = 0
) -> Call[tuple[Completion | ServerError, ...]]:
    """Retires jobs in one call. Each has its own answer, in order; a refusal is that job's answer, not raised.

    `result` and `result_ttl_ms` are those of the jobs that say nothing else.
    """
    args: list[Arg] = []
    result, ttl = payload_of(result), milliseconds("result_ttl_ms", result_ttl_ms)
    held: list[tuple[str, str]] = []
    for job in jobs:
        if isinstance(job, Finished):
            args += job.words()
            held.append((job.id, str(job.token)))
        else:
            job_id, token = job
            token = token_of(token)
            args += (check_job(job_id), token, result, ttl)
            held.append((job_id, token))
    if not args:
        raise InvalidInputError("complete_many needs at least one job")

    def decode(reply: Reply) -> tuple[Completion | ServerError, ...]:
        items = as_list(reply)
        if len(items) != len(held):
            raise unexpected(reply, f"{len(held)} answers")
        if items.count(1) == len(items):
            return (Completion.RETIRED,) * len(items)
        return tuple(
            from_reply(item.decode(), verb="complete", subject=job_id, token=text)
            if isinstance(item, bytes)
            else _completed(item)
            for item, (job_id, text) in zip(items, held, strict=True)
        )

    return Call("complete_many", (keys(queue).active,), tuple(args), decode, _COMPLETE_MANY, subject=queue)


def _retried(reply: Reply) -> Retried:
    return Retried(as_text(reply))


def _put_back(reply: Reply) -> Retried | None:
    if reply == b"dead":
        return Retried.DEAD
    as_done(reply)
    return None


def retry(
    queue: str,
    job_id: str,
    token: Token,
    *,
    delay_ms: int,
    max_attempts: int,
    error: str,
    then: Follow | None = None,
    at_death: Follow | None = None,
) -> Call[Retried]:
    """Settles a failure: `error` is kept, and the job runs again after `delay_ms`, or is buried.

    It is buried when its attempts count has reached `max_attempts`: give the token itself to bury it now, the token
    + 1 to let it run again whatever it has spent (protocol §3). One that would run again, but was cancelled while it
    was in hand, is buried as cancelled. `then` is admitted in the same step, and so is `at_death` if it is buried, in
    the place of what its envelope says is to follow.
    """
    k = keys(queue)
    text = token_of(token)
    return Call(
        "retry",
        (k.active, k.schedule, k.dead, k.job(check_job(job_id))),
        (
            job_id,
            text,
            span("delay_ms", delay_ms),
            integer("max_attempts", max_attempts, least=0),
            error_of(error),
            k.base,
            *words(then, at_death),
        ),
        _retried,
        _RETRY,
        subject=job_id,
        token=text,
    )


def delay(
    queue: str, job_id: str, token: Token, *, at_ms: int | None = None, delay_ms: int | None = None
) -> Call[Retried | None]:
    """Puts a job in hand back on the schedule; no attempt, failure or lapse is spent.

    One that was cancelled meanwhile is buried as cancelled instead, and the answer is `Retried.DEAD`, else None.
    """
    k = keys(queue)
    text = token_of(token)
    return Call(
        "delay",
        (k.job(check_job(job_id)), k.active, k.schedule),
        (job_id, text, *moment(at_ms, delay_ms)),
        _put_back,
        _DELAY,
        subject=job_id,
        token=text,
    )


def release(queue: str, job_id: str, token: Token) -> Call[Retried | None]:
    """Hands a job back, claimable at once; attempts and failures stay.

    One that was cancelled meanwhile is buried as cancelled instead, and the answer is `Retried.DEAD`, else None.
    """
    k = keys(queue)
    text = token_of(token)
    return Call(
        "release",
        (k.job(check_job(job_id)), k.active, k.pending),
        (job_id, text, k.base),
        _put_back,
        _RELEASE,
        subject=job_id,
        token=text,
    )


def promote(queue: str, batch: int = 100) -> Call[int]:
    """Makes up to `batch` due jobs claimable, earliest first; gives how many it selected, ghosts among them."""
    k = keys(queue)
    args = (k.base, integer("batch", batch, least=1))
    return Call("promote", (k.schedule, k.pending), args, as_int, _PROMOTE, subject=queue)


def reap(queue: str) -> Call[int]:
    """Returns up to 100 expired leases uncounted. Our loops use `sweep`, which counts (protocol §12.5)."""
    k = keys(queue)
    return Call("reap", (k.active, k.pending), (k.base,), as_int, _REAP, subject=queue)


def _swept(reply: Reply) -> Sweep:
    recovered, dead, unknown, cancelled = as_list(reply)
    words = [as_bytes(word).decode("utf-8", "replace") for word in as_list(cancelled)]
    pairs = dict(zip(words[::2], words[1::2], strict=True))
    return Sweep(as_texts(recovered), as_texts(dead), unknown=as_flag(unknown), cancelled=pairs)


def sweep(queue: str, *, max_stalled: int = 1, limit: int = 100, worker: str = "") -> Call[Sweep]:
    """Counts a lapse for up to `limit` expired leases; buries at `max_stalled`, recovers below it.

    What was cancelled while it was in hand is buried as cancelled. Given the name of a `worker`, it also says whether
    the registry knows that one.
    """
    k = keys(queue)
    args = (
        k.base,
        integer("max_stalled", max_stalled, least=1),
        integer("limit", limit, least=1, most=100_000),
        *((payload_of(worker),) if worker else ()),
    )
    return Call("sweep", (k.active, k.pending, k.dead), args, _swept, _SWEEP, subject=queue)


def _extended(reply: Reply) -> Extension:
    return Extension.EXTENDED if as_int(reply) == 1 else Extension.GONE


def extend(queue: str, job_id: str, token: Token, *, lease_ms: int = LEASE_MS) -> Call[Extension]:
    """Moves the deadline of a job in hand to `lease_ms` from now."""
    k = keys(queue)
    text = token_of(token)
    return Call(
        "extend",
        (k.active, k.job(check_job(job_id))),
        (job_id, text, span("lease_ms", lease_ms, least=1)),
        _extended,
        _EXTEND,
        subject=job_id,
        token=text,
    )


def extend_many(queue: str, jobs: Sequence[tuple[str, Token]], *, lease_ms: int = LEASE_MS) -> Call[tuple[str, ...]]:
    """Moves the deadlines of jobs in hand; gives the ids that were NOT extended: stale, not active or gone."""
    k = keys(queue)
    args: list[Arg] = [k.base, span("lease_ms", lease_ms, least=1)]
    for job_id, token in jobs:
        args += (check_job(job_id), token_of(token))
    if len(args) == 2:
        raise InvalidInputError("extend_many needs at least one job")
    return Call("extend_many", (k.active,), tuple(args), as_texts, _EXTEND_MANY, subject=queue)


def _browse(key: str, verb: str, queue: str, limit: int, newest_first: bool) -> Call[tuple[str, ...]]:
    low, high = (b"+", b"-") if newest_first else (b"-", b"+")
    order = (b"REV",) if newest_first else ()
    args = (low, high, b"BYLEX", *order, b"LIMIT", 0, integer("limit", limit, least=1))
    return Call(verb, (key,), args, as_texts, command="ZRANGE", subject=queue)


def browse(queue: str, *, limit: int = 100, newest_first: bool = True) -> Call[tuple[str, ...]]:
    """The ids of claimable flat jobs, in mint order or its reverse."""
    return _browse(keys(queue).pending, "browse", queue, limit, newest_first)


def browse_dead(queue: str, *, limit: int = 100, newest_first: bool = True) -> Call[tuple[str, ...]]:
    """The ids in the morgue, in mint order or its reverse."""
    return _browse(keys(queue).dead, "browse_dead", queue, limit, newest_first)


def pending_size(queue: str) -> Call[int]:
    """How many flat jobs can be claimed now."""
    return Call("pending_size", (keys(queue).pending,), (), as_int, command="ZCARD", subject=queue)
