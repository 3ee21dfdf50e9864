"""Plans that go through something large in steps: a drain until nothing is left, a walk of the server's keys."""

from __future__ import annotations

from typing import TypeAlias

from echomq.protocol.call import Call, Plan, Reply
from echomq.protocol.keys import Keys
from echomq.protocol.replies import as_blobs, as_bytes, as_list

__all__ = ["Page", "drained", "escaped", "page", "scan"]

_STEP = 1_000

Page: TypeAlias = tuple[bytes, tuple[bytes, ...]]
"""The next cursor (`b"0"`: the end), and the keys found."""


def drained(step: Call[int], budget: int) -> Plan[int]:
    """Repeats `step` until it takes less than its budget; gives how many in all."""

    def plan() -> Plan[int]:
        total: int = yield step
        count = total
        while count == budget:
            total += (count := (yield step))
        return total

    return plan()


def escaped(text: str) -> str:
    """The glob that fits this text alone."""
    return "".join(f"\\{char}" if char in "*?[]\\^-" else char for char in text)


def page(verb: str, cursor: bytes, pattern: str, *, kind: str = "", home: str = "emq") -> Call[Page]:
    """One step of a walk of the server's keys: of a thousand, those that fit the glob `pattern`, of the type `kind` if
    one is named. `home` is the key whose node is asked in a cluster."""
    args = (cursor, "MATCH", pattern, "COUNT", _STEP, *(("TYPE", kind) if kind else ()))
    return Call(verb, (), args, _page, command="SCAN", home=home)


def _page(reply: Reply) -> Page:
    following, found = as_list(reply)
    return as_bytes(following), as_blobs(found)


def scan(k: Keys, pattern: str, cursor: bytes) -> Call[Page]:
    """One step of a walk of the keys after the queue's base that fit the glob `pattern`, whole."""
    return page("scan", cursor, escaped(k.base) + pattern, home=k.base)
