"""Lapsed leases (protocol §5): reap returns them, the stalled sweep counts them and buries at the cap."""

from __future__ import annotations

import pytest

from echomq.protocol import jobs, lanes, metrics
from echomq.protocol.lanes import lane_id
from echomq.protocol.replies import Sweep
from support.runner import Scene


def held(scene: Scene, count: int) -> list[str]:
    """Jobs in hand, in mint order."""
    ids = scene.minter.mint_many(count)
    scene.run(jobs.enqueue_many(scene.queue, [(i, b"p") for i in ids]))
    assert len(scene.run(jobs.claim_many(scene.queue, count)).jobs) == count
    scene.drop_tokens()
    return ids


def test_reap_returns_what_expired_and_counts_nothing(scene: Scene) -> None:
    lapsed, live = held(scene, 2)
    row = scene.row(lapsed)
    scene.lapse(lapsed)
    assert scene.run(jobs.reap(scene.queue)) == 1
    assert scene.row(lapsed) == row | {b"state": b"pending"}
    assert scene.places(lapsed) == ["pending"]
    assert scene.places(live) == ["active"]
    assert scene.tokens() == 1
    assert scene.run(jobs.reap(scene.queue)) == 0


def test_reap_takes_at_most_a_hundred_the_longest_lapsed_first(scene: Scene) -> None:
    ids = held(scene, 103)
    scene.lapse(*reversed(ids))
    assert scene.run(jobs.reap(scene.queue)) == 100
    assert [i for i in ids if scene.places(i) == ["active"]] == ids[:3]
    assert scene.run(jobs.reap(scene.queue)) == 3


def test_a_lease_ends_by_the_servers_clock(scene: Scene) -> None:
    job_id = scene.mint()
    scene.run(jobs.enqueue(scene.queue, job_id, b"p"))
    scene.run(jobs.claim(scene.queue, lease_ms=30))
    deadline = scene.score("active", job_id)
    assert deadline is not None
    while not scene.run(jobs.sweep(scene.queue, max_stalled=9)).recovered:
        assert scene.now_ms() < deadline + 5_000
    assert scene.now_ms() >= deadline


def test_the_sweep_counts_a_lapse_and_recovers_below_the_cap(scene: Scene) -> None:
    (job_id,) = held(scene, 1)
    for lapses in (1, 2):
        scene.lapse(job_id)
        assert scene.run(jobs.sweep(scene.queue, max_stalled=3)) == Sweep((job_id,), ())
        assert scene.row(job_id)[b"stalled"] == b"%d" % lapses
        claimed = scene.run(jobs.claim(scene.queue))
        assert claimed is not None
        assert (claimed.attempts, claimed.stalled, claimed.failures) == (lapses + 1, lapses, 0)
    scene.lapse(job_id)
    assert scene.run(jobs.sweep(scene.queue, max_stalled=3)) == Sweep((), (job_id,))
    row = scene.row(job_id)
    assert row.pop(b"died_ms").isdigit()
    assert row == {
        b"state": b"dead",
        b"attempts": b"3",
        b"payload": b"p",
        b"stalled": b"3",
        b"last_error": b"stalled",
    }
    assert scene.places(job_id) == ["dead"]
    assert scene.run(metrics.counts(scene.queue)).failed == 1


def test_a_sweep_called_by_hand_buries_at_the_first_lapse(scene: Scene) -> None:
    (job_id,) = held(scene, 1)
    scene.lapse(job_id)
    assert scene.run(jobs.sweep(scene.queue)) == Sweep((), (job_id,))
    assert scene.tokens() == 0


def test_a_cap_that_was_lowered_buries_what_is_above_it(scene: Scene) -> None:
    (job_id,) = held(scene, 1)
    scene.execute("HSET", scene.keys.job(job_id), "stalled", 7)
    scene.lapse(job_id)
    assert scene.run(jobs.sweep(scene.queue, max_stalled=3)).dead == (job_id,)
    assert scene.row(job_id)[b"stalled"] == b"8"


def test_the_sweep_takes_at_most_its_limit_the_longest_lapsed_first(scene: Scene) -> None:
    ids = held(scene, 5)
    scene.lapse(*reversed(ids))
    swept = scene.run(jobs.sweep(scene.queue, max_stalled=9, limit=2))
    assert swept.recovered == (ids[4], ids[3])
    assert scene.tokens() == 2


@pytest.mark.parametrize("verb", ["reap", "sweep"])
def test_ghosts_in_hand_are_dropped_and_nothing_is_created(scene: Scene, verb: str) -> None:
    (job_id,) = held(scene, 1)
    scene.lapse(job_id)
    ghosts = [scene.ghost("active", n) for n in (1, 2)]
    if verb == "reap":
        assert scene.run(jobs.reap(scene.queue)) == 1
    else:
        assert scene.run(jobs.sweep(scene.queue, max_stalled=2)) == Sweep((job_id,), ())
    assert [scene.places(i) + list(scene.row(i)) for i in ghosts] == [[], []]
    assert scene.tokens() == 1


def test_a_row_that_is_no_hash_is_a_ghost_too(scene: Scene) -> None:
    (job_id,) = held(scene, 1)
    scene.execute("DEL", scene.keys.job(job_id))
    scene.execute("SET", scene.keys.job(job_id), "nonsense")
    scene.lapse(job_id)
    assert scene.run(jobs.sweep(scene.queue)) == Sweep((), ())
    assert scene.execute("ZCARD", scene.keys.active) == 0
    scene.execute("DEL", scene.keys.job(job_id))


@pytest.mark.strays("jobs in hand whose lane is no lane")
@pytest.mark.parametrize("damaged", ["lane", "ring"])
@pytest.mark.parametrize("verb", ["reap", "sweep"])
def test_what_cannot_come_back_hides_no_lapse_behind_it(scene: Scene, verb: str, damaged: str) -> None:
    group = lane_id("acme")
    stuck = scene.minter.mint_many(230)
    for job_id in stuck:
        scene.run(lanes.enqueue(scene.queue, job_id, b"p", group))
    for _ in stuck:
        scene.run(lanes.claim(scene.queue))
    sound = held(scene, 130)
    for score in (1, 2):
        scene.ghost("active", score)
    scene.lapse(*stuck[:115], *sound[:50], *stuck[115:], *sound[50:])
    key = scene.keys.lane(group) if damaged == "lane" else scene.keys.ring
    scene.execute("SET", key, "no lane")
    if verb == "reap":
        assert [scene.run(jobs.reap(scene.queue)) for _ in range(3)] == [98, 32, 0]
    else:
        sweeps = [scene.run(jobs.sweep(scene.queue, max_stalled=2)) for _ in range(3)]
        assert sweeps == [Sweep(tuple(sound[:98]), ()), Sweep(tuple(sound[98:]), ()), Sweep((), ())]
    assert set(scene.execute("ZRANGE", scene.keys.pending, 0, -1)) == {i.encode() for i in sound}
    assert set(scene.execute("ZRANGE", scene.keys.active, 0, -1)) == {i.encode() for i in stuck}
    assert {scene.row(i)[b"state"] for i in stuck} == {b"active"}
    assert scene.tokens() == 64
    scene.execute("DEL", key)
    assert scene.run(jobs.sweep(scene.queue, max_stalled=9, limit=500)).recovered == tuple(stuck)
