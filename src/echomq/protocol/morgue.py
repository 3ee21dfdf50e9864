"""The morgue in bulk (protocol §7, ours): dead jobs purged by id, in steps that hold nobody up."""

from __future__ import annotations

from collections.abc import Sequence

from echomq.protocol.call import Call
from echomq.protocol.checks import check_job, integer
from echomq.protocol.keys import keys
from echomq.protocol.replies import as_int
from echomq.protocol.scripts import script

__all__ = ["purge"]

_PURGE = script("purge")


def purge(queue: str, ids: Sequence[str]) -> Call[int]:
    """Deletes those of up to 1,000 jobs that are dead; gives how many. One that lives again is left alone."""
    integer("number of jobs", len(ids), least=1, most=1_000)
    names = tuple(check_job(job_id) for job_id in ids)
    return Call("purge", (keys(queue).dead,), names, as_int, _PURGE, subject=queue)
