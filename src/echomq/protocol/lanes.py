"""Lanes (protocol §6): a share of the queue for every tenant, served in turn.

A lane is named by a branded id of any namespace; `lane_id` makes one from any text. Ceilings and weights belong to
the queue, so every client keeps them.
"""

from __future__ import annotations

from hashlib import sha256

from echomq.identity.branded import encode
from echomq.protocol.call import Call, Plan
from echomq.protocol.checks import check_job, group_of, integer, name_of, payload_of, span
from echomq.protocol.jobs import LEASE_MS
from echomq.protocol.keys import Keys, keys
from echomq.protocol.replies import Admission, Claimed, Claims, admitted, as_done, as_int, claims_of, first_claim
from echomq.protocol.scripts import script
from echomq.protocol.walks import drained

__all__ = [
    "claim",
    "claim_weighted",
    "depth",
    "drain",
    "enqueue",
    "lane_id",
    "limit",
    "pause",
    "reap",
    "reassign",
    "resume",
    "weight",
]

_ENQUEUE = script("enqueue_lane")
_CLAIM = script("claim_lane")
_PAUSE = script("lane_pause")
_RESUME = script("lane_resume")
_LIMIT = script("lane_limit")
_WEIGHT = script("lane_weight")
_REASSIGN = script("lane_reassign")
_DRAIN = script("lane_drain")
_REAP = script("lane_reap")


def lane_id(text: str) -> str:
    """The lane that a text names: `LAN` and the first 63 bits of the text's SHA-256."""
    digest = sha256(name_of("lane", text).encode()).digest()
    return encode("LAN", int.from_bytes(digest[:8], "big") >> 1)


def _books(k: Keys) -> tuple[str, ...]:
    return k.ring, k.paused, k.glimit, k.gactive, k.wake


def enqueue(queue: str, job_id: str, payload: bytes | str, group: str) -> Call[Admission]:
    """Admits a job into a lane, claimable when the ring comes to it."""
    k = keys(queue)
    return Call(
        "enqueue to lane",
        (k.job(check_job(job_id)), k.lane(group_of(group)), *_books(k)),
        (job_id, payload_of(payload), group),
        admitted,
        _ENQUEUE,
        subject=job_id,
    )


def claim(queue: str, *, lease_ms: int = LEASE_MS) -> Call[Claimed | None]:
    """Takes the head of the next lane that can be served; None when no lane can."""
    k = keys(queue)
    args = (k.base, span("lease_ms", lease_ms, least=1), "")
    return Call("lane claim", (k.ring, k.active), args, first_claim, _CLAIM, subject=queue)


def claim_weighted(queue: str, *, lease_ms: int = LEASE_MS) -> Call[Claims]:
    """One turn: min(weight, depth, limit - in hand) jobs of the next lane, under one deadline."""
    k = keys(queue)
    args = (k.base, span("lease_ms", lease_ms, least=1), "weighted")
    return Call("weighted claim", (k.ring, k.active), args, claims_of, _CLAIM, subject=queue)


def pause(queue: str, group: str) -> Call[None]:
    """Keeps a lane's jobs where they are; none is claimed until `resume`."""
    k = keys(queue)
    return Call("pause lane", (k.paused, k.ring), (group_of(group),), as_done, _PAUSE, subject=group)


def resume(queue: str, group: str) -> Call[None]:
    """Serves a paused lane again, with its backlog."""
    k = keys(queue)
    names = (k.paused, k.ring, k.glimit, k.gactive, k.wake)
    return Call("resume lane", names, (k.base, group_of(group)), as_done, _RESUME, subject=group)


def limit(queue: str, group: str, n: int | None) -> Call[None]:
    """At most `n` (1 or more) of the lane's jobs in hand at once; None lifts the limit."""
    k = keys(queue)
    most = 0 if n is None else integer("limit", n, least=1)
    names = (k.glimit, k.gactive, k.ring, k.paused, k.wake)
    return Call("limit lane", names, (k.base, group_of(group), most), as_done, _LIMIT, subject=group)


def weight(queue: str, group: str, w: int) -> Call[None]:
    """The lane's share of a weighted turn, 1 or more."""
    k = keys(queue)
    args = (group_of(group), integer("weight", w, least=1))
    return Call("weight lane", (k.gweight,), args, as_done, _WEIGHT, subject=group)


def reassign(queue: str, job_id: str, group: str) -> Call[int]:
    """Moves a claimable job to another lane: 1, 0 same lane, -1 no row or no group, -2 not pending."""
    k = keys(queue)
    return Call(
        "reassign",
        (k.job(check_job(job_id)), k.lane(group_of(group)), *_books(k)),
        (job_id, group, k.base),
        as_int,
        _REASSIGN,
        subject=job_id,
    )


def drain(queue: str, group: str, *, budget: int = 1_000) -> Plan[int]:
    """Deletes a lane's claimable jobs, `budget` a call; gives how many. A flow's child dies by its policy."""
    k = keys(queue)
    most = integer("budget", budget, least=1, most=100_000)
    names = (k.pending, k.lane(group_of(group)), k.ring)
    return drained(Call("drain lane", names, (group, most), as_int, _DRAIN, subject=group), most)


def reap(queue: str, group: str, *, scan: int = 100) -> Call[int]:
    """Returns the group's expired leases among the `scan` earliest, uncounted; gives how many."""
    k = keys(queue)
    args = (group_of(group), integer("scan", scan, least=1, most=100_000))
    return Call("reap group", (k.active, k.pending), args, as_int, _REAP, subject=group)


def depth(queue: str, group: str) -> Call[int]:
    """How many of the lane's jobs can be claimed when its turn comes."""
    return Call("lane depth", (keys(queue).lane(group_of(group)),), (), as_int, command="ZCARD", subject=group)
