"""Verbs that reach a parent, while a key that they write holds another type (protocol §5, §8).

A refusal has written nothing, at any level; a bulk verb passes the job by and does the rest; and once the key is mended
the same call does the whole, as if there had been no trouble.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from echomq.protocol import admin, flows, jobs, lanes, metrics, morgue
from echomq.protocol.call import Call
from echomq.protocol.flows import Node, OnDeath
from echomq.protocol.lanes import lane_id
from echomq.protocol.replies import State
from support.every_verb import kept, put_back
from support.raw import ReplyError
from support.runner import Scene

pytestmark = pytest.mark.strays("a key of the queue holds what no client of the protocol writes")

LANE = lane_id("acme")
HOUR = 3_600_000
OTHER_TYPES = (("RPUSH", "x"), ("SET", "abc"), ("HSET", "x", "1"), ("SADD", "x"), ("ZADD", "1", "x"))
SUBKEYS = ("dependencies", "processed", "failed", "unsuccessful", "result")
SETS = ("pending", "active", "schedule", "dead", "flow:outbox", "ring", f"g:{LANE}:pending")


@dataclass(frozen=True)
class Family:
    """A child that is in hand, those above it, and a job of nobody's beside it, in hand as well."""

    root: Node
    parent: str
    child: str
    other: str


def family(scene: Scene, on_death: OnDeath = OnDeath.FAIL_PARENT, level: str = "") -> Family:
    """`level` says which one lies above another queue: `parent` or `grandparent`, or none."""
    child = Node(scene.queue, scene.mint(), b"c", on_death=on_death)
    parent = Node(scene.queue + "-above" * (level == "parent"), scene.mint(), b"p", (child,))
    sibling = Node(parent.queue, scene.mint(), b"s")
    root = Node(parent.queue + "-above" * (level == "grandparent"), scene.mint(), b"g", (parent, sibling))
    scene.finish(flows.add(root))
    other = scene.mint()
    scene.run(jobs.enqueue(scene.queue, other, b"o"))
    scene.run(jobs.claim_many(scene.queue, 9))
    return Family(root, parent.id, child.id, other)


def both(family: Family) -> tuple[str, str]:
    return family.child, family.other


def bury(scene: Scene, job_id: str, token: int = 1) -> Call[Any]:
    return jobs.retry(scene.queue, job_id, token, delay_ms=0, max_attempts=token, error="e")


def back(scene: Scene, family: Family) -> None:
    for job_id in both(family):
        scene.run(jobs.release(scene.queue, job_id, 1))


def in_lane(scene: Scene, family: Family) -> None:
    for job_id in both(family):
        scene.execute("ZREM", scene.keys.active, job_id)
        scene.execute("HSET", scene.keys.job(job_id), "group", LANE, "state", "pending")
        scene.execute("ZADD", scene.keys.lane(LANE), "0", job_id)
    scene.execute("RPUSH", scene.keys.ring, LANE)


def cancelled(scene: Scene, family: Family) -> None:
    scene.execute("HSET", scene.keys.job(family.child), "cancel", "no more")


def both_dead(scene: Scene, family: Family) -> None:
    """The child is dead, and the parent that it has failed is held again."""
    for job_id in both(family):
        scene.run(bury(scene, job_id))
    revive(scene, family)


def revive(scene: Scene, family: Family) -> None:
    for node in (family.root.children[0], family.root):
        scene.outcome(admin.reprocess_job(node.queue, node.id))


def again(scene: Scene, family: Family) -> None:
    """The child has failed its parent, both have another life, and it is in hand again."""
    both_dead(scene, family)
    scene.run(admin.reprocess_job(scene.queue, family.child))
    scene.run(jobs.claim(scene.queue))


def signal(family: Family, *policy: str) -> bytes:
    above = family.root.children[0]
    words = ("", "fail") * bool(policy) + (above.queue, above.id, family.child, *policy, "r")
    return "\0".join(words).encode()


def told_late(scene: Scene, family: Family) -> Call[Any]:
    """An add that is repeated, and finds what its parents do not know of yet."""
    for node in (family.root.children[0], family.root):
        for name in ("processed", "failed", "unsuccessful"):
            scene.execute("DEL", f"{scene.keys.job(node.id)}:{name}")
    return next(flows.add(family.root))


def add_above_done(scene: Scene, family: Family) -> Call[Any]:
    scene.run(admin.remove_job(scene.queue, family.parent))
    scene.run(admin.remove_job(scene.queue, family.root.id))
    scene.run(jobs.complete(scene.queue, family.child, 1, result=b"r", result_ttl_ms=HOUR))
    return next(flows.add(family.root))


