"""Flows across queues (protocol §8): pumps side by side that die anywhere lose nothing and release once."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Any

import pytest

import support.delivering
from echomq.protocol import flows, jobs, metrics
from echomq.protocol.flows import Node, OnDeath
from echomq.protocol.replies import Completion
from support.flowing import claimed, die, node
from support.runner import Scene
from support.servers import Server


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
