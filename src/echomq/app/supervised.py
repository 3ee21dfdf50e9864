"""A worker that a supervisor has started: what runs in its process, and how it obeys.

The supervisor tells it to stop, and to stop at once, over the line between them; a signal that comes from elsewhere,
however often, only stops it. When the line ends its supervisor has gone, and so it stops as well.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

from echomq.app.address import Address
from echomq.app.child import Line, LineClosedError
from echomq.app.worker import GRACE, Worker
from echomq.identity.errors import EchoMQError, InvalidInputError

ORPHAN_S: Final = 10.0
"""How long after its grace a worker without a supervisor may take to end."""


def work(address: Address, options: Mapping[str, Any], line: Line) -> int:
    """The orders of a supervised worker (`child.Orders`)."""
    leash = _Leash(line, options.get("grace", GRACE))
    leash.start()
    try:
        worker = Worker(address.load(), address=address, **options)
        worker.supervised = True
        worker.tell = leash.tell
        leash.worker = worker
        worker.run()
    except EchoMQError as error:
        code = 2 if isinstance(error, InvalidInputError) else 1
        leash.tell("refused", str(error), code)
        return code
    return 0


class _Leash(threading.Thread):
    """Listens to the supervisor, from before the app is imported."""

    def __init__(self, line: Line, grace: timedelta) -> None:
        super().__init__(name="echomq supervisor", daemon=True)
        self._line = line
        self._grace_s = grace.total_seconds()
        self.worker: Worker | None = None

    def tell(self, *words: object) -> None:
        """Says something to the supervisor, if it is there."""
        with suppress(LineClosedError):
            self._line.send(*words)

    def run(self) -> None:
        while True:
            try:
                (word,) = self._line.receive()
            except LineClosedError:
                break
            self._stop(at_once=word == "now")
        self._stop(at_once=False)
        threading.Event().wait(self._grace_s + ORPHAN_S)
        os._exit(1)

    def _stop(self, *, at_once: bool) -> None:
        if self.worker is None or not self.worker.stop_soon(at_once=at_once):
            os._exit(0)  # nothing is in hand yet
