"""Everything about one job: a line a fact for a person, one object for a machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from echomq.app.envelope import Envelope
from echomq.app.inspect import envelope_of, name_in
from echomq.cli import ops_view
from echomq.cli.ops_common import counted
from echomq.cli.ops_rows import age_ms, away, payload_json, payload_text
from echomq.cli.ops_text import clean, first_line, local_and_utc, shown_span
from echomq.protocol import survey, survey_lanes
from echomq.protocol.replies import State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from echomq.protocol.details import Children, Details
    from echomq.wire import Connector

__all__ = ["as_json", "is_there", "lane_text", "show"]

_SHOWN: Final = frozenset(
    (
        *("state", "attempts", "failures", "stalled", "payload", "group", "last_error", "died_ms", "cancel"),
        *("parent", "parent_policy", "parent_queue", "progress", "dedup"),
    )
)
"""The fields that have a line of their own; any other is shown as it is."""


def is_there(seen: Details) -> bool:
    """Whether the job has a row, or has left a result."""
    return seen.state is not State.ABSENT or seen.result_ms is not None


def lane_text(conn: Connector, queue: str, seen: Details) -> str | None:
    """The text that named the job's lane."""
    group = seen.text("group")
    if not group or survey.minted_ms(group) is None:
        return None
    (lane,) = conn.run(survey_lanes.lanes(queue, [group]))
    return lane.text


def _envelope(seen: Details) -> Envelope | str | None:
    field = seen.row.get("payload")
    if field is None:
        return None
    return envelope_of(field.value) if field.whole else f"{field.size:,} bytes: --payload reads it whole"


def _name(seen: Details) -> str | None:
    field = seen.row.get("payload")
    return None if field is None else name_in(field.value, field.size)


def _state(seen: Details) -> str:
    if seen.state is State.ABSENT:
        return f"completed (its result is kept for {shown_span(seen.result_ms)})"
    if seen.state is State.UNKNOWN:
        return "unknown: a row that is in no place"
    return str(seen.state.value).replace("_", " ")


def _envelope_facts(envelope: Envelope | str | None) -> list[tuple[str, str]]:
    if envelope is None:
        return []
    if isinstance(envelope, str):
        return [("envelope", envelope)]
    takes = [counted(len(envelope.args), "argument")] if envelope.args else []
    takes += [", ".join(envelope.kwargs)] if envelope.kwargs else []
    takes += [f"what the codec {clean(envelope.codec)!r} has encoded"] if envelope.codec is not None else []
    facts = [("takes", " and ".join(takes) or "no arguments")]
    if envelope.max_attempts is not None:
        facts.append(("max attempts", f"{envelope.max_attempts:,}"))
    if envelope.timeout_ms is not None:
        facts.append(("timeout", shown_span(envelope.timeout_ms)))
    if envelope.expires_ms is not None:
        facts.append(("expires", local_and_utc(envelope.expires_ms)))
    if envelope.slot_ms is not None:
        facts.append(("slot", local_and_utc(envelope.slot_ms)))
    if envelope.meta:
        facts.append(("meta", ", ".join(envelope.meta)))
    return facts


def show(job_id: str, queue: str, seen: Details, lane: str | None, *, holder: str | None, payload: bool) -> None:
    """Prints the job, a line a fact."""
    minted = survey.minted_ms(job_id)
    held = holder is not None or seen.lock_ms is not None  # the row's own mark says no more
    facts = [("job", job_id), ("name", _name(seen) or "-"), ("queue", queue), ("state", _state(seen))]
    if group := seen.text("group"):
        facts.append(("lane", f"{lane} ({group})" if lane else group))
    facts.append(("minted", f"{local_and_utc(minted)}, {shown_span(age_ms(job_id, seen.now_ms))} ago"))
    if seen.at_ms is not None:
        label = "run-at" if seen.state is State.SCHEDULED else "lease ends"
        facts.append((label, f"{local_and_utc(seen.at_ms)}, {away(job_id, seen.state, seen.at_ms, seen.now_ms)}"))
    if died := seen.number("died_ms"):
        facts.append(("died", f"{local_and_utc(died)}, {shown_span(seen.now_ms - died)} ago"))
    if seen.row:
        facts += [(name, seen.text(name) or "0") for name in ("attempts", "failures", "stalled")]
    if seen.lock_ms is not None:
        facts.append(("held by", f"{holder or 'a worker'}, for {shown_span(seen.lock_ms)} more unless renewed"))
    elif holder:
        facts.append(("held by", holder))
    facts += [(name, seen.text(name) or "") for name in ("progress", "dedup", "cancel") if name in seen.row]
    facts += _envelope_facts(_envelope(seen))
    facts += _flow(seen, payload=payload)
    facts += [
        (name, field.text) for name, field in seen.row.items() if name not in _SHOWN and not (name == "lock" and held)
    ]
    if field := seen.row.get("payload"):
        facts.append(("payload", payload_text(field.value, field.size) if payload else f"{field.size:,} bytes"))
    if seen.result_ms is not None:
        result = seen.result
        facts.append(("result", payload_text(result.value, result.size) if payload else f"{result.size:,} bytes"))
    ops_view.facts(facts)
    _block("last error", (seen.text("last_error") or "").splitlines())
    if seen.log_lines:
        _block(f"log, the last {len(seen.logs):,} of {seen.log_lines:,} lines", seen.logs)


