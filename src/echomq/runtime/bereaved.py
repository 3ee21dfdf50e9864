"""Telling of the parents that the death of a child has buried, up through every level (protocol §8).

The server buries them in the step that buries the child, or that brings the signal of its death to another queue, and
its answer names the child alone. So whoever has seen that death looks at the rows above. `last_error` of a parent names
the child that it died of, and a job that dies does so in one step, with one time: thus each death is told by the one
who has seen the death below it, and by nobody else. At most once, like every step; nothing is looked at while nobody
observes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from echomq.identity.errors import EchoMQError
from echomq.protocol import flows
from echomq.protocol.call import Call, Reply
from echomq.protocol.checks import check_job
from echomq.protocol.discover import queue_of
from echomq.protocol.keys import keys
from echomq.protocol.replies import as_bytes, as_list
from echomq.runtime.loops import log, told
from echomq.runtime.outcome import brief
from echomq.runtime.telemetry import Dead, Telemetry
from echomq.wire import AsyncConnector

BATCH: Final = 100
"""Rows that one round looks at."""

_SKEW_MS: Final = 1_000
"""What the clocks of two nodes may differ by. A parent in another queue that has died by so much before its child was
dead already."""

_FIELDS: Final = ("state", "last_error", "died_ms", "parent", "parent_queue")

_Row: TypeAlias = tuple[bytes | None, ...]


@dataclass(frozen=True, slots=True)
class _Cause:
    """The death of a child. `died_ms`, on the clock of its server, is None when its row has none any more."""

    child: str
    died_ms: bytes | None
    signal: bytes | None = None
    """The error that was signalled, where the parent lies in another queue."""

    def of(self, row: _Row) -> bool:
        """Whether a parent has died of it."""
        state, error, died_ms, *_ = row
        if state != b"dead" or error is None:
            return False
        start = f"child {self.child} failed: ".encode()
        if self.signal is None:
            return error.startswith(start) and self.died_ms in (None, died_ms)
        return error == start + self.signal and _number(died_ms) + _SKEW_MS >= _number(self.died_ms)


@dataclass(frozen=True, slots=True)
class _Look:
    """A row to be looked at: of a death that has been told, or, with a `cause`, of a parent that may have died."""

    queue: str
    job: str
    level: int = 0
    cause: _Cause | None = None
    signalled: tuple[str, str, bytes] | None = None
    """Where the death was brought to: a queue, a parent in it, and the error."""

    def call(self) -> Call[_Row]:
        """The call that reads the row."""
        return Call("look", (keys(self.queue).job(self.job),), _FIELDS, _row, command="HMGET", subject=self.job)


class Bereaved:
    """Deaths whose parents are to be told of; `queue` is where `saw` has seen them.

    `tell` does all that is to be done. Where there is no event loop `calls` gives what is to be asked and `answered`
    takes the answers, until there is no call.
    """

    def __init__(self, queue: str, watch: Telemetry) -> None:
        self.queue = queue
        self.watch = watch
        self._waiting: deque[_Look] = deque()
        self._asked: list[_Look] = []

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def saw(self, *job_ids: str) -> None:
        """These jobs of the queue are dead, and were told."""
        if self.watch.observers:
            self._waiting.extend(_Look(self.queue, job_id) for job_id in job_ids)

    def delivered(self, queue: str, entry: bytes) -> None:
        """A signal of this queue's outbox has reached its parent, and was settled by the caller and by nobody else."""
        if self.watch.observers:
            call = flows.deliver(entry)
            match call.args:
                case "fail", bytes(parent), bytes(child), bytes(error), b"fp":
                    to = (queue_of(call.keys[0].encode()) or "", parent.decode(), error)
                    self._waiting.append(_Look(queue, child.decode(), signalled=to))
                case _:
                    pass

    def calls(self) -> list[Call[_Row]]:
        """What is to be asked next, `BATCH` calls at most; `answered` is to be told what became of them."""
        self._asked = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
        return [look.call() for look in self._asked]

    def answered(self, answers: Iterable[_Row | EchoMQError]) -> None:
        """Takes one answer a call, in order. What cannot be read is said in the log, and that is all."""
        for look, answer in zip(self._asked, answers, strict=True):
            if isinstance(answer, EchoMQError):
                self._untold(look, answer)
                continue
            try:
                if look.cause is None or look.cause.of(answer):
                    self._above(look, answer)
            except ValueError as error:  # another client may have put anything into a row
                self._untold(look, error)

    async def tell(self, conn: AsyncConnector) -> None:
        """Tells of every parent that the deaths seen so far have buried. Raises nothing but a cancellation."""
        while calls := self.calls():
            try:
                self.answered(await conn.run_many(calls))
            except Exception as error:  # noqa: BLE001  (whatever it is, the jobs go on)
                self._untold(self._asked[0], error)

    def _above(self, look: _Look, row: _Row) -> None:
        _, error, died_ms, parent, parent_queue = row
        if look.cause is not None:
            text = (error or b"").decode("utf-8", "replace")
            self.watch.emit(Dead(look.queue, look.job, text))
            log.error("job %s of %s buried: %s", look.job, look.queue, brief(text.split("\n", 1)[0]))
        if look.signalled is not None:
            queue, above, signal = look.signalled
            self._waiting.append(_Look(queue, above, look.level + 1, _Cause(look.job, died_ms, signal)))
        elif parent is not None and parent_queue is None and look.level < flows.MAX_LEVELS:
            # One in another queue is told by whoever delivers the signal.
            above = check_job(parent.decode())
            self._waiting.append(_Look(look.queue, above, look.level + 1, _Cause(look.job, died_ms)))

    def _untold(self, look: _Look, error: Exception) -> None:
        log.warning(
            "job %s of %s: nobody is told whether a parent has died with it, for its row cannot be read: %s",
            *(look.job, look.queue, told(error)),
        )


def _row(reply: Reply) -> _Row:
    return tuple(None if item is None else as_bytes(item) for item in as_list(reply))


def _number(text: bytes | None) -> int:
    return int(text) if text is not None and text.isdigit() else 0
