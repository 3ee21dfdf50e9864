"""The process that a worker has to itself: its event loop, its signals, its end."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from importlib.util import find_spec
from typing import Any, Final, NoReturn

from echomq.runtime import copies

log: Final = logging.getLogger("echomq.worker")

LAST_WORDS_S: Final = 2.0
"""How long what cannot be told to stop is waited for."""


def new_runner() -> asyncio.Runner:
    """A runner on uvloop, where that is installed."""
    return asyncio.Runner(loop_factory=_loop_factory())


def complete(runner: asyncio.Runner, work: Coroutine[Any, Any, None], begun: Callable[[], bool]) -> None:
    """Runs `work` to its end, also past a task that a job has started and that raises an exit.

    Such a task ends every event loop at once, whoever waits for the task. It is the job's failure, if the job awaits
    it, and nobody else's. Before `begun()` an exit is meant for the process.
    """
    loop = runner.get_loop()
    forks = copies.forks
    asyncio.set_event_loop(loop)
    task = loop.create_task(work)
    try:
        while True:
            try:
                loop.run_until_complete(task)
            except (SystemExit, KeyboardInterrupt) as error:
                copies.check(forks)
                if task.done() or not begun():
                    raise
                log.error("a task that a job has started raised %s; the worker goes on", type(error).__name__)
            else:
                return
    finally:
        if not task.done():
            task.cancel()
            with suppress(asyncio.CancelledError):
                loop.run_until_complete(task)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if find_spec("uvloop") is None:
        return None
    import uvloop

    return uvloop.new_event_loop


def end_process(code: int = 0) -> NoReturn:
    """Ends the process with `code`, whatever its streams are: closed, broken, full or held by a thread that hangs."""
    try:
        last_words = threading.Thread(target=_flush, daemon=True)
        last_words.start()
        last_words.join(LAST_WORDS_S)
    finally:
        os._exit(code)


def _flush() -> None:
    for flush in (logging.shutdown, *(stream.flush for stream in (sys.stdout, sys.stderr) if stream is not None)):
        with suppress(Exception):
            flush()
