"""Jobs that follow other jobs: `@mq.job(on_success=..., on_failure=..., on_dead=...)`.

What follows is a job of its own, in the queue of the one it follows, and is admitted in the very step that settles that
one (docs/additions.md): a worker that is killed has done both or neither. Its one argument is a `Success` or a
`Failure`; without an annotation it is a dict with their members, and `type`, which is `success` or `failure`.

`on_success` follows a completion, `on_failure` every attempt that has failed, also the last one, `on_dead` a burial,
whatever its cause: the last failure, a `Discard`, a cancellation, an expiry, lapses, a child's death.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from echomq.app.errors import JobDefinitionError
from echomq.app.text import nearest
from echomq.protocol.checks import name_of

if TYPE_CHECKING:
    from echomq.app.job import JobFunction


class Success(msgspec.Struct, frozen=True, tag_field="type", tag="success"):
    """A job that is done: the argument of a job that is named by `on_success`.

    `args`, `kwargs` and `result` are as JSON has them. Where all of it is more than one job may carry, they are None.
    """

    id: str
    name: str
    queue: str
    attempt: int
    result: Any = None
    args: list[Any] | None = None
    kwargs: dict[str, Any] | None = None
    meta: dict[str, Any] | None = None


class Failure(msgspec.Struct, frozen=True, tag_field="type", tag="failure"):
    """A failed attempt, or a death: the argument of a job that is named by `on_failure` or `on_dead`.

    `attempt`: the number of the attempt that failed, 0 where none had begun. `error`: the type and the text of the
    exception and the end of its traceback, or why the job was buried. `dead`: it lies in the morgue; otherwise it runs
    again, `retry_in_ms` after its settlement. `args` and `kwargs` are as JSON has them, None where they are too much.
    """

    id: str
    name: str
    queue: str
    attempt: int
    error: str
    dead: bool
    retry_in_ms: int | None = None
    args: list[Any] | None = None
    kwargs: dict[str, Any] | None = None
    meta: dict[str, Any] | None = None


Named: TypeAlias = "JobFunction[..., Any] | str | None"


@dataclass(frozen=True, slots=True)
class Followers:
    """The names of the jobs that follow; `NONE` where there are none."""

    on_success: str | None = None
    on_failure: str | None = None
    on_dead: str | None = None

    def check(self, name: str, jobs: Mapping[str, JobFunction[..., Any]]) -> None:
        """`JobDefinitionError` for a follower of the job `name` that is none of `jobs`, or does not take what it is
        given."""
        for word, record in (("on_success", _SUCCESS), ("on_failure", _FAILURE), ("on_dead", _FAILURE)):
            follower = getattr(self, word)
            if follower is None:
                continue
            job = jobs.get(follower)
            if job is None:
                raise JobDefinitionError(
                    f"{word} of job {name!r} names {follower!r}, which is no job of this app; "
                    f"there are: {nearest(follower, jobs)}"
                )
            try:
                job.arguments.outgoing((msgspec.to_builtins(record),), {})
            except Exception as error:
                raise JobDefinitionError(
                    f"{word} of job {name!r} names {job.name!r}, which must take one argument, "
                    f"a {type(record).__name__}: {error}"
                ) from error


NONE: Final = Followers()
_SUCCESS: Final = Success("JOB00000000001", "job", "queue", 1, None, [], {})
_FAILURE: Final = Failure("JOB00000000001", "job", "queue", 1, "error", True, None, [], {})


def followers(name: str, on_success: Named, on_failure: Named, on_dead: Named) -> Followers:
    """What `@mq.job(...)` of the job `name` says; `JobDefinitionError` for what is no job, or the job itself."""
    found = Followers(_name("on_success", on_success), _name("on_failure", on_failure), _name("on_dead", on_dead))
    if name in (found.on_success, found.on_failure, found.on_dead):
        raise JobDefinitionError(f"job {name!r} follows itself: that would go on for ever")
    return NONE if found == NONE else found


def _name(word: str, given: Named) -> str | None:
    from echomq.app.job import JobFunction

    if given is None:
        return None
    if isinstance(given, JobFunction):
        return given.name
    if not isinstance(given, str):
        raise JobDefinitionError(f"{word} must be a job or the name of one, not {given!r:.200}")
    return name_of(word, given)
