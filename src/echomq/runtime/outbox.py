"""Delivering a flow's signals to parents in other queues (protocol §8): at least once each, with the effect of one.

An entry leaves the outbox, by value, only after its parent's server has taken it, so pumps may die anywhere and work
side by side.
"""

from __future__ import annotations

from typing import Any, Final

from echomq.identity.errors import EchoMQError, InvalidInputError
from echomq.protocol import flows
from echomq.protocol.call import Call
from echomq.protocol.errors import ServerError
from echomq.protocol.keys import check_queue
from echomq.runtime.loops import log
from echomq.runtime.outcome import brief
from echomq.wire import AsyncConnector

BATCH: Final = 100
"""Entries that one round delivers."""

_MOST_STUCK: Final = 10_000
_REMEMBERED: Final = 1_000


class Outbox:
    """The outbox of one queue."""

    def __init__(self, queue: str, *, batch: int = BATCH) -> None:
        self._queue = check_queue(queue)
        self._batch = batch
        self._said: set[bytes] = set()
        self.stuck = 0
        """Entries that their parents' servers refuse; they stay, and newer ones pass them by."""
        self.delivered = 0
        self.rejected = 0
        """Malformed entries that this pump has set aside."""

    async def deliver(self, conn: AsyncConnector) -> int:
        """Deliver what lies there, `batch` a round; gives how many. Raises when a server cannot be reached."""
        before = self.delivered
        while True:
            limit = self._batch + min(self.stuck, _MOST_STUCK)
            entries = await conn.run(flows.outbox(self._queue, limit=limit))
            gone = await self._round(conn, entries) if entries else 0
            self.stuck = len(entries) - gone
            if gone == 0 or len(entries) < limit:
                return self.delivered - before

    async def _round(self, conn: AsyncConnector, entries: tuple[bytes, ...]) -> int:
        """Takes what was delivered, and what is malformed, out of the outbox; gives how many."""
        sent: list[bytes] = []
        calls: list[Call[int]] = []
        rejects: list[Call[int]] = []
        for entry in entries:
            try:
                calls.append(flows.deliver(entry))
            except InvalidInputError as error:
                rejects.append(flows.reject(self._queue, entry))
                log.error("queue %s: set aside, %s", self._queue, brief(error))
            else:
                sent.append(entry)
        answers = await conn.run_many(calls)
        failure = _unreached(answers)
        settles: list[Call[int]] = []
        for entry, answer in zip(sent, answers, strict=True):
            if not isinstance(answer, EchoMQError):
                settles.append(flows.settle(self._queue, entry))
            elif isinstance(answer, ServerError):
                self._refused(entry, answer)
        taken = await conn.run_many([*settles, *rejects])
        self.delivered += sum(answer == 1 for answer in taken[: len(settles)])
        self.rejected += sum(answer == 1 for answer in taken[len(settles) :])
        failure = failure or _unreached(taken)
        if failure is not None:
            raise failure
        return len(taken)

    def _refused(self, entry: bytes, error: ServerError) -> None:
        if entry not in self._said and len(self._said) < _REMEMBERED:
            self._said.add(entry)
            log.error(
                "queue %s: a signal stays in the outbox, its parent's server refuses it: %s", self._queue, brief(error)
            )


def _unreached(answers: list[Any]) -> EchoMQError | None:
    return next((each for each in answers if isinstance(each, EchoMQError) and not isinstance(each, ServerError)), None)
