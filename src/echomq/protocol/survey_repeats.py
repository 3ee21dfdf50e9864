"""The recurrences of a queue as an operator sees them, of both kinds (protocol §9, ours)."""

from __future__ import annotations

from dataclasses import dataclass

from echomq.protocol.call import Call, Reply
from echomq.protocol.checks import integer
from echomq.protocol.keys import keys
from echomq.protocol.replies import as_bytes, as_int, as_list
from echomq.protocol.scripts import script
from echomq.protocol.survey import LONG, pairs, said, score_ms

__all__ = ["Recurrence", "Recurrences", "recurrence", "recurrences", "template"]

_REPEATS = script("survey_repeats")


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


def _recurrence(reply: Reply) -> Recurrence:
    name, score, size, given, *record = as_list(reply)
    return Recurrence(said(name), score_ms(score), as_int(size), as_bytes(given), pairs(record))


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
