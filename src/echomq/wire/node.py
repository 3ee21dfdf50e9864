"""The node in the minter's ids, leased from the server so that no two live processes share one (protocol §1).

One lease a process and server, whoever opened how many connectors. Its plans are run by either face, on any
connector that uses it, one command each 20 s at most.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Generator
from random import SystemRandom
from typing import Any, Final
from uuid import uuid4
from weakref import WeakSet

from echomq.identity.minter import minter
from echomq.protocol.call import Call, Plan, Reply
from echomq.protocol.errors import EchoMQError
from echomq.protocol.keys import NODE_PREFIX
from echomq.protocol.replies import as_flag, as_list
from echomq.protocol.scripts import script
from echomq.wire.resp import raw
from echomq.wire.url import Target

_log: Final = logging.getLogger("echomq")

LEASE_MS: Final = 60_000
_BEAT_S: Final = LEASE_MS / 3_000
_NODES: Final = 1024
_BLIND_TRIES: Final = 3

_RENEW: Final = script("node_renew")
_random: Final = SystemRandom()


def _take(node: int, value: str) -> Call[bool]:
    return Call(
        "lease",
        (f"{NODE_PREFIX}{node}",),
        (value, "NX", "PX", LEASE_MS),
        _taken,
        command="SET",
        subject=f"node {node}",
    )


def _taken(reply: Reply) -> bool:
    return reply is not None


def _hold(node: int, value: str, lease_ms: int) -> Call[bool]:
    return Call("renew", (f"{NODE_PREFIX}{node}",), (value, lease_ms), as_flag, script=_RENEW, subject=f"node {node}")


class NodeLease:
    """This process's node on one server. Its users share it; the last one gives it back."""

    def __init__(self, address: str, *, beat_s: float = _BEAT_S) -> None:
        self._address = address
        self._beat_s = beat_s
        self._value = f"{uuid4().hex}:{os.getpid()}"
        self._lock = threading.Lock()
        self._busy = False
        self._due = 0.0
        self._until = 0.0
        self._full = False
        self.node: int | None = None
        """The leased node; None while the minter's is a random one."""
        self.users: WeakSet[object] = WeakSet()

    def wait_s(self) -> float:
        """Seconds until `keep` has something to do."""
        return max(0.0, self._due - time.monotonic())

    def keep(self) -> Plan[None]:
        """Take, renew or replace the node if its time has come; never raises what the server or wire says."""
        with self._lock:
            if self._busy or time.monotonic() < self._due:
                return
            self._busy = True
        try:
            began = time.monotonic()
            if self.node is None or not (yield _hold(self.node, self._value, LEASE_MS)):
                yield from self._find(began)
            else:
                self._until = began + LEASE_MS / 1_000
        except EchoMQError as error:
            if self.node is not None and time.monotonic() >= self._until:
                # Somebody else may hold it by now.
                self.node = None
                minter.node = _random.randrange(_NODES)
            _log.debug("%s: node lease not kept: %s", self._address, error)
        finally:
            self._due = time.monotonic() + self._beat_s
            self._busy = False

    def _find(self, began: float) -> Generator[Call[Any], Any, None]:
        self.node = None
        for node in (minter.node, *_random.sample(range(_NODES), _BLIND_TRIES)):
            if (yield _take(node, self._value)):
                self._found(node, began)
                return
        keys = [f"{NODE_PREFIX}{node}" for node in range(_NODES)]
        holders = as_list((yield raw("MGET", *keys)))
        free = [node for node, holder in enumerate(holders) if holder is None]
        _random.shuffle(free)
        for node in free:
            if (yield _take(node, self._value)):
                self._found(node, began)
                return
        minter.node = _random.randrange(_NODES)
        if not self._full:
            self._full = True
            _log.warning(
                "%s: all %d nodes are leased, so this process mints with a random one; an id could repeat "
                "another's if both mint in the same millisecond",
                self._address,
                _NODES,
            )

    def _found(self, node: int, began: float) -> None:
        self.node = minter.node = node
        self._until = began + LEASE_MS / 1_000
        self._full = False

    def give_back(self) -> Plan[None]:
        """Free the node at once, if it is still ours."""
        node, self.node = self.node, None
        if node is not None:
            try:
                yield _hold(node, self._value, 0)
            except EchoMQError as error:
                _log.debug("%s: node lease not given back, it ends by itself: %s", self._address, error)


_leases: dict[tuple[str, int], NodeLease] = {}
_registry_lock = threading.Lock()


def join(target: Target, user: object) -> NodeLease:
    """The process's lease on `target`, with `user` among its users until it leaves or is gone."""
    with _registry_lock:
        key = (target.address, target.database)
        lease = _leases.get(key)
        if lease is None:
            lease = _leases[key] = NodeLease(target.address)
        lease.users.add(user)
        return lease


def leave(lease: NodeLease, user: object) -> bool:
    """One user less; true for the last one, who has to run `give_back`."""
    with _registry_lock:
        lease.users.discard(user)
        if lease.users:
            return False
        for key in [key for key, value in _leases.items() if value is lease]:
            del _leases[key]
        return True


def _after_fork_in_child() -> None:
    # The parent keeps its leases; a child's connectors take their own when they reopen.
    global _registry_lock
    _registry_lock = threading.Lock()
    _leases.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
