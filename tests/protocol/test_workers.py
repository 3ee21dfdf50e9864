"""The registry of workers, and the keeper's one call for all that is in hand (protocol §2, §7)."""

from __future__ import annotations

from typing import Any

import pytest

from echomq.protocol import jobs, lanes, workers
from echomq.protocol.errors import InvalidInputError, ServerError
from echomq.protocol.workers import Kept
from support.runner import Scene, with_args

HOUR = 3_600_000
JOB_ID = "JOB0NgWEfAEJfs"


def names(scene: Scene) -> list[str]:
    return [each.name for each in scene.run(workers.seen(scene.queue))]


# The registry


def test_a_worker_says_that_it_lives_and_what_it_holds(scene: Scene) -> None:
    assert scene.run(workers.beat(scene.queue, "w1", b'{"jobs": []}')) == 1
    assert scene.run(workers.beat(scene.queue, "w2 ü", '{"jobs": 1}')) == 2
    assert scene.run(workers.beat(scene.queue, "w1", b"{}")) == 2
    seen = {each.name: each for each in scene.run(workers.seen(scene.queue))}
    assert {name: each.info for name, each in seen.items()} == {"w1": b"{}", "w2 ü": b'{"jobs": 1}'}
    assert all(0 <= each.silent_ms < 10_000 for each in seen.values())


def test_the_latest_seen_comes_first_and_says_how_long_it_was_silent(scene: Scene) -> None:
    now = scene.now_ms()
    for name, ago in (("b", 5_000), ("a", 90_000), ("c", 20_000)):
        scene.run(workers.beat(scene.queue, name, b"{}"))
        scene.execute("ZADD", scene.keys.workers, now - ago, name)
    seen = scene.run(workers.seen(scene.queue))
    assert [each.name for each in seen] == ["b", "c", "a"]
    assert all(0 <= each.silent_ms - ago < 10_000 for each, ago in zip(seen, (5_000, 20_000, 90_000), strict=True))


def test_a_worker_that_says_farewell_is_gone(scene: Scene) -> None:
    scene.run(workers.beat(scene.queue, "a", b"{}"))
    scene.run(workers.beat(scene.queue, "b", b"{}"))
    assert scene.run(workers.farewell(scene.queue, "a")) == 1
    assert names(scene) == ["b"]
    assert scene.run(workers.farewell(scene.queue, "b")) == 0
    assert scene.dump() == {}


def test_a_worker_that_was_not_seen_for_long_is_forgotten(scene: Scene) -> None:
    scene.run(workers.beat(scene.queue, "dead", b"{}"))
    scene.execute("ZADD", scene.keys.workers, scene.now_ms() - workers.FORGET_MS - 1, "dead")
    assert names(scene) == ["dead"]
    assert scene.run(workers.beat(scene.queue, "alive", b"{}")) == 1
    assert names(scene) == ["alive"]
    assert scene.execute("HGETALL", scene.keys.workers_info) == {b"alive": b"{}"}
    scene.execute("ZADD", scene.keys.workers, scene.now_ms() - 60_000, "alive")
    assert scene.run(workers.beat(scene.queue, "other", b"{}", forget_ms=30_000)) == 1


def test_a_worker_whose_record_is_lost_is_still_seen(scene: Scene) -> None:
    scene.run(workers.beat(scene.queue, "w", b'{"a": 1}'))
    scene.execute("DEL", scene.keys.workers_info)
    (seen,) = scene.run(workers.seen(scene.queue))
    assert (seen.name, seen.info) == ("w", b"{}")


@pytest.mark.parametrize("name", ["", "a\nb", None, 5, b"w"])
def test_a_name_that_is_none(name: Any) -> None:
    with pytest.raises(InvalidInputError, match="worker name"):
        workers.beat("q", name, b"{}")
    with pytest.raises(InvalidInputError, match="worker name"):
        workers.farewell("q", name)


@pytest.mark.parametrize("info", [b"", "", None, 5, {}])
def test_a_record_that_is_none(info: Any) -> None:
    with pytest.raises(InvalidInputError):
        workers.beat("q", "w", info)
    with pytest.raises(InvalidInputError):
        workers.beat("q", "w", b"{}", forget_ms=0)


