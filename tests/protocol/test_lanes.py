"""Lanes (protocol §6): a turn each, a ceiling each, and every verb on them."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from itertools import pairwise
from typing import Any

import pytest

from echomq.identity import base62
from echomq.identity.errors import IdError
from echomq.protocol import admin, admission, jobs, lanes, metrics
from echomq.protocol.call import Call
from echomq.protocol.errors import InvalidInputError, KindError
from echomq.protocol.replies import Admission, Idle, State
from support.runner import PAST, Scene, with_args

A, B, C = (lanes.lane_id(name) for name in "abc")
HOUR = 3_600_000


def fill(scene: Scene, group: str, count: int) -> list[str]:
    ids = scene.minter.mint_many(count)
    for job_id in ids:
        assert scene.run(lanes.enqueue(scene.queue, job_id, b"p", group)) is Admission.ADMITTED
    scene.drop_tokens()
    return ids


def claim(scene: Scene) -> str | None:
    """The id that the next lane gives."""
    job = scene.run(lanes.claim(scene.queue))
    return None if job is None else job.id


def turn(scene: Scene) -> list[str]:
    """The ids of one weighted turn."""
    return [job.id for job in scene.run(lanes.claim_weighted(scene.queue)).jobs]


def ring(scene: Scene) -> list[str]:
    return scene.snapshot().ring


# The name of a lane


def test_a_text_names_a_lane_by_63_bits_of_its_hash() -> None:
    assert lanes.lane_id("acme") == "LAN" + base62.encode(int(sha256(b"acme").hexdigest(), 16) >> 193)
    assert lanes.lane_id("acme") == "LAN5aRRQoeZFSa"
    assert len({lanes.lane_id(str(n)) for n in range(1_000)}) == 1_000
    for name in ("山田\u3000太郎", "a\u00a0b", "👩\u200d🚀"):
        assert lanes.lane_id(name) == "LAN" + base62.encode(int(sha256(name.encode()).hexdigest(), 16) >> 193)
    assert lanes.lane_id("größe") == "LAN" + base62.encode(int(sha256("größe".encode()).hexdigest(), 16) >> 193)


@pytest.mark.parametrize("text", ["", None, 5, b"acme", "a\nb", "\ud800"])
def test_what_names_no_lane(text: Any) -> None:
    with pytest.raises(InvalidInputError, match="lane"):
        lanes.lane_id(text)


def test_the_text_is_kept_for_people_to_read(scene: Scene) -> None:
    for text in ("a", "another"):
        admit = admission.admit(scene.queue, scene.mint(), b"p", group=A, lane_text=text)
        scene.run(admit)
    assert scene.execute("HGETALL", scene.keys.lanes) == {A.encode(): b"a"}
    with pytest.raises(InvalidInputError, match="lane_text 'a' needs the group"):
        admission.admit(scene.queue, scene.mint(), b"p", lane_text="a")


# Admission


def test_a_lane_admission_is_a_flat_one_with_a_group(scene: Scene) -> None:
    job_id = scene.mint()
    assert scene.run(lanes.enqueue(scene.queue, job_id, b"p\0q", A)) is Admission.ADMITTED
    assert scene.row(job_id) == {b"state": b"pending", b"attempts": b"0", b"payload": b"p\0q", b"group": A.encode()}
    assert (scene.places(job_id), ring(scene), scene.tokens()) == ([f"g:{A}:pending"], [A], 1)


def test_an_admission_again_changes_nothing(scene: Scene) -> None:
    (job_id,) = fill(scene, A, 1)
    before = scene.dump()
    for group in (A, B):
        assert scene.run(lanes.enqueue(scene.queue, job_id, b"other", group)) is Admission.DUPLICATE
    assert scene.dump() == before


def test_a_kept_result_is_a_receipt_in_a_lane_too(scene: Scene) -> None:
    (job_id,) = fill(scene, A, 1)
    claim(scene)
    scene.run(jobs.complete(scene.queue, job_id, 1, result_ttl_ms=60_000))
    assert scene.run(lanes.enqueue(scene.queue, job_id, b"p", A)) is Admission.DUPLICATE
    assert claim(scene) is None


def test_an_id_of_another_kind_is_refused_before_the_first_write(scene: Scene) -> None:
    call = lanes.enqueue(scene.queue, scene.mint(), b"p", A)
    assert isinstance(scene.refusal(with_args(call, {0: "ORD0NgWEfAEJfs"})), KindError)


def test_a_scheduled_job_of_a_lane_goes_there_when_it_is_due(scene: Scene) -> None:
    job_id = scene.mint()
    admitted = scene.run(admission.admit(scene.queue, job_id, b"p", group=A, delay_ms=HOUR))
    assert admitted == admission.Admitted(Admission.SCHEDULED, job_id)
    assert scene.row(job_id)[b"group"] == A.encode()
    assert (scene.places(job_id), ring(scene), scene.tokens()) == (["schedule"], [], 1)
    scene.drop_tokens()
    scene.fall_due(job_id)
    assert scene.run(jobs.promote(scene.queue)) == 1
    assert (scene.places(job_id), ring(scene), scene.tokens()) == ([f"g:{A}:pending"], [A], 1)


# Turns


def test_lanes_take_turns_in_mint_order(scene: Scene) -> None:
    a, b = fill(scene, A, 3), fill(scene, B, 2)
    assert [claim(scene) for _ in range(6)] == [a[0], b[0], a[1], b[1], a[2], None]
    assert ring(scene) == []


def test_a_claim_says_what_it_took(scene: Scene) -> None:
    (job_id,) = fill(scene, A, 1)
    now = scene.now_ms()
    job = scene.run(lanes.claim(scene.queue, lease_ms=HOUR))
    assert job is not None
    assert (job.id, job.payload, job.attempts, job.failures, job.stalled, job.group) == (job_id, b"p", 1, 0, 0, A)
    assert now + HOUR <= (scene.score("active", job_id) or 0) <= scene.now_ms() + HOUR
    assert scene.row(job_id)[b"state"] == b"active"
    assert scene.snapshot().gactive == {A: b"1"}


def test_an_entry_that_cannot_be_served_is_taken_off_and_the_next_is_tried(scene: Scene) -> None:
    (of_b,) = fill(scene, B, 1)
    fill(scene, C, 1)
    scene.execute("SADD", scene.keys.paused, C)
    scene.execute("DEL", scene.keys.ring)
    scene.execute("RPUSH", scene.keys.ring, A, C, A, B)
    assert claim(scene) == of_b
    assert ring(scene) == []


def test_once_round_and_no_further(scene: Scene) -> None:
    scene.execute("RPUSH", scene.keys.ring, A, B)
    assert claim(scene) is None
    assert ring(scene) == []


def test_flat_work_and_lanes_wait_for_no_more_than_a_claim_of_each(scene: Scene) -> None:
    seats = {group: fill(scene, group, 8) for group in (A, B, C)}
    flat = scene.minter.mint_many(8)
    scene.run(jobs.enqueue_many(scene.queue, [(i, b"p") for i in flat]))
    seats["flat"] = flat
    order = []
    for n in (1, 2, 7, 1, 5, 16):
        order += [job.group or "flat" for job in scene.run(jobs.claim_many(scene.queue, n)).jobs]
    assert len(order) == 32
    for seat in seats:
        turns = [i for i, each in enumerate(order) if each == seat]
        assert turns[0] <= 3
        assert all(after - before <= 4 for before, after in pairwise(turns))


def test_a_lane_claim_leaves_flat_work_and_its_tokens_alone(scene: Scene) -> None:
    scene.run(jobs.enqueue(scene.queue, scene.mint(), b"p"))
    assert claim(scene) is None
    assert scene.tokens() == 1


@pytest.mark.parametrize(
    ("weight", "depth", "limit", "in_hand", "served"),
    [
        (None, 5, None, 0, 1),
        (3, 5, None, 0, 3),
        (3, 2, None, 0, 2),
        (9, 5, 4, 0, 4),
        (9, 5, 4, 3, 1),
        (1, 5, 4, 0, 1),
    ],
)
def test_a_weighted_turn(
    scene: Scene, weight: int | None, depth: int, limit: int | None, in_hand: int, served: int
) -> None:
    fill(scene, A, in_hand)
    for _ in range(in_hand):
        claim(scene)
    ids = fill(scene, A, depth)
    other = fill(scene, B, 1)
    if weight is not None:
        scene.run(lanes.weight(scene.queue, A, weight))
    if limit is not None:
        scene.run(lanes.limit(scene.queue, A, limit))
    assert turn(scene) == ids[:served]
    assert len({scene.score("active", job_id) for job_id in ids[:served]}) == 1
    assert turn(scene) == other


def test_a_weighted_turn_stops_at_the_queues_ceiling_and_rate(scene: Scene) -> None:
    ids = fill(scene, A, 9)
    scene.run(lanes.weight(scene.queue, A, 9))
    scene.run(admin.set_ceiling(scene.queue, 2))
    assert turn(scene) == ids[:2]
    claims = scene.run(lanes.claim_weighted(scene.queue))
    assert (claims.jobs, claims.idle) == ((), Idle.CEILING)
    scene.run(admin.set_ceiling(scene.queue, None))
    scene.run(admin.set_rate(scene.queue, 3, period_ms=HOUR))
    assert turn(scene) == ids[2:5]
    assert scene.run(lanes.claim_weighted(scene.queue)).idle is Idle.RATE
    scene.run(admin.pause_queue(scene.queue))
    assert scene.run(lanes.claim_weighted(scene.queue)).idle is Idle.PAUSED


# Pause, limit, weight


def test_a_paused_lane_keeps_its_backlog(scene: Scene) -> None:
    ids, other = fill(scene, A, 3), fill(scene, B, 1)
    scene.run(lanes.pause(scene.queue, A))
    assert [claim(scene), claim(scene)] == [other[0], None]
    assert scene.run(lanes.depth(scene.queue, A)) == 3
    late = fill(scene, A, 1)
    assert claim(scene) is None
    scene.run(lanes.resume(scene.queue, A))
    assert scene.tokens() == 4
    assert [claim(scene) for _ in range(4)] == ids + late


def test_a_lane_that_was_not_paused_wakes_nobody_when_it_is_resumed(scene: Scene) -> None:
    fill(scene, A, 2)
    scene.run(lanes.resume(scene.queue, A))
    assert (ring(scene), scene.tokens()) == ([A], 0)


def test_a_lane_can_be_paused_before_its_first_job(scene: Scene) -> None:
    scene.run(lanes.pause(scene.queue, A))
    fill(scene, A, 1)
    assert (claim(scene), ring(scene)) == (None, [])


def test_a_lane_at_its_limit_opens_when_a_job_leaves_hand(scene: Scene) -> None:
    scene.run(lanes.limit(scene.queue, A, 1))
    first, second, third = fill(scene, A, 3)
    assert [claim(scene), claim(scene)] == [first, None]
    scene.run(jobs.complete(scene.queue, first, 1))
    assert scene.tokens() == 1
    assert [claim(scene), claim(scene)] == [second, None]
    scene.run(lanes.limit(scene.queue, A, None))
    assert (claim(scene), scene.execute("EXISTS", scene.keys.glimit)) == (third, 0)


def test_a_limit_below_what_is_in_hand_parks_the_lane_until_enough_have_left(scene: Scene) -> None:
    ids = fill(scene, A, 5)
    for _ in range(3):
        claim(scene)
    scene.run(lanes.limit(scene.queue, A, 2))
    assert (ring(scene), scene.tokens()) == ([], 0)
    scene.run(jobs.complete(scene.queue, ids[0], 1))
    assert (ring(scene), scene.tokens()) == ([], 0)
    scene.run(jobs.complete(scene.queue, ids[1], 1))
    assert (ring(scene), scene.tokens()) == ([A], 1)


@pytest.mark.parametrize(("before", "after", "tokens"), [(2, 5, 3), (2, 3, 1), (2, None, 7), (5, 2, 0), (None, 3, 0)])
def test_a_new_limit_wakes_for_what_it_lets_in(
    scene: Scene, before: int | None, after: int | None, tokens: int
) -> None:
    scene.run(lanes.limit(scene.queue, A, before))
    fill(scene, A, 9)
    claim(scene)
    scene.run(lanes.limit(scene.queue, A, after))
    assert scene.tokens() == tokens


def test_a_weight_is_the_queues_and_can_be_changed(scene: Scene) -> None:
    for weight in (2, 7):
        scene.run(lanes.weight(scene.queue, A, weight))
        assert scene.execute("HGETALL", scene.keys.gweight) == {A.encode(): b"%d" % weight}


# Reassign


def test_a_waiting_job_moves_to_another_lane(scene: Scene) -> None:
    moved, stays = fill(scene, A, 2)
    assert scene.run(lanes.reassign(scene.queue, moved, B)) == 1
    assert scene.row(moved)[b"group"] == B.encode()
    assert (scene.places(moved), scene.places(stays)) == ([f"g:{B}:pending"], [f"g:{A}:pending"])
    assert (ring(scene), scene.tokens()) == ([A, B], 0)
    scene.run(lanes.reassign(scene.queue, stays, B))
    assert ring(scene) == [B]


def test_a_reassigned_job_counts_against_the_new_lanes_limit(scene: Scene) -> None:
    scene.run(lanes.limit(scene.queue, B, 1))
    (of_b,), (of_a,) = fill(scene, B, 1), fill(scene, A, 1)
    assert claim(scene) == of_b
    scene.run(lanes.reassign(scene.queue, of_a, B))
    assert (ring(scene), claim(scene)) == ([], None)
    scene.run(jobs.complete(scene.queue, of_b, 1))
    assert claim(scene) == of_a
    assert scene.snapshot().gactive == {B: b"1"}


@pytest.mark.parametrize("closed", ["paused", "full"])
def test_a_job_that_leaves_a_closed_lane_for_an_open_one_wakes_somebody(scene: Scene, closed: str) -> None:
    held, job_id = fill(scene, A, 2)
    assert claim(scene) == held
    scene.run(lanes.pause(scene.queue, A) if closed == "paused" else lanes.limit(scene.queue, A, 1))
    scene.run(lanes.reassign(scene.queue, job_id, B))
    assert (ring(scene), scene.tokens()) == ([B], 1)


def test_what_cannot_be_reassigned(scene: Scene) -> None:
    active, waiting, delayed = fill(scene, A, 3)
    flat, dead = scene.mint(), scene.mint()
    assert claim(scene) == active
    scene.run(jobs.enqueue(scene.queue, flat, b"p"))
    assert scene.run(lanes.reassign(scene.queue, waiting, A)) == 0
    assert scene.run(lanes.reassign(scene.queue, active, B)) == -2
    assert scene.run(lanes.reassign(scene.queue, flat, B)) == -1
    assert scene.run(lanes.reassign(scene.queue, dead, B)) == -1
    assert [claim(scene), claim(scene)] == [waiting, delayed]
    scene.run(jobs.delay(scene.queue, delayed, 1, delay_ms=HOUR))
    scene.run(jobs.retry(scene.queue, waiting, 1, delay_ms=0, max_attempts=1, error="e"))
    assert scene.run(lanes.reassign(scene.queue, delayed, B)) == -2
    assert scene.run(lanes.reassign(scene.queue, waiting, B)) == -2
    assert {scene.row(i)[b"group"] for i in (active, waiting, delayed)} == {A.encode()}


# Drain and reap


def test_a_lane_is_drained_and_nothing_else(scene: Scene) -> None:
    held, *ids = fill(scene, A, 4)
    (of_b,) = fill(scene, B, 1)
    flat = scene.mint()
    scene.run(jobs.enqueue(scene.queue, flat, b"p"))
    assert claim(scene) == held
    scene.run(admin.add_log(scene.queue, ids[0], "line"))
    assert scene.finish(lanes.drain(scene.queue, A)) == 3
    assert {i: scene.run(metrics.state(scene.queue, i)) for i in (held, *ids, of_b, flat)} == {
        held: State.ACTIVE,
        **dict.fromkeys(ids, State.ABSENT),
        of_b: State.PENDING,
        flat: State.PENDING,
    }
    assert not [key for key in scene.dump() if ids[0].encode() in key]
    assert ring(scene) == [B]
    assert scene.finish(lanes.drain(scene.queue, A)) == 0


@pytest.mark.parametrize("depth", [6, 7])
def test_a_drain_goes_in_steps(scene: Scene, depth: int) -> None:
    fill(scene, A, depth)
    step = next(lanes.drain(scene.queue, A, budget=3))
    assert (scene.run(step), scene.run(lanes.depth(scene.queue, A)), ring(scene)) == (3, depth - 3, [A])
    assert scene.finish(lanes.drain(scene.queue, A, budget=3)) == depth - 3
    assert ring(scene) == []


def test_a_ghost_in_a_drained_lane_goes_too(scene: Scene) -> None:
    fill(scene, A, 1)
    scene.ghost(f"g:{A}:pending")
    assert scene.finish(lanes.drain(scene.queue, A)) == 2
    assert ring(scene) == []


def test_only_the_groups_expired_leases_are_reaped(scene: Scene) -> None:
    of_a, of_b = fill(scene, A, 2), fill(scene, B, 1)
    for _ in range(3):
        claim(scene)
    scene.lapse(of_b[0], of_a[0])
    assert scene.run(lanes.reap(scene.queue, A)) == 1
    assert [scene.places(i) for i in (*of_a, *of_b)] == [[f"g:{A}:pending"], ["active"], ["active"]]
    assert b"stalled" not in scene.row(of_a[0])
    assert (scene.snapshot().gactive, ring(scene), scene.tokens()) == ({A: b"1", B: b"1"}, [A], 1)


def test_a_reap_looks_at_so_many_leases_and_no_more(scene: Scene) -> None:
    of_b, of_a = fill(scene, B, 2), fill(scene, A, 1)
    for _ in range(3):
        claim(scene)
    scene.lapse(*of_b, *of_a)
    assert scene.run(lanes.reap(scene.queue, A, scan=2)) == 0
    assert scene.run(lanes.reap(scene.queue, A, scan=3)) == 1


def test_a_reap_drops_ghosts(scene: Scene) -> None:
    ghost = scene.ghost("active", PAST)
    assert scene.run(lanes.reap(scene.queue, A)) == 0
    assert scene.score("active", ghost) is None


# Bad input

BUILDERS: dict[str, Callable[..., Call[Any]]] = {
    "enqueue": lambda group: lanes.enqueue("q", "JOB0NgWEfAEJfs", b"p", group),
    "admit": lambda group: admission.admit("q", "JOB0NgWEfAEJfs", b"p", group=group),
    "pause": lambda group: lanes.pause("q", group),
    "resume": lambda group: lanes.resume("q", group),
    "limit": lambda group: lanes.limit("q", group, 1),
    "weight": lambda group: lanes.weight("q", group, 1),
    "reassign": lambda group: lanes.reassign("q", "JOB0NgWEfAEJfs", group),
    "drain": lambda group: next(lanes.drain("q", group)),
    "reap": lambda group: lanes.reap("q", group),
    "depth": lambda group: lanes.depth("q", group),
}


@pytest.mark.parametrize("name", BUILDERS)
@pytest.mark.parametrize("group", ["", "acme", "LAN", "lan00000000001", "LANzzzzzzzzzzz", 5, b"LAN00000000001"])
def test_a_group_that_is_no_branded_id(name: str, group: Any) -> None:
    with pytest.raises(IdError):
        BUILDERS[name](group)
    assert all(key.startswith("emq:{q}:") for key in BUILDERS[name](A).keys)


@pytest.mark.parametrize("value", [0, -1, 2**53, 1.0, "1", True])
def test_a_limit_or_weight_below_one_or_no_integer(value: Any) -> None:
    for build in (lanes.limit, lanes.weight):
        with pytest.raises(InvalidInputError):
            build("q", A, value)
    with pytest.raises(InvalidInputError):
        lanes.weight("q", A, None)  # type: ignore[arg-type]
    for build in (lanes.drain, lanes.reap):
        with pytest.raises(InvalidInputError):
            build("q", A, **{"budget" if build is lanes.drain else "scan": value})


@pytest.mark.parametrize("value", ["", "x", "-1", "1.5", "01", "9007199254740992"])
def test_the_server_refuses_a_limit_or_weight_that_is_none(scene: Scene, value: str) -> None:
    fill(scene, A, 1)
    limit = with_args(lanes.limit(scene.queue, A, 1), {2: value})
    assert "limit must be" in str(scene.refusal(limit))
    for each in (value, "0"):
        weight = with_args(lanes.weight(scene.queue, A, 1), {1: each})
        assert "weight must be" in str(scene.refusal(weight))
