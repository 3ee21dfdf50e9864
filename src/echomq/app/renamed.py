"""A declared schedule follows its job to a new name, so that a rename with `aliases` fires each slot once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from echomq.app.inspect import name_in
from echomq.app.naming import job_name
from echomq.protocol import cron
from echomq.protocol.call import Plan
from echomq.protocol.recurring import Entry, Standing

if TYPE_CHECKING:
    from echomq.app.job import JobFunction


def owner_of(job: JobFunction[..., Any]) -> str:
    """The top package, or module, whose code has the job: it owns the schedules that are declared there."""
    return job_name(job.function).partition(".")[0]


def take_over(queue: str, job: JobFunction[..., Any], former: Sequence[str]) -> Plan[str | None]:
    """Renames the schedule that was declared for a job under a former name, while there is none under its own.

    Gives the name that it had; None when there is nothing to take over. One step of the server: of any number of
    workers one does it, and an occurrence comes under the old name before it, or under the new one after it.
    """
    for name in former:
        standing: Standing = yield cron.look(queue, name)
        entry = _declared_for(job, name, standing)
        while entry is not None:
            moved: bool = yield cron.rename(queue, entry, job.name)
            if moved:
                return name
            own: Standing = yield cron.look(queue, job.name)
            if own.entry is not None:
                return None
            standing = yield cron.look(queue, name)
            entry = _declared_for(job, name, standing)
    return None


def end_former(queue: str, job: JobFunction[..., Any], former: Sequence[str]) -> Plan[list[str]]:
    """Ends what is declared for a job under former names, now that its schedule has its own; gives their names.

    Older code that starts once more, in a deployment or after one, registers its name anew.
    """
    ended: list[str] = []
    for name in former:
        standing: Standing = yield cron.look(queue, name)
        if _declared_for(job, name, standing) is not None:
            gone: bool = yield cron.cancel(queue, name)
            ended += [name] * gone
    return ended


def _declared_for(job: JobFunction[..., Any], name: str, standing: Standing) -> Entry | None:
    """The schedule of a former name when code has declared it for this job: that of its package now, or of then."""
    entry = standing.cron
    if entry is None or entry.definition is None or standing.repeat is not None:
        return None
    template = entry.definition.template
    if entry.definition.owner not in (owner_of(job), name.partition(".")[0]):
        return None
    return entry if name_in(template, len(template)) in (job.name, *job.defaults.aliases) else None
