"""Claims (protocol §5, §12.2, §12.3): order, batches, strays, wake tokens, why nothing came, ceilings and turns."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from echomq.protocol import jobs, repeat
from echomq.protocol.replies import Idle, Retried
from support.runner import Runner, Scene

LANES = [f"LAN0000000000{n}" for n in range(9)]
HOUR = 3_600_000


def fill(scene: Scene, count: int) -> list[str]:
    """Flat jobs that wait, in mint order."""
    ids = scene.minter.mint_many(count)
    scene.run(jobs.enqueue_many(scene.queue, [(i, b"p") for i in ids]))
    return ids


def claimed_ids(scene: Scene, n: int) -> list[str]:
    return [job.id for job in scene.run(jobs.claim_many(scene.queue, n)).jobs]


def test_a_claim_takes_the_lowest_id_in_hand(scene: Scene) -> None:
    ids = fill(scene, 2)
    before = scene.now_ms()
    job = scene.run(jobs.claim(scene.queue, lease_ms=5_000))
    after = scene.now_ms()
    assert job is not None
    assert (job.id, job.payload, job.attempts, job.token) == (ids[0], b"p", 1, "1")
    assert (job.failures, job.stalled, job.group) == (0, 0, None)
    assert scene.row(ids[0]) == {b"state": b"active", b"attempts": b"1", b"payload": b"p"}
    assert scene.places(ids[0]) == ["active"]
    assert before + 5_000 <= (scene.score("active", ids[0]) or 0) <= after + 5_000


def test_a_batch_shares_one_deadline_and_one_clock(scene: Scene) -> None:
    ids = fill(scene, 3)
    claims = scene.run(jobs.claim_many(scene.queue, 3, lease_ms=7_000))
    assert {scene.score("active", i) for i in ids} == {claims.now_ms + 7_000}


def test_a_ghost_is_dropped_and_the_next_is_claimed(scene: Scene) -> None:
    ghosts = [scene.ghost("pending") for _ in range(3)]
    (job_id,) = fill(scene, 1)
    assert claimed_ids(scene, 1) == [job_id]
    assert [scene.places(i) + list(scene.row(i)) for i in ghosts] == [[], [], []]


def test_a_row_without_a_payload_goes_to_the_morgue_with_the_reason(scene: Scene) -> None:
    broken, sound = fill(scene, 2)
    scene.execute("HDEL", scene.keys.job(broken), "payload")
    assert claimed_ids(scene, 2) == [sound]
    assert scene.row(broken)[b"last_error"] == b"payload missing"
    assert scene.places(broken) == ["dead"]
    assert scene.execute("HGET", scene.keys.metrics_failed, "count") == b"1"


@pytest.mark.strays("another client's rows hold what no claim of ours writes")
@pytest.mark.parametrize("attempts", ["x", "-1", "1.5", "inf", "nan", "1e400", "9007199254740991"])
def test_a_row_whose_token_is_no_count_is_buried_and_its_neighbours_are_served(scene: Scene, attempts: str) -> None:
    broken, sound = fill(scene, 2)
    scene.execute("HSET", scene.keys.job(broken), "attempts", attempts)
    assert claimed_ids(scene, 2) == [sound]
    assert scene.row(broken)[b"last_error"] == b"attempts unreadable"
    assert scene.places(broken) == ["dead"]


@pytest.mark.strays("another client's rows hold what no claim of ours writes")
@pytest.mark.parametrize("value", ["x", "", "-1", "1.5", "inf", "1" * 40])
def test_counters_that_are_none_read_as_zero_and_cost_nobody_the_claim(scene: Scene, value: str) -> None:
    odd, sound = fill(scene, 2)
    scene.execute("HSET", scene.keys.job(odd), "failures", value, "stalled", value)
    claims = scene.run(jobs.claim_many(scene.queue, 2))
    assert [(job.id, job.failures, job.stalled) for job in claims.jobs] == [(odd, 0, 0), (sound, 0, 0)]


@pytest.mark.strays("another client's ids are none of ours")
@pytest.mark.parametrize(
    "name", ["JOB1", "JOBAzL8n0Y58m8", "JOBzzzzzzzzzzz", "JOB0NgWEfAEJ-s", "ORD0NgWEfAEJfs", "JOB" + "0" * 40]
)
def test_an_id_that_no_host_could_settle_is_buried_and_its_neighbours_are_served(scene: Scene, name: str) -> None:
    (sound,) = fill(scene, 1)
    scene.execute("HSET", scene.keys.job(name), "state", "pending", "attempts", "0", "payload", "p")
    scene.execute("ZADD", scene.keys.pending, "0", name)
    assert claimed_ids(scene, 2) == [sound]
    assert scene.row(name)[b"last_error"] == b"id malformed"
    assert scene.execute("ZSCORE", scene.keys.dead, name) is not None


def test_the_largest_id_is_a_job_like_any_other(scene: Scene) -> None:
    scene.run(jobs.enqueue(scene.queue, "JOBAzL8n0Y58m7", b"p"))
    assert claimed_ids(scene, 1) == ["JOBAzL8n0Y58m7"]


@pytest.mark.parametrize("lanes", [0, 1, 3])
def test_a_claim_of_n_equals_n_claims(runner: Runner, queue: str, lanes: int) -> None:
    outcomes = []
    minted = Scene(runner, queue).minter.mint_many(40)
    for way in ("batch", "singles"):
        scene = Scene(runner, f"{queue}-{way}")
        ids = list(minted)
        for group in LANES[:lanes]:
            scene.into_lane(group, *ids[:7])
            del ids[:7]
        if lanes:
            scene.execute("HSET", scene.keys.glimit, LANES[0], 3)
        scene.run(jobs.enqueue_many(scene.queue, [(i, b"p") for i in ids]))
        scene.execute("ZADD", scene.keys.pending, 0, "JOB00000000001")
        if lanes:
            scene.execute("ZADD", scene.keys.lane(LANES[lanes - 1]), 0, "JOB00000000001")
        scene.execute("HDEL", scene.keys.job(ids[1]), "payload")
        taken = [
            job
            for n in ([13, 30] if way == "batch" else [1] * 43)
            for job in scene.run(jobs.claim_many(scene.queue, n)).jobs
        ]
        shot = scene.snapshot()
        rows = {i: {k: v for k, v in row.items() if k != "died_ms"} for i, row in shot.rows.items()}
        turn = scene.execute("GET", scene.keys.base + "turn")
        outcomes.append((taken, rows, sorted(shot.places["active"]), shot.ring, shot.gactive, turn))
    assert outcomes[0] == outcomes[1]


def test_what_is_claimable_has_its_tokens_up_to_64(scene: Scene) -> None:
    for n in range(1, 4):
        scene.run(jobs.enqueue(scene.queue, scene.mint(), b"p"))
        assert scene.tokens() == n
    fill(scene, 50)
    assert scene.tokens() == 53
    fill(scene, 50)
    assert scene.tokens() == 64
    scene.run(jobs.enqueue(scene.queue, scene.mint(), b"p"))
    assert scene.tokens() == 64
    assert set(scene.execute("LRANGE", scene.keys.wake, 0, -1)) == {b"1"}


def test_a_duplicate_pushes_no_token(scene: Scene) -> None:
    (job_id,) = fill(scene, 1)
    scene.drop_tokens()
    scene.run(jobs.enqueue(scene.queue, job_id, b"p"))
    scene.run(jobs.enqueue_many(scene.queue, [(job_id, b"p")]))
    assert scene.tokens() == 0


def test_only_what_becomes_the_earliest_of_the_schedule_pushes_a_token(scene: Scene) -> None:
    first, second, third, held = scene.minter.mint_many(4)

    def pushed(act: Callable[[], object]) -> int:
        scene.drop_tokens()
        act()
        return scene.tokens()

    q = scene.queue
    assert pushed(lambda: scene.run(jobs.enqueue_in(q, first, b"p", delay_ms=2 * HOUR))) == 1
    assert pushed(lambda: scene.run(jobs.enqueue_in(q, second, b"p", delay_ms=3 * HOUR))) == 0
    assert pushed(lambda: scene.run(jobs.enqueue_in(q, third, b"p", delay_ms=HOUR))) == 1
    assert pushed(lambda: scene.run(jobs.reschedule(q, second, delay_ms=4 * HOUR))) == 0
    assert pushed(lambda: scene.run(jobs.reschedule(q, second, delay_ms=HOUR // 2))) == 1
    scene.run(jobs.enqueue(q, held, b"p"))
    scene.run(jobs.claim(q))
    assert pushed(lambda: scene.run(jobs.delay(q, held, 1, delay_ms=5 * HOUR))) == 0
    scene.fall_due(held)
    scene.run(jobs.promote(q))
    scene.run(jobs.claim(q))
    assert pushed(lambda: scene.run(jobs.delay(q, held, 2, delay_ms=HOUR // 3))) == 1
    scene.fall_due(held)
    scene.run(jobs.promote(q))
    scene.run(jobs.claim(q))
    retry = jobs.retry(q, held, 3, delay_ms=HOUR // 4, max_attempts=9, error="e")
    assert pushed(lambda: scene.run(retry)) == 1


def test_every_way_back_to_claimable_pushes_a_token(scene: Scene) -> None:
    (job_id,) = fill(scene, 1)
    scene.run(jobs.claim(scene.queue))
    scene.drop_tokens()
    scene.run(jobs.release(scene.queue, job_id, 1))
    assert scene.tokens() == 1
    for token, back in ((2, jobs.reap(scene.queue)), (3, jobs.sweep(scene.queue, max_stalled=9))):
        scene.run(jobs.claim(scene.queue))
        scene.drop_tokens()
        scene.lapse(job_id)
        scene.run(back)
        assert scene.tokens() == 1
        assert scene.row(job_id)[b"attempts"] == b"%d" % token
    scene.run(jobs.claim(scene.queue))
    scene.run(jobs.delay(scene.queue, job_id, 4, at_ms=1))
    scene.drop_tokens()
    scene.run(jobs.promote(scene.queue))
    assert scene.tokens() == 1


def test_a_claim_that_finds_nothing_deletes_the_tokens_and_one_that_finds_some_does_not(
    scene: Scene,
) -> None:
    fill(scene, 1)
    scene.execute("LPUSH", scene.keys.wake, "1", "1")
    assert scene.run(jobs.claim_many(scene.queue, 5)).idle is Idle.EMPTY
    assert scene.tokens() == 3
    claims = scene.run(jobs.claim_many(scene.queue, 5))
    assert (claims.jobs, claims.idle, claims.next_at_ms) == ((), Idle.EMPTY, None)
    assert scene.tokens() == 0


def test_a_claim_that_got_all_it_asked_for_gives_no_reason(scene: Scene) -> None:
    fill(scene, 3)
    assert scene.run(jobs.claim_many(scene.queue, 2)).idle is None


@pytest.mark.parametrize("value", ["1", "0", "", "no"])
def test_a_paused_queue_gives_nothing_and_says_so(scene: Scene, value: str) -> None:
    (job_id,) = fill(scene, 1)
    scene.execute("HSET", scene.keys.meta, "paused", value)
    claims = scene.run(jobs.claim_many(scene.queue, 5))
    assert (claims.jobs, claims.idle) == ((), Idle.PAUSED)
    assert scene.tokens() == 0
    assert scene.places(job_id) == ["pending"]
    scene.execute("HDEL", scene.keys.meta, "paused")
    assert claimed_ids(scene, 5) == [job_id]


def test_the_ceiling_holds_within_a_batch_and_over_calls(scene: Scene) -> None:
    ids = fill(scene, 6)
    scene.execute("HSET", scene.keys.meta, "concurrency", 4)
    first = scene.run(jobs.claim_many(scene.queue, 3))
    assert ([job.id for job in first.jobs], first.idle) == (ids[:3], None)
    second = scene.run(jobs.claim_many(scene.queue, 3))
    assert ([job.id for job in second.jobs], second.idle) == (ids[3:4], Idle.CEILING)
    third = scene.run(jobs.claim_many(scene.queue, 3))
    assert (third.jobs, third.idle) == ((), Idle.CEILING)
    assert scene.tokens() == 0
    scene.execute("HSET", scene.keys.meta, "concurrency", 1)
    assert scene.run(jobs.claim_many(scene.queue, 3)).idle is Idle.CEILING
    for value in ("0", "-1"):
        scene.execute("HSET", scene.keys.meta, "concurrency", value)
        scene.run(jobs.release(scene.queue, ids[0], int(scene.row(ids[0])[b"attempts"])))
        assert claimed_ids(scene, 1) == [ids[0]]


def test_each_way_out_of_hand_below_a_ceiling_pushes_the_token_it_makes_room_for(scene: Scene) -> None:
    ids = fill(scene, 9)
    q = scene.queue
    scene.execute("HSET", scene.keys.meta, "concurrency", 1)
    moves = [
        lambda i: jobs.complete(q, i, 1),
        lambda i: jobs.complete_many(q, [(i, 1)]),
        lambda i: jobs.delay(q, i, 1, delay_ms=HOUR),
        lambda i: jobs.retry(q, i, 1, delay_ms=HOUR, max_attempts=9, error="e"),
        lambda i: jobs.retry(q, i, 1, delay_ms=HOUR, max_attempts=1, error="e"),
    ]
    scene.run(jobs.enqueue_in(q, scene.mint(), b"p", delay_ms=1_000_000))
    for job_id, move in zip(ids, moves, strict=False):
        assert claimed_ids(scene, 9) == [job_id]
        scene.drop_tokens()
        scene.run(move(job_id))
        assert scene.tokens() == 1
    assert claimed_ids(scene, 9) == [ids[5]]
    scene.drop_tokens()
    scene.lapse(ids[5])
    assert scene.run(jobs.sweep(q)).dead == (ids[5],)
    assert scene.tokens() == 1


def test_a_completion_pushes_no_token_for_what_could_be_claimed_all_along(scene: Scene) -> None:
    ids = fill(scene, 3)
    scene.execute("HSET", scene.keys.meta, "concurrency", 9)
    scene.run(jobs.claim(scene.queue))
    scene.drop_tokens()
    scene.run(jobs.complete(scene.queue, ids[0], 1))
    assert scene.tokens() == 0


def test_a_completion_from_the_waiting_makes_no_room_below_a_ceiling_and_wakes_nobody(scene: Scene) -> None:
    ids = fill(scene, 3)
    scene.execute("HSET", scene.keys.meta, "concurrency", 1)
    scene.run(jobs.claim(scene.queue))
    scene.lapse(ids[0])
    scene.run(jobs.reap(scene.queue))
    scene.drop_tokens()
    scene.run(jobs.complete(scene.queue, ids[0], 1))
    assert scene.tokens() == 0


def test_a_batch_of_completions_below_a_ceiling_wakes_for_a_lane_as_deep_as_it_is(scene: Scene) -> None:
    q = scene.queue
    held = fill(scene, 3)
    scene.execute("HSET", scene.keys.meta, "concurrency", 3)
    scene.run(jobs.claim_many(q, 3))
    scene.into_lane(LANES[0], *scene.minter.mint_many(5))
    scene.drop_tokens()
    scene.run(jobs.complete_many(q, [(i, 1) for i in held]))
    assert scene.tokens() == 3


def test_the_next_instant_is_the_earliest_of_the_schedule_and_the_recurrences(scene: Scene) -> None:
    now = scene.now_ms()
    assert scene.run(jobs.claim_many(scene.queue, 1)).next_at_ms is None
    scene.run(jobs.enqueue_at(scene.queue, scene.mint(), b"p", at_ms=now + 9_000))
    assert scene.run(jobs.claim_many(scene.queue, 1)).next_at_ms == now + 9_000
    scene.run(repeat.register(scene.queue, "n", every_ms=5, template=b"t", first_run_ms=now + 5_000))
    claims = scene.run(jobs.claim_many(scene.queue, 1))
    assert claims.next_at_ms == now + 5_000
    assert now <= claims.now_ms <= scene.now_ms()
    scene.run(jobs.enqueue_at(scene.queue, scene.mint(), b"p", at_ms=0))
    assert scene.run(jobs.claim_many(scene.queue, 1)).next_at_ms == 0


def test_the_next_instant_is_told_beside_jobs_too(scene: Scene) -> None:
    fill(scene, 2)
    scene.run(jobs.enqueue_at(scene.queue, scene.mint(), b"p", at_ms=77))
    assert scene.run(jobs.claim_many(scene.queue, 1)).next_at_ms == 77


@pytest.mark.parametrize("lanes", [1, 2, 5])
@pytest.mark.parametrize("batch", [1, 4])
def test_nobody_waits_for_more_than_as_many_claims_as_there_are_lanes(scene: Scene, lanes: int, batch: int) -> None:
    seats: list[str | None] = [None, *LANES[:lanes]]
    fill(scene, 8)
    for group in LANES[:lanes]:
        scene.into_lane(group, *scene.minter.mint_many(8))
    order: list[str | None] = []
    while len(order) < 8 * len(seats):
        claims = scene.run(jobs.claim_many(scene.queue, batch))
        assert claims.jobs
        order += [job.group for job in claims.jobs]
    for seat in seats:
        at = [i for i, who in enumerate(order) if who == seat]
        assert len(at) == 8
        assert at[0] <= lanes
        assert max(b - a for a, b in pairwise(at)) <= len(seats)


def test_two_lanes_alternate(scene: Scene) -> None:
    for group in LANES[:2]:
        scene.into_lane(group, *scene.minter.mint_many(2))
    assert [job.group for job in scene.run(jobs.claim_many(scene.queue, 9)).jobs] == [*LANES[:2], *LANES[:2]]
    assert scene.execute("EXISTS", scene.keys.ring) == 0


def test_ring_entries_that_cannot_be_served_are_taken_off_and_the_next_is_tried(scene: Scene) -> None:
    empty, paused, full, ready = LANES[:4]
    job_ids = scene.minter.mint_many(4)
    for group, job_id in zip((paused, full, ready), job_ids, strict=False):
        scene.into_lane(group, job_id)
    scene.execute("DEL", scene.keys.ring)
    scene.execute("RPUSH", scene.keys.ring, empty, paused, full, ready)
    scene.execute("SADD", scene.keys.paused, paused)
    scene.execute("HSET", scene.keys.glimit, full, 1)
    in_hand = job_ids[3]
    scene.execute("HSET", scene.keys.job(in_hand), "state", "active", "attempts", 1, "group", full)
    scene.execute("HSET", scene.keys.job(in_hand), "payload", "p")
    scene.execute("ZADD", scene.keys.active, scene.now_ms() + HOUR, in_hand)
    scene.execute("HSET", scene.keys.gactive, full, 1)
    assert claimed_ids(scene, 9) == [job_ids[2]]
    assert claimed_ids(scene, 9) == []
    assert scene.execute("EXISTS", scene.keys.ring) == 0


def test_a_grouped_job_that_another_client_left_in_the_flat_set_counts_for_its_lane(scene: Scene) -> None:
    stray, behind = scene.minter.mint_many(2)
    scene.into_lane(LANES[0], stray, behind)
    scene.execute("HSET", scene.keys.glimit, LANES[0], 1)
    scene.execute("ZREM", scene.keys.lane(LANES[0]), stray)
    scene.execute("ZADD", scene.keys.pending, 0, stray)
    assert claimed_ids(scene, 1) == [stray]
    assert scene.execute("HGETALL", scene.keys.gactive) == {LANES[0].encode(): b"1"}
    assert scene.execute("EXISTS", scene.keys.ring) == 0
    assert scene.run(jobs.retry(scene.queue, stray, 1, delay_ms=0, max_attempts=9, error="e")) is Retried.SCHEDULED
    assert claimed_ids(scene, 2) == [behind]


def test_a_burial_that_releases_a_parent_leaves_the_token_it_pushed(scene: Scene) -> None:
    parent, child = scene.minter.mint_many(2)
    scene.execute("HSET", scene.keys.job(parent), "state", "awaiting_children", "attempts", 0, "payload", "p")
    scene.execute("SET", scene.keys.job(parent) + ":dependencies", 1)
    scene.into_lane(LANES[0], child)
    scene.execute("HSET", scene.keys.job(child), "parent", parent, "parent_policy", "id")
    scene.execute("HDEL", scene.keys.job(child), "payload")
    assert claimed_ids(scene, 1) == []
    assert scene.places(parent) == ["pending"]
    assert scene.tokens() == 1
    assert claimed_ids(scene, 1) == [parent]
