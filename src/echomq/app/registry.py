"""The jobs of an app, by name and by the names that they had before; and the queues that they use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from echomq.app.errors import JobDefinitionError

if TYPE_CHECKING:
    from echomq.app.job import JobFunction


class Registry:
    """What stays true: a name, also an alias, leads to one job."""

    def __init__(self, queues: Sequence[str] = ()) -> None:
        self._queues = tuple(queues)
        self._jobs: dict[str, JobFunction[..., Any]] = {}
        self._names: dict[str, JobFunction[..., Any]] = {}
        self.every = WeakSet["JobFunction[..., Any]"]()
        """Also those that a later one of the name has replaced."""
        self.jobs: Mapping[str, JobFunction[..., Any]] = MappingProxyType(self._jobs)
        """By the name that each has now."""
        self.names: Mapping[str, JobFunction[..., Any]] = MappingProxyType(self._names)
        """By every name that a payload may carry."""

    @property
    def queues(self) -> tuple[str, ...]:
        """The queues of the jobs in the order of their first use, then those that were declared beside them."""
        return tuple(dict.fromkeys([*(job.queue for job in self._jobs.values()), *self._queues]))

    def add(self, job: JobFunction[..., Any]) -> None:
        """Registers a job; `JobDefinitionError` for a name that another function has, or another declared schedule."""
        names = (job.name, *job.defaults.aliases)
        for name in names:
            self._check(name, job)
        if job.defaults.schedules:
            self._check_schedules(job)
        self.every.add(job)
        before = self._jobs.get(job.name)
        if before is not None:
            for name in [name for name, each in self._names.items() if each is before]:
                del self._names[name]
        self._jobs[job.name] = job
        self._names.update(dict.fromkeys(names, job))

    def _check(self, name: str, job: JobFunction[..., Any]) -> None:
        other = self._names.get(name)
        if other is None or (other.name == job.name and is_again(other.function, job.function)):
            return
        if name == other.name == job.name:
            raise JobDefinitionError(
                f"two jobs are named {name!r}, {place_of(other.function)} and {place_of(job.function)}: "
                "give one of them another name=..."
            )
        was = "the name" if name == other.name else "an alias"
        here = "the name" if name == job.name else "an alias"
        raise JobDefinitionError(
            f"{name!r} is {was} of the job {other.name!r}, {place_of(other.function)}, and {here} of the job "
            f"{job.name!r}, {place_of(job.function)}: a payload with that name can mean one of them only"
        )

    def _check_schedules(self, job: JobFunction[..., Any]) -> None:
        others = [each for each in self._jobs.values() if each.name != job.name and each.queue == job.queue]
        taken = {name: each for each in others for name in _schedules(each)}
        for name in _schedules(job):
            if name in taken:
                other = taken[name].name
                both = f"the jobs {other!r} and {job.name!r} both declare"
                who = f"{job.name!r} has twice" if other == job.name else both
                raise JobDefinitionError(
                    f"{who} a schedule {name!r} in queue {job.queue!r}: give one of them another name=..."
                )
            taken[name] = job


def _schedules(job: JobFunction[..., Any]) -> list[str]:
    """The names of the schedules that it declares."""
    return [each.name or job.name for each in job.defaults.schedules]


def is_again(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    """Whether a module that is executed again, by a reload or as a notebook's cell, brings its function once more.

    A function that is made by a function is another one each time, with values of its own inside.
    """
    if one is other:
        return True
    if "<locals>" in getattr(one, "__qualname__", "<locals>"):
        return False
    interactive = getattr(getattr(one, "__code__", None), "co_filename", "").startswith("<")
    return place_of(one) == place_of(other) or (interactive and one.__qualname__ == other.__qualname__)


def place_of(function: Callable[..., Any]) -> str:
    """Where a function is written."""
    code = getattr(function, "__code__", None)
    if code is None:
        return repr(function)
    return f"{function.__qualname__} ({code.co_filename}:{code.co_firstlineno})"
