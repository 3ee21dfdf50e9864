"""Saying who lives and what it holds (protocol §2, workers): what `echomq workers` and `echomq health` show."""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from echomq.identity.minter import wall_clock_ms
from echomq.identity.version import __version__
from echomq.protocol import workers
from echomq.protocol.call import Call
from echomq.protocol.jobs import LEASE_MS
from echomq.protocol.keys import check_queue
from echomq.runtime.hand import Held

PRESENCE_S: Final = 5.0
"""How often a worker says that it lives."""

_IDS: Final = 20
"""Ids of jobs in hand that it names."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a worker is, over all its queues; the consumers of a process share one."""

    queues: tuple[str, ...]
    host: str = field(default_factory=socket.gethostname)
    pid: int = field(default_factory=os.getpid)
    started_ms: int = field(default_factory=wall_clock_ms)
    nonce: str = field(default_factory=lambda: secrets.token_hex(2))

    @property
    def name(self) -> str:
        """Its name in the registry: no other worker has the same."""
        return f"{self.host}:{self.pid}:{self.nonce}"


def identity(queues: Iterable[str]) -> Identity:
    """A worker of this process that serves `queues`."""
    return Identity(tuple(check_queue(queue) for queue in queues))


class Presence:
    """One consumer's entry in the registry of its queue."""

    def __init__(
        self,
        queue: str,
        who: Identity,
        held: Collection[Held],
        concurrency: Callable[[], int],
        lease_ms: Callable[[], int] = lambda: LEASE_MS,
    ) -> None:
        self._queue = queue
        self._who = who
        self._held = held
        self._concurrency = concurrency
        self._lease_ms = lease_ms

    def said(self) -> Call[int]:
        """The call that says it lives."""
        who = self._who
        info = {
            "host": who.host,
            "pid": who.pid,
            "queues": who.queues,
            "in_hand": len(self._held),
            "ids": sorted(held.job.id for held in self._held)[:_IDS],
            "concurrency": self._concurrency(),
            "lease_ms": self._lease_ms(),
            "version": __version__,
            "started_ms": who.started_ms,
        }
        return workers.beat(self._queue, who.name, json.dumps(info))

    def farewell(self) -> Call[int]:
        """The call that takes it out of the registry."""
        return workers.farewell(self._queue, self._who.name)
