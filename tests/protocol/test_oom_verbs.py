"""A full server (protocol §5) and lanes, flows, the operator: admission is refused, everything else works."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from echomq.protocol import admin, admission, audit, flows, jobs, lanes, metrics, workers
from echomq.protocol.call import Call
from echomq.protocol.errors import ServerFullError
from echomq.protocol.flows import Node
from echomq.protocol.replies import Completion, State
from support.runner import Runner, Scene
from support.servers import Server

A, B = lanes.lane_id("a"), lanes.lane_id("b")
HOUR = 3_600_000


@pytest.fixture
def scene(start_server: Callable[..., Server]) -> Iterator[Scene]:
    """A queue on a server of its own."""
    server = start_server(options=("--maxmemory-policy", "noeviction"))
    with server.client() as client:
        yield Scene(Runner(client), "full")
        client.execute("CONFIG", "SET", "maxmemory", 0)


def fill_up(scene: Scene) -> None:
    """From now on the server is above its limit, and no script is in its cache."""
    scene.execute("SCRIPT", "FLUSH")
    scene.execute("CONFIG", "SET", "maxmemory", 1)


def flow(scene: Scene) -> Node:
    return Node(scene.queue, scene.mint(), b"p", (Node(scene.queue, scene.mint(), b"c"),))


ADMITS: dict[str, Callable[[Scene, str], Call[Any]]] = {
    "enqueue to lane": lambda scene, held: lanes.enqueue(scene.queue, scene.mint(), b"p", A),
    "admit": lambda scene, held: admission.admit(
        scene.queue, scene.mint(), b"p", group=A, lane_text="a", dedup=admission.Dedup("k")
    ),
    "flow add": lambda scene, held: next(flows.add(flow(scene))),
    "update payload": lambda scene, held: admin.update_data(scene.queue, held, b"new"),
    "add log": lambda scene, held: admin.add_log(scene.queue, held, "line"),
}


@pytest.mark.parametrize("verb", ADMITS)
def test_what_adds_is_refused_and_writes_nothing(scene: Scene, verb: str) -> None:
    (held,) = claimed(scene, 1)
    call = ADMITS[verb](scene, held)
    fill_up(scene)
    assert call.script is not None
    scene.execute("SCRIPT", "LOAD", call.script.source)
    assert isinstance(scene.refusal(call), ServerFullError)


def claimed(scene: Scene, count: int, group: str | None = None) -> list[str]:
    ids = scene.minter.mint_many(count)
    for job_id in ids:
        scene.run(admission.admit(scene.queue, job_id, b"p", group=group))
    assert len(scene.run(jobs.claim_many(scene.queue, count)).jobs) == count
    return ids


def test_everything_else_works(scene: Scene) -> None:
    q = scene.queue
    of_a = claimed(scene, 3, A)
    held = claimed(scene, 4)
    near, far, dying = flow(scene), flow(scene), flow(scene)
    away = Node(q, scene.mint(), b"p", (Node(q, scene.mint(), b"c"),))
    for each in (near, far, dying, away):
        scene.finish(flows.add(each))
    scene.execute("HSET", scene.keys.job(away.children[0].id), "parent_queue", q)
    scene.run(jobs.claim_many(q, 9))
    waiting = scene.minter.mint_many(3)
    for job_id in waiting:
        scene.run(lanes.enqueue(q, job_id, b"p", B))
    scene.run(workers.beat(q, "w", b"{}"))
    scene.lapse(of_a[2])
    fill_up(scene)
    for call in (
        *(lanes.pause(q, A), lanes.resume(q, A), lanes.limit(q, A, 2), lanes.weight(q, B, 2)),
        *(lanes.reassign(q, waiting[0], A), lanes.reap(q, A), lanes.depth(q, A)),
        *(admin.pause_queue(q), admin.is_paused(q), admin.resume_queue(q), admin.set_ceiling(q, 99)),
        *(admin.set_rate(q, 99, period_ms=5), admin.set_retention(q, dead_max=2, dead_age_ms=HOUR)),
        *(admin.gate(q), admin.rate_ttl(q), admin.update_progress(q, held[0], "5"), admin.logs(q, held[0])),
        *(admin.cancel_job(q, held[0]), workers.keep(q, [(held[0], 1)], field=True), workers.seen(q)),
        *(workers.beat(q, "w", b'{"a": 1}'), admin.remove_job(q, held[1]), metrics.counts(q)),
        jobs.retry(q, held[2], 1, delay_ms=0, max_attempts=1, error="e"),
        *(admin.reprocess_job(q, held[2]), metrics.state(q, held[2]), flows.outstanding(q, near.id)),
    ):
        scene.run(call)
    done = jobs.Finished(near.children[0].id, 1, b"r" * 1_000, HOUR)
    signalled = jobs.Finished(away.children[0].id, 1, b"r")
    assert scene.run(jobs.complete_many(q, [done, signalled])) == (Completion.RETIRED, Completion.SIGNALLED)
    scene.run(jobs.retry(q, dying.children[0].id, 1, delay_ms=0, max_attempts=1, error="e"))
    scene.execute("CONFIG", "SET", "maxmemory", 0)
    scene.execute("RPUSH", scene.keys.outbox, "malformed")
    scene.execute("CONFIG", "SET", "maxmemory", 1)
    for entry in scene.run(flows.outbox(q)):
        if entry == b"malformed":
            assert scene.run(flows.reject(q, entry)) == 1
        else:
            scene.run(flows.deliver(entry))
            assert scene.run(flows.settle(q, entry)) == 1
    states = {scene.run(metrics.state(q, each.id)) for each in (near, away)}
    assert (states, scene.run(metrics.state(q, dying.id))) == ({State.PENDING}, State.DEAD)
    assert scene.run(lanes.claim(q)) is not None
    assert len(scene.run(lanes.claim_weighted(q)).jobs) >= 1
    assert scene.run(admin.retain(q)) == (0, "")
    assert scene.finish(audit.audit(q, mend=True)) == ()
    scene.execute("CONFIG", "SET", "maxmemory", 0)
    scene.run(lanes.enqueue(q, scene.mint(), b"p", B))
    scene.execute("CONFIG", "SET", "maxmemory", 1)
    in_b = scene.run(lanes.depth(q, B))
    assert in_b >= 1
    assert scene.finish(lanes.drain(q, B)) == in_b
    assert scene.run(lanes.depth(q, B)) == 0
    assert scene.finish(admin.drain(q, scheduled=True)) > 0
    scene.run(admin.pause_queue(q))
    scene.finish(admin.obliterate(q, force=True))
    assert scene.dump() == {}
