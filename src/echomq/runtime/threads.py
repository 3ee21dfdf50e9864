"""Threads for plain functions: work goes in without a future each, results come back to the loop in one call."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, TypeVar

from echomq.identity.errors import EchoMQError
from echomq.runtime import copies
from echomq.runtime.loops import log

T = TypeVar("T")


class ThreadShortageError(EchoMQError):
    """The system gives not a single thread to run a function in."""


class Threads(Generic[T]):
    """At most `size` daemon threads, started as they are needed. They never keep a process alive.

    `done(tag, value, error)` is called on the loop for every function that has ended.
    """

    def __init__(self, size: int, name: str, done: Callable[[T, object, BaseException | None], None]) -> None:
        self._size = size
        self._name = name
        self._done = done
        self._loop = asyncio.get_running_loop()
        self._work: SimpleQueue[tuple[T, Callable[[], object]] | None] = SimpleQueue()
        self._results: deque[tuple[T, object, BaseException | None]] = deque()
        self._told = False
        self._threads = 0
        self._short = False
        self._busy = 0

    def run(self, tag: T, function: Callable[[], object]) -> None:
        """Run `function` in a thread; from the loop only.

        Where the system gives no further thread it waits for one of those that there are. `ThreadShortageError`
        when there is none at all.
        """
        if self._busy >= self._threads < self._size:
            self._grow()
        self._busy += 1
        self._work.put((tag, function))

    def _grow(self) -> None:
        try:
            threading.Thread(target=self._serve, name=f"{self._name} {self._threads + 1}", daemon=True).start()
        except (RuntimeError, MemoryError, OSError) as error:
            if not self._threads:
                raise ThreadShortageError(f"no thread can be started: {error}") from error
            if not self._short:
                self._short = True
                log.warning("%s: %d threads, and no more can be started: %s", self._name, self._threads, error)
        else:
            self._threads += 1
            self._short = False

    def close(self) -> None:
        """End each thread after what it runs now."""
        for _ in range(self._threads):
            self._work.put(None)

    def _serve(self) -> None:
        results, forks = self._results, copies.forks
        while (item := self._work.get()) is not None:
            tag, function = item
            try:
                results.append((tag, function(), None))
            except BaseException as error:  # noqa: BLE001  (a thread's SystemExit is a failed job, not an exit)
                results.append((tag, None, error))
            if copies.forks != forks:
                copies.end()
            del item, tag, function
            # A call that is on its way takes this result along; the loop clears the flag before it looks.
            if not self._told:
                self._told = True
                try:
                    self._loop.call_soon_threadsafe(self._deliver)
                except RuntimeError:
                    return  # the loop is closed: nobody waits

    def _deliver(self) -> None:
        self._told = False
        results = self._results
        while results:
            tag, value, error = results.popleft()
            self._busy -= 1
            self._done(tag, value, error)
