"""The suite that holds any server, and either wire, to the contract (protocol.md): `echomq conformance`.

It drives protocol and wire, and for what the loops promise the runtime. Every scenario works on a queue of its own,
looks at the server with plain commands and takes away what it wrote, so that it may run against a server in use. The
one thing that others can notice is that `stale` flushes the script cache: their next call loads its script again.
"""

from __future__ import annotations

from echomq.conformance.scenario import Scenario, choose, every
from echomq.conformance.suite import Result, Status, run

__all__ = ["Result", "Scenario", "Status", "choose", "every", "run"]
