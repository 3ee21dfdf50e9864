"""Copies of a worker's process: what a fork inside a job leaves, when its child comes back to the worker's own code.

A child that a job forks does something of its own and ends, as those of `multiprocessing` and `subprocess` do. One that
returns from the job's function, raises out of it, or goes on with the event loop would be the worker a second time, at
the same sockets, signals and epoll: it ends as soon as it is back.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from contextlib import suppress
from typing import Final, NoReturn
from weakref import WeakKeyDictionary

forks: int = 0
"""How many forks lie between this process and the one that has imported this module.

Whoever runs jobs notes it when he is made, and has been copied when it is another one.
"""

_loops: Final[WeakKeyDictionary[object, tuple[asyncio.AbstractEventLoop, int]]] = WeakKeyDictionary()
"""Who runs jobs, on which loop, in which thread."""


def watch(who: object) -> None:
    """From now on a copy of this process does not go on with the running loop, for as long as `who` lives."""
    _loops[who] = asyncio.get_running_loop(), threading.get_ident()


def forget(who: object) -> None:
    """No longer."""
    _loops.pop(who, None)


def check(noted: int) -> None:
    """Ends the process when it has been forked since `forks` was `noted`."""
    if forks != noted:
        end()


def end() -> NoReturn:
    """Ends a copy here and now, with exit code 1 and one line on stderr. Nothing is flushed: it is the worker's."""
    words = f"echomq: process {os.getpid()}, which a job has forked, came back from the job: it ends"
    with suppress(OSError):
        os.write(2, f"{words}\n".encode())
    os._exit(1)


def _after_fork_in_child() -> None:
    global forks
    forks += 1
    for loop, thread in tuple(_loops.values()):
        if thread != threading.get_ident() or loop.is_closed():
            continue  # that loop does not go on here
        loop.call_soon(end)
        ready: object = getattr(loop, "_ready", None)
        if isinstance(ready, deque):
            ready.rotate(1)  # before what else is ready now: steps of other jobs, and what reads the signals
    _loops.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
