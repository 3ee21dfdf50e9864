"""How an app says what is done around its jobs, and around the life of its workers: decorators and `mq.middleware`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import TypeVar

from echomq.app.middleware import Layers
from echomq.identity.errors import InvalidInputError

F = TypeVar("F", bound=Callable[[], object])
M = TypeVar("M")


class Hooked:
    """The part of `EchoMQ` that registers what is done around jobs and around the life of a worker."""

    def __init__(self, middleware: Iterable[object] = ()) -> None:
        self.layers = Layers(middleware)
        self.life: list[tuple[str, Callable[[], object]]] = []
        """What to begin, in order: `startup`, `shutdown` or `lifespan`, and the function."""

    def middleware(self, layer: M) -> M:
        """Registers middleware, inside of what is registered: an instance of `Middleware`, or of any class with some of
        its methods; given a class, an instance of it.

        Gives `layer` back, so that it may decorate a class. `InvalidInputError` for what has none of the methods.
        """
        self.layers.add(layer)
        return layer

    def on_startup(self, function: F) -> F:
        """Registers a function without arguments, plain or a coroutine, that each worker process runs before its first
        job. Where it raises the worker does not start: `StartupError`, exit code 1."""
        return self._begins("startup", function)

    def on_shutdown(self, function: F) -> F:
        """Registers a function without arguments, plain or a coroutine, that each worker process runs after its last
        job; in the reverse order of registration. Where it raises that is logged, and the others still run."""
        return self._begins("shutdown", function)

    def lifespan(self, function: F) -> F:
        """Registers a generator function without arguments, plain or `async`, that yields once: what is before the
        `yield` is done at the start of each worker process, what is behind it at the end. What it yields, a mapping or
        nothing, is in `current_job().state` of every job."""
        if not (inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)):
            raise InvalidInputError(f"a lifespan is a function that yields once; {function!r:.200} does not yield")
        return self._begins("lifespan", function)

    def _begins(self, kind: str, function: F) -> F:
        if not callable(function):
            raise InvalidInputError(f"on_{kind} takes a function, not {function!r:.200}")
        self.life.append((kind, function))
        return function
