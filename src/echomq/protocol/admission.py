"""Admission with options (protocol §5, §6, §7): a run-at, a lane and a deduplication key in one call."""

from __future__ import annotations

from dataclasses import dataclass

from echomq.identity.branded import check
from echomq.protocol.call import Call, Reply
from echomq.protocol.checks import check_job, integer, moment, name_of, payload_of
from echomq.protocol.errors import InvalidInputError
from echomq.protocol.keys import keys
from echomq.protocol.replies import Admission, as_int, as_text
from echomq.protocol.scripts import script

__all__ = ["Admitted", "Dedup", "admit"]

_ADMIT = script("admit")


@dataclass(frozen=True, slots=True)
class Dedup:
    """A deduplication key: while a living job holds it, another admission gives that job's id.

    It is freed when the job completes, dies or is removed, or `window_ms` after the admission. With `replace` the
    living job's payload becomes the new one, unless the job is in hand.
    """

    key: str
    window_ms: int | None = None
    replace: bool = False


@dataclass(frozen=True, slots=True)
class Admitted:
    """What an admission with options did; `id` is the living job's when that holds the deduplication key."""

    verdict: Admission
    id: str


def admit(
    queue: str,
    job_id: str,
    payload: bytes | str,
    *,
    at_ms: int | None = None,
    delay_ms: int | None = None,
    group: str | None = None,
    lane_text: str = "",
    dedup: Dedup | None = None,
) -> Call[Admitted]:
    """Admits a job with options. `lane_text` is the text that named the lane, kept for people to read."""
    mode, value = ("", 0) if at_ms is None and delay_ms is None else moment(at_ms, delay_ms)
    if lane_text and group is None:
        raise InvalidInputError(f"lane_text {lane_text!r} needs the group that it names")
    key, window_ms, way = "", 0, "keep"
    if dedup is not None:
        key = name_of("deduplication key", dedup.key)
        way = "replace" if dedup.replace else "keep"
        if dedup.window_ms is not None:
            window_ms = integer("window_ms", dedup.window_ms, least=1)

    def decode(reply: Reply) -> Admitted:
        if isinstance(reply, bytes):
            return Admitted(Admission.DUPLICATE, as_text(reply))
        if as_int(reply) == 0:
            return Admitted(Admission.DUPLICATE, job_id)
        return Admitted(Admission.SCHEDULED if mode else Admission.ADMITTED, job_id)

    return Call(
        "admit",
        (keys(queue).job(check_job(job_id)),),
        (
            job_id,
            payload_of(payload),
            mode,
            value,
            check(group) if group is not None else "",
            key,
            window_ms,
            way,
            lane_text,
        ),
        decode,
        _ADMIT,
        subject=job_id,
    )
