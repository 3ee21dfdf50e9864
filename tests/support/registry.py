"""The key registry of protocol §2 as patterns: every key a test leaves must be one of these."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from support.raw import RawClient

QUEUE_KEY = re.compile(r"emq:\{([^{}\s\0]+)\}:(.+)", re.DOTALL)

_JOB = r"job:JOB[0-9A-Za-z]{11}"
_LANE = r"g:[A-Z]{3}[0-9A-Za-z]{11}:pending"

# Of a queue, after its base: pattern, type, whether it must have a TTL.
_OF_QUEUE: list[tuple[str, str, bool]] = [
    (_JOB, "hash", False),
    (_JOB + ":logs", "list", False),
    (_JOB + ":lock", "string", True),
    (_JOB + ":dependencies", "string", False),
    (_JOB + ":(processed|failed|unsuccessful)", "hash", False),
    (_JOB + ":result", "string", True),
    ("(pending|active|schedule|dead)", "zset", False),
    (_LANE, "zset", False),
    ("ring", "list", False),
    ("paused", "set", False),
    ("(glimit|gactive|gweight)", "hash", False),
    ("wake", "list", False),
    ("meta", "hash", False),
    ("limiter", "string", True),
    ("metrics:(completed|failed)", "hash", False),
    ("metrics:(completed|failed):data", "list", False),
    ("de:.+", "string", False),
    ("(repeat|cron)", "zset", False),
    ("(repeat|cron):.+", "hash", False),
    ("flow:(outbox|rejected)", "list", False),
    ("owed", "list", False),
    ("stream:.+", "stream", False),
    ("lanes", "hash", False),
    ("turn", "string", False),
    ("workers", "zset", False),
    ("workers:.+", "hash", False),
]

# Of the deployment: the whole key.
_OF_DEPLOYMENT: list[tuple[str, str, bool]] = [
    (r"\{emq\}:version", "string", False),
    (r"\{emq\}:node:(\d|[1-9]\d|[1-9]\d\d|10[01]\d|102[0-3])", "string", True),
]


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str]
    type: str
    expires: bool


_QUEUE_RULES = [_Rule(re.compile(p, re.DOTALL), t, e) for p, t, e in _OF_QUEUE]
_DEPLOYMENT_RULES = [_Rule(re.compile(p), t, e) for p, t, e in _OF_DEPLOYMENT]


def _rule_for(key: str) -> _Rule | None:
    rules, name = _DEPLOYMENT_RULES, key
    if match := QUEUE_KEY.fullmatch(key):
        rules, name = _QUEUE_RULES, match[2]
    return next((rule for rule in rules if rule.pattern.fullmatch(name)), None)


def all_keys(client: RawClient) -> Iterator[str]:
    """Every key of the selected database."""
    cursor = b"0"
    while True:
        cursor, keys = client.execute("SCAN", cursor, "COUNT", 1000)
        for key in keys:
            yield key.decode(errors="backslashreplace")
        if cursor == b"0":
            return


def databases(client: RawClient) -> list[int]:
    """The numbers of the databases that hold keys."""
    lines = client.execute("INFO", "keyspace").decode().splitlines()
    return [int(line[2 : line.index(":")]) for line in lines if line.startswith("db")]


def strays(client: RawClient) -> list[str]:
    """What lies on the server that the registry does not know, or knows as something else."""
    keys = sorted(set(all_keys(client)))
    types = client.execute_all(("TYPE", key) for key in keys)
    expiries = client.execute_all(("PTTL", key) for key in keys)
    out: list[str] = []
    for key, kind, pttl in zip(keys, (t.decode() for t in types), expiries, strict=True):
        if kind == "none":
            continue  # it expired since
        rule = _rule_for(key)
        if rule is None:
            out.append(f"{key} ({kind}) is not in the registry of protocol §2")
        elif kind != rule.type:
            out.append(f"{key} is a {kind}, protocol §2 says {rule.type}")
        elif rule.expires and pttl == -1:
            out.append(f"{key} has no TTL, protocol §2 says it must have one")
    return out