def add_above_dead(scene: Scene, family: Family) -> Call[Any]:
    """The parent is new again, dies at once of its dead child, and the grandparent of that."""
    both_dead(scene, family)
    for name in ("", ":dependencies", ":processed", ":failed", ":unsuccessful"):
        scene.execute("DEL", scene.keys.job(family.parent) + name)
    scene.execute("DEL", scene.keys.job(family.root.id) + ":failed")
    return next(flows.add(family.root))


Build = Callable[[Scene, Family], Call[Any]]


def after(*steps: Callable[[Scene, Family], object], then: Build) -> Build:
    def build(scene: Scene, family: Family) -> Call[Any]:
        for step in steps:
            step(scene, family)
        return then(scene, family)

    return build


def keep_none(scene: Scene, family: Family) -> None:
    scene.run(admin.set_retention(scene.queue, dead_max=0, dead_age_ms=None))


def schedule(scene: Scene, family: Family) -> None:
    for job_id in both(family):
        scene.run(jobs.delay(scene.queue, job_id, 1, delay_ms=HOUR))


def lapse(scene: Scene, family: Family) -> None:
    scene.lapse(*both(family))


ONE: dict[str, Build] = {
    "complete": lambda s, f: jobs.complete(s.queue, f.child, 1, result=b"r", result_ttl_ms=HOUR),
    "complete after a death": after(again, then=lambda s, f: jobs.complete(s.queue, f.child, 2)),
    "bury": lambda s, f: bury(s, f.child),
    "bury again": after(again, then=lambda s, f: bury(s, f.child, 2)),
    "retry of a cancelled one": after(
        cancelled, then=lambda s, f: jobs.retry(s.queue, f.child, 1, delay_ms=0, max_attempts=9, error="e")
    ),
    "delay of a cancelled one": after(cancelled, then=lambda s, f: jobs.delay(s.queue, f.child, 1, delay_ms=HOUR)),
    "release of a cancelled one": after(cancelled, then=lambda s, f: jobs.release(s.queue, f.child, 1)),
    "cancel": after(back, then=lambda s, f: admin.cancel_job(s.queue, f.child)),
    "remove": after(back, then=lambda s, f: admin.remove_job(s.queue, f.child)),
    "remove from the morgue": after(both_dead, then=lambda s, f: admin.remove_job(s.queue, f.child)),
    "reprocess the parent": after(
        lambda s, f: s.run(admin.cancel_job(s.queue, f.parent)),
        then=lambda s, f: admin.reprocess_job(s.queue, f.parent),
    ),
    "reprocess the child": after(both_dead, then=lambda s, f: admin.reprocess_job(s.queue, f.child)),
    "deliver a result": lambda s, f: flows.deliver(signal(f)),
    "deliver a death": lambda s, f: flows.deliver(signal(f, "fp")),
    "deliver an ignored death": lambda s, f: flows.deliver(signal(f, "id")),
    "offer a death": lambda s, f: flows.offer(signal(f, "fp")),
    "offer a death again": after(both_dead, then=lambda s, f: flows.offer(signal(f, "fp"))),
    "add again": after(both_dead, then=told_late),
    "add above what is done": add_above_done,
    "add above what is dead": add_above_dead,
}
"""Verbs that are refused."""

KILLS = {"add again", "add above what is dead"}
"""Of these, the ones that say nothing of a death which the parent ignores."""

BULK: dict[str, Build] = {
    "complete many": lambda s, f: jobs.complete_many(s.queue, [(i, 1) for i in both(f)], result=b"r"),
    "sweep of a cancelled one": after(lapse, cancelled, then=lambda s, f: jobs.sweep(s.queue, max_stalled=9)),
    "sweep": after(lapse, then=lambda s, f: jobs.sweep(s.queue)),
    "claim": after(back, cancelled, then=lambda s, f: jobs.claim_many(s.queue, 9)),
    "lane claim": after(in_lane, cancelled, then=lambda s, f: lanes.claim(s.queue)),
    "claim from a lane": after(in_lane, cancelled, then=lambda s, f: jobs.claim_many(s.queue, 9)),
    "purge": after(both_dead, then=lambda s, f: morgue.purge(s.queue, both(f))),
    "retain": after(both_dead, keep_none, then=lambda s, f: admin.retain(s.queue)),
    "drain": after(back, then=lambda s, f: next(admin.drain(s.queue))),
    "drain the schedule": after(schedule, then=lambda s, f: next(admin.drain(s.queue, scheduled=True))),
    "drain a lane": after(in_lane, then=lambda s, f: next(lanes.drain(s.queue, LANE))),
}
"""Verbs that pass one job by."""

