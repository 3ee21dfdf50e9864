"""Counted events that a test, or an owner, can await: `parked`, `beats`, `degraded`."""

from __future__ import annotations

import asyncio


class Signal:
    """How often something happened, and a way to wait until it has happened often enough."""

    __slots__ = ("_waiting", "count")

    def __init__(self) -> None:
        self.count = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    def fire(self) -> None:
        """It happened once more. To be called on the loop of those who wait."""
        self.count += 1
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for count, future in waiting:
                if future.done():
                    continue
                if self.count >= count:
                    future.set_result(None)
                else:
                    self._waiting.append((count, future))

    async def reach(self, count: int) -> None:
        """Return once it has happened `count` times since the beginning."""
        if self.count < count:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((count, future))
            await future

    async def next(self, times: int = 1) -> None:
        """Return once it has happened `times` more times."""
        await self.reach(self.count + times)