# The keeper's call


def in_hand(scene: Scene, count: int, group: str | None = None) -> list[str]:
    ids = scene.minter.mint_many(count)
    for job_id in ids:
        scene.run(lanes.enqueue(scene.queue, job_id, b"p", group) if group else jobs.enqueue(scene.queue, job_id, b"p"))
    assert len(scene.run(jobs.claim_many(scene.queue, count)).jobs) == count
    return ids


def test_live_stale_and_gone_are_told_apart(scene: Scene) -> None:
    live, stale, waiting, gone = *in_hand(scene, 3), scene.mint()
    scene.run(jobs.release(scene.queue, waiting, 1))
    ghost = scene.ghost("active", scene.now_ms() + HOUR)
    now = scene.now_ms()
    kept = scene.run(
        workers.keep(scene.queue, [(live, 1), (stale, 2), (waiting, 1), (gone, 1), (ghost, 1)], lease_ms=2 * HOUR)
    )
    assert kept == Kept((stale, waiting, gone, ghost), {})
    assert now + 2 * HOUR <= (scene.score("active", live) or 0) <= scene.now_ms() + 2 * HOUR
    assert (scene.score("active", stale) or 0) < now + HOUR
    assert scene.score("active", ghost) is None
    locks = [scene.execute("GET", f"{scene.keys.job(i)}:lock") for i in (live, stale, waiting, gone, ghost)]
    assert locks == [b"1", None, None, None, None]
    assert 4 * HOUR - 10_000 < scene.execute("PTTL", f"{scene.keys.job(live)}:lock") <= 4 * HOUR
    assert scene.snapshot().rows.keys() == {live, stale, waiting}


def test_a_kept_lease_outlives_its_first_deadline(scene: Scene) -> None:
    (job_id,) = in_hand(scene, 1)
    scene.lapse(job_id)
    scene.run(workers.keep(scene.queue, [(job_id, 1)]))
    assert scene.run(jobs.sweep(scene.queue)).dead == ()
    assert scene.run(jobs.reap(scene.queue)) == 0


def test_many_in_one_call(scene: Scene) -> None:
    ids = in_hand(scene, 300)
    assert scene.run(workers.keep(scene.queue, [(i, 1) for i in ids], field=True)) == Kept((), {})
    scene.run(jobs.complete_many(scene.queue, [(i, 1) for i in ids]))
    assert not [key for key in scene.dump() if b"job:" in key]


@pytest.mark.parametrize("lease", [2**53 - 1, 2**53 - 1 - 1_000_000_000_000, 2**46])
def test_a_lease_beyond_all_time_is_refused_or_kept_whole(scene: Scene, lease: int) -> None:
    (job_id,) = in_hand(scene, 1)
    before = scene.dump()
    call = workers.keep(scene.queue, [(job_id, 1)], lease_ms=1, field=True)
    outcome = scene.outcome(with_args(call, {1: str(lease)}))  # as a host sends it that checks less than ours
    if isinstance(outcome, ServerError):
        assert scene.dump() == before
        assert "lease must be" in str(outcome)
    else:
        assert (scene.score("active", job_id) or 0) >= lease
        scene.run(jobs.complete(scene.queue, job_id, 1))


def test_the_server_refuses_a_list_of_another_shape(scene: Scene) -> None:
    (job_id,) = in_hand(scene, 1)
    call = workers.keep(scene.queue, [(job_id, 1)])
    for changes in ({1: "0"}, {1: "x"}, {1: ""}):
        assert "lease" in str(scene.refusal(with_args(call, changes)))


def test_keeping_nothing_is_refused() -> None:
    for nothing in ([], (), iter([])):
        with pytest.raises(InvalidInputError, match="at least one"):
            workers.keep("q", nothing)  # type: ignore[arg-type]


@pytest.mark.parametrize(("job_id", "token", "lease"), [("x", 1, 5), (JOB_ID, 0, 5), (JOB_ID, "01", 5), (JOB_ID, 1, 0)])
def test_what_cannot_be_kept(job_id: str, token: Any, lease: int) -> None:
    with pytest.raises(InvalidInputError):
        workers.keep("q", [(job_id, token)], lease_ms=lease)
