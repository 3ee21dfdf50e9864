"""The lanes of a queue as an operator sees them: which there are, and the books of each (protocol §6, §7, ours)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from echomq.identity.branded import check
from echomq.protocol.call import Call, Plan, Reply
from echomq.protocol.checks import group_of, integer
from echomq.protocol.errors import InvalidInputError
from echomq.protocol.keys import keys
from echomq.protocol.replies import as_bytes, as_int, as_list
from echomq.protocol.scripts import script
from echomq.protocol.survey import maybe, number, said

__all__ = ["Lane", "lane_groups", "lanes"]

_LANES = script("survey_lanes")

_STEP = 1_000


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


def _lane(reply: Reply) -> Lane:
    group, depth, oldest, in_hand, limit, weight, text, paused, servable = as_list(reply)
    return Lane(
        said(group),
        as_int(depth),
        maybe(oldest),
        number(in_hand) or 0,
        number(limit),
        number(weight),
        maybe(text),
        as_int(paused) == 1,
        as_int(servable),
    )


def _lanes(reply: Reply) -> tuple[Lane, ...]:
    return tuple(map(_lane, as_list(reply)))


def lanes(name: str, groups: Sequence[str]) -> Call[tuple[Lane, ...]]:
    """The books of up to 1,000 lanes."""
    integer("number of lanes", len(groups), least=1, most=1_000)
    names = tuple(group_of(group) for group in groups)
    return Call("survey lanes", (keys(name).pending,), names, _lanes, _LANES, subject=name)


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
