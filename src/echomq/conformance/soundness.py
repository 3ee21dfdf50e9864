"""The invariants of protocol §12.1, looked for with plain commands after every scenario."""

from __future__ import annotations

from collections import Counter
from typing import cast

from echomq.conformance.desk import Desk
from echomq.conformance.look import text_of
from echomq.protocol.call import Arg, Reply
from echomq.protocol.replies import as_list

MOST_TOKENS = 64

_STATES = {"pending": b"pending", "active": b"active", "schedule": b"scheduled", "dead": b"dead"}
_ROW = ("state", "group")

Row = tuple[bytes | None, str | None]


def breaches(desk: Desk) -> list[str]:
    """Every invariant of the desk's queue that does not hold, a sentence each."""
    desk.groups.update(dict.fromkeys([*desk.ring(), *desk.hash(desk.keys.glimit), *desk.hash(desk.keys.gactive)]))
    lanes = {group: desk.members(desk.keys.lane(group)) for group in desk.groups}
    sets = {name: desk.members(desk.keys.base + name) for name in _STATES}
    places: dict[str, list[tuple[str, bytes]]] = {}
    for name, members in sets.items():
        for job_id in members:
            places.setdefault(job_id, []).append((name, _STATES[name]))
    for group, members in lanes.items():
        for job_id in members:
            places.setdefault(job_id, []).append((f"lane {group}", b"pending"))
    rows = _rows(desk, [*desk.ids, *(job_id for job_id in places if job_id not in desk.ids)])
    out = [text for job_id, row in rows.items() for text in _of_job(job_id, row, places.get(job_id, []))]
    out += _of_lanes(desk, lanes, [rows[job_id] for job_id in sets["active"]])
    if (tokens := desk.tokens()) > MOST_TOKENS:
        out.append(f"wake holds {tokens} tokens, more than {MOST_TOKENS}")
    return out


def _rows(desk: Desk, ids: list[str]) -> dict[str, Row | None]:
    commands: list[tuple[Arg, ...]] = []
    for job_id in ids:
        commands += [("EXISTS", desk.keys.base + "job:" + job_id), ("HMGET", desk.keys.base + "job:" + job_id, *_ROW)]
    replies = desk.bench.execute_all(commands)
    return {job_id: _row(as_list(replies[2 * i + 1])) if replies[2 * i] else None for i, job_id in enumerate(ids)}


def _row(values: list[Reply]) -> Row:
    state, group = values
    return cast("bytes | None", state), None if group is None else text_of(group)


def _of_job(job_id: str, row: Row | None, places: list[tuple[str, bytes]]) -> list[str]:
    names = ", ".join(name for name, _ in places)
    if row is None:
        return [f"{job_id} is in {names} without a row"] if places else []
    state, group = row
    if len(places) > 1:
        return [f"{job_id} is in {len(places)} places: {names}"]
    if not places:
        return [] if state == b"awaiting_children" else [f"{job_id} has a row, state {state!r}, and lies nowhere"]
    ((place, wanted),) = places
    out = [] if state == wanted else [f"{job_id} is {state!r} in its row and lies in {place}"]
    if wanted == b"pending" and place != (f"lane {group}" if group else "pending"):
        out.append(f"{job_id} of group {group} lies in {place}")
    return out


def _of_lanes(desk: Desk, lanes: dict[str, list[str]], held: list[Row | None]) -> list[str]:
    out: list[str] = []
    in_hand = Counter(row[1] for row in held if row and row[1])
    counted = {group: int(n) for group, n in desk.hash(desk.keys.gactive).items()}
    limits = {group: int(n) for group, n in desk.hash(desk.keys.glimit).items()}
    paused = {text_of(group) for group in desk.raw("SMEMBERS", desk.keys.paused)}
    ring = Counter(desk.ring())
    for group, members in lanes.items():
        n = counted.get(group, 0)
        if n != in_hand[group]:
            out.append(f"gactive of {group} is {n}, in hand are {in_hand[group]}")
        serviceable = bool(members) and group not in paused and n < limits.get(group, n + 1)
        if ring[group] != serviceable:
            word = "can" if serviceable else "cannot"
            out.append(f"lane {group} {word} be served and is on the ring {ring[group]} times")
    return out
