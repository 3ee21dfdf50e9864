"""The books of a lane (protocol §6, §12.1, §12.2) after every verb, from every condition of the lane.

The fixture that runs after every test holds the ring and `gactive` to the invariants; the tokens are held to an oracle
that counts with plain commands what can be claimed before and after.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from echomq.protocol import admin, admission, jobs, lanes, metrics
from echomq.protocol.replies import State
from support.runner import Scene

A, B = lanes.lane_id("a"), lanes.lane_id("b")
HOUR = 3_600_000


@dataclass(frozen=True, slots=True)
class Case:
    """A condition of lane A: `depth` jobs wait, `hands` are in hand."""

    depth: int
    hands: int
    limit: int | None = None
    paused: bool = False
    ceiling: int | None = None

    def __str__(self) -> str:
        limit = "" if self.limit is None else f" of {self.limit}"
        ceiling = "" if self.ceiling is None else f" ceiling {self.ceiling}"
        return f"{self.depth} wait {self.hands} in hand{limit}{' paused' if self.paused else ''}{ceiling}"


CASES = [
    Case(0, 1),
    Case(0, 1, 1),
    Case(2, 1),
    Case(2, 1, 1),
    Case(2, 1, 2),
    Case(2, 3, 2),
    Case(2, 2, 1),
    Case(2, 1, paused=True),
    Case(2, 1, 1, paused=True),
    Case(0, 1, paused=True),
    Case(3, 2, ceiling=2),
    Case(3, 2, 2, ceiling=3),
]


@dataclass(slots=True)
class Books:
    """A scene in that condition, with a job of lane A in each place and one of lane B that waits."""

    scene: Scene
    held: list[str]
    waiting: list[str]
    dead: str
    scheduled: str
    of_b: str


def arrange(scene: Scene, case: Case) -> Books:
    q = scene.queue
    dead, scheduled, of_b = scene.mint(), scene.mint(), scene.mint()
    scene.run(lanes.enqueue(q, dead, b"p", A))
    scene.run(jobs.claim(q))
    scene.run(jobs.retry(q, dead, 1, delay_ms=0, max_attempts=1, error="e"))
    scene.run(admission.admit(q, scheduled, b"p", group=A, at_ms=5))
    held = scene.minter.mint_many(case.hands)
    waiting = scene.minter.mint_many(case.depth)
    for job_id in held:
        scene.run(lanes.enqueue(q, job_id, b"p", A))
    assert len(scene.run(jobs.claim_many(q, 99)).jobs) == case.hands
    for job_id in waiting:
        scene.run(lanes.enqueue(q, job_id, b"p", A))
    scene.run(lanes.enqueue(q, of_b, b"p", B))
    scene.run(lanes.limit(q, A, case.limit))
    if case.paused:
        scene.run(lanes.pause(q, A))
    scene.run(admin.set_ceiling(q, case.ceiling))
    scene.drop_tokens()
    return Books(scene, held, waiting, dead, scheduled, of_b)


def claimable(scene: Scene) -> int:
    """How many jobs claims would find now, counted from the outside."""
    shot = scene.snapshot()
    count = len(shot.places["pending"])
    for group, members in shot.lanes.items():
        hands = int(shot.gactive.get(group, 0))
        room = int(shot.glimit[group]) - hands if group in shot.glimit else len(members)
        count += 0 if group in shot.paused else max(min(len(members), room), 0)
    ceiling = int(scene.execute("HGET", scene.keys.meta, "concurrency") or 0)
    return min(count, max(ceiling - len(shot.places["active"]), 0)) if ceiling else count


def lapse_all(books: Books) -> None:
    books.scene.lapse(*books.held)


Verb = Callable[[Scene, str, Books], Any]

OUT: dict[str, Verb] = {
    "complete": lambda s, q, b: s.run(jobs.complete(q, b.held[0], 1)),
    "complete all": lambda s, q, b: s.run(jobs.complete_many(q, [(i, 1) for i in b.held])),
    "retry": lambda s, q, b: s.run(jobs.retry(q, b.held[0], 1, delay_ms=HOUR, max_attempts=9, error="e")),
    "bury": lambda s, q, b: s.run(jobs.retry(q, b.held[0], 1, delay_ms=0, max_attempts=1, error="e")),
    "delay": lambda s, q, b: s.run(jobs.delay(q, b.held[0], 1, delay_ms=HOUR)),
    "release": lambda s, q, b: s.run(jobs.release(q, b.held[0], 1)),
    "reap": lambda s, q, b: (lapse_all(b), s.run(jobs.reap(q))),
    "reap group": lambda s, q, b: (lapse_all(b), s.run(lanes.reap(q, A))),
    "sweep": lambda s, q, b: (lapse_all(b), s.run(jobs.sweep(q, max_stalled=2))),
    "sweep and bury": lambda s, q, b: (lapse_all(b), s.run(jobs.sweep(q, max_stalled=1))),
    "remove in hand": lambda s, q, b: s.run(admin.remove_job(q, b.held[0])),
    "limit 1": lambda s, q, b: s.run(lanes.limit(q, A, 1)),
    "limit 2": lambda s, q, b: s.run(lanes.limit(q, A, 2)),
    "limit 9": lambda s, q, b: s.run(lanes.limit(q, A, 9)),
    "no limit": lambda s, q, b: s.run(lanes.limit(q, A, None)),
    "pause": lambda s, q, b: s.run(lanes.pause(q, A)),
    "resume": lambda s, q, b: s.run(lanes.resume(q, A)),
    "weight": lambda s, q, b: s.run(lanes.weight(q, A, 3)),
    "cancel in hand": lambda s, q, b: s.run(admin.cancel_job(q, b.held[0])),
    "cancel scheduled": lambda s, q, b: s.run(admin.cancel_job(q, b.scheduled)),
    "cancel dead": lambda s, q, b: s.run(admin.cancel_job(q, b.dead)),
    "remove dead": lambda s, q, b: s.run(admin.remove_job(q, b.dead)),
    "remove scheduled": lambda s, q, b: s.run(admin.remove_job(q, b.scheduled)),
    "drain": lambda s, q, b: s.finish(lanes.drain(q, A)),
    "drain flat": lambda s, q, b: s.finish(admin.drain(q, scheduled=True)),
    "extend": lambda s, q, b: s.run(jobs.extend(q, b.held[0], 1)),
    "ceiling 4": lambda s, q, b: s.run(admin.set_ceiling(q, 4)),
    "no ceiling": lambda s, q, b: s.run(admin.set_ceiling(q, None)),
    "enqueue": lambda s, q, b: s.run(lanes.enqueue(q, s.mint(), b"p", A)),
    "admit": lambda s, q, b: s.run(admission.admit(q, s.mint(), b"p", group=A, dedup=admission.Dedup("k"))),
    "promote": lambda s, q, b: s.run(jobs.promote(q)),
    "reprocess": lambda s, q, b: s.run(admin.reprocess_job(q, b.dead)),
    "from another lane": lambda s, q, b: s.run(lanes.reassign(q, b.of_b, A)),
}
ADMITS = {
    *("enqueue", "admit", "promote", "reprocess", "from another lane", "reassign", "reassign all"),
    *("limit 2", "limit 9", "no limit", "resume"),
}
"""What pushes its tokens without regard to the queue's ceiling, which a token is no promise of."""

