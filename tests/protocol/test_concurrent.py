"""Many clients at once, frozen and killed ones among them: one occurrence a slot, every job once, none lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from random import Random

import pytest

import support.firing
from echomq.protocol import jobs, repeat
from echomq.protocol.call import Call
from echomq.protocol.errors import ServerError
from echomq.protocol.replies import Completion
from support.runner import Runner, Scene
from support.servers import Server, wait_until, wire_6

PUMPS = 8


class Pump:
    """One process of `support.firing`, and the lines it has printed."""

    def __init__(self, server: Server, queue: str, *options: str) -> None:
        self.lines: list[list[str]] = []
        self.process = subprocess.Popen(
            [sys.executable, support.firing.__file__, server.socket_path, queue, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.decode().split())

    def said(self, word: str) -> list[list[str]]:
        """The lines that begin with a word."""
        return [line for line in list(self.lines) if line[0] == word]

    def end(self) -> None:
        """Close its input and wait for it."""
        self.process.send_signal(signal.SIGCONT)
        if self.process.stdin:
            self.process.stdin.close()
        try:
            assert self.process.wait(20) == 0
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            self._reader.join()
            if self.process.stdout:
                self.process.stdout.close()


@contextmanager
def pumping(server: Server, queue: str) -> Iterator[list[Pump]]:
    """Eight pumps that run, the first of which will freeze between reading and firing."""
    pumps = [Pump(server, queue, *(["freeze"] if n == 0 else [])) for n in range(PUMPS)]
    try:
        wait_until(lambda: all(pump.said("ready") for pump in pumps), seconds=30, what="every pump runs")
        yield pumps
    finally:
        for pump in pumps:
            pump.end()


@pytest.mark.chaos
def test_eight_pumps_one_of_them_frozen_fire_each_slot_once(server: Server, scene: Scene) -> None:
    every_ms = 200
    with pumping(server, scene.queue) as pumps:
        first = scene.now_ms() + 50
        register = repeat.register(scene.queue, "n", every_ms=every_ms, template=b"t", first_run_ms=first)
        assert scene.run(register)
        wait_until(lambda: pumps[0].said("frozen"), what="the first pump has read a slot and stopped")
        stale = pumps[0].said("frozen")[0][1]
        # Three seconds: as many slots as go by meanwhile.
        wait_until(
            lambda: scene.now_ms() >= int(stale) + 3_000 and sum(len(p.said("fired")) for p in pumps) > 5,
            seconds=30,
            what="the others went on",
        )
        assert not pumps[0].said("fired")
        os.kill(pumps[0].process.pid, signal.SIGCONT)
        wait_until(lambda: pumps[0].said("lost"), what="the thawed pump has fired what it read")
        assert pumps[0].said("lost")[0][1] == stale
        thawed = scene.now_ms()
        wait_until(lambda: scene.now_ms() > thawed + 3 * every_ms, what="it goes on with the others")
        scene.run(repeat.cancel(scene.queue, "n"))
        wait_until(lambda: scene.execute("EXISTS", scene.keys.pending, scene.keys.active) == 0, what="all done")

    fired = sorted((int(line[1]), int(line[2])) for pump in pumps for line in pump.said("fired"))
    slots = [slot for slot, _ in fired]
    assert len(slots) > 10
    assert len(set(slots)) == len(slots), "a slot was fired twice"
    assert slots[0] == first
    assert all((slot - first) % every_ms == 0 for slot in slots), "a slot is off the grid"
    # Each fire names the next slot, so what lies between two of them had passed before the first of them was fired.
    assert all(following == slot for (_, following), (slot, _) in pairwise(fired))
    done = [line[1] for pump in pumps for line in pump.said("done")]
    assert len(set(done)) == len(done) == len(slots)
    assert scene.execute("HGET", scene.keys.metrics_completed, "count") == b"%d" % len(slots)


# Runs isolated and without site: it only has to write some bytes and die.
WRITER = """
import os, signal, socket, sys
path, cut = sys.argv[1], int(sys.argv[2])
data = sys.stdin.buffer.read()
client = socket.socket(socket.AF_UNIX)
client.connect(path)
client.sendall(data[:cut])
if cut > len(data):
    client.recv(1)
