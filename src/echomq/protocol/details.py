"""Everything about one job, for the operator who asks for it by its id (protocol §3, §7, ours)."""

from __future__ import annotations

from dataclasses import dataclass

from echomq.protocol.call import Call, Reply
from echomq.protocol.checks import MAX_PAYLOAD, check_job, integer
from echomq.protocol.keys import keys
from echomq.protocol.replies import State, as_bytes, as_int, as_list
from echomq.protocol.scripts import script
from echomq.protocol.survey import said, score_ms

__all__ = ["LONG", "Children", "Details", "Field", "details"]

LONG = 65_536
"""How many bytes of a long value are read when it is not asked for whole."""

_JOB = script("survey_job")


@dataclass(frozen=True, slots=True)
class Field:
    """A value that may be cut short, and how long it is."""

    size: int
    value: bytes

    @property
    def whole(self) -> bool:
        """Whether nothing was cut off."""
        return len(self.value) >= self.size

    @property
    def text(self) -> str:
        """The value as text."""
        return self.value.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Children:
    """How many of a parent's children ended in one way, and about a page of them with what they left."""

    total: int
    some: dict[str, bytes]


@dataclass(frozen=True, slots=True)
class Details:
    """A job at one instant. `at_ms` is its run-at or the end of its lease; TTLs are None where there is no key."""

    now_ms: int
    state: State
    at_ms: int | None
    lock_ms: int | None
    result_ms: int | None
    result: Field
    outstanding: int | None
    row: dict[str, Field]
    log_lines: int
    logs: tuple[str, ...]
    processed: Children
    failed: Children
    ignored: Children

    def text(self, name: str) -> str | None:
        """A field of the row as text; None when it is absent."""
        return self.row[name].text if name in self.row else None

    def number(self, name: str) -> int | None:
        """A field of the row as a number; None when it is absent or none."""
        text = self.text(name)
        return int(text) if text is not None and text.isascii() and text.isdigit() else None


def _ttl(reply: Reply) -> int | None:
    ms = as_int(reply)
    return None if ms == -2 else max(ms, 0)


def _row(items: list[Reply]) -> dict[str, Field]:
    return {said(items[i]): Field(as_int(items[i + 1]), as_bytes(items[i + 2])) for i in range(0, len(items), 3)}


def _children(reply: Reply) -> Children:
    total, *items = as_list(reply)
    return Children(as_int(total), {said(items[i]): as_bytes(items[i + 1]) for i in range(0, len(items), 2)})


def _details(reply: Reply) -> Details:
    now_ms, state, at, lock, kept, size, result, outstanding, row, log_lines, logs, processed, failed, ignored = (
        as_list(reply)
    )
    return Details(
        now_ms=as_int(now_ms),
        state=State(said(state)),
        at_ms=score_ms(at),
        lock_ms=_ttl(lock),
        result_ms=_ttl(kept),
        result=Field(as_int(size), as_bytes(result)),
        outstanding=None if outstanding is None else as_int(outstanding),
        row=_row(as_list(row)),
        log_lines=as_int(log_lines),
        logs=tuple(said(line) for line in as_list(logs)),
        processed=_children(processed),
        failed=_children(failed),
        ignored=_children(ignored),
    )


def details(queue: str, job_id: str, *, logs: int = 20, children: int = 100, whole: bool = False) -> Call[Details]:
    """A job's row, place, marks, last `logs` lines and about `children` children of each end; values whole if asked."""
    args = (
        job_id,
        MAX_PAYLOAD if whole else LONG,
        integer("logs", logs, least=1, most=10_000),
        integer("children", children, least=1, most=10_000),
    )
    return Call("survey job", (keys(queue).job(check_job(job_id)),), args, _details, _JOB, subject=job_id)
