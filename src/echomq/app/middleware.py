"""Middleware: what an app wants done before and after every job, and when a job is sent.

The order is that of an onion: `before` as they were registered, `after` and `error` the other way round. Plain code
runs in a thread, coroutine code on the worker's loop, whichever the job is: the hooks of a plain job that are plain run
in the job's own thread, those that are coroutines on the loop while the thread waits; the hooks of a coroutine job that
are coroutines run in its task, those that are plain in a thread while the task waits. Context variables that a hook
sets are there for the job and for the hooks that follow.

What stays true: after a `before` that has returned comes exactly one `after` or `error` of the same middleware, unless
the process dies or the worker cannot wait any longer; and nothing that those two do changes what becomes of the job.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from echomq.identity.errors import InvalidInputError

if TYPE_CHECKING:
    from echomq.app.context import JobContext

Said: TypeAlias = Awaitable[object] | None
"""What a hook gives: nothing, or, written as a coroutine function, something to be awaited."""

Hook: TypeAlias = Callable[..., object]


class Sending:
    """A job on its way to the server. `meta` travels with it, and is what `current_job().meta` reads there."""

    __slots__ = ("meta", "name", "queue")

    def __init__(self, name: str, queue: str, meta: dict[str, object]) -> None:
        self.name = name
        self.queue = queue
        self.meta = meta


class Middleware:
    """To be subclassed: each of the methods may be left out, and may be plain or a coroutine function.

    Register an instance with `mq.middleware(...)` or `EchoMQ(middleware=[...])`. One instance serves every job of the
    process at once: what belongs to a single run goes into `job.state`.
    """

    def before(self, job: JobContext) -> Said:
        """Before the job's function. Raising is the job's own failure (`Snooze` and the like count as well)."""

    def after(self, job: JobContext, result: object) -> Said:
        """After the function has returned. Raising is logged, and changes nothing."""

    def error(self, job: JobContext, error: BaseException) -> Said:
        """After it has raised, or was interrupted, also by `Snooze`. Raising is logged, and changes nothing."""

    def before_enqueue(self, sending: Sending) -> None:
        """In the sender, before a job is sent: it may add to `sending.meta`. Plain, and quick: it is on the way of
        every send, also on an event loop. Raising refuses the send."""


class Layer(NamedTuple):
    """One middleware's hooks around a job; None for those that it does not have."""

    before: Hook | None
    after: Hook | None
    error: Hook | None


class Layers:
    """The middleware of an app, in the order of their registration."""

    def __init__(self, middleware: Iterable[object] = ()) -> None:
        self.around: list[Layer] = []
        """The hooks around a job, the outermost first."""
        self._senders: list[Callable[[Sending], object]] = []
        if not isinstance(middleware, Iterable) or isinstance(middleware, (str, bytes)):
            raise InvalidInputError(
                f"middleware must be a list of middleware, as in [Audit()], not {middleware!r:.200}"
            )
        for each in middleware:
            self.add(each)

    @property
    def sends(self) -> bool:
        """Whether there is any hook around a send."""
        return bool(self._senders)

    def add(self, layer: object) -> None:
        """One more, inside of the others, or an instance of a class; `InvalidInputError` for what has none of the
        methods."""
        layer = layer() if inspect.isclass(layer) else layer
        hooks = Layer(_hook(layer, "before"), _hook(layer, "after"), _hook(layer, "error"))
        sender = _hook(layer, "before_enqueue")
        if not (any(hooks) or sender):
            raise InvalidInputError(
                f"{layer!r:.200} is no middleware: it has none of the methods before, after, error, before_enqueue"
            )
        if any(hooks):
            self.around.append(hooks)
        if sender is not None:
            if inspect.iscoroutinefunction(sender):
                raise InvalidInputError(f"before_enqueue of {layer!r:.200} must be plain, not a coroutine function")
            self._senders.append(sender)

    def sending(self, name: str, queue: str, meta: dict[str, object]) -> dict[str, object]:
        """`meta` with what the senders' hooks add; raises what they raise."""
        sending = Sending(name, queue, meta)
        for hook in self._senders:
            hook(sending)
        return sending.meta


def _hook(layer: object, name: str) -> Hook | None:
    found: object = getattr(layer, name, None)
    if found is None or getattr(found, "__func__", None) is getattr(Middleware, name):
        return None
    if not callable(found):
        raise InvalidInputError(f"{name} of {layer!r:.200} is no method: {found!r:.200}")
    return found