PASS_BY = {"complete_many", "sweep", "claim", "lane claim", "purge", "retain", "drain", "drain lane"}


def damages(scene: Scene, family: Family) -> list[str]:
    above = [scene.keys.job(each)[len(scene.keys.base) :] for each in (family.parent, family.root.id)]
    child = scene.keys.job(family.child)[len(scene.keys.base) :] + ":result"
    return [*(f"{row}:{name}" for row in above for name in SUBKEYS), child, *SETS]


def shape(scene: Scene, family: Family) -> dict[str, Any]:
    """What became of the family: each one's state, where it is, and the books; no times."""
    rows = (family.child, family.parent, family.root.id, family.other)
    ends: dict[str, Any] = {each: (scene.row(each).get(b"state"), sorted(scene.places(each))) for each in rows}
    for each in (family.parent, family.root.id):
        ends[each] += tuple(
            scene.execute("GET" if name in ("dependencies", "result") else "HGETALL", f"{scene.keys.job(each)}:{name}")
            for name in SUBKEYS
        )
    return ends | {"outbox": scene.execute("LRANGE", scene.keys.outbox, 0, -1)}


def check(scene: Scene, family: Family, call: Call[Any]) -> list[str]:
    """What went wrong, over every key and type."""
    sound = kept(scene)
    assert not isinstance(scene.runner.reply(call), ReplyError)
    scene.outcome(call)
    scene.outcome(call)
    whole, wrong = shape(scene, family), []
    for name in damages(scene, family):
        key = scene.keys.base + name
        for command, *value in OTHER_TYPES:
            put_back(scene, sound)
            kind = scene.execute("TYPE", key)
            scene.execute("DEL", key)
            scene.execute(command, key, *value)
            if scene.execute("TYPE", key) == kind:
                continue
            before = kept(scene)
            reply = scene.runner.reply(call)
            now = kept(scene)
            told = f"{name} by {command}: {reply!r}"
            if isinstance(reply, ReplyError) and now != before:
                wrong.append(f"{told}, and wrote {[k for k in {*now, *before} if now.get(k) != before.get(k)]}")
            stayed = before.get(key.encode()) == now.get(key.encode())
            refused = isinstance(reply, ReplyError) or call.verb in PASS_BY
            if not stayed or not refused:
                continue  # a key that is deleted or set whatever it held, or is taken for a finished parent's guard
            scene.execute("DEL", key)
            if key.encode() in sound:
                dumped, ttl = sound[key.encode()]
                scene.execute("RESTORE", key, HOUR if ttl else 0, dumped)
            scene.outcome(call)
            scene.outcome(call)
            if name.startswith(("job:", "flow:")) and shape(scene, family) != whole:
                wrong.append(f"{told}; mended and called again: {shape(scene, family)}, not {whole}")
    return wrong


@pytest.mark.deadline(120)
@pytest.mark.parametrize("on_death", OnDeath)
@pytest.mark.parametrize("verb", sorted({*ONE, *BULK} - KILLS))
def test_what_fails_has_written_nothing_and_the_next_time_does_it(scene: Scene, verb: str, on_death: OnDeath) -> None:
    theirs = family(scene, on_death)
    call = {**ONE, **BULK}[verb](scene, theirs)
    assert check(scene, theirs, call) == []


@pytest.mark.deadline(120)
@pytest.mark.parametrize("verb", sorted(KILLS))
def test_an_add_that_fails_has_written_nothing(scene: Scene, verb: str) -> None:
    theirs = family(scene)
    assert check(scene, theirs, ONE[verb](scene, theirs)) == []


OF_THE_CHILD = {
    *("complete", "complete after a death", "bury", "bury again", "cancel", "remove", "remove from the morgue"),
    *("reprocess the child", *BULK),
}
ABOVE = [("parent", verb) for verb in sorted(OF_THE_CHILD)] + [
    ("grandparent", verb) for verb in sorted({*ONE, *BULK}) if not verb.startswith("add")
]


@pytest.mark.deadline(120)
@pytest.mark.parametrize(("level", "verb"), ABOVE)
def test_what_cannot_leave_the_queue_has_done_nothing(scene: Scene, verb: str, level: str) -> None:
    theirs = family(scene, level=level)
    call = {**ONE, **BULK}[verb](scene, theirs)
    assert check(scene, theirs, call) == []


