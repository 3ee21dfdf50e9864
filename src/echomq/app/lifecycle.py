"""What an app does once in every worker process: what it opens when that starts, and closes when it stops.

Start-up hooks, lifespans and dependencies of scope `worker` are begun one after the other, in the order of their
registration, the dependencies last. What was registered behind a failure is not begun, what was begun before it is
ended: a shut-down hook counts as begun when everything registered before it is. The end is the same in reverse. All of
it runs on the worker's loop, in one task, while no job runs.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any, Final, cast

from echomq.app.depends import Dependency
from echomq.app.errors import StartupError
from echomq.app.process import LAST_WORDS_S
from echomq.app.state import fill
from echomq.identity.errors import InvalidInputError
from echomq.runtime.outcome import brief
from echomq.runtime.runner import is_awaitable

log: Final = logging.getLogger("echomq.worker")


class Lifecycle:
    """What an app has registered, begun by `start` and ended by `stop`."""

    def __init__(self) -> None:
        self._needs: dict[Callable[..., object], Dependency] = {}
        self.state: dict[str, object] = {}
        """What the lifespans have yielded."""
        self.values: dict[Callable[..., object], object] = {}
        """What the dependencies of scope `worker` are, by factory."""
        self._task: asyncio.Task[None] | None = None
        self._end = asyncio.Event()
        self._life: tuple[tuple[str, Callable[[], object]], ...] = ()

    def needs(self, dependencies: Iterable[Dependency]) -> None:
        """Takes in those of scope `worker`, also below others: what is needed first comes first."""
        for each in dependencies:
            self.needs(each.needs.values())
            if each.scope == "worker":
                self._needs.setdefault(each.factory, each)

    @property
    def is_needed(self) -> bool:
        """Whether any dependency of scope `worker` was taken in."""
        return bool(self._needs)

    async def start(self, life: Iterable[tuple[str, Callable[[], object]]]) -> None:
        """Begins everything; `StartupError`, once what was begun is ended again, when something of it raises."""
        self._life = tuple(life)
        self._end = asyncio.Event()
        self.state.clear()
        self.values.clear()
        if not (self._life or self._needs):
            return
        begun = asyncio.get_running_loop().create_future()
        # In a task of its own: some things have to be left by the task that has entered them.
        self._task = asyncio.create_task(self._live(begun), name="echomq lifecycle")
        try:
            await asyncio.wait((begun, self._task), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self._cut_short(self._task)
            raise
        if self._task.done():
            self._task.result()

    async def stop(self, hurry: asyncio.Event | None = None) -> None:
        """Ends everything that was begun, in reverse; what raises is logged. What still runs when `hurry` is set is
        cancelled, and left alone where it goes on nevertheless (`stuck`).
        """
        self._end.set()
        if self._task is None or self._task.cancelling():
            return
        told = asyncio.ensure_future((hurry or asyncio.Event()).wait())
        try:
            await asyncio.wait((self._task, told), return_when=asyncio.FIRST_COMPLETED)
        finally:
            told.cancel()
        if not self._task.done():
            log.warning("what the worker ends with is cut short")
            await self._cut_short(self._task)

    @property
    def stuck(self) -> bool:
        """Whether something of it goes on that was cancelled."""
        return self._task is not None and not self._task.done()

    async def _cut_short(self, task: asyncio.Task[None]) -> None:
        task.cancel()
        await asyncio.wait((task,), timeout=LAST_WORDS_S)

    async def _live(self, begun: asyncio.Future[None]) -> None:
        async with AsyncExitStack() as stack:
            for kind, function in self._life:
                try:
                    await getattr(self, f"_{kind}")(function, stack)
                except BaseException as error:
                    _pass_on(error)
                    raise _failed(f"the {kind} hook {_name(function)}", error) from error
            for need in self._needs.values():
                try:
                    await self._open(need, stack)
                except BaseException as error:
                    _pass_on(error)
                    raise _failed(f"the dependency {need.name}", error) from error
            begun.set_result(None)
            await self._end.wait()

    async def _startup(self, function: Callable[[], object], _: AsyncExitStack) -> None:
        await _called(function)

    async def _shutdown(self, function: Callable[[], object], stack: AsyncExitStack) -> None:
        stack.push_async_callback(_guarded, function, _name(function))

    async def _lifespan(self, function: Callable[[], Any], stack: AsyncExitStack) -> None:
        inner = AsyncExitStack()
        stack.push_async_callback(_guarded, inner.aclose, _name(function))
        given: object
        if inspect.isasyncgenfunction(function):
            given = await inner.enter_async_context(asynccontextmanager(function)())
        else:
            given = inner.enter_context(contextmanager(function)())
        if isinstance(given, Mapping):
            self.state.update(cast("Mapping[str, object]", given))
        elif given is not None:
            raise InvalidInputError(f"it yields {type(given).__name__}; a mapping for current_job().state, or nothing")

    async def _open(self, need: Dependency, stack: AsyncExitStack) -> None:
        inner = AsyncExitStack()
        stack.push_async_callback(_guarded, inner.aclose, need.name)
        self.values[need.factory] = (await fill({"it": need}, self.values, inner, None, self.values))["it"]


async def _called(function: Callable[[], object]) -> None:
    value = function()
    if is_awaitable(value):
        await value


async def _guarded(function: Callable[[], object], name: str) -> None:
    try:
        await _called(function)
    except BaseException as error:
        _pass_on(error)
        log.exception("at the end of the worker: %s raised", name)


def _pass_on(error: BaseException) -> None:
    """Raises it when the task is cancelled. Whatever else code of somebody's own raises is its failure."""
    task = asyncio.current_task()
    if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
        raise error


def _failed(what: str, error: BaseException) -> StartupError:
    log.error("%s raised; the worker does not start", what, exc_info=error)
    return StartupError(f"{what} raised {type(error).__name__}: {brief(error)}")


def _name(function: Callable[..., object]) -> str:
    return getattr(function, "__qualname__", repr(function))