def _block(title: str, lines: Sequence[str]) -> None:
    if lines:
        print(f"{title}:")
        for line in lines:
            print(f"  {clean(line)}")


def _flow(seen: Details, *, payload: bool) -> list[tuple[str, str]]:
    facts: list[tuple[str, str]] = []
    if parent := seen.text("parent"):
        where = f" in queue {queue}" if (queue := seen.text("parent_queue")) else ""
        policy = "ignores its death" if seen.text("parent_policy") == "id" else "dies with it"
        facts.append(("parent", f"{parent}{where}, which {policy}"))
    if seen.outstanding is not None:
        facts.append(("children outstanding", f"{seen.outstanding:,}"))
    ends: tuple[tuple[str, Children, bool], ...] = (
        ("children done", seen.processed, payload),
        ("children that failed it", seen.failed, True),
        ("children ignored", seen.ignored, True),
    )
    for label, children, values in ends:
        if children.total:
            some = [_child(child, value, shown=values) for child, value in children.some.items()]
            more = f" and {children.total - len(some):,} more" if children.total > len(some) else ""
            facts.append((label, f"{children.total:,}: {', '.join(some)}{more}"))
    return facts


def _child(child: str, value: bytes, *, shown: bool) -> str:
    return f"{child} ({first_line(value.decode('utf-8', 'replace'))})" if shown and value else child


def _envelope_json(envelope: Envelope | str | None, *, payload: bool) -> object:
    if not isinstance(envelope, Envelope):
        return None
    known: dict[str, object] = {
        "job": envelope.job,
        "max_attempts": envelope.max_attempts,
        "timeout_ms": envelope.timeout_ms,
        "expires_ms": envelope.expires_ms,
        "slot_ms": envelope.slot_ms,
        "codec": envelope.codec,
        "arguments": len(envelope.args),
        "keywords": list(envelope.kwargs),
    }
    return known | {"args": envelope.args, "kwargs": envelope.kwargs, "meta": envelope.meta} if payload else known


def _children_json(children: Children, *, values: bool) -> dict[str, object]:
    some = {child: value.decode("utf-8", "replace") if values else None for child, value in children.some.items()}
    return {"total": children.total, "children": some}


def as_json(
    job_id: str, queue: str, seen: Details, lane: str | None, *, holder: str | None, payload: bool
) -> dict[str, object]:
    """The job for a machine. Times are Unix ms, null where there is none."""
    field = seen.row.get("payload")
    told: dict[str, object] = {
        "id": job_id,
        "queue": queue,
        "name": _name(seen),
        "state": "completed" if seen.state is State.ABSENT else seen.state.value,
        "now_ms": seen.now_ms,
        "minted_ms": survey.minted_ms(job_id),
        "run_at_ms": seen.at_ms if seen.state is State.SCHEDULED else None,
        "lease_ends_ms": seen.at_ms if seen.state is State.ACTIVE else None,
        "lane": seen.text("group"),
        "lane_text": lane,
        "lock_ms": seen.lock_ms,
        "held_by": holder,
        "result_kept_ms": seen.result_ms,
        "row": {name: value.text for name, value in seen.row.items() if name != "payload"},
        "envelope": _envelope_json(_envelope(seen), payload=payload),
        "payload_bytes": field.size if field else None,
        "result_bytes": None if seen.result_ms is None else seen.result.size,
        "log_lines": seen.log_lines,
        "logs": list(seen.logs),
        "flow": {
            "parent": seen.text("parent"),
            "parent_queue": seen.text("parent_queue") or (queue if "parent" in seen.row else None),
            "outstanding": seen.outstanding,
            "done": _children_json(seen.processed, values=payload),
            "failed": _children_json(seen.failed, values=True),
            "ignored": _children_json(seen.ignored, values=True),
        },
    }
    if payload and seen.result_ms is not None:
        told["result"] = seen.result.text
    return told | payload_json(field.value, field.size) if payload and field else told
