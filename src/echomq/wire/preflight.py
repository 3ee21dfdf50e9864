"""Warnings about a server that would lose or refuse work: once a process and server, with the line that mends it.

What a managed server does not answer (CONFIG, INFO) is left alone: no fact, no warning.
"""

from __future__ import annotations

import logging
from typing import Final, TypeAlias

from echomq.protocol.call import Arg, Reply
from echomq.protocol.errors import ServerError
from echomq.wire.url import Target

Outcome: TypeAlias = "Reply | ServerError"

_log: Final = logging.getLogger("echomq")

QUESTIONS: Final[tuple[tuple[Arg, ...], ...]] = (
    ("INFO", "memory"),
    ("INFO", "persistence"),
    ("CONFIG", "GET", "save"),
    # No script has this name: NOSCRIPT says that the user may run scripts on such a key, NOPERM that not.
    ("EVALSHA", "0" * 40, 1, "emq:{preflight}:none"),
)

_checked: set[tuple[str, str | None]] = set()


def is_due(target: Target) -> bool:
    """Whether this process has yet to check `target`, as this user."""
    return (target.address, target.user) not in _checked


def warn(target: Target, role: Reply, answers: list[Outcome]) -> list[str]:
    """Log what is wrong with `target` by its `answers` to `QUESTIONS`; gives what it logged."""
    _checked.add((target.address, target.user))
    memory, persistence, save, probe = answers
    found: list[str] = []
    if role is not None and role != b"master":
        found.append("it is a replica and will refuse writes: connect to its primary")
    policy = _info(memory).get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        found.append(
            f"at maxmemory it evicts keys ({policy}), so jobs can vanish: CONFIG SET maxmemory-policy noeviction"
        )
    never_saved = isinstance(save, dict) and not save.get(b"save", b"x")
    if _info(persistence).get("aof_enabled") == "0" and never_saved:
        found.append("it keeps nothing on disk, so a restart loses every job: CONFIG SET appendonly yes")
    if isinstance(probe, ServerError) and probe.reply.startswith("NOPERM"):
        found.append(f"{probe.reply}{rights_advice(target)}")
    for text in found:
        _log.warning("%s: %s", target.address, text)
    return found


def rights_advice(target: Target) -> str:
    """The line that gives this user every right that EchoMQ needs, to be put after the server's refusal."""
    return (
        f": ACL SETUSER {target.user or 'default'} ~emq:* ~{{emq}}:* &emq:* +@read +@write +@scripting +@pubsub"
        " +@blocking +@connection +time +info"
    )


def _info(answer: Outcome) -> dict[str, str]:
    """The fields of an INFO section; none if the server would not say."""
    if not isinstance(answer, bytes):
        return {}
    lines = answer.decode("utf-8", "replace").splitlines()
    return {name: value for name, mark, value in (line.partition(":") for line in lines) if mark}
