"""A lane of a queue, steered from the app: a share of the workers for a tenant, by the tenant's own name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from echomq.protocol import lanes
from echomq.protocol.keys import check_queue

if TYPE_CHECKING:
    from echomq.app.echomq import EchoMQ


class Lane:
    """The lane that `name` names in `queue`. It needs no creation: a job sent with `options(lane=name)` is in it.

    What is set here is kept by the server and holds for every client. `id` is what the verbs of `echomq.lanes` and
    `current_job().lane` call it.
    """

    def __init__(self, mq: EchoMQ, name: str, queue: str) -> None:
        self._mq = mq
        self.id = lanes.lane_id(name)
        self.name = name
        self._queue = check_queue(queue)

    @property
    def queue(self) -> str:
        """The queue that it is a lane of."""
        return self._mq.placed(self._queue)

    def __repr__(self) -> str:
        return f"<lane {self.name} of {self.queue}>"

    def pause(self) -> None:
        """Starts no more of its jobs until `resume`; they wait where they are, and those that run go on."""
        self._mq.warn_on_a_loop("pause")
        self._mq.run(lanes.pause(self._mq.asked(self.queue), self.id))

    async def apause(self) -> None:
        """`pause`, awaited."""
        await self._mq.arun(lanes.pause(self._mq.asked(self.queue), self.id))

    def resume(self) -> None:
        """Serves it again, with all that waits in it."""
        self._mq.warn_on_a_loop("resume")
        self._mq.run(lanes.resume(self._mq.asked(self.queue), self.id))

    async def aresume(self) -> None:
        """`resume`, awaited."""
        await self._mq.arun(lanes.resume(self._mq.asked(self.queue), self.id))

    def limit(self, n: int | None) -> None:
        """At most `n` of its jobs run at once, over all workers; None lifts the limit."""
        call = lanes.limit(self._mq.asked(self.queue), self.id, n)
        self._mq.warn_on_a_loop("limit")
        self._mq.run(call)

    async def alimit(self, n: int | None) -> None:
        """`limit`, awaited."""
        await self._mq.arun(lanes.limit(self._mq.asked(self.queue), self.id, n))

    def weight(self, w: int) -> None:
        """Its share of a weighted turn, in jobs, 1 or more; see `echomq.lanes.claim_weighted`."""
        call = lanes.weight(self._mq.asked(self.queue), self.id, w)
        self._mq.warn_on_a_loop("weight")
        self._mq.run(call)

    async def aweight(self, w: int) -> None:
        """`weight`, awaited."""
        await self._mq.arun(lanes.weight(self._mq.asked(self.queue), self.id, w))

    def depth(self) -> int:
        """How many of its jobs wait for their turn."""
        self._mq.warn_on_a_loop("depth")
        return self._mq.run(lanes.depth(self._mq.asked(self.queue), self.id))

    async def adepth(self) -> int:
        """`depth`, awaited."""
        return await self._mq.arun(lanes.depth(self._mq.asked(self.queue), self.id))
