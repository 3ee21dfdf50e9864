"""Drain and obliterate (protocol §7): what goes, what stays, and in which steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from echomq.protocol import admin, admission, flows, jobs, lanes, metrics, repeat
from echomq.protocol.call import Plan
from echomq.protocol.errors import InvalidInputError, StateError
from echomq.protocol.flows import Node
from echomq.protocol.replies import State
from support.placing import HOUR, A, dead, enqueue, found, full, held, in_hand, in_lane, later, nowhere
from support.runner import Scene

# Drain


def test_a_drain_takes_flat_waiting_jobs_and_nothing_else(scene: Scene) -> None:
    kept = [in_hand(scene), dead(scene), in_lane(scene), later(scene), held(scene)]
    gone = enqueue(scene, 3)
    scene.run(admin.add_log(scene.queue, gone[0], "line"))
    scene.run(repeat.register(scene.queue, "r", every_ms=5, template=b"t", first_run_ms=HOUR))
    child = scene.snapshot().places["pending"].keys() - set(gone)
    assert len(child) == 1
    scene.run(admin.remove_job(scene.queue, *child))
    assert scene.finish(admin.drain(scene.queue)) == 3
    assert {scene.run(metrics.state(scene.queue, i)) for i in gone} == {State.ABSENT}
    assert State.ABSENT not in {scene.run(metrics.state(scene.queue, i)) for i in kept}
    assert not [key for key in scene.dump() if gone[0].encode() in key]
    assert scene.run(repeat.count(scene.queue)) == 1


def test_a_drain_takes_scheduled_jobs_when_asked(scene: Scene) -> None:
    waiting, (now,) = [later(scene) for _ in range(3)], enqueue(scene)
    assert scene.finish(admin.drain(scene.queue, scheduled=True)) == 4
    assert {scene.run(metrics.state(scene.queue, i)) for i in (*waiting, now)} == {State.ABSENT}


@pytest.mark.parametrize("count", [6, 7, 8])
def test_a_drain_goes_in_steps(scene: Scene, count: int) -> None:
    enqueue(scene, count - 2)
    later(scene)
    later(scene)
    step = next(admin.drain(scene.queue, scheduled=True, budget=3))
    assert scene.run(step) == 3
    assert scene.finish(admin.drain(scene.queue, scheduled=True, budget=3)) == count - 3


def test_a_parent_that_a_drained_child_releases_is_drained_with_it(scene: Scene) -> None:
    children = tuple(Node(scene.queue, scene.mint(), b"c", on_death=flows.OnDeath.IGNORE) for _ in range(3))
    scene.finish(flows.add(Node(scene.queue, scene.mint(), b"p", children)))
    assert scene.finish(admin.drain(scene.queue, budget=3)) == 4
    assert [key for key in scene.dump() if b":job:" in key] == []


def test_a_parent_that_a_child_on_the_schedule_releases_is_drained_with_it(scene: Scene) -> None:
    child = Node(scene.queue, scene.mint(), b"c", on_death=flows.OnDeath.IGNORE)
    scene.finish(flows.add(Node(scene.queue, scene.mint(), b"p", (child,))))
    scene.run(jobs.claim(scene.queue))
    scene.run(jobs.delay(scene.queue, child.id, 1, delay_ms=HOUR))
    assert scene.finish(admin.drain(scene.queue, scheduled=True)) == 2
    assert [key for key in scene.dump() if b":job:" in key] == []


# Obliterate


def test_obliterate_leaves_no_key(scene: Scene) -> None:
    full(scene)
    scene.execute("XADD", f"{scene.keys.base}stream:theirs", "*", "a", "b")
    (bystander,) = enqueue(Scene(scene.runner, scene.queue + "2"))
    scene.run(admin.pause_queue(scene.queue))
    for budget in (3, 1_000):
        scene.finish(admin.obliterate(scene.queue, force=True, budget=budget))
        names = sorted(scene.execute("KEYS", f"{scene.keys.base}*"))
        assert names == [f"{scene.keys.base}stream:theirs".encode()]
        full(scene)
        scene.run(admin.pause_queue(scene.queue))
    scene.finish(admin.obliterate(scene.queue, force=True))
    assert scene.run(metrics.state(scene.queue + "2", bystander)) is State.PENDING


def test_what_can_be_reached_goes_without_a_walk_of_the_servers_keys(scene: Scene) -> None:
    full(scene)
    scene.run(admin.pause_queue(scene.queue))
    scene.finish(admin.obliterate(scene.queue, force=True, unreachable=False))
    left = [key.removeprefix(scene.keys.base.encode()).decode() for key in scene.dump()]
    held_elsewhere = [name for name in left if name.endswith(":dependencies")]
    assert all(
        name.endswith((":result", ":processed", ":dependencies", "de:orphan")) or len(name) == 18 for name in left
    )
    assert len(held_elsewhere) == 2
    scene.run(admin.pause_queue(scene.queue))
    scene.finish(admin.obliterate(scene.queue))
    assert scene.dump() == {}


BESIDE: dict[str, Callable[[Scene], list[str]]] = {
    "flat": lambda s: enqueue(s, 2),
    "scheduled": lambda s: [later(s)],
    "in a lane": lambda s: [in_lane(s), in_lane(s, lanes.lane_id("b"))],
    "under a key": lambda s: [
        s.run(admission.admit(s.queue, s.mint(), b"p", dedup=admission.Dedup(s.mint(), HOUR), group=group)).id
        for group in (None, A)
    ],
    "of a flow": lambda s: [held(s)],
}


def _halves(scene: Scene, job_id: str) -> list[str]:
    """What is not as it has to be of a job that is there, or gone."""
    row, places = scene.row(job_id), scene.places(job_id)
    names = [key.decode() for key, value in scene.dump().items() if job_id in f"{key!r} {value!r}"]
    if not row:
        return names
    waits = row[b"state"] == b"awaiting_children"
    return [] if len(places) == (0 if waits else 1) else [f"{job_id} {row} in {places}"]


@pytest.mark.parametrize("what", BESIDE)
@pytest.mark.parametrize("budget", [7, 1_000])
def test_a_job_that_is_admitted_beside_obliterate_is_there_whole_or_gone_whole(
    scene: Scene, what: str, budget: int
) -> None:
    full(scene)
    scene.execute("ZADD", scene.keys.lane(lanes.lane_id("b")), 0, nowhere(scene))
    scene.run(admin.pause_queue(scene.queue))
    sent: list[str] = []

    def beside() -> Plan[None]:
        plan = admin.obliterate(scene.queue, force=True, budget=budget)
        call = next(plan)
        while True:
            last = call.script is not None and call.script.name == "obliterate" and call.args[2] == ""
            if not last:
                sent.extend(BESIDE[what](scene))
            try:
                call = plan.send((yield call))
            except StopIteration:
                return

    scene.finish(beside())
    assert len(sent) >= 3
    assert [half for job_id in sent for half in _halves(scene, job_id)] == []
    assert found(scene) == []
    assert {scene.run(metrics.state(scene.queue, i)) for i in sent} <= {State.ABSENT, State.AWAITING_CHILDREN}
    left = [key for key in scene.dump() if b":job:" not in key]
    assert left == []


def test_what_the_walk_meets_of_a_job_in_its_place_it_leaves(scene: Scene) -> None:
    enqueue(scene)
    scene.run(admin.pause_queue(scene.queue))
    plan = admin.obliterate(scene.queue)
    assert scene.run(next(plan)) == 0
    plan.send(0)
    sent = scene.run(admission.admit(scene.queue, scene.mint(), b"p", dedup=admission.Dedup("k"), group=A))
    scene.run(admin.add_log(scene.queue, sent.id, "line"))
    scene.run(repeat.register(scene.queue, "r", every_ms=5, template=b"t", first_run_ms=HOUR))
    before = scene.dump()
    scene.run(plan.send((b"0", sorted(before))))
    assert scene.dump() == before
    for name in ("de:other", f"job:{sent.id}x:result", "repeat:s", "what"):
        scene.execute("SET", scene.keys.base + name, sent.id)
    plan = admin.obliterate(scene.queue)
    next(plan)
    plan.send(0)
    assert scene.run(plan.send((b"0", sorted(scene.dump())))) == 4
    assert scene.dump() == before
    scene.finish(admin.obliterate(scene.queue))
    assert scene.dump() == {}


def test_obliterate_is_refused_on_a_live_queue(scene: Scene) -> None:
    job_id = in_hand(scene)
    refusal = scene.refusal(next(admin.obliterate(scene.queue, force=True)))
    assert (type(refusal), refusal.reply) == (StateError, "EMQSTATE not paused")
    scene.run(admin.pause_queue(scene.queue))
    refusal = scene.refusal(next(admin.obliterate(scene.queue)))
    assert (type(refusal), refusal.reply) == (StateError, "EMQSTATE active jobs present")
    with pytest.raises(StateError, match="active jobs present"):
        scene.finish(admin.obliterate(scene.queue, unreachable=False))
    scene.run(jobs.complete(scene.queue, job_id, 1))
    scene.finish(admin.obliterate(scene.queue))
    assert scene.dump() == {}


def test_a_queue_that_is_resumed_half_way_is_left_alone(scene: Scene) -> None:
    enqueue(scene, 20)
    scene.run(admin.pause_queue(scene.queue))
    plan = admin.obliterate(scene.queue, budget=5)
    call = next(plan)
    assert scene.run(call) == 1
    scene.run(admin.resume_queue(scene.queue))
    with pytest.raises(StateError, match="not paused"):
        scene.finish(plan)
    assert scene.run(jobs.pending_size(scene.queue)) == 15


def test_one_call_of_obliterate_is_bounded(scene: Scene) -> None:
    enqueue(scene, 30)
    scene.run(admin.pause_queue(scene.queue))
    step = next(admin.obliterate(scene.queue, budget=7))
    left = []
    while scene.run(step):
        left.append(scene.run(jobs.pending_size(scene.queue)))
    assert left == [23, 16, 9, 2]
    assert scene.run(admin.is_paused(scene.queue)) is True
    scene.run(admin.resume_queue(scene.queue))


@pytest.mark.parametrize("budget", [0, -1, 100_001, 1.5, "5", True])
def test_a_budget_that_is_none(budget: Any) -> None:
    for build in (admin.drain, admin.obliterate, admin.retain):
        with pytest.raises(InvalidInputError, match="budget"):
            build("q", budget=budget)  # type: ignore[operator]
