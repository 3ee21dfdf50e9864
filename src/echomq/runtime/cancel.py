"""Cancelling a job in hand: its token, which a handler looks at, and what an interrupted job comes to.

The token of a job is set by a wish to cancel it (`admin.cancel_job`), heard as an event or by the lease keeper, and by
the loss of its lease. It is set once and stays set. A coroutine can be interrupted as well, a plain function has to
look at it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

from echomq.identity.errors import InvalidInputError
from echomq.protocol.errors import JobCancelledError

LOST: Final = "the lease was lost: another worker may have the job"
"""The reason when nobody wished it."""


class CancelToken:
    """Whether the job in hand is to end, and why. May be looked at from any thread."""

    __slots__ = ("_reason", "granted_ms", "on_grant")

    def __init__(self) -> None:
        self._reason: str | None = None
        self.granted_ms = 0
        """Time that the job has been given beyond what it may take."""
        self.on_grant: Callable[[int], None] | None = None
        """Called with each grant, in the thread that gives it."""

    def grant(self, more_ms: int) -> None:
        """Give the job more time."""
        self.granted_ms += more_ms
        if self.on_grant is not None:
            self.on_grant(more_ms)

    @property
    def reason(self) -> str | None:
        """Why the job is to end; None while it is not."""
        return self._reason

    def check(self) -> bool:
        """Whether the job is to end."""
        return self._reason is not None

    def raise_if_cancelled(self) -> None:
        """Raise `JobCancelledError` when the job is to end."""
        if self._reason is not None:
            raise JobCancelledError(self._reason)

    def cancel(self, reason: str) -> None:
        """Set it; the first reason stays."""
        if self._reason is None:
            self._reason = reason


current: Final[ContextVar[CancelToken]] = ContextVar("echomq_job_in_hand")
"""The token of the job whose handler runs: in its task or thread, and where they hand their context on."""


def current_token() -> CancelToken:
    """The token of the job that this code runs in."""
    token = current.get(None)
    if token is None:
        raise InvalidInputError("no job runs here: a cancel token is to be had inside a handler only")
    return token


def wish_of(data: bytes) -> tuple[str, str] | None:
    """The job that an event says is to be cancelled in its holder's hand, and the reason; None for other events."""
    if b'"cancelled"' not in data:  # the hot path where every job publishes what becomes of it
        return None
    try:
        event: object = json.loads(data)
    except ValueError:
        return None
    match event:
        case {"event": "cancelled", "state": "active", "job": str(job_id), "error": str(reason)}:
            return job_id, reason or "cancelled"
        case _:
            return None


def is_death(data: bytes) -> bool:
    """Whether an event says that a job was cancelled while it was in nobody's hand, and so has died."""
    return b'"cancelled"' in data and b'"state":"dead"' in data
