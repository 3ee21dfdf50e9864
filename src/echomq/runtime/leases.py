"""The lease keeper: extends every lease in hand at half its length, from a thread of its own.

In the same call it renews the markers that say that the job is held, and learns which jobs are to be cancelled.

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

_IDLE_S: Final = 3_600.0


class LeaseKeeper:
    """One thread and one blocking connection for all the hands of a process on one server.

    The connection is opened when the first lease is half spent, so a worker whose jobs are short never opens it.
    Unlike the other loops' its `beat` is not awaited: it belongs to the thread.
    """

    name: Final = "leases"

    def __init__(self, dial: Dial) -> None:
        if not isinstance(dial, Dial):
            raise InvalidInputError(f"the lease keeper needs a Dial, not {dial!r}")
        self._dial = dial
        self._due: dict[Hand, float] = {}
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

    def beat(self, now: float | None = None) -> None:
        """Extend what is in the hands that are due at `now` (monotonic seconds), or in all: one call a queue."""
        with self._changed:
            hands = [hand for hand, due in self._due.items() if now is None or due <= now]
        asked: list[tuple[Hand, list[Held]]] = []
        calls: list[Call[Kept]] = []
        moving = [hand for hand in hands if _moves(hand) and hand.held]
        if moving and self._connector is None:
            self._connect()
        failure: Exception | None = None
        for hand in moving:
            try:
                extension = hand.extension(field=self._field)
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
        later = time.monotonic()
        with self._changed:
            for hand in hands:
                if hand in self._due:
                    self._due[hand] = later + hand.lease_ms / 2_000

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
        """Wait for the next half lease, or off a degraded beat; False when it is time to end."""
        with self._changed:
            if not self._stopping:
                due = min(self._due.values(), default=time.monotonic() + _IDLE_S)
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
            if not any(due <= now for due in list(self._due.values())):
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


def _moves(hand: Hand) -> bool:
    was_given_up = hand.given_up
    moves = hand.moves()
    if not moves and not was_given_up:
        log.error(
            "queue %s: the event loop has stood still for %d ms; its %d jobs are given up",
            *(hand.queue, hand.stuck_ms, len(hand.held)),
        )
    return moves
