"""The invariants of protocol §12.1, read off a server with plain commands.

It knows nothing of `echomq`: a fault in a builder or a script cannot hide itself here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

Execute = Callable[..., Any]
"""Sends the words of one command and returns the reply, as RESP2 or RESP3 gives it."""

ExecuteAll = Callable[[list[tuple[Any, ...]]], list[Any]]
"""Sends many commands in one flight and returns their replies."""

WAKE_LIMIT = 64

_BASE = re.compile(rb"emq:\{([^{}\s\0]+)\}:")
_ROW = re.compile(r"job:(JOB[0-9A-Za-z]{11})")
_LANE = re.compile(r"g:(.+):pending", re.DOTALL)
_COUNT = re.compile(rb"0|[1-9][0-9]*")

_STATE_OF = {"pending": b"pending", "active": b"active", "schedule": b"scheduled", "dead": b"dead"}
HELD = b"awaiting_children"


@dataclass(slots=True)
class Snapshot:
    """Everything of one queue that the invariants speak of."""

    rows: dict[str, dict[str, bytes]] = field(default_factory=dict)
    places: dict[str, dict[str, float]] = field(default_factory=dict)
    lanes: dict[str, dict[str, float]] = field(default_factory=dict)
    ring: list[str] = field(default_factory=list)
    paused: set[str] = field(default_factory=set)
    glimit: dict[str, bytes] = field(default_factory=dict)
    gactive: dict[str, bytes] = field(default_factory=dict)
    wake: list[bytes] = field(default_factory=list)


def _keys(execute: Execute, pattern: str) -> set[bytes]:
    cursor, found = b"0", set[bytes]()
    while True:
        cursor, keys = execute("SCAN", cursor, "MATCH", pattern, "COUNT", 1000)
        found.update(keys)
        if cursor in (b"0", 0):
            return found


def queues_on(execute: Execute) -> set[str]:
    """The queues that have any key on the server."""
    matches = (_BASE.match(key) for key in _keys(execute, "emq:*"))
    return {match[1].decode() for match in matches if match}


def _escaped(queue: str) -> str:
    return re.sub(r"([*?\[\]\\^])", r"\\\1", queue)


def _hash(reply: Any) -> dict[str, bytes]:
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
    return {name.decode(errors="backslashreplace"): value for name, value in pairs}


def _zset(reply: Any) -> dict[str, float]:
    pairs = reply if reply and isinstance(reply[0], list) else zip(reply[::2], reply[1::2], strict=True)
    return {member.decode(errors="backslashreplace"): float(score) for member, score in pairs}


def _texts(reply: Any) -> list[str]:
    return [item.decode(errors="backslashreplace") for item in reply]


def read(queue: str, keys: Iterable[bytes], execute_all: ExecuteAll) -> Snapshot:
    """What lies under `keys`, all the keys of a queue, read in one flight of plain commands."""
    base = f"emq:{{{queue}}}:"
    names = [key.decode(errors="backslashreplace").removeprefix(base) for key in keys]
    rows = [match[1] for name in names if (match := _ROW.fullmatch(name))]
    lanes = [match[1] for name in names if (match := _LANE.fullmatch(name))]
    replies = execute_all(
        [
            *(("ZRANGE", base + name, 0, -1, "WITHSCORES") for name in _STATE_OF),
            *(("HGETALL", f"{base}job:{job_id}") for job_id in rows),
            *(("ZRANGE", f"{base}g:{group}:pending", 0, -1, "WITHSCORES") for group in lanes),
            *(("LRANGE", base + "ring", 0, -1), ("LRANGE", base + "wake", 0, -1), ("SMEMBERS", base + "paused")),
            *(("HGETALL", base + "glimit"), ("HGETALL", base + "gactive")),
        ]
    )
    reply = iter(replies)
    return Snapshot(
        places={name: _zset(next(reply)) for name in _STATE_OF},
        rows={job_id: _hash(next(reply)) for job_id in rows},
        lanes={group: _zset(next(reply)) for group in lanes},
        ring=_texts(next(reply)),
        wake=list(next(reply)),
        paused=set(_texts(next(reply))),
        glimit=_hash(next(reply)),
        gactive=_hash(next(reply)),
    )


def snapshot(execute: Execute, queue: str) -> Snapshot:
    """Everything that lies on the server under one queue."""
    keys = _keys(execute, f"emq:{{{_escaped(queue)}}}:*")
    return read(queue, keys, lambda commands: [execute(*words) for words in commands])


def _places(shot: Snapshot) -> dict[str, list[tuple[str, bytes]]]:
    """For every member of any set: where it lies, and the state that this place stands for."""
    places: dict[str, list[tuple[str, bytes]]] = {}
    for name, members in shot.places.items():
        for job_id in members:
            places.setdefault(job_id, []).append((name, _STATE_OF[name]))
    for group, members in shot.lanes.items():
        for job_id in members:
            places.setdefault(job_id, []).append((f"lane {group}", b"pending"))
    return places


def _place_breaches(shot: Snapshot) -> list[str]:
    out: list[str] = []
    places = _places(shot)
    for job_id, found in sorted(places.items()):
        names = ", ".join(name for name, _ in found)
        if len(found) > 1:
            out.append(f"{job_id} is in {len(found)} places: {names}")
        row = shot.rows.get(job_id)
        if row is None:
            out.append(f"{job_id} is in {names} and has no row")
        elif row.get("state") != found[0][1]:
            out.append(f"{job_id} is in {names}, its row says {row.get('state')!r}")
        elif found[0][0] == "pending" and "group" in row:
            out.append(f"{job_id} belongs to lane {row['group']!r} and lies in flat pending")
        elif found[0][0].startswith("lane ") and row.get("group", b"").decode() != found[0][0][5:]:
            out.append(f"{job_id} lies in {names}, its row says group {row.get('group')!r}")
    for job_id, row in sorted(shot.rows.items()):
        if job_id not in places and row.get("state") != HELD:
            out.append(f"{job_id} is in no place, its row says {row.get('state')!r}")
    return out


def _score_breaches(shot: Snapshot) -> list[str]:
    zero = {"pending": shot.places["pending"], "dead": shot.places["dead"]}
    zero |= {f"lane {group}": members for group, members in shot.lanes.items()}
    out = [
        f"{job_id} has score {score!r} in {name}, not 0"
        for name, members in zero.items()
        for job_id, score in members.items()
        if score != 0
    ]
    for name in ("active", "schedule"):
        out += [
            f"{job_id} has score {score!r} in {name}, not an integer from 0 to 2^53 - 1"
            for job_id, score in shot.places[name].items()
            if not 0 <= score < 2**53 or score != int(score)
        ]
    return out


def _count_breaches(shot: Snapshot) -> list[str]:
    rows = sorted(shot.rows.items())
    out = [f"{job_id} has no attempts" for job_id, row in rows if "attempts" not in row]
    out += [
        f"{job_id} has {name} {row[name]!r}, not a canonical count"
        for job_id, row in rows
        for name in ("attempts", "failures", "stalled")
        if name in row and not _COUNT.fullmatch(row[name])
    ]
    return out


def _lane_breaches(shot: Snapshot) -> list[str]:
    out: list[str] = []
    in_hand = Counter(
        shot.rows[job_id]["group"].decode() for job_id in shot.places["active"] if "group" in shot.rows.get(job_id, {})
    )
    for group in sorted(set(in_hand) | set(shot.gactive)):
        said = shot.gactive.get(group)
        if said != (b"%d" % in_hand[group] if in_hand[group] else None):
            out.append(f"gactive of {group} is {said!r}, {in_hand[group]} of its jobs are in hand")
    serviceable = {
        group
        for group, members in shot.lanes.items()
        if members
        and group not in shot.paused
        and (group not in shot.glimit or in_hand[group] < int(shot.glimit[group]))
    }
    for group, times in sorted(Counter(shot.ring).items()):
        if times > 1:
            out.append(f"lane {group} is on the ring {times} times")
    out += [f"lane {group} is on the ring and cannot be served" for group in set(shot.ring) - serviceable]
    out += [f"lane {group} can be served and is not on the ring" for group in serviceable - set(shot.ring)]
    return out


def breaches(shot: Snapshot) -> list[str]:
    """Every breach of protocol §12.1 in a snapshot, a sentence each."""
    out = _place_breaches(shot) + _score_breaches(shot) + _count_breaches(shot) + _lane_breaches(shot)
    if len(shot.wake) > WAKE_LIMIT:
        out.append(f"wake holds {len(shot.wake)} tokens, more than {WAKE_LIMIT}")
    if set(shot.wake) - {b"1"}:
        out.append(f"wake holds something that is no token: {set(shot.wake) - {b'1'}!r}")
    return out


def check_queue_invariants(execute: Execute, queue: str) -> list[str]:
    """Every breach of protocol §12.1 in one queue; an empty list when there is none."""
    return breaches(snapshot(execute, queue))
