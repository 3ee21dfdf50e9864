"""Where an app is defined, so that a process that is started for it finds the same one.

Such a process is a fresh interpreter: it imports the app, it does not inherit it. Nothing that lives in one process,
such as a lock, a connection or a thread, can reach the other by accident.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from types import ModuleType
from typing import TYPE_CHECKING

from echomq.app.naming import script_module
from echomq.app.target import load

if TYPE_CHECKING:
    from echomq.app.echomq import EchoMQ
    from echomq.wire import Wire


@dataclass(frozen=True, slots=True)
class Address:
    """An app's place, for `load` in another process. It travels there pickled, so it is made of plain values."""

    target: str
    """`MODULE:OBJECT`, as on the command line."""
    modules: tuple[str, ...] = ()
    """Further modules that define jobs of it."""
    server: tuple[str | None, Wire | None] | None = None
    """The URL and the wire that the app was told to use instead of its own."""
    prepare: Callable[[], object] | None = None
    """Called once the app is imported, to set up logging for example. A function of a module, or a `partial` of one."""
    aside: str = ""
    """What a test puts before the names of its queues."""

    def load(self) -> EchoMQ:
        """The app, ready to be used. `InvalidInputError` with one sentence when it is not to be found there."""
        mq = load(self.target)
        for module in self.modules:
            # One that cannot be imported here has defined no job that is needed here, or the job will be missed.
            with suppress(ImportError):
                importlib.import_module(module)
        if self.prepare is not None:
            self.prepare()
        if self.server is not None:
            url, wire = self.server
            mq.use_server(url, wire=wire)
        if self.aside:
            mq.exchange(replace(mq.ground, aside=self.aside))
        return mq


def address_of(mq: EchoMQ) -> Address | None:
    """Where `mq` is to be found by another process; None when it is no global of a module that can be imported."""
    homes = [module for job in mq.jobs.values() if (module := sys.modules.get(job.function.__module__)) is not None]
    for module in dict.fromkeys([*homes, *sys.modules.values()]):
        name = _importable(module)
        if name is None:
            continue
        for path in _names(module, mq):
            others = (other for home in homes if (other := _importable(home)) is not None)
            modules = tuple(other for other in dict.fromkeys(others) if other != name)
            return Address(f"{name}:{path}", modules, mq.moved, aside=mq.ground.aside)
    return None


def _names(module: ModuleType, mq: EchoMQ) -> Iterator[str]:
    # A module may put anything in the place of its dictionary, and change it while it is looked at.
    with suppress(Exception):
        yield from [name for name, value in vars(module).items() if value is mq and name.isidentifier()]


def _importable(module: ModuleType) -> str | None:
    """What to import for a module; None for one that was made by hand."""
    name = getattr(module, "__name__", None)
    if not isinstance(name, str):
        return None
    if name in ("__main__", "__mp_main__"):
        name = script_module(module)
    elif getattr(module, "__spec__", None) is None:
        return None
    return name if name is not None and all(part.isidentifier() for part in name.split(".")) else None
