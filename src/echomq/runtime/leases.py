"""The lease keeper: extends every lease in hand at half its length, from a thread of its own.

In the same call it renews the markers that say that the job is held, and learns which jobs are to be cancelled. A job
that is still in hand a moment after its claim gets its marker then, all those of a moment in one call.

A handler that blocks the event loop, or holds it up, does not cost the other jobs their leases. A loop that has not
moved for longer than its hand's `stuck_ms` loses them, so that a worker that is wedged for ever stops holding jobs.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Final

from echomq.identity.errors import EchoMQError, InvalidInputError
from echomq.protocol.backoff import Exponential, delay_ms
from echomq.protocol.call import Call
from echomq.protocol.errors import ServerError
from echomq.protocol.workers import Kept
from echomq.runtime.dial import Dial
from echomq.runtime.hand import Hand, Held
from echomq.runtime.loops import log, say
from echomq.wire import Connector

MARK_S: Final = 0.25
"""From a claim to the look for jobs that are still in hand and bear no marker, and from one such look to the next."""

YOUNG_S: Final = 0.1
"""What is in hand for less is left to the next look: most jobs end sooner, and cost the server nothing."""

_IDLE_S: Final = 3_600.0


class LeaseKeeper:
    """One thread and one blocking connection for all the hands of a process on one server.

    The connection is opened for the first job to be marked, so a worker whose jobs are short never opens it.
    Unlike the other loops' its `beat` is not awaited: it belongs to the thread.
    """

    name: Final = "leases"

    def __init__(self, dial: Dial) -> None:
        if not isinstance(dial, Dial):
            raise InvalidInputError(f"the lease keeper needs a Dial, not {dial!r}")
        self._dial = dial
        self._due: dict[Hand, float] = {}
        self._fresh: dict[Hand, float] = {}
        """When to look for jobs that are to be marked; a hand is here only while there may be some."""
        self._changed = threading.Condition()
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._connector: Connector | None = None
        self._field = False

    async def start(self) -> None:
        """Start the thread; it waits until there is a hand to keep."""
        if self._thread is None:
            self._stopping = False
            self._thread = threading.Thread(target=self._run, name="echomq leases", daemon=True)
            self._thread.start()

    async def stop(self) -> None:
        """End the thread after the call that it is in."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        with self._changed:
            self._stopping = True
            self._changed.notify()
        await asyncio.get_running_loop().run_in_executor(None, thread.join)

    def add(self, hand: Hand) -> None:
        """Keep the leases of `hand` from now on."""
        with self._changed:
            self._due[hand] = time.monotonic() + hand.lease_ms / 2_000
            self._changed.notify()

    def remove(self, hand: Hand) -> None:
        """Keep them no longer."""
        with self._changed:
            self._due.pop(hand, None)
            self._fresh.pop(hand, None)

    def taken(self, hand: Hand, now: float) -> None:
        """Jobs have come into `hand` at `now` (monotonic seconds): what is there for longer is to be marked."""
        if hand not in self._fresh:
            with self._changed:
                self._fresh[hand] = now + MARK_S
                self._changed.notify()

    def beat(self, now: float | None = None) -> None:
        """Extend what is in the hands that are due at `now` (monotonic seconds), or in all: one call a queue.

        Of the other hands, what has been there for a moment and bears no marker yet.
        """
        with self._changed:
            # The time by which a job was taken that is to be kept; None for all of a hand.
            hands: dict[Hand, float | None] = {}
            if now is not None:
                hands = {hand: now - YOUNG_S for hand, due in self._fresh.items() if due <= now}
            hands |= dict.fromkeys(hand for hand, due in self._due.items() if now is None or due <= now)
            for hand in hands:
                self._fresh.pop(hand, None)
        try:
            self._keep(hands)
        except Exception:
            with self._changed:
                for hand, taken_by in hands.items():
                    if taken_by is not None and hand in self._due:
                        self._fresh.setdefault(hand, taken_by)
            raise
        later = time.monotonic()
        with self._changed:
            for hand, taken_by in hands.items():
                if hand in self._due:
                    if taken_by is None:
                        self._due[hand] = later + hand.lease_ms / 2_000
                    if hand.unmarked_since() is not None:
                        self._fresh[hand] = (later if now is None else now) + MARK_S

    def _keep(self, hands: dict[Hand, float | None]) -> None:
        asked: list[tuple[Hand, list[Held]]] = []
        calls: list[Call[Kept]] = []
        moving = {hand: taken_by for hand, taken_by in hands.items() if _has(hand, taken_by) and _moves(hand)}
        if moving and self._connector is None:
            self._connect()
        failure: Exception | None = None
        for hand, taken_by in moving.items():
            try:
                extension = hand.extension(field=self._field, taken_by=taken_by)
            except Exception as error:  # noqa: BLE001  (raised again, when the other hands are kept)
                failure = error
                continue
            if extension is not None:
                calls.append(extension[0])
                asked.append((hand, extension[1]))
        if calls and self._connector is not None:
            for (hand, held), answer in zip(asked, self._connector.run_many(calls), strict=True):
                if isinstance(answer, EchoMQError):
                    failure = answer
                else:
                    hand.kept(held, answer)
        if failure is not None:
            # A connection that comes back may lead to another server: ask it again what it knows.
            self._disconnect()
            raise failure

    def _connect(self) -> None:
        self._connector = self._dial.connect(self.name)
        try:
            known = self._connector.execute("COMMAND", "INFO", "HPEXPIRE")
        except ServerError:
            known = None  # not allowed to ask
        self._field = isinstance(known, list) and any(known)

    def _disconnect(self) -> None:
        if self._connector is not None:
            connector, self._connector = self._connector, None
            connector.close()

    def _wait(self, pause_ms: int) -> bool:
        """Wait for what is due next, or off a degraded beat; False when it is time to end."""
        with self._changed:
            if not self._stopping:
                due = min([*self._due.values(), *self._fresh.values()], default=time.monotonic() + _IDLE_S)
                wait = pause_ms / 1_000 if pause_ms else due - time.monotonic()
                if wait > 0:
                    self._changed.wait(wait)
            return not self._stopping

    def _run(self) -> None:
        streak = 0
        pause_ms = 0
        while self._wait(pause_ms):
            pause_ms = 0
            now = time.monotonic()
            if not any(due <= now for due in [*list(self._due.values()), *list(self._fresh.values())]):
                continue
            try:
                self.beat(now)
                streak = 0
            except Exception as error:  # noqa: BLE001  (`say` logs what is unexpected whole; leases must go on)
                streak += 1
                # Quicker than the loops' own curve: at half a lease there is half a lease left.
                shortest = min((hand.lease_ms for hand in list(self._due)), default=1_000)
                pause_ms = delay_ms(Exponential(max(shortest // 16, 1), max(shortest // 2, 1)), streak)
                say(self.name, error, streak, pause_ms)
        self._disconnect()


def _has(hand: Hand, taken_by: float | None) -> bool:
    """Whether there may be something to keep: a loop that need not move is not asked to."""
    if taken_by is None:
        return bool(hand.held)
    since = hand.unmarked_since()
    return since is not None and since <= taken_by


def _moves(hand: Hand) -> bool:
    was_given_up = hand.given_up
    moves = hand.moves()
    if not moves and not was_given_up:
        log.error(
            "queue %s: the event loop has stood still for %d ms; its %d jobs are given up",
            *(hand.queue, hand.stuck_ms, len(hand.held)),
        )
    return moves
