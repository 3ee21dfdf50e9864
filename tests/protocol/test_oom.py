"""A full server (protocol §5): admission is refused before anything is written; what settles, moves or frees works."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from echomq.protocol import jobs, metrics, repeat
from echomq.protocol.call import Call
from echomq.protocol.errors import ServerError, ServerFullError
from echomq.protocol.replies import Completion, Extension, Rescheduling, Retried, Sweep
from support.runner import Runner, Scene
from support.servers import Server, wait_until

GROUP = "LAN00000000001"


@pytest.fixture
def full(start_server: Callable[..., Server]) -> Iterator[Scene]:
    """A queue with eight jobs in hand, one scheduled and a recurrence, on a server of its own."""
    server = start_server(options=("--maxmemory-policy", "noeviction"))
    with server.client() as client:
        scene = Scene(Runner(client), "full")
        yield scene
        client.execute("CONFIG", "SET", "maxmemory", 0)


def fill_up(scene: Scene) -> None:
    """From now on the server is above its limit."""
    scene.execute("CONFIG", "SET", "maxmemory", 1)


def held(scene: Scene, count: int) -> list[str]:
    ids = scene.minter.mint_many(count)
    scene.run(jobs.enqueue_many(scene.queue, [(i, b"p") for i in ids]))
    scene.run(jobs.claim_many(scene.queue, count))
    return ids


def admissions(scene: Scene) -> dict[str, Call[Any]]:
    now = scene.now_ms()
    return {
        "enqueue": jobs.enqueue(scene.queue, scene.mint(), b"p"),
        "enqueue_many": jobs.enqueue_many(scene.queue, [(scene.mint(), b"p")]),
        "enqueue_in": jobs.enqueue_in(scene.queue, scene.mint(), b"p", delay_ms=1),
        "register": repeat.register(scene.queue, "m", every_ms=5, template=b"t", first_run_ms=1),
        "upsert": repeat.upsert(scene.queue, "m", every_ms=5, template=b"t", first_run_ms=1),
        "fire": repeat.fire(scene.queue, "n", score=str(now - 5), job_id=scene.mint()),
    }


@pytest.mark.parametrize("verb", ["enqueue", "enqueue_many", "enqueue_in", "register", "upsert", "fire"])
def test_admission_is_refused_and_writes_nothing(full: Scene, verb: str) -> None:
    call = admissions(full)[verb]
    if verb == "fire":
        first = int(str(call.args[1]))
        full.run(repeat.register(full.queue, "n", every_ms=9, template=b"t", first_run_ms=first))
    assert call.script is not None
    full.execute("SCRIPT", "LOAD", call.script.source)
    fill_up(full)
    refusal = full.refusal(call)
    assert isinstance(refusal, ServerFullError)
    assert "maxmemory" in str(refusal)


def test_what_settles_moves_or_frees_still_works(full: Scene) -> None:
    q = full.queue
    ids = held(full, 9)
    back, waiting, scheduled = full.minter.mint_many(3)
    full.run(jobs.enqueue(q, waiting, b"p"))
    full.run(jobs.enqueue_in(q, scheduled, b"p", delay_ms=60_000))
    full.run(repeat.register(q, "n", every_ms=5, template=b"t", first_run_ms=1))
    full.into_lane(GROUP, back)
    full.lapse(ids[8])
    fill_up(full)
    # Not one of these scripts is in the cache yet: loading them must work too.
    assert full.run(jobs.complete(q, ids[0], 1)) is Completion.RETIRED
    assert full.run(jobs.complete_many(q, [(ids[1], 1)])) == (Completion.RETIRED,)
    retry = jobs.retry(q, ids[2], 1, delay_ms=0, max_attempts=9, error="e" * 10_000)
    assert full.run(retry) is Retried.SCHEDULED
    bury = jobs.retry(q, ids[3], 1, delay_ms=0, max_attempts=1, error="e")
    assert full.run(bury) is Retried.DEAD
    full.run(jobs.delay(q, ids[4], 1, delay_ms=0))
    full.run(jobs.release(q, ids[5], 1))
    assert full.run(jobs.extend(q, ids[6], 1)) is Extension.EXTENDED
    assert full.run(jobs.extend_many(q, [(ids[6], 1)])) == ()
    assert full.run(jobs.sweep(q, max_stalled=2)) == Sweep((ids[8],), ())
    assert full.run(jobs.extend(q, ids[7], 1, lease_ms=1)) is Extension.EXTENDED
    wait_until(lambda: full.run(jobs.reap(q)) == 1)
    assert full.run(jobs.reschedule(q, scheduled, at_ms=1)) is Rescheduling.MOVED
    assert full.run(jobs.promote(q)) == 3
    claims = full.run(jobs.claim_many(q, 99))
    assert len(claims.jobs) == 8
    assert full.run(repeat.due(q, now_ms=9)) != ()
    assert full.run(repeat.advance(q, "n", next_run_ms=7)) is True
    assert full.run(repeat.cancel(q, "n")) is True
    assert full.run(metrics.counts(q)).dead == 1
    assert full.run(metrics.state(q, ids[3])).value == "dead"
    settled = full.run(jobs.complete_many(q, [(job.id, job.attempts) for job in claims.jobs]))
    assert set(settled) == {Completion.RETIRED}
    full.execute("CONFIG", "SET", "maxmemory", 0)


def test_a_server_that_has_room_again_admits_again(full: Scene) -> None:
    call = jobs.enqueue(full.queue, full.mint(), b"p")
    fill_up(full)
    assert isinstance(full.outcome(call), ServerFullError)
    full.execute("CONFIG", "SET", "maxmemory", 0)
    assert not isinstance(full.outcome(call), ServerError)