WAITING: dict[str, Verb] = {
    "remove": lambda s, q, b: s.run(admin.remove_job(q, b.waiting[0])),
    "cancel": lambda s, q, b: s.run(admin.cancel_job(q, b.waiting[0])),
    "reassign": lambda s, q, b: s.run(lanes.reassign(q, b.waiting[0], B)),
    "reassign all": lambda s, q, b: [s.run(lanes.reassign(q, i, B)) for i in b.waiting],
    "claim": lambda s, q, b: s.run(jobs.claim(q)),
    "claim all": lambda s, q, b: s.run(jobs.claim_many(q, 99)),
    "lane claim": lambda s, q, b: s.run(lanes.claim(q)),
    "weighted claim": lambda s, q, b: (s.run(lanes.weight(q, A, 9)), s.run(lanes.claim_weighted(q))),
}


def tokens_due(scene: Scene, case: Case, books: Books, verb: Verb, name: str) -> None:
    before = claimable(scene)
    verb(scene, scene.queue, books)
    due = max(claimable(scene) - before, 0)
    if case.ceiling is None or name not in ADMITS:
        assert scene.tokens() == due
    else:
        assert scene.tokens() >= due


@pytest.mark.parametrize("name", OUT)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_as_many_tokens_as_became_claimable(scene: Scene, case: Case, name: str) -> None:
    tokens_due(scene, case, arrange(scene, case), OUT[name], name)


