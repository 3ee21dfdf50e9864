"""The time of a scenario: it runs in a thread of its own, and nobody waits for it longer than it may take.

What stays true: whatever a scenario does, the run goes on. A scenario whose time is over, or whose run is ended, is
told so by its next call and in the loop that it runs; one that hears nothing is left alone.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from echomq.conformance.scenario import BreachError

T = TypeVar("T")

SCENARIO_S: Final = 30.0
"""How long a scenario may take, all its waits together."""

GRACE_S: Final = 5.0
"""How long a scenario that has been told of its end gets to take down what it has set up."""


class OverError(BaseException):
    """Raised by the next call of a scenario whose time is over; no `except` of its own keeps it going."""


class Span:
    """The time of one scenario."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._over = False
        self._cancel: Callable[[], object] | None = None

    def check(self) -> None:
        """Raises `OverError` when the time is over."""
        if self._over:
            raise OverError

    def loop(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` returns, in an event loop of its own; it is cancelled when the time is over."""

        async def watched() -> T:
            task, loop = asyncio.current_task(), asyncio.get_running_loop()
            assert task is not None
            with self._lock:
                self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)
                if self._over:
                    task.cancel()
            try:
                return await work
            finally:
                with self._lock:
                    self._cancel = None

        return asyncio.run(watched())

    def end(self) -> None:
        """The time is over."""
        with self._lock:
            self._over = True
            if self._cancel is not None:
                self._cancel()


def within(span: Span, seconds: float, act: Callable[[], None]) -> None:
    """Runs `act` and raises what it raises; `BreachError` when it has not come to its end after so many seconds.

    Whatever ends the wait (Ctrl-C, a signal) ends the span too, and `act` gets `GRACE_S` to come to its end.
    """
    ended = threading.Event()
    raised: list[BaseException] = []

    def go() -> None:
        try:
            act()
        except BaseException as error:  # noqa: BLE001  (it is raised where it is waited for)
            raised.append(error)
        finally:
            ended.set()

    thread = threading.Thread(target=go, name="echomq conformance", daemon=True)
    in_time = False
    try:
        thread.start()  # which waits too: a signal may come here as well
        in_time = ended.wait(seconds)
    finally:
        if not in_time:
            span.end()
            ended.wait(GRACE_S if thread.ident else 0)
    if not in_time:
        raise BreachError(f"it had not come to its end after {seconds:g} s")
    if raised:
        raise raised[0]
