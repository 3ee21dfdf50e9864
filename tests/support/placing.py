"""Jobs in every place of a queue, and a queue that is full of everything; by verbs, for the tests of verbs."""

from __future__ import annotations

from collections.abc import Callable

from echomq.protocol import admin, admission, audit, flows, jobs, lanes, repeat, workers
from echomq.protocol.audit import Breach
from echomq.protocol.flows import Node
from support.runner import Scene

HOUR = 3_600_000
A = lanes.lane_id("a")


def found(scene: Scene, *, mend: bool = False) -> list[Breach]:
    """What an audit finds."""
    return list(scene.finish(audit.audit(scene.queue, mend=mend)))


def admitted(scene: Scene, group: str | None = None) -> str:
    job_id = scene.mint()
    scene.run(admission.admit(scene.queue, job_id, b"p", group=group))
    return job_id


def enqueue(scene: Scene, count: int = 1) -> list[str]:
    ids = scene.minter.mint_many(count)
    scene.run(jobs.enqueue_many(scene.queue, [(i, b"p") for i in ids]))
    return ids


def in_hand(scene: Scene) -> str:
    (job_id,) = enqueue(scene)
    while (job := scene.run(jobs.claim(scene.queue))) is None or job.id != job_id:
        assert job is not None
    return job_id


def dead(scene: Scene, error: str = "boom") -> str:
    job_id = in_hand(scene)
    scene.run(jobs.retry(scene.queue, job_id, 1, delay_ms=0, max_attempts=1, error=error))
    return job_id


def later(scene: Scene) -> str:
    job_id = scene.mint()
    scene.run(jobs.enqueue_in(scene.queue, job_id, b"p", delay_ms=HOUR))
    return job_id


def in_lane(scene: Scene, group: str = A) -> str:
    job_id = scene.mint()
    scene.run(lanes.enqueue(scene.queue, job_id, b"p", group))
    return job_id


def held(scene: Scene) -> str:
    root = Node(scene.queue, scene.mint(), b"p", (Node(scene.queue, scene.mint(), b"c"),))
    scene.finish(flows.add(root))
    return root.id


def nowhere(scene: Scene) -> str:
    """A row that says pending, in no place."""
    job_id = admitted(scene)
    scene.execute("ZREM", scene.keys.pending, job_id)
    return job_id


PLACES: dict[str, Callable[[Scene], str]] = {
    "pending": lambda scene: enqueue(scene)[0],
    "lane": in_lane,
    "active": in_hand,
    "schedule": later,
    "dead": dead,
    "held": held,
}


def full(scene: Scene) -> None:
    """Everything that a queue can hold, in every place."""
    q = scene.queue
    for place in PLACES.values():
        place(scene)
    for n in range(4):
        group = lanes.lane_id(f"lane {n}")
        scene.run(admission.admit(q, scene.mint(), b"p", group=group, lane_text=f"lane {n}"))
        scene.run(
            (lanes.pause(q, group), lanes.limit(q, group, 1), lanes.weight(q, group, 2), lanes.depth(q, group))[n]
        )
    done = in_hand(scene)
    scene.run(jobs.complete(q, done, 1, result=b"r", result_ttl_ms=HOUR))
    sent = scene.run(admission.admit(q, scene.mint(), b"p", dedup=admission.Dedup("k")))
    scene.execute("SET", f"{scene.keys.base}de:orphan", scene.mint())
    scene.run(admin.add_log(q, sent.id, "line"))
    away = Node(q, scene.mint(), b"p", (Node("elsewhere", scene.mint(), b"c"),))
    scene.finish(flows.add(away))
    scene.execute("DEL", *(key for key in scene.execute("KEYS", "emq:{elsewhere}:*")))
    near = Node(q, scene.mint(), b"p", (Node(q, scene.mint(), b"c", (Node(q, scene.mint(), b"c"),)),))
    scene.finish(flows.add(near))
    finished = Node(q, scene.mint(), b"p", (Node(q, scene.mint(), b"c"),))
    scene.finish(flows.add(finished))
    scene.run(repeat.register(q, "r", every_ms=5, template=b"t", first_run_ms=HOUR))
    scene.execute("RPUSH", scene.keys.outbox, "x", "y")
    scene.run(flows.reject(q, b"x"))
    scene.run(workers.beat(q, "w", b"{}"))
    claims = scene.run(jobs.claim_many(q, 99)).jobs
    for job in claims:
        if job.id == finished.children[0].id:
            scene.run(jobs.complete(q, job.id, job.token))
    parent = scene.run(jobs.claim(q))
    assert parent is not None
    scene.run(jobs.complete(q, parent.id, 1))
    scene.run(admin.set_rate(q, 5, period_ms=HOUR))
    enqueue(scene, 2)
    scene.run(jobs.claim(q))
