"""Filling in what a function `Depends` on: each factory at most once a run, its parts first.

What needs cleaning up goes on a stack of the caller's, and is cleaned up in reverse.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AsyncExitStack, ExitStack
from functools import partial
from types import TracebackType
from typing import Any

from echomq.app.aside import Aside, on_loop
from echomq.app.depends import Dependency, Kind

Values = Mapping[Callable[..., object], object]
"""What dependencies of scope `worker` are, by factory."""
Made = dict[Callable[..., object], object]
Needs = Mapping[str, Dependency]
"""Dependencies by the names of the arguments that take them."""


async def fill(
    needs: Needs,
    values: Values,
    stack: AsyncExitStack,
    aside: Aside | None,
    made: Made | None = None,
) -> dict[str, object]:
    """What is needed, by name; `stack` cleans it up. Plain factories are called `aside`, or here without one."""
    made = {} if made is None else made
    filled: dict[str, object] = {}
    for need in _missing(needs, values, made, filled):
        make = partial(need.make, **await fill(need.needs, values, stack, aside, made))
        match need.kind:
            case Kind.ASYNC_MANAGER:
                made[need.factory] = await stack.enter_async_context(make())
            case Kind.MANAGER if aside is not None:
                made[need.factory] = await stack.enter_async_context(_Aside(make(), aside))
            case Kind.MANAGER:
                made[need.factory] = stack.enter_context(make())
            case Kind.COROUTINE:
                made[need.factory] = await make()
            case Kind.VALUE:
                made[need.factory] = make() if aside is None else await aside.run(make)
    return filled


def fill_here(
    needs: Needs,
    values: Values,
    stack: ExitStack,
    loop: asyncio.AbstractEventLoop,
    made: Made | None = None,
) -> dict[str, object]:
    """`fill` for a plain function's thread; coroutines are run on the loop."""
    made = {} if made is None else made
    filled: dict[str, object] = {}
    for need in _missing(needs, values, made, filled):
        make = partial(need.make, **fill_here(need.needs, values, stack, loop, made))
        match need.kind:
            case Kind.ASYNC_MANAGER:
                made[need.factory] = stack.enter_context(_OnLoop(make(), loop))
            case Kind.MANAGER:
                made[need.factory] = stack.enter_context(make())
            case Kind.COROUTINE:
                made[need.factory] = on_loop(loop, make())
            case Kind.VALUE:
                made[need.factory] = make()
    return filled


def _missing(needs: Needs, values: Values, made: Made, filled: dict[str, object]) -> Iterator[Dependency]:
    """Puts what is needed into `filled`; gives each of them that is not there yet, which is in `made` afterwards."""
    for name, need in needs.items():
        known = values if need.scope == "worker" else made
        if need.factory not in known:
            yield need
            known = made
        filled[name] = known[need.factory]


class _Aside:
    """A plain context manager for a task: entered and left in a thread."""

    def __init__(self, manager: Any, aside: Aside) -> None:
        self._manager = manager
        self._aside = aside

    async def __aenter__(self) -> object:
        return await self._aside.run(self._manager.__enter__)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return bool(await self._aside.run(partial(self._manager.__exit__, kind, error, trace)))


class _OnLoop:
    """An awaited context manager for a thread: entered and left on the loop, by one and the same task."""

    def __init__(self, manager: AbstractAsyncContextManager[object], loop: asyncio.AbstractEventLoop) -> None:
        self._manager = manager
        self._loop = loop
        self._entered: Future[object] = Future()
        self._leave: asyncio.Future[BaseException | None] = loop.create_future()

    def __enter__(self) -> object:
        self._held = asyncio.run_coroutine_threadsafe(self._hold(), self._loop)
        self._held.add_done_callback(self._ended)
        return self._entered.result()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._loop.call_soon_threadsafe(self._tell, error)
        self._held.result()
        return error is not None

    async def _hold(self) -> None:
        async with self._manager as value:
            self._entered.set_result(value)
            if (error := await self._leave) is not None:
                raise error

    def _ended(self, held: Future[None]) -> None:
        if not self._entered.done():
            if held.cancelled():
                self._entered.cancel()
            else:
                self._entered.set_exception(held.exception() or RuntimeError("it was left before it was entered"))

    def _tell(self, error: BaseException | None) -> None:
        if not self._leave.done():
            self._leave.set_result(error)
