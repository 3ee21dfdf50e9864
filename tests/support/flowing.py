"""What the tests of flows build and look at: nodes, ends of children, the books of a parent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from echomq.protocol import admin, flows, jobs, metrics
from echomq.protocol.flows import Node, OnDeath
from echomq.protocol.replies import Admission, Claimed, Completion, State
from support.runner import Scene

SUBKEYS = ("dependencies", "processed", "failed", "unsuccessful")


def node(scene: Scene, *children: Node, dies: OnDeath = OnDeath.FAIL_PARENT, payload: str = "p") -> Node:
    return Node(scene.queue, scene.mint(), payload, children, dies)


def deep(scene: Scene, levels: int) -> list[Node]:
    """A flow of one node a level, the deepest first."""
    chain = [node(scene)]
    while len(chain) < levels:
        chain.append(node(scene, chain[-1]))
    return chain


def add(scene: Scene, root: Node) -> list[Admission]:
    """The answers in the order of the walk, parents first."""
    return list(scene.finish(flows.add(root)).values())


def add_in_part(scene: Scene, root: Node, adds: int) -> None:
    """Adds a flow whose caller dies after so many calls that write."""
    plan = flows.add(root)
    call = next(plan)
    while adds:
        adds -= call.verb == "flow add"
        answer = scene.run(call)
        if adds:
            call = plan.send(answer)
    plan.close()


def claimed(scene: Scene) -> dict[str, Claimed]:
    return {job.id: job for job in scene.run(jobs.claim_many(scene.queue, 10_000)).jobs}


def begun(scene: Scene, *children: Node, at: Scene | None = None) -> Node:
    """A root over these children that is added, with what can be claimed of its queue, or of another one, in hand."""
    root = node(scene, *children)
    add(scene, root)
    claimed(scene if at is None else at)
    return root


def state(scene: Scene, each: Node) -> State:
    return scene.run(metrics.state(each.queue, each.id))


def waits_for(scene: Scene, each: Node) -> int:
    return scene.run(flows.outstanding(each.queue, each.id))


def complete(scene: Scene, each: Node, token: int = 1, result: bytes = b"") -> None:
    done = jobs.Finished(each.id, token, result)
    assert scene.run(jobs.complete_many(scene.queue, [done])) == (Completion.RETIRED,)


def finish(scene: Scene, each: Node, result: bytes = b"", token: int = 1) -> None:
    """Completed, with a signal when its parent lies elsewhere."""
    done = jobs.Finished(each.id, token, result)
    (answer,) = scene.run(jobs.complete_many(scene.queue, [done]))
    assert answer in (Completion.SIGNALLED, Completion.RETIRED)


def die(scene: Scene, each: Node, error: str = "boom", token: int = 1) -> None:
    scene.run(jobs.retry(scene.queue, each.id, token, delay_ms=0, max_attempts=token, error=error))


def subkeys(scene: Scene, each: Node) -> dict[str, int]:
    """The parent's subkeys that exist, with their TTL in ms, -1 for none."""
    ttls = {name: scene.execute("PTTL", f"{scene.keys.job(each.id)}:{name}") for name in SUBKEYS}
    return {name: ttl for name, ttl in ttls.items() if ttl != -2}


def outbox(scene: Scene) -> list[bytes]:
    entries: list[bytes] = scene.execute("LRANGE", scene.keys.outbox, 0, -1)
    return entries


def deliver(scene: Scene) -> int:
    """Everything in a queue's outbox, as one pump would; gives how many."""
    count = 0
    while entries := scene.run(flows.outbox(scene.queue)):
        for entry in entries:
            scene.run(flows.deliver(entry))
            assert scene.run(flows.settle(scene.queue, entry)) == 1
            count += 1
    return count


def everything(scene: Scene) -> dict[bytes, Any]:
    """All keys of the server but the hints."""
    return {key: value for key, value in scene.dump().items() if not key.endswith((b":wake", b":turn"))}


def beside(scene: Scene, name: str) -> Scene:
    """Another queue, whose ids come from the same mint."""
    other = Scene(scene.runner, scene.queue + name)
    other.minter, other.mint = scene.minter, scene.mint
    return other


DEATHS: dict[str, Callable[[Scene, Node], Any]] = {
    "retry": die,
    "stalled": lambda scene, child: (scene.lapse(child.id), scene.run(jobs.sweep(scene.queue))),
    "removed": lambda scene, child: scene.run(admin.remove_job(scene.queue, child.id)),
    "cancelled": lambda scene, child: (
        scene.run(jobs.release(scene.queue, child.id, 1)),
        scene.run(admin.cancel_job(scene.queue, child.id)),
    ),
    "cancelled in hand": lambda scene, child: (
        scene.run(admin.cancel_job(scene.queue, child.id)),
        scene.run(jobs.release(scene.queue, child.id, 1)),
        scene.run(jobs.claim(scene.queue)),
    ),
    "payload missing": lambda scene, child: (
        scene.run(jobs.release(scene.queue, child.id, 1)),
        scene.execute("HDEL", scene.keys.job(child.id), "payload"),
        scene.run(jobs.claim(scene.queue)),
    ),
    "drained": lambda scene, child: (
        scene.run(jobs.release(scene.queue, child.id, 1)),
        scene.finish(admin.drain(scene.queue)),
    ),
    "drained from the schedule": lambda scene, child: (
        scene.run(jobs.delay(scene.queue, child.id, 1, delay_ms=60_000)),
        scene.finish(admin.drain(scene.queue, scheduled=True)),
    ),
}
"""Ways for a child that is in hand to die for good."""
