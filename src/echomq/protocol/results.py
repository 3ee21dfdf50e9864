"""What has become of jobs, for whoever waits for them (protocol §2, `:result`; §10): one look for many, no writes.

A completion that keeps something, and every burial, also publishes the job's id on the queue's `results` channel
(docs/additions.md). Messages come at most once, so whoever waits looks before it waits, and now and then meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from echomq.protocol.call import Call, Reply
from echomq.protocol.checks import check_job, integer
from echomq.protocol.keys import keys
from echomq.protocol.replies import State, as_bytes, as_list, unexpected
from echomq.protocol.scripts import script

__all__ = ["MOST", "Ending", "endings", "ids_in"]

MOST = 1_000
"""Jobs that one look takes in."""

_ENDINGS = script("endings")
_STATES = {state.value.encode(): state for state in State}


@dataclass(frozen=True, slots=True)
class Ending:
    """What has become of a job.

    `state` is that of its row: `ABSENT` when it has none, as a completed job has none. `result` is what a completed
    job has left, None while it has left nothing or when that is gone. `error`, `failures` and `stalled` are a dead
    job's.
    """

    state: State
    result: bytes | None = None
    error: str = ""
    failures: int = 0
    stalled: int = 0

    @property
    def is_final(self) -> bool:
        """Whether nothing follows: it is completed, dead or gone."""
        return self.state is State.ABSENT or self.state is State.DEAD


def _ending(reply: Reply) -> Ending:
    match as_list(reply):
        case [b"completed", result]:
            return Ending(State.ABSENT, as_bytes(result))
        case [b"dead", error, failures, stalled]:
            text = as_bytes(error).decode("utf-8", "replace")
            return Ending(State.DEAD, error=text, failures=_count(failures), stalled=_count(stalled))
        case [bytes(state)]:
            return Ending(_STATES.get(state, State.UNKNOWN))
        case _:
            raise unexpected(reply, "an ending")


def _count(reply: Reply) -> int:
    text = as_bytes(reply)
    return int(text) if text.isdigit() else 0


def endings(queue: str, ids: Sequence[str]) -> Call[tuple[Ending, ...]]:
    """What has become of up to 1,000 jobs of a queue, in order, at one instant."""
    integer("number of jobs", len(ids), least=1, most=MOST)
    names = tuple(check_job(job_id) for job_id in ids)

    def decode(reply: Reply) -> tuple[Ending, ...]:
        items = as_list(reply)
        if len(items) != len(names):
            raise unexpected(reply, f"{len(names)} endings")
        return tuple(map(_ending, items))

    return Call("endings", (keys(queue).pending,), names, decode, _ENDINGS, subject=queue)


def ids_in(message: bytes) -> list[str]:
    """The ids in a message of the `results` channel; whatever else is in it is for the caller not to know."""
    return message.decode("ascii", "replace").split(" ")