@pytest.mark.parametrize("verb", BULK)
@pytest.mark.parametrize("name", ["dependencies", "failed", "processed", "unsuccessful"])
def test_a_job_that_is_passed_by_harms_no_other(scene: Scene, verb: str, name: str) -> None:
    theirs = family(scene)
    call = BULK[verb](scene, theirs)
    row, place = scene.row(theirs.child), scene.places(theirs.child)
    key = f"{scene.keys.job(theirs.parent)}:{name}"
    scene.execute("DEL", key)
    scene.execute("ZADD", key, "1", "x")
    before = scene.row(theirs.other), scene.places(theirs.other)
    scene.run(call)
    assert (scene.row(theirs.child), scene.places(theirs.child)) == (row, place)
    assert (scene.row(theirs.other), scene.places(theirs.other)) != before
    assert scene.places(theirs.other) != before[1]
    if verb == "lane claim":
        assert scene.execute("LRANGE", scene.keys.ring, 0, -1) == [LANE.encode()]


def test_a_thousand_that_cannot_be_told_hide_nothing_behind_them_from_a_drain(scene: Scene) -> None:
    children = tuple(Node(scene.queue, scene.mint(), b"c", on_death=OnDeath.IGNORE) for _ in range(900))
    stuck = Node(scene.queue, scene.mint(), b"p", children)
    released = Node(scene.queue, scene.mint(), b"p", (Node(scene.queue, scene.mint(), b"c", on_death=OnDeath.IGNORE),))
    scene.finish(flows.add(stuck))
    scene.finish(flows.add(released))
    scene.run(jobs.enqueue_many(scene.queue, [(scene.mint(), b"p") for _ in range(1_500)]))
    scene.execute("SET", f"{scene.keys.job(stuck.id)}:processed", "abc")
    assert scene.finish(admin.drain(scene.queue)) == 1_502
    assert set(scene.snapshot().places["pending"]) == {child.id for child in children}
    scene.execute("DEL", f"{scene.keys.job(stuck.id)}:processed")
    assert scene.finish(admin.drain(scene.queue)) == 901
    assert scene.dump().keys() <= {scene.keys.wake.encode()}


def test_a_parent_that_is_released_before_those_that_stay_is_drained_too(scene: Scene) -> None:
    early, late = scene.minter.mint_many(2)
    stays = Node(scene.queue, scene.mint(), b"c")
    stuck = Node(scene.queue, late, b"p", (stays,))
    released = Node(scene.queue, early, b"p", (Node(scene.queue, scene.mint(), b"c", on_death=OnDeath.IGNORE),))
    scene.finish(flows.add(stuck))
    scene.finish(flows.add(released))
    scene.execute("SET", f"{scene.keys.job(late)}:processed", "abc")
    assert scene.finish(admin.drain(scene.queue)) == 2
    assert set(scene.snapshot().places["pending"]) == {stays.id}


def test_what_cannot_be_purged_keeps_no_younger_one_from_its_place(scene: Scene) -> None:
    theirs = family(scene)
    both_dead(scene, theirs)
    scene.execute("SET", f"{scene.keys.job(theirs.parent)}:processed", "abc")
    rest = scene.minter.mint_many(4)
    scene.run(jobs.enqueue_many(scene.queue, [(i, b"p") for i in rest]))
    for job_id in rest:
        scene.run(admin.cancel_job(scene.queue, job_id))
    scene.run(admin.set_retention(scene.queue, dead_max=2, dead_age_ms=None))
    for _ in range(3):
        scene.run(admin.retain(scene.queue, budget=1))
    assert set(scene.snapshot().places["dead"]) == {theirs.child, *rest[2:]}


def test_an_end_that_was_refused_counts_once_it_is_told_again(scene: Scene) -> None:
    theirs = family(scene)
    key = f"{scene.keys.job(theirs.parent)}:dependencies"
    count = scene.execute("GET", key)
    scene.execute("DEL", key)
    scene.execute("RPUSH", key, "x")
    for call in (
        jobs.complete(scene.queue, theirs.child, 1, result=b"r"),
        flows.deliver(signal(theirs)),
        flows.deliver(signal(theirs, "id")),
    ):
        scene.refusal(call)
    (refused,) = scene.run(jobs.complete_many(scene.queue, [(theirs.child, 1)]))
    assert "cannot write its lane or its parent" in str(refused)
    scene.execute("DEL", key)
    scene.execute("SET", key, count)
    scene.run(jobs.complete(scene.queue, theirs.child, 1, result=b"r"))
    assert scene.run(metrics.state(scene.queue, theirs.parent)) is State.PENDING
    assert scene.run(flows.children_values(scene.queue, theirs.parent)) == {theirs.child: b"r"}
