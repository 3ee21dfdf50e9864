"""Paying what is owed: a job that was to follow a death in nobody's hands is admitted (docs/additions.md).

The note is taken away in the step that admits the job, so workers may die anywhere and work side by side.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from echomq.identity.errors import EchoMQError, InvalidInputError
from echomq.protocol import follow
from echomq.protocol.follow import Follow, Owed
from echomq.protocol.keys import check_queue
from echomq.runtime.loops import log
from echomq.runtime.outcome import brief
from echomq.wire import AsyncConnector

BATCH: Final = 100
"""Notes that one round pays."""

Follower = Callable[[Owed], Follow | None]
"""What follows a death; None for nothing."""


class Owing:
    """What is owed in one queue."""

    def __init__(self, queue: str, follower: Follower, *, batch: int = BATCH) -> None:
        self._queue = check_queue(queue)
        self._follower = follower
        self._batch = batch
        self.paid = 0

    async def pay(self, conn: AsyncConnector) -> int:
        """Pay what lies there, `batch` a round; gives how many jobs follow. Raises what the server refuses."""
        before = self.paid
        while True:
            entries = await conn.run(follow.owed(self._queue, limit=self._batch))
            follows = [self._follow(entry) for entry in entries]
            answers = await conn.run_many(
                [follow.pay(self._queue, *pair) for pair in zip(entries, follows, strict=True)]
            )
            for then, answer in zip(follows, answers, strict=True):
                if isinstance(answer, EchoMQError):
                    raise answer
                self.paid += answer and then is not None
            if len(entries) < self._batch:
                return self.paid - before

    def _follow(self, entry: bytes) -> Follow | None:
        try:
            return self._follower(Owed.of(entry))
        except InvalidInputError as error:
            log.error("queue %s: nothing follows, %s", self._queue, brief(error))
            return None
