"""Delivering a flow's signals to parents in other queues (protocol §8): at least once each, with the effect of one.

An entry leaves the outbox, by value, only after its parent's server has taken it, so pumps may die anywhere and work
side by side. Where a parent dies of it and has a parent in a third queue, that one is told in the same round.
"""

from __future__ import annotations

from typing import Any, Final

from echomq.identity.errors import EchoMQError, InvalidInputError
from echomq.protocol import flows
from echomq.protocol.call import Call
from echomq.protocol.errors import ServerError
from echomq.protocol.flows import Relayed
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
        sent: list[Relayed] = []
        calls: list[Call[Relayed | None]] = []
        rejects: list[Call[int]] = []
        for entry in entries:
            try:
                calls.append(flows.deliver(entry))
            except InvalidInputError as error:
                rejects.append(flows.reject(self._queue, entry))
                log.error("queue %s: set aside, %s", self._queue, brief(error))
            else:
                sent.append(Relayed(self._queue, entry))
        settles, relayed, failure = await self._brought(conn, sent, calls)
        taken = await conn.run_many([*settles, *rejects])
        self.delivered += sum(answer == 1 for answer in taken[: len(settles)])
        self.rejected += sum(answer == 1 for answer in taken[len(settles) :])
        failure = failure or _unreached(taken)
        if failure is not None:
            raise failure
        await self._relay(conn, relayed)
        return len(taken)

    async def _brought(
        self, conn: AsyncConnector, sent: list[Relayed], calls: list[Call[Relayed | None]]
    ) -> tuple[list[Call[int]], list[Relayed], EchoMQError | None]:
        """What settles the entries that were taken, the signals that these have brought about, and a failure."""
        answers = await conn.run_many(calls)
        settles: list[Call[int]] = []
        relayed: list[Relayed] = []
        for each, answer in zip(sent, answers, strict=True):
            if not isinstance(answer, EchoMQError):
                settles.append(flows.settle(each.queue, each.entry))
                if answer is not None:
                    relayed.append(answer)
            elif isinstance(answer, ServerError):
                self._refused(each.entry, answer)
        return settles, relayed, _unreached(answers)

    async def _relay(self, conn: AsyncConnector, relayed: list[Relayed]) -> None:
        """Brings the deaths of parents on to theirs at once, a level a round.

        They lie in other queues' outboxes, whose pumps would be next to look; theirs is what does not arrive here.
        """
        for _ in range(flows.MAX_LEVELS):
            if not relayed:
                return
            calls = [flows.deliver(each.entry) for each in relayed]
            settles, relayed, failure = await self._brought(conn, relayed, calls)
            failure = failure or _unreached(await conn.run_many(settles))
            if failure is not None:
                raise failure

    def _refused(self, entry: bytes, error: ServerError) -> None:
        if entry not in self._said and len(self._said) < _REMEMBERED:
            self._said.add(entry)
            log.error(
                "queue %s: a signal stays in the outbox, its parent's server refuses it: %s", self._queue, brief(error)
            )


def _unreached(answers: list[Any]) -> EchoMQError | None:
    return next((each for each in answers if isinstance(each, EchoMQError) and not isinstance(each, ServerError)), None)
