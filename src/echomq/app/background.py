"""An event loop in a thread of its own, for callers that block on what is awaited."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Coroutine
from concurrent.futures import CancelledError
from typing import Any, Final, TypeVar

from echomq.identity.errors import EchoMQError
from echomq.protocol.errors import DisconnectedError
from echomq.wire import forks

T = TypeVar("T")

_JOIN_S: Final = 5.0


class _Loop:
    """The thread and its loop."""

    def __init__(self) -> None:
        self._ready = threading.Event()
        self._stopping: asyncio.Event
        self.loop: asyncio.AbstractEventLoop
        self._pid = os.getpid()
        # A program that just ends does not wait for it.
        self._thread = threading.Thread(target=self._main, name="echomq results", daemon=True)
        self._thread.start()
        self._ready.wait()

    @property
    def is_here(self) -> bool:
        """Whether this is its thread."""
        return threading.current_thread() is self._thread

    def _main(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._ready.set()
        await self._stopping.wait()

    def stop(self) -> None:
        """End it; what it still runs is cancelled."""
        if self._pid != os.getpid() or not self._thread.is_alive():
            return
        try:
            self.loop.call_soon_threadsafe(self._stopping.set)
        except RuntimeError:
            return  # it ends already
        if not self.is_here:
            self._thread.join(_JOIN_S)


class Background:
    """Runs coroutines for threads. The loop is started by the first, and stays until `close`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: _Loop | None = None
        self._at_exit: weakref.finalize[[], Background] | None = None
        forks.watch(self)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` returns, or raises; it is cancelled when this thread is interrupted.

        `DisconnectedError` when everything is closed meanwhile; `EchoMQError` on the loop itself, which would wait for
        itself for ever.
        """
        if self.is_here:
            work.close()
            raise EchoMQError("a blocking call on the loop that it waits for never ends: await what it is for instead")
        try:
            future = asyncio.run_coroutine_threadsafe(work, self._loop())
        except RuntimeError:
            work.close()
            raise _closed() from None
        try:
            return future.result()
        except CancelledError:
            raise _closed() from None
        except BaseException:
            future.cancel()
            raise

    @property
    def is_here(self) -> bool:
        """Whether this thread is that of the loop."""
        running = self._running
        return running is not None and running.is_here

    def _loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._running is None:
                self._running = _Loop()
                self._at_exit = weakref.finalize(self, self._running.stop)
            return self._running.loop

    def close(self) -> None:
        """End the loop; whoever waits on it gets a `DisconnectedError`. A later use starts another."""
        with self._lock:
            running, self._running = self._running, None
            if self._at_exit is not None:
                self._at_exit.detach()
        if running is not None:
            running.stop()

    def after_fork(self) -> None:
        """In a child: the thread is the parent's."""
        forks.graveyard.append(self._running)
        self._lock = threading.Lock()
        self._running = None


def _closed() -> DisconnectedError:
    return DisconnectedError("the EchoMQ was closed while a result was waited for", sent=False)
