"""The drain: running jobs get a grace period, then are cancelled, then handed back; those in threads last."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final

from echomq.runtime.hand import Hand, Held
from echomq.runtime.loops import log
from echomq.runtime.outcome import RELEASED
from echomq.runtime.runner import Runner

CANCEL_S: Final = 1.0
"""How long a cancelled coroutine may clean up before its job is handed back over its head."""

FAREWELL_S: Final = 2.0
"""How long the last settlements are tried, those of threads in the second half; then the leases lapse by themselves.

So a drain whose server is gone ends `CANCEL_S` and `FAREWELL_S` after its grace at the latest.
"""


class Phase(Enum):
    """How far a drain is."""

    GRACE = "grace"
    CANCELLED = "cancelled"
    THREADS = "threads"
    FAREWELL = "farewell"
    OVER = "over"


class Drain:
    """Steps through the phases; no failure is spent on the way and no token is lowered.

    Instants are seconds on the event loop's clock.
    """

    def __init__(
        self, hand: Hand, runner: Runner, ended: Callable[[Held], None], *, now: float, grace_s: float
    ) -> None:
        self._hand = hand
        self._runner = runner
        self._ended = ended
        self._until = now + grace_s
        self._patience_s = CANCEL_S
        self._over_at = float("inf")
        self.phase = Phase.GRACE

    @property
    def ends_at(self) -> float:
        """When the phase it is in ends at the latest."""
        return self._until

    def hurry(self, now: float, grace_s: float) -> None:
        """A second stop: the shorter grace counts; without any, nobody is waited for."""
        if self.phase is Phase.GRACE:
            self._until = min(self._until, now + grace_s)
        if grace_s == 0:
            self._patience_s = 0.0
            if self.phase is Phase.CANCELLED:
                self._until = now

    def step(self, now: float, *, flying: bool, degraded: bool) -> None:
        """Do what is due at `now`.

        `flying`: a claim or a settlement is under way; `degraded`: the last one failed.
        """
        if not self._hand.held and not flying:
            self.phase = Phase.OVER
        if self.phase is Phase.GRACE and now >= self._until:
            running = self._running()
            if running or self._runner.threaded:
                log.info(
                    "queue %s: the grace period is over; %d jobs are handed back",
                    self._hand.queue,
                    len(running) + len(self._runner.threaded),
                )
            self._runner.cancel(running)
            self.phase, self._until = Phase.CANCELLED, now + self._patience_s
        if self.phase is Phase.CANCELLED and (now >= self._until or not self._running()):
            self._give_back(self._running())
            self.phase, self._until, self._over_at = Phase.THREADS, now + FAREWELL_S / 2, now + FAREWELL_S
        if self.phase is Phase.THREADS and (
            now >= self._until or degraded or len(self._hand.held) == len(self._runner.threaded)
        ):
            self._give_back(list(self._runner.threaded))
            self.phase, self._until = Phase.FAREWELL, self._over_at
        if self.phase is Phase.FAREWELL and now >= self._until:
            log.warning(
                "queue %s: %d jobs could not be settled; their leases will lapse",
                self._hand.queue,
                len(self._hand.held),
            )
            self.phase = Phase.OVER

    def _running(self) -> list[Held]:
        threaded = self._runner.threaded
        return [held for held in list(self._hand.held) if held.outcome is None and held not in threaded]

    def _give_back(self, jobs: list[Held]) -> None:
        for held in jobs:
            if held.outcome is None:
                held.outcome = RELEASED
                self._ended(held)
