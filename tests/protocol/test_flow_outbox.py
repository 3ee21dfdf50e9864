"""Flows across queues (protocol §8): the outbox, whoever delivers it, however often, and whatever lies in it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from random import Random
from typing import Any

import pytest

import support.delivering
from echomq.identity.errors import InvalidInputError
from echomq.protocol import admin, flows, jobs, metrics
from echomq.protocol.call import Call, Plan
from echomq.protocol.flows import Node, OnDeath
from echomq.protocol.replies import Admission, Claimed, Completion, State
from support.runner import Scene
from support.servers import Server

JOB_ID = "JOB0NgWEfAEJfs"


def beside(scene: Scene, name: str) -> Scene:
    """Another queue, whose ids come from the same mint."""
    other = Scene(scene.runner, scene.queue + name)
    other.minter, other.mint = scene.minter, scene.mint
    return other


@pytest.fixture
def other(scene: Scene) -> Scene:
    """The queue of the children."""
    return beside(scene, "-children")


@pytest.fixture
def third(scene: Scene) -> Scene:
    """A queue with a difficult name."""
    return beside(scene, ":+ü")


def node(scene: Scene, *children: Node, dies: OnDeath = OnDeath.FAIL_PARENT) -> Node:
    return Node(scene.queue, scene.mint(), "p", children, dies)


def add(scene: Scene, root: Node) -> list[Admission]:
    return list(scene.finish(flows.add(root)).values())


def state(scene: Scene, each: Node) -> State:
    return scene.run(metrics.state(each.queue, each.id))


def claimed(scene: Scene) -> dict[str, Claimed]:
    return {job.id: job for job in scene.run(jobs.claim_many(scene.queue, 10_000)).jobs}


def finish(scene: Scene, each: Node, result: bytes = b"", token: int = 1) -> None:
    done = jobs.Finished(each.id, token, result)
    (answer,) = scene.run(jobs.complete_many(scene.queue, [done]))
    assert answer in (Completion.SIGNALLED, Completion.RETIRED)


def die(scene: Scene, each: Node, error: str = "boom", token: int = 1) -> None:
    scene.run(jobs.retry(scene.queue, each.id, token, delay_ms=0, max_attempts=token, error=error))


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


# What is left in the outbox


@pytest.mark.parametrize("result", [b"", b"r", b"\0", b"a\0b\0c\0d\0e\0f\0g", b"\xff\0", b"\0fail\0"])
def test_a_result_goes_through_the_outbox_whatever_bytes_it_holds(scene: Scene, other: Scene, result: bytes) -> None:
    child = node(other)
    root = node(scene, child)
    assert add(scene, root) == [Admission.ADMITTED] * 2
    assert other.row(child.id)[b"parent_queue"] == scene.queue.encode()
    claimed(other)
    assert other.run(jobs.complete_many(other.queue, [jobs.Finished(child.id, 1, result)])) == (Completion.SIGNALLED,)
    assert outbox(other) == [b"\0".join((scene.queue.encode(), root.id.encode(), child.id.encode(), result))]
    assert state(scene, root) is State.AWAITING_CHILDREN
    scene.drop_tokens()
    assert deliver(other) == 1
    assert scene.run(flows.children_values(scene.queue, root.id)) == {child.id: result}
    assert (state(scene, root), scene.tokens(), outbox(other)) == (State.PENDING, 1, [])


@pytest.mark.parametrize("dies", OnDeath)
@pytest.mark.parametrize("error", ["", "e", "a\0b\0c\0d\0e\0f\0g", "ü\0"])
def test_a_death_goes_through_the_outbox_with_its_policy(scene: Scene, other: Scene, dies: OnDeath, error: str) -> None:
    child = node(other, dies=dies)
    root = node(scene, child)
    add(scene, root)
    claimed(other)
    die(other, child, error)
    words = (
        b"",
        b"fail",
        scene.queue.encode(),
        root.id.encode(),
        child.id.encode(),
        dies.value.encode(),
        error.encode(),
    )
    assert outbox(other) == [b"\0".join(words)]
    deliver(other)
    if dies is OnDeath.IGNORE:
        assert scene.run(flows.ignored_failures(scene.queue, root.id)) == {child.id: error.encode()}
        assert state(scene, root) is State.PENDING
    else:
        assert scene.run(flows.failures(scene.queue, root.id)) == {child.id: error.encode()}
        assert state(scene, root) is State.DEAD
        assert scene.row(root.id)[b"last_error"] == f"child {child.id} failed: {error}".encode()


def test_a_release_and_a_death_go_up_over_three_queues(scene: Scene, other: Scene, third: Scene) -> None:
    for dies in (False, True):
        leaf = node(third)
        middle = node(other, leaf)
        root = node(scene, node(scene, middle))
        assert add(scene, root) == [Admission.ADMITTED] * 4
        claimed(third)
        (die if dies else finish)(third, leaf)
        assert deliver(third) == 1
        if not dies:
            assert list(claimed(other)) == [middle.id]
            finish(other, middle)
        assert deliver(other) == 1
        top = root.children[0]
        assert state(scene, top) is (State.DEAD if dies else State.PENDING)
        assert state(scene, root) is (State.DEAD if dies else State.AWAITING_CHILDREN)
        if not dies:
            claimed(scene)
            finish(scene, top)
            claimed(scene)
            finish(scene, root)


def test_a_parent_in_the_same_queue_may_be_signalled_through_the_outbox(scene: Scene) -> None:
    child = node(scene)
    root = node(scene, child)
    add(scene, root)
    scene.execute("HSET", scene.keys.job(child.id), "parent_queue", scene.queue)
    claimed(scene)
    finish(scene, child, b"r")
    assert state(scene, root) is State.AWAITING_CHILDREN
    assert deliver(scene) == 1
    assert state(scene, root) is State.PENDING


DEATHS: dict[str, Callable[[Scene, Node], Any]] = {
    "stalled": lambda scene, child: (scene.lapse(child.id), scene.run(jobs.sweep(scene.queue))),
    "removed": lambda scene, child: scene.run(admin.remove_job(scene.queue, child.id)),
    "cancelled": lambda scene, child: (
        scene.run(jobs.release(scene.queue, child.id, 1)),
        scene.run(admin.cancel_job(scene.queue, child.id)),
    ),
    "drained": lambda scene, child: (
        scene.run(jobs.release(scene.queue, child.id, 1)),
        scene.finish(admin.drain(scene.queue)),
    ),
}


@pytest.mark.parametrize("how", DEATHS)
def test_every_death_leaves_a_signal(scene: Scene, other: Scene, how: str) -> None:
    child = node(other)
    root = node(scene, child)
    add(scene, root)
    claimed(other)
    DEATHS[how](other, child)
    assert deliver(other) == 1
    assert state(scene, root) is State.DEAD
    (error,) = scene.run(flows.failures(scene.queue, root.id)).values()
    assert how.encode() in error


def test_a_result_that_is_cut_short_by_nobody(scene: Scene, other: Scene) -> None:
    child = node(other)
    root = node(scene, child)
    add(scene, root)
    claimed(other)
    result = bytes(range(256)) * 4_000
    finish(other, child, result)
    deliver(other)
    assert scene.run(flows.children_values(scene.queue, root.id)) == {child.id: result}


# Delivered more than once


@pytest.mark.parametrize("dies", [None, *OnDeath])
def test_a_signal_that_comes_again_has_no_effect(scene: Scene, other: Scene, dies: OnDeath | None) -> None:
    child = node(other, dies=dies or OnDeath.FAIL_PARENT)
    root = node(scene, child, node(other))
    add(scene, root)
    claimed(other)
    die(other, child) if dies else finish(other, child)
    (entry,) = outbox(other)
    assert scene.run(flows.deliver(entry)) == 1
    before = scene.dump()
    for _ in range(3):
        scene.run(flows.deliver(entry))
    assert scene.dump() == before
    assert [scene.run(flows.settle(other.queue, entry)) for _ in range(3)] == [1, 0, 0]


@pytest.mark.parametrize("dies", [None, *OnDeath])
def test_a_signal_to_a_parent_that_is_finished_or_gone_is_dropped(
    scene: Scene, other: Scene, dies: OnDeath | None
) -> None:
    child = node(other, dies=dies or OnDeath.FAIL_PARENT)
    root = node(scene, child)
    add(scene, root)
    claimed(other)
    die(other, child) if dies else finish(other, child)
    (entry,) = outbox(other)
    deliver(other)
    if dies is OnDeath.FAIL_PARENT:
        scene.run(admin.remove_job(scene.queue, root.id))
    else:
        claimed(scene)
        finish(scene, root)
    before = scene.dump()
    scene.run(flows.deliver(entry))
    scene.run(flows.deliver(entry.replace(child.id.encode(), other.mint().encode())))
    assert scene.dump() == before


def test_a_child_that_died_and_then_succeeds_counts_across_queues(scene: Scene, other: Scene) -> None:
    child, rest = node(other), node(other)
    root = node(scene, child, rest)
    add(scene, root)
    claimed(other)
    die(other, child)
    deliver(other)
    scene.run(admin.reprocess_job(scene.queue, root.id))
    scene.run(admin.reprocess_job(other.queue, child.id))
    claimed(other)
    finish(other, rest)
    finish(other, child, token=2)
    deliver(other)
    assert state(scene, root) is State.PENDING
    assert scene.run(flows.failures(scene.queue, root.id)) == {}


# Adding again


def everything(scene: Scene) -> dict[bytes, Any]:
    return {key: value for key, value in scene.dump().items() if not key.endswith((b":wake", b":turn"))}


def test_adding_again_at_any_time_runs_nothing_again(scene: Scene, other: Scene) -> None:
    leaves = [node(other), node(other), node(scene)]
    middle = node(other, leaves[1])
    root = node(scene, leaves[0], middle, leaves[2])
    add(scene, root)

    def again_changes_nothing() -> None:
        before = everything(scene)
        assert set(add(scene, root)) == {Admission.DUPLICATE}
        assert everything(scene) == before

    again_changes_nothing()
    claimed(other)
    claimed(scene)
    again_changes_nothing()
    for step in (
        lambda: finish(other, leaves[0]),
        lambda: deliver(other),
        lambda: die(other, leaves[1]),
        lambda: deliver(other),
        lambda: scene.run(admin.remove_job(other.queue, leaves[1].id)),
        lambda: scene.run(admin.remove_job(other.queue, middle.id)),
        lambda: deliver(other),
        lambda: finish(scene, leaves[2]),
    ):
        step()
        again_changes_nothing()
    assert state(scene, root) is State.DEAD


def test_adding_again_when_all_is_done_runs_nothing_again(scene: Scene, other: Scene) -> None:
    leaf = node(other)
    middle = node(other, leaf)
    root = node(scene, middle)
    add(scene, root)
    for each in (leaf, middle):
        claimed(other)
        finish(other, each)
        assert set(add(scene, root)) == {Admission.DUPLICATE}
        deliver(other)
    claimed(scene)
    finish(scene, root)
    assert set(add(scene, root)) == {Admission.DUPLICATE}
    assert scene.run(jobs.pending_size(other.queue)) == 0


def test_a_kept_result_of_the_parent_keeps_the_whole_flow_from_running_again(scene: Scene, other: Scene) -> None:
    child = node(other)
    root = node(scene, child)
    add(scene, root)
    claimed(other)
    finish(other, child)
    deliver(other)
    claimed(scene)
    scene.run(jobs.complete(scene.queue, root.id, 1, result_ttl_ms=60_000))
    for name in ("dependencies", "processed"):
        assert scene.execute("DEL", f"{scene.keys.job(root.id)}:{name}") == 1
    before = everything(scene)
    assert add(scene, root) == [Admission.DUPLICATE] * 2
    assert everything(scene) == before


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


@pytest.mark.parametrize("calls", range(1, 4))
def test_a_flow_that_was_added_in_part_goes_on_from_there(scene: Scene, other: Scene, third: Scene, calls: int) -> None:
    leaf = node(third)
    middle = node(other, leaf)
    near, far = node(scene), node(other)
    root = node(scene, near, middle, far)
    add_in_part(scene, root, calls)
    early = {**claimed(scene), **claimed(other)}
    for each in (near, far):
        if each.id in early:
            finish(scene if each is near else other, each)
    assert state(scene, root) is State.AWAITING_CHILDREN
    given = scene.finish(flows.add(root))
    assert given[root.id] is Admission.DUPLICATE
    assert {given[each] for each in early} <= {Admission.DUPLICATE}
    for _ in range(4):
        for desk in (third, other, scene):
            for job in claimed(desk).values():
                finish(desk, Node(desk.queue, job.id, ""))
            deliver(desk)
    assert state(scene, root) is State.ABSENT
    assert scene.run(metrics.counts(scene.queue)).completed == 2
    assert scene.run(metrics.counts(other.queue)).completed == 2
    assert scene.run(metrics.counts(third.queue)).completed == 1


def test_a_wide_flow_is_added_in_a_few_calls(scene: Scene, other: Scene) -> None:
    root = node(scene, *(node(other) for _ in range(2_500)))
    calls: list[Call[Any]] = []

    def counted() -> Plan[None]:
        plan, answer = flows.add(root), None
        with suppress(StopIteration):
            while True:
                calls.append(plan.send(answer))
                answer = yield calls[-1]

    scene.finish(counted())
    assert [call.verb for call in calls] == ["flow strangers"] * 3 + ["flow add"] * 4
    assert scene.run(jobs.pending_size(other.queue)) == 2_500


def test_a_parent_that_was_removed_and_is_added_again_counts_what_has_ended_elsewhere(
    scene: Scene, other: Scene
) -> None:
    done, dead, alive = node(other), node(other, dies=OnDeath.IGNORE), node(other)
    root = node(scene, done, dead, alive)
    add(scene, root)
    claimed(other)
    scene.run(admin.remove_job(scene.queue, root.id))
    other.run(jobs.complete(other.queue, done.id, 1, result=b"r", result_ttl_ms=60_000))
    die(other, dead)
    deliver(other)
    assert add(scene, root) == [Admission.ADMITTED, *[Admission.DUPLICATE] * 3]
    deliver(other)
    assert scene.run(flows.outstanding(scene.queue, root.id)) == 1
    assert scene.run(flows.children_values(scene.queue, root.id)) == {done.id: b"r"}
    finish(other, alive)
    deliver(other)
    assert state(scene, root) is State.PENDING


# Malformed entries

MALFORMED = [
    b"",
    b"x",
    b"\0",
    b"\0\0\0",
    b"\0fail",
    b"\0fail\0q",
    b"\0fail\0q\0" + JOB_ID.encode(),
    b"\0fail\0q\0%b\0%b\0xx\0e" % (JOB_ID.encode(), JOB_ID.encode()),
    b"\0fail\0q\0%b\0%b\0fp" % (JOB_ID.encode(), JOB_ID.encode()),
    b"\0fail\0\0%b\0%b\0fp\0e" % (JOB_ID.encode(), JOB_ID.encode()),
    b"q\0" + JOB_ID.encode(),
    b"q\0%b\0%b" % (JOB_ID.encode(), JOB_ID.encode()),
    b"a b\0%b\0%b\0r" % (JOB_ID.encode(), JOB_ID.encode()),
    b"\xff\0%b\0%b\0r" % (JOB_ID.encode(), JOB_ID.encode()),
    b"q\0ORD0NgWEfAEJfs\0%b\0r" % JOB_ID.encode(),
    b"q\0%b\0\xff\0r" % JOB_ID.encode(),
    b"q{}\0%b\0%b\0r" % (JOB_ID.encode(), JOB_ID.encode()),
]


@pytest.mark.parametrize("entry", MALFORMED)
def test_a_malformed_entry_is_set_aside_and_does_not_block(scene: Scene, entry: bytes) -> None:
    child = node(scene)
    root = node(scene, child)
    add(scene, root)
    scene.execute("RPUSH", scene.keys.outbox, entry, entry)
    scene.execute("HSET", scene.keys.job(child.id), "parent_queue", scene.queue)
    claimed(scene)
    finish(scene, child)
    for each in scene.run(flows.outbox(scene.queue)):
        if each == entry:
            with pytest.raises(InvalidInputError, match="malformed"):
                flows.deliver(each)
            assert scene.run(flows.reject(scene.queue, each)) == 1
        else:
            scene.run(flows.deliver(each))
            scene.run(flows.settle(scene.queue, each))
    assert scene.run(flows.reject(scene.queue, entry)) == 0
    assert scene.run(flows.rejected(scene.queue)) == (entry, entry)
    assert (outbox(scene), state(scene, root)) == ([], State.PENDING)


def test_the_newest_thousand_malformed_entries_are_kept(scene: Scene) -> None:
    scene.execute("RPUSH", scene.keys.outbox, *range(1_002))
    for n in range(1_002):
        scene.run(flows.reject(scene.queue, b"%d" % n))
    kept = scene.run(flows.rejected(scene.queue, limit=5_000))
    assert kept == tuple(b"%d" % n for n in range(1_001, 1, -1))


@pytest.mark.parametrize("entry", [None, "x", 5, ["x"]])
def test_an_entry_that_is_no_bytes(entry: Any) -> None:
    with pytest.raises(InvalidInputError):
        flows.deliver(entry)


def test_a_read_of_nothing_is_refused() -> None:
    for build in (flows.outbox, flows.rejected):
        with pytest.raises(InvalidInputError):
            build("q", limit=0)


# Pumps


def thousand(scene: Scene, other: Scene) -> tuple[list[Node], set[str], set[str]]:
    """A hundred parents of ten children each, all of which have ended; the parents to be released, and to die."""
    roots = [
        node(scene, *(node(other, dies=OnDeath.IGNORE if n % 3 == 1 else OnDeath.FAIL_PARENT) for _ in range(10)))
        for n in range(100)
    ]
    scene.finish(flows.add_bulk(roots))
    claimed(other)
    live = []
    for n, root in enumerate(roots):
        for child in root.children[:1]:
            if n % 3:
                die(other, child)
            else:
                live.append(child)
        live += root.children[1:]
    done = [jobs.Finished(child.id, 1, f"result of {child.id}") for child in live]
    assert set(other.run(jobs.complete_many(other.queue, done))) == {Completion.SIGNALLED}
    assert other.execute("LLEN", other.keys.outbox) == 1_000
    doomed = {root.id for n, root in enumerate(roots) if n % 3 == 2}
    return roots, {root.id for root in roots} - doomed, doomed


def released_once(scene: Scene, released: set[str], doomed: set[str], seen: Counter[str]) -> None:
    """Every parent that could run has run once, every other one is dead once."""
    for job_id in claimed(scene):
        seen[job_id] += 1
    assert seen == Counter(released)
    assert set(scene.snapshot().places["dead"]) == doomed
    assert scene.run(metrics.counts(scene.queue)).failed == len(doomed)


def pump(other: Scene, batch: int) -> Iterator[Any]:
    """A pump that may be stopped, or killed, between any two of its calls."""
    while entries := other.run(flows.outbox(other.queue, limit=batch)):
        yield
        for entry in entries:
            other.run(flows.deliver(entry))
            yield
            other.run(flows.settle(other.queue, entry))
            yield


def test_two_pumps_in_any_order_killed_at_any_point(scene: Scene, other: Scene) -> None:
    _, released, doomed = thousand(scene, other)
    random, seen = Random(7), Counter[str]()
    pumps = [pump(other, random.randint(1, 30)) for _ in range(2)]
    while other.execute("LLEN", other.keys.outbox):
        n = random.randrange(2)
        if next(pumps[n], "end") == "end" or random.random() < 0.02:
            pumps[n] = pump(other, random.randint(1, 30))
        if random.random() < 0.01:
            for job in scene.run(jobs.claim_many(scene.queue, 3)).jobs:
                seen[job.id] += 1
                scene.run(jobs.complete(scene.queue, job.id, job.token))
    released_once(scene, released, doomed, seen)


@contextmanager
def delivering(server: Server, queue: str, count: int) -> Iterator[None]:
    """Processes of `support.delivering` that run, and are killed at the end."""
    with ExitStack() as stack:
        processes = []
        for _ in range(count):
            process = subprocess.Popen(
                [sys.executable, support.delivering.__file__, server.socket_path, queue],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
            stack.callback(process.__exit__, None, None, None)
            stack.callback(process.kill)
            processes.append(process)
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write(b"g")
            process.stdin.flush()
        yield


@pytest.mark.chaos
def test_pumps_that_are_killed_lose_nothing_and_release_every_parent_once(
    server: Server, scene: Scene, other: Scene
) -> None:
    _, released, doomed = thousand(scene, other)
    random, seen, kills = Random(), Counter[str](), 0

    def left() -> int:
        for job in scene.run(jobs.claim_many(scene.queue, 2)).jobs:
            seen[job.id] += 1
            scene.run(jobs.complete(scene.queue, job.id, job.token))
        count: int = scene.execute("LLEN", other.keys.outbox)
        return count

    while count := left():
        with delivering(server, other.queue, 2):
            goal, end = max(count - random.randint(1, 100), 0), time.monotonic() + 20
            while left() > goal:
                assert time.monotonic() < end, "the outbox does not shrink"
        kills += 2
    assert kills >= 10
    released_once(scene, released, doomed, seen)
