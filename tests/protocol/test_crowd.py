"""Several clients at once, each running random verbs of the same jobs (tests/support/crowd.py).

After every burst the invariants hold, the audit names none but parents that nothing can release, and every job that was
admitted is there, completed or removed, none twice. At the end all that is left is worked off: no parent waits for
nothing. `ECHOMQ_THOROUGH=n` runs n rounds.
"""

from __future__ import annotations

import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from echomq.protocol import admin, flows, jobs, lanes
from echomq.protocol.audit import audit
from echomq.protocol.replies import Completion
from support.crowd import GROUPS, HOUR, Clerk, Ledger, Pool
from support.invariants import HELD, Snapshot, breaches
from support.runner import PAST, Runner, Scene
from support.servers import Server

CLIENTS = 3
BURSTS = 12
VERBS = 40
THOROUGH = int(os.environ.get("ECHOMQ_THOROUGH", "0"))
ROUNDS = THOROUGH or 3


def check_burst(scenes: list[Scene], ledger: Ledger) -> None:
    """Everything that must hold whoever did what, in whatever order."""
    lives = Counter[str]()
    for queue, job_id in ledger.admitted:
        lives[queue] += ledger.admitted[queue, job_id]
    ended = Counter[str]()
    for (queue, job_id), times in ledger.completed.items():
        ended[queue] += times
        assert times <= ledger.admitted[queue, job_id], f"{job_id} was completed {times} times"
    for (queue, job_id, token), times in ledger.claimed.items():
        assert times <= ledger.admitted[queue, job_id], f"{job_id} was claimed {times} times under token {token}"
    for scene in scenes:
        queue, shot = scene.queue, scene.snapshot()
        assert breaches(shot) == []
        assert held_for_good(scene) <= explained(scenes)
        alive = lives[queue] - ended[queue] - ledger.removed[queue]
        assert len(shot.rows) == alive, f"{queue}: {len(shot.rows)} jobs are there, {alive} should be"
        assert int(scene.execute("HGET", scene.keys.metrics_completed, "count") or 0) == ended[queue]


def work_off(scene: Scene, ledger: Ledger) -> None:
    """One turn of a worker, a pump and an operator without any limits; the dead get another life."""
    queue = scene.queue
    scene.run(admin.resume_queue(queue))
    scene.run(admin.set_ceiling(queue, None))
    scene.run(admin.set_rate(queue, None))
    for group in GROUPS:
        scene.run(lanes.resume(queue, group))
        scene.run(lanes.limit(queue, group, None))
    shot = scene.snapshot()
    for name in ("schedule", "active"):
        for job_id in shot.places[name]:
            scene.execute("ZADD", scene.keys.base + name, "XX", PAST, job_id)
    scene.run(jobs.promote(queue, 10_000))
    scene.run(jobs.reap(queue))
    for job_id in shot.places["dead"]:
        scene.run(admin.reprocess_job(queue, job_id))
    for entry in scene.run(flows.outbox(queue, limit=10_000)):
        scene.run(flows.deliver(entry))
        scene.run(flows.settle(queue, entry))
    for job in scene.run(jobs.claim_many(queue, 10_000, lease_ms=HOUR)).jobs:
        ledger.claimed[queue, job.id, job.attempts] += 1
        assert scene.run(jobs.complete(queue, job.id, job.token)) is Completion.RETIRED
        ledger.completed[queue, job.id] += 1


def held_for_good(scene: Scene) -> set[str]:
    """The parents of which the audit says that nothing can release them; it says nothing else."""
    found = scene.finish(audit(scene.queue))
    assert all(breach.what.startswith("held for good: ") for breach in found), found
    return {breach.subject for breach in found}


def explained(scenes: list[Scene]) -> set[str]:
    """Those whose child had failed them and was removed before they were given another life, and those above them: they
    are held again, as protocol §7 says, until an operator removes them.
    """
    rows: dict[str, dict[str, bytes]] = {}
    needs: dict[str, set[str]] = {}
    for scene in scenes:
        for job_id, row in scene.snapshot().rows.items():
            rows[job_id] = row
            needs[job_id] = {child.decode() for child in scene.execute("HKEYS", f"{scene.keys.job(job_id)}:failed")}
    for job_id, row in rows.items():
        needs.get(row.get("parent", b"").decode(), set()).add(job_id)
    found: set[str] = set()
    while True:
        stuck = {parent for parent, children in needs.items() if children - set(rows) or children & found}
        if stuck <= found:
            return found
        found |= stuck


def check_held(scenes: list[Scene]) -> None:
    """When all is worked off, what is left is held and explained; the audit names it, or it waits for such a child."""
    rows = {job_id: row for scene in scenes for job_id, row in scene.snapshot().rows.items()}
    waits = set(rows) - explained(scenes)
    assert not waits, f"parents wait for nothing: {waits}"
    named = {job_id for scene in scenes for job_id in held_for_good(scene)}
    above = {row.get("parent", b"").decode() for row in rows.values()}
    assert set(rows) == named | (above & set(rows))


def idle(shot: Snapshot) -> bool:
    return all(row["state"] == HELD for row in shot.rows.values())


@pytest.mark.deadline(120 if not THOROUGH else 86_400)
def test_a_crowd_of_clients_loses_nothing(server: Server, queue: str) -> None:
    steps, verbs = 0, Counter[str]()
    for number in range(ROUNDS):
        with ExitStack() as stack:
            runners = [Runner(stack.enter_context(server.client())) for _ in range(CLIENTS + 1)]
            names = f"{queue}-{number}", f"{queue}-{number}-other"
            pool, ledger = Pool(names), Ledger()
            scenes = [Scene(runners[-1], name) for name in names]
            seed = os.urandom(4).hex()
            print(f"round {number}: seed {seed}")
            clerks = [Clerk(runners[n], pool, f"{seed}-{number}-{n}") for n in range(CLIENTS)]
            threads = stack.enter_context(ThreadPoolExecutor(CLIENTS))
            for _ in range(BURSTS):
                for done in [threads.submit(clerk.work, VERBS) for clerk in clerks]:
                    done.result(60)
                total = Ledger()
                for clerk in clerks:
                    total.add(clerk.ledger)
                check_burst(scenes, total)
            ledger.add(total)
            for _ in range(50):
                if all(idle(scene.snapshot()) and not scene.execute("LLEN", scene.keys.outbox) for scene in scenes):
                    break
                for scene in scenes:
                    work_off(scene, ledger)
            check_burst(scenes, ledger)
            for scene in scenes:
                shot = scene.snapshot()
                assert idle(shot), f"{scene.queue} is not worked off: {shot.rows}"
            check_held(scenes)
            steps += ledger.verbs.total()
            verbs += ledger.verbs
            scenes[0].execute("FLUSHALL")
    print(f"{steps} steps: {dict(sorted(verbs.items()))}")
    assert steps >= 2_000
