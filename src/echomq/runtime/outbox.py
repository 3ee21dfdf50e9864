"""Delivering a flow's signals to parents in other queues (protocol §8): at least once each, with the effect of one.

An entry leaves the outbox, by value, only after its parent's server has taken it, so pumps may die anywhere and work
side by side. A death that its parent has on record, and is held again, is brought only if it stands (protocol §8): the
child may have another life by now. Where a parent dies of it and has a parent in a third queue, that one is told in the
same round.
"""

from __future__ import annotations

from typing import Any, Final

from echomq.identity.errors import EchoMQError, InvalidInputError
from echomq.protocol import flows
from echomq.protocol.call import Call
from echomq.protocol.errors import ServerError
from echomq.protocol.flows import Doubted, Relayed
from echomq.protocol.keys import check_queue
from echomq.runtime.bereaved import Bereaved
from echomq.runtime.loops import log
from echomq.runtime.outcome import brief
from echomq.wire import AsyncConnector

BATCH: Final = 100
"""Entries that one round delivers."""

_MOST_STUCK: Final = 10_000
_REMEMBERED: Final = 1_000


class Outbox:
    """The outbox of one queue. `bereaved` tells of the parents that die of what is delivered."""

    def __init__(self, queue: str, *, batch: int = BATCH, bereaved: Bereaved | None = None) -> None:
        self._queue = check_queue(queue)
        self._batch = batch
        self._bereaved = bereaved
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
            if self._bereaved is not None:
                await self._bereaved.tell(conn)
            if gone == 0 or len(entries) < limit:
                return self.delivered - before

    async def _round(self, conn: AsyncConnector, entries: tuple[bytes, ...]) -> int:
        """Takes what was delivered, and what is malformed, out of the outbox; gives how many."""
        sent: list[Relayed] = []
        rejects: list[Call[int]] = []
        for entry in entries:
            try:
                flows.offer(entry)
            except InvalidInputError as error:
                rejects.append(flows.reject(self._queue, entry))
                log.error("queue %s: set aside, %s", self._queue, brief(error))
            else:
                sent.append(Relayed(self._queue, entry))
        settles, relayed, past, failure = await self._brought(conn, sent)
        taken = await conn.run_many([*map(_settle, settles), *rejects])
        self.delivered += self._settled(settles, taken)
        self.rejected += sum(answer == 1 for answer in taken[len(settles) :])
        failure = failure or _unreached(taken)
        if failure is not None:
            raise failure
        await self._relay(conn, relayed)
        return len(taken) + past

    async def _brought(
        self, conn: AsyncConnector, sent: list[Relayed]
    ) -> tuple[list[Relayed], list[Relayed], int, EchoMQError | None]:
        """The entries that were taken and are to be settled, the signals that these have brought about, how many were
        of an earlier life of their child and have gone without effect, and a failure."""
        answers: list[Relayed | Doubted | EchoMQError | None] = list(
            await conn.run_many([flows.offer(each.entry) for each in sent])
        )
        withdrawn = await self._resolved(conn, sent, answers)
        settles: list[Relayed] = []
        relayed: list[Relayed] = []
        for i, (each, answer) in enumerate(zip(sent, answers, strict=True)):
            if i in withdrawn:
                continue
            if not isinstance(answer, EchoMQError):
                settles.append(each)
                if isinstance(answer, Relayed):
                    relayed.append(answer)
            elif isinstance(answer, ServerError):
                self._refused(each.entry, answer)
        return settles, relayed, len(withdrawn), _unreached(answers)

    async def _resolved(
        self, conn: AsyncConnector, sent: list[Relayed], answers: list[Relayed | Doubted | EchoMQError | None]
    ) -> set[int]:
        """Asks the children's queue about the doubted ones, and delivers those that stand; which of them do not."""
        doubted = [(i, answer.child) for i, answer in enumerate(answers) if isinstance(answer, Doubted)]
        if not doubted:
            return set()
        asked = await conn.run_many([flows.withdraw(sent[i].queue, sent[i].entry, child) for i, child in doubted])
        standing: list[int] = []
        for (i, _), past in zip(doubted, asked, strict=True):
            if isinstance(past, EchoMQError):
                answers[i] = past
            elif not past:
                standing.append(i)
        brought = await conn.run_many([flows.deliver(sent[i].entry) for i in standing])
        for i, answer in zip(standing, brought, strict=True):
            answers[i] = answer
        return {i for i, answer in enumerate(answers) if isinstance(answer, Doubted)}

    async def _relay(self, conn: AsyncConnector, relayed: list[Relayed]) -> None:
        """Brings the deaths of parents on to theirs at once, a level a round.

        They lie in other queues' outboxes, whose pumps would be next to look; theirs is what does not arrive here.
        """
        for _ in range(flows.MAX_LEVELS):
            if not relayed:
                return
            settles, relayed, _, failure = await self._brought(conn, relayed)
            taken = await conn.run_many([*map(_settle, settles)])
            self._settled(settles, taken)
            failure = failure or _unreached(taken)
            if failure is not None:
                raise failure

    def _settled(self, entries: list[Relayed], answers: list[int | EchoMQError]) -> int:
        """How many of the entries this pump, and no other one, has settled."""
        count = 0
        for each, answer in zip(entries, answers, strict=False):
            if answer == 1:
                count += 1
                if self._bereaved is not None:
                    self._bereaved.delivered(each.queue, each.entry)
        return count

    def _refused(self, entry: bytes, error: ServerError) -> None:
        if entry not in self._said and len(self._said) < _REMEMBERED:
            self._said.add(entry)
            log.error(
                "queue %s: a signal stays in the outbox, its parent's server refuses it: %s", self._queue, brief(error)
            )


def _settle(each: Relayed) -> Call[int]:
    return flows.settle(each.queue, each.entry)


def _unreached(answers: list[Any]) -> EchoMQError | None:
    return next((each for each in answers if isinstance(each, EchoMQError) and not isinstance(each, ServerError)), None)
