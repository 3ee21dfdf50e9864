"""One flight of a consumer: the calls that leave together, and their answers when all have come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from echomq.identity.errors import EchoMQError
from echomq.protocol.call import Call
from echomq.protocol.errors import DisconnectedError, UnexpectedReplyError
from echomq.runtime.loops import log, told
from echomq.runtime.outcome import brief
from echomq.runtime.settle import Batch
from echomq.wire import AsyncConnector
from echomq.wire.options import DEFAULT


class Flight:
    """Calls under way, in no order among them. Its futures are the connector's own, so cancelling every task of the
    loop leaves it whole."""

    __slots__ = ("_answers", "_timeout_s", "asked", "batch", "beat", "looked", "sent_at", "tokens", "tried_ms")

    def __init__(self, batch: Batch, sent_at: float, tokens: int, timeout_s: float | None = None) -> None:
        self.batch = batch
        """What it settles."""
        self.sent_at = sent_at
        self.tokens = tokens
        """How many wake tokens had been heard when it left."""
        self.beat = False
        """It carries a beat's sweep."""
        self.tried_ms: int | None = None
        """The run-at that had come, for which it carries a promotion."""
        self.asked = 0
        """How many jobs it claims."""
        self.looked = False
        """It carries no claim, and looks up the next run-at instead."""
        self._answers: list[asyncio.Future[Any] | EchoMQError] = []
        self._timeout_s = timeout_s

    def add(self, conn: AsyncConnector, call: Call[Any]) -> None:
        """Put a call on board."""
        try:
            limit = DEFAULT if self._timeout_s is None else self._timeout_s
            self._answers.append(conn.submit(call, timeout=limit, ordered=False))
        except EchoMQError as error:
            self._answers.append(error)
        except Exception as error:  # noqa: BLE001  (what cannot be sent stays at home alone)
            log.error("%s %s cannot be sent: %s", call.verb, brief(call.subject), told(error))
            self._answers.append(UnexpectedReplyError(f"{call.verb} cannot be sent: {brief(error)}", reply=""))

    def landed(self, when: Callable[[], None]) -> bool:
        """Whether every answer has come; when not, `when` is called at a time to ask again."""
        # Answers come in order, but for scripts that had to be loaded: look from the end.
        for answer in reversed(self._answers):
            if isinstance(answer, asyncio.Future) and not answer.done():
                answer.add_done_callback(lambda _: when())
                return False
        return True

    def answers(self) -> list[Any]:
        """Each answer, or the `EchoMQError` that stands for it."""
        return [_value(answer) for answer in self._answers]


def _value(answer: asyncio.Future[Any] | EchoMQError) -> Any:
    if isinstance(answer, EchoMQError):
        return answer
    if answer.cancelled():
        return DisconnectedError("the call was given up", sent=True)
    error = answer.exception()
    if error is None:
        return answer.result()
    if not isinstance(error, EchoMQError):
        log.error("an answer cannot be read: %s", told(error))
        return DisconnectedError(f"the answer cannot be read: {brief(error)}", sent=True)
    return error
