"""Tells connectors, in a forked child, that their sockets and threads belong to the parent."""

from __future__ import annotations

import os
from typing import Final, Protocol
from weakref import WeakSet


class Forked(Protocol):
    """What has to be told."""

    def after_fork(self) -> None:
        """Called in the child, which has one thread then, before any other code of the child."""
        ...


_watching: WeakSet[Forked] = WeakSet()


def watch(what: Forked) -> None:
    """Tell `what` of every fork, for as long as it lives."""
    _watching.add(what)


def let_go(fd: int) -> None:
    """Give up the child's copy of a socket that objects of the parent's event loop still hold.

    Closing it through them would reach into the parent's epoll, and closing its number would let them close
    somebody else's file later; so the number is pointed at nothing instead.
    """
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(nothing, fd, inheritable=False)
    os.close(nothing)


graveyard: Final[list[object]] = []
"""Keeps a parent's event loop objects from being finalized in the child."""


def _after_fork_in_child() -> None:
    for each in tuple(_watching):
        each.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