@pytest.mark.parametrize("name", WAITING)
@pytest.mark.parametrize("case", [case for case in CASES if case.depth], ids=str)
def test_what_happens_to_a_waiting_job_keeps_the_books(scene: Scene, case: Case, name: str) -> None:
    tokens_due(scene, case, arrange(scene, case), WAITING[name], name)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_obliterate_leaves_no_key_and_right_books_on_its_way(scene: Scene, case: Case) -> None:
    books = arrange(scene, case)
    scene.run(admin.pause_queue(scene.queue))
    step = next(admin.obliterate(scene.queue, force=True, budget=1))
    while scene.run(step):
        shot = scene.snapshot()
        assert sum(map(int, shot.gactive.values())) == len(shot.places["active"])
        assert set(shot.ring) <= {group for group, members in shot.lanes.items() if members}
    scene.finish(admin.obliterate(scene.queue, force=True))
    assert scene.dump() == {}
    assert books.held


def test_a_lane_passes_through_many_hands_and_its_books_are_empty_at_the_end(scene: Scene) -> None:
    q = scene.queue
    ids = scene.minter.mint_many(30)
    scene.run(lanes.limit(q, A, 4))
    for job_id in ids:
        scene.run(lanes.enqueue(q, job_id, b"p", A))
    done = 0
    verbs = ("complete", "release", "retry", "bury", "delay", "remove in hand", "sweep")
    while done < 200 and (taken := scene.run(jobs.claim_many(q, 3)).jobs):
        for job in taken:
            books = Books(scene, [job.id], [], "", "", "")
            name = verbs[done % len(verbs)]
            if name == "complete":
                scene.run(jobs.complete(q, job.id, job.token))
            elif name in ("release", "delay"):
                move = jobs.release(q, job.id, job.token)
                scene.run(move if name == "release" else jobs.delay(q, job.id, job.token, at_ms=1))
            elif name in ("retry", "bury"):
                most = job.attempts + (name == "retry")
                scene.run(jobs.retry(q, job.id, job.token, delay_ms=0, max_attempts=most, error="e"))
            else:
                OUT[name](scene, q, books)
            done += 1
        scene.fall_due(*scene.snapshot().places["schedule"])
        scene.run(jobs.promote(q))
    assert done > 60
    shot = scene.snapshot()
    assert (shot.gactive, shot.ring, shot.places["active"]) == ({}, [], {})


@pytest.mark.parametrize("verb", [jobs.release, lambda q, i, t: jobs.delay(q, i, t, delay_ms=HOUR)])
def test_a_job_that_went_through_another_lane_gives_its_place_there_back(
    scene: Scene, verb: Callable[[str, str, int], Any]
) -> None:
    q, job_id = scene.queue, scene.mint()
    scene.run(lanes.enqueue(q, job_id, b"p", A))
    scene.run(lanes.reassign(q, job_id, B))
    scene.run(jobs.claim(q))
    assert scene.snapshot().gactive == {B: b"1"}
    scene.run(verb(q, job_id, 1))
    assert scene.snapshot().gactive == {}
    assert scene.row(job_id)[b"group"] == B.encode()


def test_the_state_of_a_job_in_a_lane_is_its_place(scene: Scene) -> None:
    books = arrange(scene, Case(2, 1))
    states = {
        books.held[0]: State.ACTIVE,
        books.waiting[0]: State.PENDING,
        books.dead: State.DEAD,
        books.scheduled: State.SCHEDULED,
    }
    assert {i: scene.run(metrics.state(scene.queue, i)) for i in states} == states