os.kill(os.getpid(), signal.SIGKILL)
"""


def packed(*calls: Call[object]) -> bytes:
    """What a client writes to run these calls."""
    out = b""
    for call in calls:
        words = [
            w if isinstance(w, bytes) else str(w).encode() for w in (call.native_words() if wire_6() else call.words())
        ]
        out += b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(w), w) for w in words)
    return out


def write_and_die(server: Server, data: bytes, cut: int) -> None:
    """A client that is killed when it has written `cut` bytes, or read a byte of the answer if that is more."""
    writer = subprocess.run(
        [sys.executable, "-I", "-S", "-c", WRITER, server.socket_path, str(cut)], input=data, check=False
    )
    assert writer.returncode == -signal.SIGKILL


def where(scene: Scene, ids: set[str]) -> dict[str, set[str]]:
    """The ids by place; every one is in exactly one, and none is lost."""
    shot = scene.snapshot()
    places = {name: set(members) for name, members in shot.places.items()}
    assert Counter(i for members in places.values() for i in members) == Counter(ids)
    assert set(shot.rows) == ids
    return places


@pytest.mark.chaos
@pytest.mark.deadline(120)
def test_503_due_jobs_are_promoted_once_wherever_the_client_is_killed(server: Server, scene: Scene) -> None:
    ids = scene.minter.mint_many(503)
    flight = packed(jobs.promote(scene.queue, batch=500), jobs.promote(scene.queue, batch=500))
    one = len(packed(jobs.promote(scene.queue, batch=500)))
    cuts = sorted({*range(0, len(flight), 11), one - 1, one, one + 1, len(flight) - 1, len(flight), len(flight) + 1})
    seen: set[int] = set()
    for cut in cuts:
        for job_id in ids:
            scene.run(jobs.enqueue_at(scene.queue, job_id, b"p", at_ms=5))
        scene.run(jobs.promote("other"))  # the script is in the cache
        write_and_die(server, flight, cut)
        whole = 2 if cut >= len(flight) else int(cut >= one)
        expected = (0, 500, 503)[whole]
        wait_until(lambda n=expected: scene.execute("ZCARD", scene.keys.pending) == n, what=f"cut at {cut}")
        assert len(where(scene, set(ids))["pending"]) == expected
        seen.add(expected)
        while scene.run(jobs.promote(scene.queue, batch=500)):
            pass
        assert where(scene, set(ids))["pending"] == set(ids)
        assert scene.tokens() == 64
        claims = scene.run(jobs.claim_many(scene.queue, 1_000))
        assert [job.id for job in claims.jobs] == ids
        scene.execute("DEL", *scene.execute("KEYS", f"{scene.keys.base}*"))
    assert seen == {0, 500, 503}


@pytest.mark.chaos
def test_a_killed_client_leaves_a_claim_whole_or_unmade(server: Server, scene: Scene) -> None:
    ids = scene.minter.mint_many(7)
    claim = packed(jobs.claim_many(scene.queue, 5))
    scene.run(jobs.enqueue_many(scene.queue, [(i, b"p") for i in ids]))
    scene.run(jobs.claim_many("other", 1))
    for cut in (0, 1, len(claim) // 2, len(claim) - 1):
        write_and_die(server, claim, cut)
        assert where(scene, set(ids))["pending"] == set(ids)
    for cut, taken in ((len(claim), 5), (len(claim) + 1, 7)):
        write_and_die(server, claim, cut)
        wait_until(lambda n=taken: scene.execute("ZCARD", scene.keys.active) == n, what=f"cut at {cut}")
        assert len(where(scene, set(ids))["active"]) == taken
    scene.lapse(*ids)
    assert scene.run(jobs.sweep(scene.queue, max_stalled=2)).recovered == tuple(ids)


@pytest.mark.chaos
@pytest.mark.deadline(120)
def test_workers_that_forget_lapse_and_fail_complete_every_job_once(server: Server, scene: Scene) -> None:
    ids = scene.minter.mint_many(400)
    q = scene.queue
    groups = ["LAN00000000001", "LAN00000000002"]
    scene.execute("HSET", scene.keys.glimit, groups[0], 3)
    for n, job_id in enumerate(ids):
        if n % 4 < 2:
            scene.into_lane(groups[n % 4], job_id)
        elif n % 4 == 2:
            scene.run(jobs.enqueue_in(q, job_id, b"p", delay_ms=n))
        else:
            scene.run(jobs.enqueue(q, job_id, b"p"))
    claimed: list[tuple[str, int]] = []
    retired: list[str] = []

    def work(seed: int) -> None:
        random = Random(seed)
        with server.client() as client:
            run = Runner(client).outcome
            while len(retired) < len(ids):
                run(jobs.promote(q))
                run(jobs.sweep(q, max_stalled=10_000))
                mine = run(jobs.claim_many(q, random.randint(1, 5), lease_ms=20))
                assert not isinstance(mine, ServerError)
                for job in mine.jobs:
                    claimed.append((job.id, job.attempts))
                    fate = random.random()
                    if fate < 0.1:
                        continue  # forgotten: it lapses
                    if fate < 0.2:
                        run(jobs.retry(q, job.id, job.attempts, delay_ms=3, max_attempts=10_000, error="e"))
                    elif fate < 0.3:
                        run(jobs.delay(q, job.id, job.attempts, delay_ms=3))
                    elif fate < 0.4:
                        run(jobs.release(q, job.id, job.attempts))
                    elif run(jobs.complete(q, job.id, job.attempts)) is Completion.RETIRED:
                        retired.append(job.id)

    workers = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(retired) == ids, "every job is retired exactly once"
    assert len(set(claimed)) == len(claimed), "a token was given twice"
    assert scene.execute("HGET", scene.keys.metrics_completed, "count") == b"400"
    shot = scene.snapshot()
    assert (shot.rows, shot.gactive, shot.ring) == ({}, {}, [])
