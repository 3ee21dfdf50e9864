"""Plain commands with plain answers: how a scenario looks at a queue, whatever client wrote it."""

from __future__ import annotations

from typing import Any

from echomq.conformance.bench import Bench
from echomq.conformance.rights import allowed
from echomq.protocol.call import Arg, Reply
from echomq.protocol.keys import keys

OF_QUEUE = (
    *("pending", "active", "schedule", "dead", "ring", "paused", "glimit", "gactive", "gweight", "lanes", "wake"),
    *("meta", "limiter", "turn", "metrics:completed", "metrics:failed", "metrics:completed:data"),
    *("metrics:failed:data", "repeat", "cron", "flow:outbox", "flow:rejected", "owed", "workers", "workers:info"),
)
"""Every key of a queue whose name is fixed (protocol §2)."""

OF_ROW = ("", ":logs", ":lock", ":dependencies", ":processed", ":failed", ":unsuccessful", ":result")
"""A row and its subkeys (protocol §2)."""


def text_of(value: Reply) -> str:
    """A reply as text, whatever bytes it holds."""
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


class Look:
    """One queue of a server, read with plain commands. What was once named by `key`, `row` or `lane` is known to it."""

    def __init__(self, bench: Bench, queue: str) -> None:
        self.bench = bench
        self.queue = queue
        self.keys = keys(queue)
        self.ids: dict[str, None] = {}
        self.groups: dict[str, None] = {}
        self._named: dict[str, None] = {}

    def raw(self, *words: Arg) -> Any:
        """The reply to a plain command."""
        with allowed():
            return self.bench.conn.execute(*words)

    def key(self, name: str) -> str:
        """A key of the queue by what follows its base, such as `de:k`."""
        full = self.keys.base + name
        self._named[full] = None
        return full

    def row_key(self, job_id: str, subkey: str = "") -> str:
        """A job's row, or a subkey of it such as `:logs`."""
        self.ids[job_id] = None
        return self.keys.job(job_id) + subkey

    def row(self, job_id: str) -> dict[str, bytes]:
        """The fields of a job's row; empty when it has none."""
        return self.hash(self.row_key(job_id))

    def field(self, job_id: str, name: str) -> bytes | None:
        """One field of a job's row."""
        value: bytes | None = self.raw("HGET", self.row_key(job_id), name)
        return value

    def hash(self, key: str) -> dict[str, bytes]:
        """A hash."""
        return {text_of(name): value for name, value in self.raw("HGETALL", key).items()}

    def zset(self, key: str) -> dict[str, int]:
        """A sorted set: members and scores, lowest first."""
        return {text_of(member): int(score) for member, score in self.raw("ZRANGE", key, 0, -1, "WITHSCORES")}

    def members(self, key: str) -> list[str]:
        """The members of a sorted set, lowest first."""
        return [text_of(member) for member in self.raw("ZRANGE", key, 0, -1)]

    def items(self, key: str) -> list[str]:
        """A list, from its head."""
        return [text_of(item) for item in self.raw("LRANGE", key, 0, -1)]

    def ring(self) -> list[str]:
        """The lanes on the ring, the next to be served first."""
        return self.items(self.keys.ring)

    def score(self, place: str, member: str) -> int | None:
        """The score of a member of pending, active, schedule, dead or repeat; None when it is not there."""
        score = self.raw("ZSCORE", self.keys.base + place, member)
        return None if score is None else int(float(score))

    def count(self, metric: str) -> int:
        """A terminal counter: completed or failed."""
        return int(self.raw("HGET", f"{self.keys.base}metrics:{metric}", "count") or 0)

    def tokens(self) -> int:
        """How many wake tokens lie there."""
        return int(self.raw("LLEN", self.keys.wake))

    def now_ms(self) -> int:
        """The server's clock."""
        seconds, micros = self.raw("TIME")
        return int(seconds) * 1_000 + int(micros) // 1_000

    def places(self, job_id: str) -> list[str]:
        """The sets that hold a job: pending, active, schedule, dead, and its lanes as `lane`."""
        sets = {name: self.keys.base + name for name in ("pending", "active", "schedule", "dead")}
        names = [*sets, *("lane" for _ in self.groups)]
        where = [*sets.values(), *(self.keys.lane(group) for group in self.groups)]
        scores = self.bench.execute_all([("ZSCORE", key, job_id) for key in where])
        return [name for name, score in zip(names, scores, strict=True) if score is not None]

    def every_key(self) -> list[str]:
        """Every key of the queue that can exist by the registry, there or not."""
        return [
            *(self.keys.base + name for name in OF_QUEUE),
            *(self.keys.lane(group) for group in self.groups),
            *(self.keys.job(job_id) + subkey for job_id in self.ids for subkey in OF_ROW),
            *self._named,
        ]

    def present(self) -> list[str]:
        """The keys of the queue that exist, by what follows its base."""
        names = list(dict.fromkeys(self.every_key()))
        there = self.bench.execute_all([("EXISTS", name) for name in names])
        return [name.removeprefix(self.keys.base) for name, found in zip(names, there, strict=True) if found]

    def dump(self) -> dict[str, bytes]:
        """Every key of the queue that exists, with its content as the server writes it out."""
        names = list(dict.fromkeys(self.every_key()))
        dumps = self.bench.execute_all([("DUMP", name) for name in names])
        return {
            name.removeprefix(self.keys.base): content
            for name, content in zip(names, dumps, strict=True)
            if isinstance(content, bytes)
        }
