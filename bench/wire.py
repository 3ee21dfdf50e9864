"""Script calls a second through our connectors, beside a raw hiredis socket that does nothing else.

python bench/wire.py
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import hiredis
from _server import Server, new_loop

from echomq.protocol.call import Call
from echomq.protocol.replies import as_int
from echomq.protocol.scripts import Script
from echomq.wire import aconnect, connect

SEQUENTIAL = 10_000
CALLERS, EACH = 100, 300
ROUNDS = 5


class Increment(Script):
    """A small transition: one key read and written."""

    source = "return redis.call('INCRBY', KEYS[1], ARGV[1])"


CALL = Call("incr", ("emq:{bench}:limiter",), (1,), as_int, script=Increment("increment"))


class Raw(asyncio.Protocol):
    """The least that can be awaited on a socket: no errors, no reconnect, no typed replies."""

    def __init__(self) -> None:
        self.reader = hiredis.Reader()
        self.pending: deque[asyncio.Future[Any]] = deque()
        self.out: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def data_received(self, data: bytes) -> None:
        self.reader.feed(data)
        while (reply := self.reader.gets()) is not False:
            self.pending.popleft().set_result(reply)

    def flush(self) -> None:
        self.transport.write(b"".join(self.out))
        self.out.clear()

    async def call(self, words: Any) -> Any:
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        if not self.out:
            loop.call_soon(self.flush)
        self.out.append(hiredis.pack_command(words))
        self.pending.append(future)
        return await future


async def sequential(once: Callable[[], Awaitable[Any]]) -> float:
    start = time.perf_counter()
    for _ in range(SEQUENTIAL):
        await once()
    return SEQUENTIAL / (time.perf_counter() - start)


async def concurrent(once: Callable[[], Awaitable[Any]]) -> float:
    async def caller() -> None:
        for _ in range(EACH):
            await once()

    start = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(CALLERS)))
    return CALLERS * EACH / (time.perf_counter() - start)


async def awaited(path: str, url: str) -> None:
    _, raw = await asyncio.get_running_loop().create_unix_connection(Raw, path)
    words = CALL.words()
    best: dict[str, float] = {}
    async with aconnect(url) as conn:
        await conn.run(CALL)
        for _ in range(ROUNDS):
            # Turn about, so that both meet the same machine.
            for name, once in (("raw", lambda: raw.call(words)), ("ours", lambda: conn.run(CALL))):
                for kind, measure in (("sequential", sequential), ("concurrent", concurrent)):
                    best[f"{name} {kind}"] = max(best.get(f"{name} {kind}", 0), await measure(once))
    raw.transport.close()
    for kind, words in (("sequential", "one caller"), ("concurrent", f"{CALLERS} callers")):
        mine, theirs = best[f"ours {kind}"], best[f"raw {kind}"]
        print(f"awaited, {words:<12} {mine:>10,.0f}/s   raw {theirs:>10,.0f}/s   ratio {mine / theirs:.2f}")


def blocking(url: str) -> None:
    with connect(url) as conn:
        conn.run(CALL)
        start = time.perf_counter()
        for _ in range(SEQUENTIAL):
            conn.run(CALL)
        print(f"blocking, one caller  {SEQUENTIAL / (time.perf_counter() - start):>10,.0f}/s")
        start = time.perf_counter()
        conn.run_many([CALL] * (CALLERS * EACH))
        print(f"blocking, run_many    {CALLERS * EACH / (time.perf_counter() - start):>10,.0f}/s")


def main() -> None:
    logging.getLogger("echomq").setLevel(logging.ERROR)
    with Server() as server:
        loop = new_loop()
        try:
            loop.run_until_complete(awaited(server.path, server.url))
        finally:
            loop.close()
        blocking(server.url)


if __name__ == "__main__":
    main()
