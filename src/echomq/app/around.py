"""One run of a job with what is around it: the hooks of the middleware, and the arguments that are filled in.

From the outside in: `before`, the dependencies, the function; then the dependencies are cleaned up, and `after` or
`error` follows. A failure to make a dependency, or to clean it up, is the job's own; one that swallows the job's error
does not make it a success.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from echomq.app.aside import Aside, on_loop
from echomq.app.state import Needs, Values, fill, fill_here
from echomq.runtime import copies
from echomq.runtime.outcome import brief
from echomq.runtime.runner import is_async, is_awaitable

if TYPE_CHECKING:
    from echomq.app.context import JobContext
    from echomq.app.middleware import Hook, Layer

log: Final = logging.getLogger("echomq.worker")


class Around:
    """The coroutines are for a coroutine job's task, the methods that end in `_here` for a plain job's thread."""

    __slots__ = ("_aside", "_begun", "_forks", "_job", "_layers", "_loop", "_needs", "_values")

    def __init__(self, job: JobContext, layers: list[Layer], needs: Needs, values: Values, aside: Aside) -> None:
        self._job = job
        self._layers = layers
        self._needs = needs
        self._values = values
        self._aside = aside
        self._loop = asyncio.get_running_loop()
        self._forks = copies.forks
        self._begun: list[Layer] = []
        """Those that are to hear of the end."""

    async def call(self, function: Callable[..., Any], args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        """The hooks before the job, then the coroutine function with its arguments filled in."""
        for layer in self._layers:
            if layer.before is not None:
                await self._hook(layer.before)
            self._begun.append(layer)
        if not self._needs:
            return await function(*args, **kwargs)
        value: object = None
        failure: BaseException | None = None
        async with AsyncExitStack() as stack:
            try:
                value = await function(*args, **kwargs, **await fill(self._needs, self._values, stack, self._aside))
            except BaseException as error:
                failure = error
                raise
            finally:
                copies.check(self._forks)
        if failure is not None:
            raise failure
        return value

    async def ended(self, result: object) -> None:
        """The hooks after a job that has returned; never raises."""
        await self._told((layer.after, result) for layer in self._left())

    async def failed(self, error: BaseException) -> None:
        """The hooks after one that has raised; never raises."""
        await self._told((layer.error, error) for layer in self._left())

    def call_here(self, function: Callable[..., Any], args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        """`call` for a plain function. An awaitable that it gives is awaited on the loop, while the thread waits."""
        for layer in self._layers:
            if layer.before is not None:
                self._hook_here(layer.before)
            self._begun.append(layer)
        value: object = None
        failure: BaseException | None = None
        with ExitStack() as stack:
            try:
                value = function(*args, **kwargs, **fill_here(self._needs, self._values, stack, self._loop))
                copies.check(self._forks)
                if is_awaitable(value):
                    value = on_loop(self._loop, value)
            except BaseException as error:
                copies.check(self._forks)
                failure = error
                raise
        if failure is not None:
            raise failure
        return value

    def ended_here(self, result: object) -> None:
        """`ended`, for the job's thread."""
        self._told_here((layer.after, result) for layer in self._left())

    def failed_here(self, error: BaseException) -> None:
        """`failed`, for the job's thread."""
        self._told_here((layer.error, error) for layer in self._left())

    def _left(self) -> Iterator[Layer]:
        """Those that have begun, the innermost first, each once; none in a copy of the process."""
        copies.check(self._forks)
        while self._begun:
            yield self._begun.pop()

    async def _hook(self, hook: Hook, *args: object) -> None:
        call = partial(hook, self._job, *args)
        value = call() if is_async(hook) else await self._aside.run(call)
        if is_awaitable(value):
            await value

    def _hook_here(self, hook: Hook, *args: object) -> None:
        value = hook(self._job, *args)
        if is_awaitable(value):
            on_loop(self._loop, value)

    async def _told(self, hooks: Iterator[tuple[Hook | None, object]]) -> None:
        for hook, what in hooks:
            if hook is None:
                continue
            try:
                await self._hook(hook, what)
            except asyncio.CancelledError:
                # The worker cannot wait any longer, or the job is cancelled after its end: what became of it is known.
                log.warning("%s: the hooks after the job are cut short", self._job.id)
                return
            except BaseException as error:  # noqa: BLE001  (whatever a hook raises, the verdict stays)
                self._complain(hook, error)

    def _told_here(self, hooks: Iterator[tuple[Hook | None, object]]) -> None:
        for hook, what in hooks:
            if hook is None:
                continue
            try:
                self._hook_here(hook, what)
            except BaseException as error:  # noqa: BLE001  (whatever a hook raises, the verdict stays)
                self._complain(hook, error)

    def _complain(self, hook: Hook, error: BaseException) -> None:
        name = brief(getattr(hook, "__qualname__", hook))
        log.error("%s: the hook %s raised; the job stays as it is", self._job.id, name, exc_info=error)
