"""Plain code for a task, which must not block its loop, and coroutine code for a thread, which has none.

The context variables that either sets are set for the one that waits, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context, copy_context
from functools import partial
from typing import Any, Final, TypeVar

from echomq.runtime.threads import Threads

T = TypeVar("T")

ASIDE: Final = 32
"""Threads for the plain hooks and dependencies of coroutine jobs."""

_STOPPED: Final = "a plain hook raised StopIteration"


class Aside:
    """Runs plain functions in threads for tasks of one loop, which is found when it is first used."""

    def __init__(self, size: int = ASIDE) -> None:
        self._size = size
        self._threads: Threads[asyncio.Future[Any]] | None = None

    async def run(self, function: Callable[[], T]) -> T:
        """What `function` gives, called in a thread; the context variables that it sets are set here, too."""
        if self._threads is None:
            self._threads = Threads(self._size, "echomq aside", _settle)
        context = copy_context()
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._threads.run(future, partial(context.run, function))
        try:
            return await future
        finally:
            if future.done():
                _adopt(context)

    def close(self) -> None:
        """Lets the threads end."""
        if self._threads is not None:
            self._threads.close()
            self._threads = None


class AnyLoopAside(Aside):
    """The same for the tasks of any loop, in threads of that loop's executor."""

    async def run(self, function: Callable[[], T]) -> T:
        """As `Aside.run`."""
        context = copy_context()
        future = asyncio.get_running_loop().run_in_executor(None, lambda: context.run(_finite, function))
        try:
            return await future
        finally:
            if future.done():
                _adopt(context)


def on_loop(loop: asyncio.AbstractEventLoop, work: Awaitable[T]) -> T:
    """What `work` gives, awaited on the loop while this thread waits; context variables that it sets are set here."""
    value, context = asyncio.run_coroutine_threadsafe(_with_context(work), loop).result()
    _adopt(context)
    return value


async def _with_context(work: Awaitable[T]) -> tuple[T, Context]:
    return await work, copy_context()


def _finite(function: Callable[[], T]) -> T:
    try:
        return function()
    except StopIteration:
        raise RuntimeError(_STOPPED) from None


def _settle(future: asyncio.Future[Any], value: object, error: BaseException | None) -> None:
    if future.done():
        return  # nobody waits any longer
    if error is None:
        future.set_result(value)
    elif isinstance(error, StopIteration):
        future.set_exception(RuntimeError(_STOPPED))
    else:
        future.set_exception(error)


def _adopt(context: Context) -> None:
    """Sets here what has been set in `context`."""
    for variable, value in context.items():
        if variable.get(context) is not value:
            variable.set(value)
