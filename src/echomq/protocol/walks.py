"""Plans that go through something large in steps: a drain until nothing is left, a walk of the server's keys."""

from __future__ import annotations

from echomq.protocol.call import Call, Plan, Reply
from echomq.protocol.keys import Keys
from echomq.protocol.replies import as_bytes, as_list

__all__ = ["drained", "scan"]

_STEP = 1_000


def drained(step: Call[int], budget: int) -> Plan[int]:
    """Repeats `step` until it takes less than its budget; gives how many in all."""

    def plan() -> Plan[int]:
        total: int = yield step
        count = total
        while count == budget:
            total += (count := (yield step))
        return total

    return plan()


def scan(k: Keys, pattern: str, cursor: bytes) -> Call[tuple[bytes, tuple[bytes, ...]]]:
    """One step of a walk of the server's keys: the next cursor (`b"0"`: the end) and keys after the queue's base that
    fit the glob `pattern`, whole."""

    def decode(reply: Reply) -> tuple[bytes, tuple[bytes, ...]]:
        following, items = as_list(reply)
        return as_bytes(following), tuple(as_bytes(item) for item in as_list(items))

    glob = "".join(f"\\{char}" if char in "*?[]\\^-" else char for char in k.base)
    args = (cursor, "MATCH", glob + pattern, "COUNT", _STEP)
    return Call("scan", (), args, decode, command="SCAN", home=k.base)
