"""The jobs that a consumer has in hand, as its loop and the lease keeper's thread both see them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

from echomq.protocol import workers
from echomq.protocol.call import Call
from echomq.protocol.replies import Claimed
from echomq.protocol.workers import Kept
from echomq.runtime.cancel import LOST, CancelToken
from echomq.runtime.loops import log
from echomq.runtime.outcome import Lapsed, Outcome, brief

T = TypeVar("T")

STUCK_LEASES: Final = 10
"""How many leases an event loop may stand still before the keeper gives its jobs up, unless told otherwise."""


class Held(CancelToken):
    """One job in hand, from its claim until the server has confirmed its settlement; its own cancel token."""

    __slots__ = ("doubt", "interrupted", "job", "lost", "marked", "outcome", "run", "taken_at", "task")

    def __init__(self, job: Claimed, taken_at: float = 0.0) -> None:
        super().__init__()
        self.job = job
        self.taken_at = taken_at
        """When its claim came back, in monotonic seconds."""
        self.marked = False
        """The server has been told that it is held (protocol §7)."""
        self.task: asyncio.Task[None] | None = None
        """The coroutine that runs it; None while it runs in a thread, or does not run."""
        self.interrupted = False
        """The worker has cancelled that coroutine."""
        self.outcome: Outcome | None = None
        """Set once, when the handler is done with it or the drain has given it up."""
        self.doubt = False
        """A settlement was sent and its answer lost: it may have happened."""
        self.run: object = None
        """What its handler knows of this run, for whoever tells of it."""
        self.lost = False
        """Its lease is gone; another worker may have it."""


class Hand:
    """What is in hand of one queue under leases of one length, and whether its event loop still moves.

    The loop adds and removes; the keeper's thread takes copies, which CPython makes in one step.
    """

    def __init__(
        self,
        queue: str,
        held: set[Held],
        lease_ms: int,
        *,
        stuck_ms: int | None = None,
        on_lost: Callable[[Claimed], None] | None = None,
        on_cancel: Callable[[Held], None] | None = None,
    ) -> None:
        self.queue = queue
        self.lease_ms = lease_ms
        self.stuck_ms = STUCK_LEASES * lease_ms if stuck_ms is None else stuck_ms
        self.held = held
        self.given_up = False
        """The loop stood still for longer than `stuck_ms`, and its leases are no longer extended."""
        self._on_lost = on_lost
        self._on_cancel = on_cancel
        self._loop = asyncio.get_running_loop()
        self._asked = False
        self._moved_at = time.monotonic()

    # The keeper's side

    def moves(self) -> bool:
        """Whether the loop has moved within `stuck_ms`; asks it to move again."""
        now = time.monotonic()
        if not self._asked:
            self._asked, self._moved_at = True, now
            try:
                self._loop.call_soon_threadsafe(self._answer)
            except RuntimeError:
                # The loop is closed: nobody can settle these jobs any more.
                self.given_up = True
                return False
        self.given_up = (now - self._moved_at) * 1_000 > self.stuck_ms
        return not self.given_up

    def unmarked_since(self) -> float | None:
        """When the oldest job was taken that the server has not been told of, or None."""
        return min((held.taken_at for held in list(self.held) if _bears_no_mark(held)), default=None)

    def extension(self, *, field: bool, taken_by: float | None = None) -> tuple[Call[Kept], list[Held]] | None:
        """One call that keeps everything in hand, and what it is about; None when there is nothing.

        `field`: the server knows the TTL of a hash's field. `taken_by`: only what was taken by then, and is not marked.
        """
        latest: dict[str, Held] = {}
        for held in sorted(self.held, key=_token):
            older = latest.get(held.job.id)
            if older is not None:
                self._lose(older)  # it lapsed, and this very worker has claimed it anew
            latest[held.job.id] = held
        wanted = [held for held in latest.values() if not held.lost and type(held.outcome) is not Lapsed]
        if taken_by is not None:
            wanted = [held for held in wanted if _bears_no_mark(held) and held.taken_at <= taken_by]
        if not wanted:
            return None
        try:
            return self._keep(wanted, field=field), wanted
        except Exception:  # noqa: BLE001  (whatever a builder refuses in one of them: the others are kept)
            wanted = [held for held in wanted if self._can_be_kept(held)]
            return (self._keep(wanted, field=field), wanted) if wanted else None

    def _keep(self, wanted: list[Held], *, field: bool) -> Call[Kept]:
        jobs = [(held.job.id, held.job.attempts) for held in wanted]
        return workers.keep(self.queue, jobs, lease_ms=self.lease_ms, field=field)

    def _can_be_kept(self, held: Held) -> bool:
        try:
            self._keep([held], field=False)
        except Exception as error:  # noqa: BLE001  (whatever a builder refuses)
            log.error("job %s of %s loses its lease: %s", brief(held.job.id), self.queue, brief(error))
            self._lose(held)
            return False
        return True

    def kept(self, asked: list[Held], answer: Kept) -> None:
        """Marks as lost what could not be extended, and tells what is to be cancelled, save what is settled by now."""
        gone = set(answer.lost)
        for held in asked:
            held.marked = True
            if held.outcome is None:
                if held.job.id in gone:
                    self._lose(held)
                elif answer.cancelled and (reason := answer.cancelled.get(held.job.id)) is not None:
                    self.cancel(held, reason)

    def cancel(self, held: Held, reason: str) -> None:
        """Set the token of `held`, and have the loop told; the first reason counts."""
        if held.check():
            return
        held.cancel(reason)  # at once: a handler that keeps the loop busy may look at it too
        self._tell(self._cancelled, held)

    def _lose(self, held: Held) -> None:
        if held.lost:
            return
        held.lost = True
        self._tell(self._on_lost, held.job)
        self.cancel(held, LOST)

    def _tell(self, what: Callable[[T], None] | None, about: T) -> None:
        if what is not None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits
                self._loop.call_soon_threadsafe(what, about)

    # The loop's side

    def wish(self, job_id: str, reason: str) -> bool:
        """Cancel the job of this id, if it is in hand."""
        for held in self.held:
            if held.job.id == job_id and not held.lost:
                self.cancel(held, reason)
                return True
        return False

    def _cancelled(self, held: Held) -> None:
        if self._on_cancel is not None:
            self._on_cancel(held)

    def _answer(self) -> None:
        self._asked = False
        self._moved_at = time.monotonic()


def _bears_no_mark(held: Held) -> bool:
    return not held.marked and held.outcome is None and not held.lost


def _token(held: Held) -> int:
    return held.job.attempts
