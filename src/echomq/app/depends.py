"""`Depends`: an argument that the worker fills in, and that is never sent.

    async def send(to: str, db: Db = Depends(database)) -> None: ...

To a type checker the default has the type of what the factory gives, so `send.enqueue("a@b.c")` is whole without it.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeVar, overload

from echomq.app.errors import JobDefinitionError
from echomq.identity.errors import InvalidInputError

if TYPE_CHECKING:
    # What the two decorators of contextlib give, and the only way to say so.
    from contextlib import (
        _AsyncGeneratorContextManager as AsyncManager,  # pyright: ignore[reportPrivateUsage]
    )
    from contextlib import (
        _GeneratorContextManager as Manager,  # pyright: ignore[reportPrivateUsage]
    )

T = TypeVar("T")
Scope = Literal["job", "worker"]

_EMPTY: Final = inspect.Parameter.empty
_KEYWORD: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Kind(Enum):
    """How a factory is used."""

    VALUE = "a plain function that returns it"
    COROUTINE = "a coroutine function that returns it"
    MANAGER = "a generator function that yields it, and cleans up behind the yield"
    ASYNC_MANAGER = "the same as a coroutine"


class Dependency:
    """The default of an injected argument: what is to be made for it, and for how long."""

    def __init__(self, factory: Callable[..., object], scope: Scope) -> None:
        self.factory = factory
        self.scope = scope
        self.name: str = getattr(factory, "__qualname__", repr(factory))

    def __repr__(self) -> str:
        return f"Depends({self.name})"

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"{name!r} of {self!r}, which was not filled in: a worker does that; give the argument when you call the "
            "function yourself"
        )

    @cached_property
    def kind(self) -> Kind:
        """How the factory is used."""
        inner = inspect.unwrap(self.factory)
        if inspect.isasyncgenfunction(inner):
            return Kind.ASYNC_MANAGER
        if inspect.isgeneratorfunction(inner):
            return Kind.MANAGER
        return Kind.COROUTINE if inspect.iscoroutinefunction(inner) else Kind.VALUE

    @cached_property
    def make(self) -> Callable[..., Any]:
        """The factory; for a generator function a context manager's."""
        if inspect.isasyncgenfunction(self.factory):
            return asynccontextmanager(self.factory)
        if inspect.isgeneratorfunction(self.factory):
            return contextmanager(self.factory)
        return self.factory

    @cached_property
    def needs(self) -> dict[str, Dependency]:
        """The dependencies of the factory itself; `JobDefinitionError` for one that cannot be called so."""
        needs = injected(f"dependency {self.name}", self.factory)
        for parameter in _parameters(self.factory):
            many = parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
            if parameter.default is _EMPTY and not many:
                raise JobDefinitionError(
                    f"dependency {self.name} needs an argument {parameter.name!r}: give it a default, "
                    "which may be a Depends(...) of its own"
                )
        for need in needs.values():
            if self.scope == "worker" and need.scope == "job":
                raise JobDefinitionError(
                    f"dependency {self.name} lives as long as the worker and needs {need.name}, which is made anew for "
                    'each job: give both scope="worker", or neither'
                )
        return needs

    def check(self, above: tuple[Dependency, ...] = ()) -> None:
        """Refuses what can never be made: `JobDefinitionError`."""
        if any(each.factory is self.factory for each in above):
            circle = " -> ".join(each.name for each in (*above, self))
            raise JobDefinitionError(f"dependencies go round in a circle: {circle}")
        for need in self.needs.values():
            need.check((*above, self))


# The plain function is also a function that returns some T; the first overload that fits is the right one.
@overload
def Depends(factory: Callable[..., AsyncManager[T]], *, scope: Scope = "job") -> T: ...
@overload
def Depends(factory: Callable[..., Manager[T]], *, scope: Scope = "job") -> T: ...
@overload
def Depends(factory: Callable[..., AsyncIterator[T]], *, scope: Scope = "job") -> T: ...
@overload
def Depends(factory: Callable[..., Iterator[T]], *, scope: Scope = "job") -> T: ...
@overload
def Depends(factory: Callable[..., Awaitable[T]], *, scope: Scope = "job") -> T: ...
@overload
def Depends(factory: Callable[..., T], *, scope: Scope = "job") -> T: ...


def Depends(factory: Callable[..., Any], *, scope: Scope = "job") -> Any:  # noqa: N802  (the name it has elsewhere)
    """The default of an argument that a worker fills in: `db: Db = Depends(database)`.

    `factory` returns the value, or yields it once and cleans up behind the `yield`; plain or a coroutine. Its own
    arguments may be `Depends(...)`, too. With scope `job` it is called for each run that needs it, once a run, and
    cleaned up after it; with scope `worker` once a process, when its worker starts, and cleaned up when that stops.
    A failure to make or to clean up what belongs to a job is that job's failure; one at the start stops the worker.
    """
    if not callable(factory):
        raise InvalidInputError(f"Depends takes a function, not {factory!r:.200}: write Depends(database)")
    if scope not in ("job", "worker"):
        raise InvalidInputError(f"scope must be 'job' or 'worker', not {scope!r:.100}")
    return Dependency(factory, scope)


def injected(what: str, function: Callable[..., object]) -> dict[str, Dependency]:
    """The injected arguments of a function by their names; `JobDefinitionError` for one that no keyword reaches."""
    found: dict[str, Dependency] = {}
    for parameter in _parameters(function):
        if isinstance(parameter.default, Dependency):
            if parameter.kind not in _KEYWORD:
                raise JobDefinitionError(
                    f"argument {parameter.name!r} of {what} is positional only, so it cannot be filled in"
                )
            found[parameter.name] = parameter.default
        elif found and parameter.kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.VAR_POSITIONAL):
            raise JobDefinitionError(
                f"argument {parameter.name!r} of {what} stands behind one that is filled in: put those with "
                "Depends(...) last, or behind a *"
            )
    return found


def signature_of(function: Callable[..., object]) -> inspect.Signature:
    """A function's signature, whatever its annotations name. `TypeError` or `ValueError` where there is none."""
    if sys.version_info >= (3, 14):
        from annotationlib import Format

        return inspect.signature(function, annotation_format=Format.FORWARDREF)
    return inspect.signature(function)


def _parameters(function: Callable[..., object]) -> list[inspect.Parameter]:
    try:
        return list(signature_of(function).parameters.values())
    except (TypeError, ValueError):  # a class in C, say
        return []
