"""Admission with options (protocol §5, §6, §7): a run-at, a lane and a deduplication key in one call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from echomq.protocol.call import Call, Plan, Reply
from echomq.protocol.checks import check_job, group_of, integer, moment, name_of, payload_of
from echomq.protocol.errors import EchoMQError, InvalidInputError, WireError
from echomq.protocol.keys import keys
from echomq.protocol.replies import Admission, as_int, as_text
from echomq.protocol.scripts import script

__all__ = ["Admitted", "Dedup", "admit", "admit_fresh"]

_ADMIT = script("admit")

_MINTS: Final = 100
"""Duplicates in a row of freshly minted ids that no accident explains."""


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
            group_of(group) if group is not None else "",
            key,
            window_ms,
            way,
            lane_text,
        ),
        decode,
        _ADMIT,
        subject=job_id,
    )


def admit_fresh(
    what: str, mint: Callable[[], str], admit: Callable[[str], Call[Admission] | Call[Admitted]]
) -> Plan[Admitted]:
    """Admits a job under an id of `mint`, and under the next one when the send finds that id taken (protocol §1).

    `admit` gives the call for an id; `what` names the job in errors. No call is repeated: after a `WireError` nobody
    knows whether the job was admitted, and the error says under which id. `EchoMQError` when every id was taken.
    """
    for _ in range(_MINTS):
        job_id = mint()
        try:
            answer: Admission | Admitted = yield admit(job_id)
        except WireError as error:
            error.add_note(f"{what} has the id {job_id}: its state there tells whether it was admitted")
            raise
        admitted = answer if isinstance(answer, Admitted) else Admitted(answer, job_id)
        if admitted.verdict is not Admission.DUPLICATE or admitted.id != job_id:
            return admitted
    raise EchoMQError(
        f"{what}: {_MINTS} fresh ids in a row were taken; does another host use this one's clock and node?"
    )
