"""A job in a listing: as a row for a person, as an object for a machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from echomq.app.inspect import job_name
from echomq.cli.ops_text import first_line, instant, shown_span
from echomq.protocol import survey, survey_lanes
from echomq.protocol.replies import State

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from echomq.protocol.survey import SeenJob
    from echomq.wire import Connector

__all__ = ["HEADINGS", "age_ms", "as_json", "away", "lane_texts", "late_ms", "payload_json", "payload_text", "row"]

HEADINGS: Final = (
    *("id", "name", "state", ">age", "run-at / deadline", ">attempts", ">failures", ">stalled", "lane"),
    "last error",
)


def age_ms(job_id: str, now_ms: int) -> int | None:
    """How long ago an id was minted."""
    minted = survey.minted_ms(job_id)
    return None if minted is None else max(0, now_ms - minted)


def late_ms(job_id: str, at_ms: int | None, now_ms: int) -> int:
    """How long a job for later has been due: since its run-at, but not before its mint; 0 when it is not."""
    return 0 if at_ms is None else max(0, now_ms - max(at_ms, survey.minted_ms(job_id) or 0))


def away(job_id: str, state: State, at_ms: int, now_ms: int) -> str:
    """How far off a run-at or the end of a lease is."""
    if at_ms > now_ms:
        return f"in {shown_span(at_ms - now_ms)}"
    if state is State.SCHEDULED:
        return f"late {shown_span(late_ms(job_id, at_ms, now_ms))}"
    return f"lapsed {shown_span(now_ms - at_ms)} ago"


def row(job: SeenJob, now_ms: int, lanes: Mapping[str, str], *, payload: bool = False) -> list[str]:
    """A row of a listing; `lanes` has the texts that named lanes."""
    cells = [
        job.id,
        job_name(job) or "-",
        "no row" if job.state is State.ABSENT else job.state.value,
        shown_span(age_ms(job.id, now_ms)),
        "-" if job.at_ms is None else f"{instant(job.at_ms)}, {away(job.id, job.state, job.at_ms, now_ms)}",
        f"{job.attempts:,}",
        f"{job.failures:,}",
        f"{job.stalled:,}",
        lanes.get(job.group, job.group) if job.group else "-",
        first_line(job.last_error) or "-",
    ]
    return [*cells, payload_text(job.payload, job.payload_bytes)] if payload else cells


def lane_texts(conn: Connector, queue: str, jobs: Iterable[SeenJob]) -> dict[str, str]:
    """The texts that named the lanes of some jobs, by lane id."""
    groups = {job.group for job in jobs if job.group and survey.minted_ms(job.group) is not None}
    if not groups:
        return {}
    return {lane.group: lane.text for lane in conn.run(survey_lanes.lanes(queue, sorted(groups)[:1_000])) if lane.text}


def payload_text(payload: bytes, size: int) -> str:
    """A payload for a person."""
    more = f"... ({size:,} bytes)" if len(payload) < size else ""
    return payload.decode("utf-8", "backslashreplace") + more


def payload_json(payload: bytes, size: int) -> dict[str, object]:
    """A payload for a machine: text where it is text, and how much of it there is."""
    from base64 import b64encode

    cut: dict[str, object] = {"payload_cut": True} if len(payload) < size else {}
    try:
        return {"payload": payload.decode(), **cut}
    except UnicodeDecodeError:
        return {"payload_base64": b64encode(payload).decode(), **cut}


def as_json(job: SeenJob, queue: str, now_ms: int, lanes: Mapping[str, str], *, payload: bool) -> dict[str, object]:
    """A job of a listing for a machine. Times are Unix ms, null where there is none."""
    scheduled = job.state is State.SCHEDULED
    told: dict[str, object] = {
        "id": job.id,
        "queue": queue,
        "name": job_name(job),
        "state": job.state.value,
        "minted_ms": survey.minted_ms(job.id),
        "age_ms": age_ms(job.id, now_ms),
        "run_at_ms": job.at_ms if scheduled else None,
        "lease_ends_ms": job.at_ms if job.state is State.ACTIVE else None,
        "late_ms": late_ms(job.id, job.at_ms, now_ms) if scheduled else None,
        "attempts": job.attempts,
        "failures": job.failures,
        "stalled": job.stalled,
        "lane": job.group,
        "lane_text": lanes.get(job.group) if job.group else None,
        "last_error": job.last_error,
        "died_ms": job.died_ms,
        "cancel": job.cancel,
        "parent": job.parent,
        "payload_bytes": job.payload_bytes,
    }
    return told | payload_json(job.payload, job.payload_bytes) if payload else told
