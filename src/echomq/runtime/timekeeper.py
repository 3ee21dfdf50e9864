"""When a parked consumer has to look again: the next run-at on the server's clock, kept by a timer on the host.

Of all the consumers that park on a queue one keeps its time, so that a run-at does not wake them all:

* a consumer keeps the time from its start, when a token wakes it, when it parks after work, and when it finds at
  its beat that something is overdue;
* it stops when its timer finds that another one was first, and when it hands the time on because its slots are full;
* it leaves the time to the others until its next beat, whatever it hears, when a job asks for that.

One that does not keep the time looks at its beats only, so a keeper that dies costs one beat, once.
"""

from __future__ import annotations

from typing import Final

from echomq.protocol.replies import Claims

DRIFT: Final = 0.001
"""How much two clocks may run apart, each second: twice what NTP's slewing does."""


class Timekeeper:
    """The server's clock as this host sees it, the next run-at, and whether this consumer keeps it.

    Instants named `at` are seconds on the event loop's clock.
    """

    __slots__ = ("_ahead_ms", "_learnt_at", "keeps", "next_ms", "stuck_ms", "yields")

    def __init__(self) -> None:
        self.keeps = True
        self.yields = False
        """The time is left to the others until the next beat."""
        self.next_ms: int | None = None
        """The earliest run-at that a claim has reported, on the server's clock."""
        self.stuck_ms: int | None = None
        """A run-at that stays overdue whatever is done (a record that nobody can read): left to the beats."""
        self._ahead_ms = float("-inf")
        self._learnt_at = 0.0

    def learn(self, claims: Claims, sent_at: float, received_at: float) -> None:
        """Take the clock and the next run-at from the reply to a claim.

        The reply left after its `now_ms`, so a clock set by its arrival is never ahead of the server's, and behind
        it by the way back. The best of all replies is kept, as far as clocks drift and as this reply allows it.
        """
        self.set_clock(claims.now_ms, sent_at, received_at)
        self.next_ms = claims.next_at_ms
        if self.next_ms != self.stuck_ms:
            self.stuck_ms = None

    def set_clock(self, now_ms: int, sent_at: float, received_at: float) -> None:
        """Take the server's clock from a reply that told it."""
        low = now_ms - received_at * 1_000
        high = now_ms + 1 - sent_at * 1_000
        kept = self._ahead_ms - DRIFT * (received_at - self._learnt_at) * 1_000
        self._ahead_ms = min(max(low, kept), high)
        self._learnt_at = received_at

    def server_ms(self, at: float) -> int:
        """The server's clock at `at`; never ahead of it."""
        return int(at * 1_000 + self._ahead_ms)

    @property
    def waiting(self) -> bool:
        """Whether a run-at is known that is worth a timer, and a clock to hold it against."""
        known = self.next_ms is not None and self._ahead_ms > float("-inf")
        return known and self.next_ms != self.stuck_ms and not self.yields

    def due(self, at: float) -> bool:
        """Whether the next run-at has come at `at`."""
        return self.waiting and self.next_ms is not None and self.server_ms(at) >= self.next_ms

    def rings_at(self) -> float | None:
        """The instant for the timer; None when there is nothing to wait for, or another keeps the time."""
        if not self.keeps or not self.waiting or self.next_ms is None:
            return None
        return (self.next_ms - self._ahead_ms) / 1_000
