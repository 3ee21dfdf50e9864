"""A signal that comes again while a worker's event loop cannot hear it: code of the app's own blocks it.

A start-up hook that sleeps, say. The loop answers no signal then, and nothing is in hand that could be handed back.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any, Final

from echomq.app.process import LAST_WORDS_S, end_process

log: Final = logging.getLogger("echomq.worker")

_HEARD: Final = "heard"
_CLOSED: Final = "closed"


class Insisting:
    """Ends the process when a second signal is not heard on the loop within some seconds, and `is_free()` then.

    `numbers`: signals that have their handlers on the loop; they are overheard on the way there.
    """

    def __init__(self, numbers: Iterable[int], is_free: Callable[[], bool]) -> None:
        self._is_free = is_free
        self._came: SimpleQueue[str] = SimpleQueue()
        for number in numbers:
            self._overhear(number)
        threading.Thread(target=self._watch, name="echomq signals", daemon=True).start()

    def _overhear(self, number: int) -> None:
        own: Any = signal.getsignal(number)

        def handler(number: int, frame: FrameType | None) -> None:
            # Puts only: a handler may run at any point of anything.
            self._came.put(signal.Signals(number).name)
            own(number, frame)

        signal.signal(number, handler)

    def heard(self) -> None:
        """The loop has heard one."""
        self._came.put(_HEARD)

    def close(self) -> None:
        """Listens no more."""
        self._came.put(_CLOSED)

    def _watch(self) -> None:
        again = False
        while (word := self._came.get()) != _CLOSED:
            if word == _HEARD:
                continue
            if again and not self._is_heard() and self._is_free():
                log.warning("%s again, while something blocks the event loop: it ends, with nothing in hand", word)
                end_process()
            again = True

    def _is_heard(self) -> bool:
        """Waits until the loop hears of it, or is over; False when it does not."""
        ends_at = time.monotonic() + LAST_WORDS_S
        while True:
            try:
                word = self._came.get(timeout=max(0.0, ends_at - time.monotonic()))
            except Empty:
                return False
            if word == _CLOSED:
                self.close()
            if word in (_HEARD, _CLOSED):
                return True
