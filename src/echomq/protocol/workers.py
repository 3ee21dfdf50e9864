"""Live workers and what they hold (protocol §2, §7): the registry, and the keeper's one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from echomq.protocol.call import Arg, Call, Reply
from echomq.protocol.checks import check_job, integer, name_of, payload_of, span, token_of
from echomq.protocol.errors import InvalidInputError
from echomq.protocol.jobs import LEASE_MS, Token
from echomq.protocol.keys import keys
from echomq.protocol.replies import as_bytes, as_int, as_list, as_text, as_texts
from echomq.protocol.scripts import script

__all__ = ["AHEAD_MS", "FORGET_MS", "Kept", "Seen", "beat", "farewell", "keep", "seen"]

FORGET_MS = 300_000
"""A worker that has not been seen for so long is dropped from the registry."""

AHEAD_MS = 60_000
"""A member that would have been seen so much later than the server's now is no worker: another client has left it."""

_BEAT = script("workers_beat")
_SEEN = script("workers")
_KEEP = script("keep")


@dataclass(frozen=True, slots=True)
class Kept:
    """The ids that were not extended (stale, not active or gone), and the reasons of those to be cancelled."""

    lost: tuple[str, ...]
    cancelled: dict[str, str]


@dataclass(frozen=True, slots=True)
class Seen:
    """A worker in the registry; `info` is its own JSON, `silent_ms` how long it has not been seen."""

    name: str
    silent_ms: int
    info: bytes


def _kept(reply: Reply) -> Kept:
    lost, pairs = as_list(reply)
    items = as_list(pairs)
    return Kept(
        as_texts(lost),
        {as_text(items[i]): as_bytes(items[i + 1]).decode("utf-8", "replace") for i in range(0, len(items), 2)},
    )


def keep(queue: str, jobs: Sequence[tuple[str, Token]], *, lease_ms: int = LEASE_MS, field: bool = False) -> Call[Kept]:
    """Extends every job in hand and renews its presence marker for two leases.

    `field` also writes the `lock` field of the row, where the server knows hash-field TTL; elsewhere it is left out.
    """
    k = keys(queue)
    args: list[Arg] = [k.base, span("lease_ms", lease_ms, least=1), "field" if field else ""]
    for job_id, token in jobs:
        args += (check_job(job_id), token_of(token))
    if len(args) == 3:
        raise InvalidInputError("keep needs at least one job")
    return Call("keep", (k.active,), tuple(args), _kept, _KEEP, subject=queue)


def _said(queue: str, name: str, info: bytes, forget_ms: int) -> Call[int]:
    k = keys(queue)
    args = (name_of("worker name", name), info, integer("forget_ms", forget_ms, least=1))
    return Call("workers beat", (k.workers, k.workers_info), args, as_int, _BEAT, subject=queue)


def beat(queue: str, name: str, info: bytes | str, *, forget_ms: int = FORGET_MS) -> Call[int]:
    """Says that worker `name` lives, with its JSON `info`; gives how many do. The server's clock stamps it."""
    said = payload_of(info)
    if not said:
        raise InvalidInputError(f"info of worker {name!r} is empty: say at least {{}}, or farewell")
    return _said(queue, name, said, forget_ms)


def farewell(queue: str, name: str) -> Call[int]:
    """Takes worker `name` out of the registry; gives how many live."""
    return _said(queue, name, b"", FORGET_MS)


def _seen(reply: Reply) -> tuple[Seen, ...]:
    items = as_list(reply)
    now, found = as_int(items[0]), list[Seen]()
    for i in range(1, len(items), 3):
        score = float(as_bytes(items[i + 1]))
        if 0 <= score <= now + AHEAD_MS:
            found.append(Seen(as_bytes(items[i]).decode("utf-8", "replace"), now - int(score), as_bytes(items[i + 2])))
    return tuple(found)


def seen(queue: str) -> Call[tuple[Seen, ...]]:
    """The workers in the registry, the latest seen first. What has no time that could be one of a beat is none."""
    k = keys(queue)
    return Call("workers", (k.workers, k.workers_info), (), _seen, _SEEN, subject=queue)
