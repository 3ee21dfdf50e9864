"""Every key of the protocol, by name (protocol §2), and the names that are refused."""

from __future__ import annotations

from functools import lru_cache

from echomq.protocol.errors import QueueNameError

VERSION = "{emq}:version"
NODE_PREFIX = "{emq}:node:"


def check_queue(name: str) -> str:
    """`name` itself, or `QueueNameError`: printable, not empty, without braces, NUL or whitespace."""
    if not isinstance(name, str):
        raise QueueNameError(f"queue name must be str, not {type(name).__name__}: {name!r}")
    if not name:
        raise QueueNameError("queue name is empty: use one or more printable characters")
    for char in name:
        if char in "{}" or char.isspace() or not char.isprintable():
            raise QueueNameError(
                f"queue name {name!r} holds {char!r}: printable characters only, without braces, NUL or whitespace"
            )
    return name


class Keys:
    """The keys of one queue. All of them share the queue's cluster slot."""

    __slots__ = (
        "active",
        "base",
        "cron",
        "dead",
        "events",
        "gactive",
        "glimit",
        "gweight",
        "job_prefix",
        "lanes",
        "limiter",
        "meta",
        "metrics_completed",
        "metrics_failed",
        "outbox",
        "owed",
        "paused",
        "pending",
        "queue",
        "rejected",
        "repeat",
        "results",
        "ring",
        "schedule",
        "wake",
        "workers",
        "workers_info",
    )

    def __init__(self, queue: str) -> None:
        self.queue = check_queue(queue)
        base = self.base = f"emq:{{{queue}}}:"
        self.job_prefix = base + "job:"
        self.pending = base + "pending"
        self.active = base + "active"
        self.schedule = base + "schedule"
        self.dead = base + "dead"
        self.ring = base + "ring"
        self.paused = base + "paused"
        self.glimit = base + "glimit"
        self.gactive = base + "gactive"
        self.gweight = base + "gweight"
        self.lanes = base + "lanes"
        self.wake = base + "wake"
        self.meta = base + "meta"
        self.metrics_completed = base + "metrics:completed"
        self.metrics_failed = base + "metrics:failed"
        self.repeat = base + "repeat"
        self.cron = base + "cron"
        self.events = base + "events"
        self.results = base + "results"
        self.limiter = base + "limiter"
        self.outbox = base + "flow:outbox"
        self.owed = base + "owed"
        self.rejected = base + "flow:rejected"
        self.workers = base + "workers"
        self.workers_info = base + "workers:info"

    def job(self, job_id: str) -> str:
        """The row of a job."""
        return self.job_prefix + job_id

    def lane(self, group: str) -> str:
        """The claimable jobs of one lane."""
        return f"{self.base}g:{group}:pending"

    def repeat_record(self, name: str) -> str:
        """The record of one recurrence."""
        return f"{self.repeat}:{name}"


_keys = lru_cache(maxsize=1024)(Keys)


def keys(queue: str) -> Keys:
    """The keys of `queue`, checked once."""
    # The cache would meet what cannot be hashed before the check does.
    return _keys(queue) if isinstance(queue, str) else Keys(queue)
