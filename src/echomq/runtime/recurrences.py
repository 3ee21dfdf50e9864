"""Firing what recurs: each slot of a queue's recurrences becomes a job once, whoever else fires (protocol §9)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from echomq.identity.errors import EchoMQError, InvalidInputError
from echomq.identity.minter import mint
from echomq.protocol import cron, repeat
from echomq.protocol.call import Call
from echomq.protocol.checks import MAX_MS
from echomq.protocol.cron import CronDue, CronFired, Occurrence
from echomq.protocol.errors import ServerError
from echomq.protocol.keys import check_queue
from echomq.protocol.repeat import Due, Fired, Firing
from echomq.protocol.replies import Admission
from echomq.runtime.loops import log
from echomq.runtime.outcome import brief
from echomq.runtime.slotted import slotted
from echomq.runtime.telemetry import Added, Telemetry, hub
from echomq.runtime.timetable import is_sound, timetable, turn
from echomq.wire import AsyncConnector

_DUE_LIMIT: Final = 100
_MOST_REFUSED: Final = 1_000
_MINTS: Final = 5


def in_time() -> int:
    """The clock of recurrences is the server's."""
    return 0


class Recurrences:
    """Fires the due recurrences of one queue, of both registries. One slot fires once, whoever else fires.

    `watch` is told of each occurrence that this one has admitted. `ahead` says how far, in ms, the slots are ahead of
    the scores, which a test has moved back; None while they are being moved.
    """

    def __init__(
        self,
        queue: str,
        mint_id: Callable[[], str] = mint,
        *,
        watch: Telemetry = hub,
        ahead: Callable[[], int | None] = in_time,
    ) -> None:
        self._queue = check_queue(queue)
        self._mint = mint_id
        self._watch = watch
        self._ahead = ahead
        self._refused: set[str] = set()

    async def fire(self, conn: AsyncConnector, now_ms: int) -> int:
        """Fires what is due at `now_ms`; gives how many recurrences it moved on or saw moved on by another.

        A recurrence that cannot be fired is said once and does not keep the others from firing: as many more are asked
        for as could not be fired before, up to 1,000.
        """
        moved = 0
        ahead_ms = self._ahead()
        limit = _DUE_LIMIT + min(len(self._refused), _MOST_REFUSED)
        dues = await conn.run(cron.due(self._queue, now_ms=now_ms, limit=limit))
        if ahead_ms is None or ahead_ms != self._ahead():
            return 1  # they are being moved: what was read fits neither the old slots nor the new ones, so look again
        pending: list[Due | CronDue] = [*dues.repeat, *dues.cron]
        for _ in range(_MINTS):
            calls = [(due, call) for due in pending if (call := self._call(due, now_ms, ahead_ms)) is not None]
            if not calls:
                break
            pending = []
            outcomes = await conn.run_many([call for _, call in calls])
            for (due, _), answer in zip(calls, outcomes, strict=True):
                if isinstance(answer, ServerError):
                    self._cannot(_name(due), answer)
                elif isinstance(answer, EchoMQError):
                    raise answer
                elif isinstance(answer, (Fired, CronFired)) and answer.verdict is Firing.DUPLICATE:
                    pending.append(due)  # an id was taken: fresh ones
                elif self._moved(due, answer):
                    moved += 1
                    if self._watch.observers:
                        self._tell(answer)
        return moved

    def _tell(self, answer: object) -> None:
        if isinstance(answer, (Fired, CronFired)) and answer.verdict is Firing.FIRED:
            for job_id in answer.ids:
                self._watch.emit(Added(self._queue, job_id, Admission.ADMITTED))

    def _call(self, due: Due | CronDue, now_ms: int, ahead_ms: int) -> Call[Any] | None:
        """The verb that a due recurrence is given; None when this host cannot say which."""
        try:
            return self._plain(due, now_ms, ahead_ms) if isinstance(due, Due) else self._turn(due, now_ms, ahead_ms)
        except InvalidInputError as error:  # such as a zone that this host does not know, and another may
            self._cannot(_name(due), error)
            return None

    def _plain(self, due: Due, now_ms: int, ahead_ms: int) -> Call[Fired]:
        slot_ms = _latest(due, now_ms)
        payload = None if slot_ms is None else slotted(due.template, slot_ms + ahead_ms)
        return repeat.fire(
            self._queue, due.name, score=due.score, job_id=self._mint(), payload=payload, template=due.template
        )

    def _turn(self, due: CronDue, now_ms: int, ahead_ms: int) -> Call[CronFired] | Call[bool]:
        entry, definition = due.entry, due.entry.definition
        if definition is None or not is_sound(definition):
            return cron.park(self._queue, entry)
        due_ms = due.due_ms + ahead_ms
        slot_ms = due_ms if entry.history.slot_ms is None else entry.history.slot_ms
        table = timetable(entry.name, definition, slot_ms)
        step = turn(table, definition, slot_ms, due_ms, now_ms + ahead_ms, entry.history.runs)
        occurrences = tuple(
            Occurrence(
                self._mint(),
                slot,
                (due_ms if slot == slot_ms else table.due_ms(slot)) - ahead_ms,
                slotted(definition.template, slot, definition.expires_in_ms) or definition.template,
            )
            for slot in step.slots
        )
        next_due_ms = None if step.next_ms is None else min(table.due_ms(step.next_ms), MAX_MS) - ahead_ms
        return cron.fire(self._queue, entry, occurrences, next_slot_ms=step.next_ms, next_due_ms=next_due_ms)

    def _moved(self, due: Due | CronDue, answer: object) -> bool:
        unreadable = isinstance(answer, bool) or (isinstance(answer, Fired) and answer.verdict is Firing.UNREADABLE)
        if unreadable:
            log.error(
                "queue %s: recurrence %r has a record that cannot be read and is off the timetable; register it anew",
                *(self._queue, brief(_name(due))),
            )
        return unreadable or (isinstance(answer, (Fired, CronFired)) and answer.verdict in (Firing.FIRED, Firing.LOST))

    def _cannot(self, name: str, error: EchoMQError) -> None:
        if name not in self._refused:
            self._refused.add(name)
            log.error("queue %s: recurrence %r cannot fire: %s", self._queue, brief(name), brief(error))


def _name(due: Due | CronDue) -> str:
    return due.name if isinstance(due, Due) else due.entry.name


def _latest(due: Due, now_ms: int) -> int | None:
    """The newest slot of a grid that has come; None when its score is no instant."""
    if not (due.score.isascii() and due.score.isdigit()) or due.every_ms < 1:
        return None
    first = int(due.score)
    return first + max(now_ms - first, 0) // due.every_ms * due.every_ms
