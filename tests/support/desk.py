"""What a test of the runtime works at: one queue on a real server, its jobs, and the consumers of the test."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Self

from echomq.identity.minter import mint
from echomq.protocol.replies import Claimed
from echomq.runtime import Consumer, Dial
from support.servers import Server

_TRANSITIONS = frozenset({"evalsha", "evalsha_ro"})


async def until(condition: Callable[[], object], what: str = "condition", seconds: float = 40.0) -> None:
    """Let the loop run until `condition()` is true, or what its coroutine gives; `TimeoutError` after `seconds`."""
    end = time.monotonic() + seconds
    while not (await met if inspect.iscoroutine(met := condition()) else met):
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {seconds:g} s")
        await asyncio.sleep(0.002)


class Desk:
    """One queue, seen through a raw client that shares nothing with the code under test."""

    def __init__(self, server: Server, queue: str) -> None:
        self.server = server
        self.queue = queue
        self.dial = Dial(server.url)
        self.raw = server.client()
        self.seen: list[Claimed] = []
        """What the handler `note` was given."""

    def reconnect(self) -> None:
        """A fresh raw client, after the server was gone."""
        self.raw.close()
        self.raw = self.server.client()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.raw.close()

    def key(self, name: str) -> str:
        """A key of the queue."""
        return f"emq:{{{self.queue}}}:{name}"

    def enqueue(self, payload: str = "x", count: int = 1, *, token: bool = True) -> list[str]:
        """Admits flat jobs with plain commands; without `token` as another client's admission does."""
        ids = [mint() for _ in range(count)]
        for job_id in ids:
            self.raw.execute(
                *("HSET", self.key(f"job:{job_id}"), "state", "pending", "attempts", "0", "payload", payload)
            )
            self.raw.execute("ZADD", self.key("pending"), "0", job_id)
            if token:
                self.raw.execute("LPUSH", self.key("wake"), "1")
                self.raw.execute("LTRIM", self.key("wake"), "0", "63")
        return ids

    def schedule(self, at_ms: int, payload: str = "x", *, token: bool = True) -> str:
        """Schedules a job at an instant of the server's clock."""
        job_id = mint()
        self.raw.execute(
            *("HSET", self.key(f"job:{job_id}"), "state", "scheduled", "attempts", "0", "payload", payload)
        )
        self.raw.execute("ZADD", self.key("schedule"), at_ms, job_id)
        if token:
            self.raw.execute("LPUSH", self.key("wake"), "1")
        return job_id

    def recur(self, name: str, every_ms: int, first_ms: int, template: str = "r") -> None:
        """Registers a recurrence and wakes, as a registration does."""
        self.raw.execute(*("HSET", self.key(f"repeat:{name}"), "every_ms", str(every_ms), "template", template))
        self.raw.execute("ZADD", self.key("repeat"), first_ms, name)
        self.raw.execute("LPUSH", self.key("wake"), "1")

    def row(self, job_id: str) -> dict[str, str]:
        """The fields of a row."""
        flat = self.raw.execute("HGETALL", self.key(f"job:{job_id}"))
        texts = [each.decode() for each in flat]
        return dict(zip(texts[::2], texts[1::2], strict=True))

    def size(self, name: str) -> int:
        """The members of a sorted set, or the length of the wake list."""
        count: int = self.raw.execute("LLEN" if name == "wake" else "ZCARD", self.key(name))
        return count

    def completed(self) -> int:
        """The terminal counter."""
        return int(self.raw.execute("HGET", self.key("metrics:completed"), "count") or 0)

    def calls(self) -> dict[str, int]:
        """How often clients, and their scripts, have run each command."""
        return self.raw.calls()

    def transitions(self) -> int:
        """How many transitions have run, as scripts (wire 4) and as native commands (wire 6)."""
        return sum(n for name, n in self.calls().items() if name in _TRANSITIONS or name.startswith("echomq."))

    def kill_clients(self, named: str) -> int:
        """Cuts the connections whose name ends so; gives how many."""
        cut = 0
        for line in self.raw.execute("CLIENT", "LIST").decode().splitlines():
            fields = dict(each.split("=", 1) for each in line.split() if "=" in each)
            if fields.get("name", "").endswith(named):
                cut += self.raw.execute("CLIENT", "KILL", "ID", fields["id"])
        return cut

    async def note(self, job: Claimed) -> None:
        """A handler that remembers what it was given."""
        self.seen.append(job)

    @asynccontextmanager
    async def consuming(self, handler: Any = None, *, grace_ms: int = 0, **options: Any) -> AsyncIterator[Consumer]:
        """A running consumer, stopped at the end."""
        consumer = Consumer(self.dial, self.queue, handler or self.note, **options)
        await consumer.start()
        try:
            yield consumer
        finally:
            await consumer.stop(grace_ms)
