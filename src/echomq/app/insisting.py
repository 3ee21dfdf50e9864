"""A signal that comes again while a worker's event loop cannot hear it: code of the app's own blocks it.

A start-up hook that sleeps, say. The loop answers no signal then, and nothing is in hand that could be handed back. Nor
does a handler of Python's run: those wait for the main thread, which another thread's signal does not even wake.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final

from echomq.app.process import LAST_WORDS_S, end_process

log: Final = logging.getLogger("echomq.worker")

_HEARD: Final = 0
_CLOSED: Final = 255


class Insisting:
    """Ends the process when a second signal is not heard on the loop within some seconds, and `is_free()` then.

    `numbers`: signals that have their handlers on the running loop. Made and closed in the main thread. It reads what
    the interpreter writes for the loop at a signal, and writes it on.
    """

    def __init__(self, numbers: Collection[int], is_free: Callable[[], bool]) -> None:
        self._numbers = numbers
        self._is_free = is_free
        self._end, self._start = socket.socketpair()
        self._start.setblocking(False)
        self._loop_fd = signal.set_wakeup_fd(self._start.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self._watch, name="echomq signals", daemon=True).start()

    def heard(self) -> None:
        """The loop has heard one."""
        self._say(_HEARD)

    def close(self) -> None:
        """Listens no more."""
        now = signal.set_wakeup_fd(self._loop_fd)
        if now != self._start.fileno():
            signal.set_wakeup_fd(now)  # somebody has put another one there
        self._say(_CLOSED)

    def _say(self, word: int) -> None:
        with suppress(OSError):
            self._start.send(bytes((word,)))

    def _watch(self) -> None:
        again = False
        with self._end, self._start:
            while (word := self._next(None)) != _CLOSED:
                if word not in self._numbers:
                    continue
                if again and not self._is_heard() and self._is_free():
                    name = signal.Signals(word).name
                    log.warning("%s again, while something blocks the event loop: it ends, with nothing in hand", name)
                    end_process()
                again = True

    def _is_heard(self) -> bool:
        """Waits until the loop hears of it, or is over; False when it does not."""
        ends_at = time.monotonic() + LAST_WORDS_S
        while (left_s := ends_at - time.monotonic()) > 0:
            with suppress(TimeoutError):
                if (word := self._next(left_s)) == _CLOSED:
                    self._say(_CLOSED)
                if word in (_HEARD, _CLOSED):
                    return True
        return False

    def _next(self, timeout_s: float | None) -> int:
        self._end.settimeout(timeout_s)
        word = self._end.recv(1)
        if word[0] not in (_HEARD, _CLOSED):
            with suppress(OSError):  # the loop is closed, or has more to read than it can hold
                os.write(self._loop_fd, word)
        return word[0]
