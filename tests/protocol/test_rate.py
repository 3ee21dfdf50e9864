"""Ceiling, rate and pause of a queue (protocol §7, §12.2): read inside the claim, on the server's clock."""

from __future__ import annotations

from typing import Any

import pytest

from echomq.protocol import admin, jobs, lanes
from echomq.protocol.errors import InvalidInputError, RateError
from echomq.protocol.replies import Idle
from support.runner import Scene
from support.servers import wait_until

HOUR = 3_600_000
GROUP = lanes.lane_id("a")


def fill(scene: Scene, count: int) -> list[str]:
    """Jobs that wait, every other one in a lane."""
    ids = scene.minter.mint_many(count)
    for n, job_id in enumerate(ids):
        scene.run(lanes.enqueue(scene.queue, job_id, b"p", GROUP) if n % 2 else jobs.enqueue(scene.queue, job_id, b"p"))
    scene.drop_tokens()
    return ids


def take(scene: Scene, n: int = 99) -> tuple[int, Idle | None]:
    """How many jobs a claim of n brings, and why fewer."""
    claims = scene.run(jobs.claim_many(scene.queue, n))
    return len(claims.jobs), claims.idle


# Ceiling


def test_no_more_than_the_ceiling_are_in_hand_over_flat_work_and_lanes(scene: Scene) -> None:
    fill(scene, 9)
    scene.run(admin.set_ceiling(scene.queue, 4))
    assert [take(scene, 3), take(scene, 3), take(scene)] == [(3, None), (1, Idle.CEILING), (0, Idle.CEILING)]
    held = list(scene.snapshot().places["active"])
    scene.run(jobs.complete_many(scene.queue, [(i, 1) for i in held[:2]]))
    assert take(scene) == (2, Idle.CEILING)


def test_the_gate_refuses_at_the_ceiling(scene: Scene) -> None:
    (job_id, _) = fill(scene, 2)
    scene.run(admin.gate(scene.queue))
    scene.run(admin.set_ceiling(scene.queue, 1))
    scene.run(admin.gate(scene.queue))
    take(scene)
    refusal = scene.refusal(admin.gate(scene.queue))
    assert isinstance(refusal, RateError)
    assert refusal.reply == "EMQRATE at concurrency ceiling"
    scene.run(jobs.complete(scene.queue, job_id, 1))
    scene.run(admin.gate(scene.queue))


@pytest.mark.parametrize(("before", "after", "tokens"), [(2, 5, 3), (2, None, 5), (5, 2, 0), (None, 2, 0), (7, 7, 0)])
def test_a_new_ceiling_wakes_for_what_it_lets_in(
    scene: Scene, before: int | None, after: int | None, tokens: int
) -> None:
    fill(scene, 7)
    scene.run(admin.set_ceiling(scene.queue, before))
    scene.run(admin.set_ceiling(scene.queue, after))
    assert scene.tokens() == tokens


def test_a_ceiling_of_another_client_that_is_none_holds_nobody_up(scene: Scene) -> None:
    fill(scene, 2)
    for value in ("0", "-1", "", "many"):
        scene.execute("HSET", scene.keys.meta, "concurrency", value)
        scene.run(admin.gate(scene.queue))
    assert take(scene) == (2, Idle.EMPTY)


# Rate


def test_no_more_than_the_rate_are_claimed_in_a_period(scene: Scene) -> None:
    fill(scene, 9)
    scene.run(admin.set_rate(scene.queue, 4, period_ms=HOUR))
    assert [take(scene, 3), take(scene, 3), take(scene)] == [(3, None), (1, Idle.RATE), (0, Idle.RATE)]
    scene.run(jobs.complete_many(scene.queue, [(i, 1) for i in scene.snapshot().places["active"]]))
    assert take(scene) == (0, Idle.RATE)


def test_the_window_opens_with_its_first_job_and_says_when_it_ends(scene: Scene) -> None:
    fill(scene, 3)
    scene.run(admin.set_rate(scene.queue, 2, period_ms=HOUR))
    assert scene.execute("EXISTS", scene.keys.limiter) == 0
    before = scene.now_ms()
    claims = scene.run(jobs.claim_many(scene.queue, 9))
    assert claims.next_at_ms is not None
    assert before + HOUR < claims.next_at_ms <= scene.now_ms() + HOUR + 1
    assert claims.next_at_ms - HOUR - 1_000 < scene.run(admin.rate_ttl(scene.queue)) + before <= claims.next_at_ms
    later = scene.run(jobs.claim_many(scene.queue, 9))
    assert abs((later.next_at_ms or 0) - claims.next_at_ms) <= 1


def test_a_later_claim_does_not_prolong_the_window(scene: Scene) -> None:
    fill(scene, 3)
    scene.run(admin.set_rate(scene.queue, 3, period_ms=HOUR))
    take(scene, 1)
    scene.execute("PEXPIRE", scene.keys.limiter, HOUR // 2)
    take(scene, 1)
    assert scene.execute("PTTL", scene.keys.limiter) <= HOUR // 2
    assert scene.execute("GET", scene.keys.limiter) == b"2"


def test_a_run_at_before_the_end_of_the_window_comes_first(scene: Scene) -> None:
    fill(scene, 2)
    at_ms = scene.now_ms() + HOUR // 2
    scene.run(jobs.enqueue_at(scene.queue, scene.mint(), b"p", at_ms=at_ms))
    scene.run(admin.set_rate(scene.queue, 1, period_ms=HOUR))
    assert scene.run(jobs.claim_many(scene.queue, 9)).next_at_ms == at_ms


def test_a_window_ends_and_another_opens(scene: Scene) -> None:
    fill(scene, 4)
    scene.run(admin.set_rate(scene.queue, 2, period_ms=40))
    assert take(scene)[0] == 2
    wait_until(lambda: take(scene)[0] == 2)


def test_the_end_of_a_window_that_a_claim_is_told_has_not_come_yet(scene: Scene) -> None:
    fill(scene, 2)
    scene.run(admin.set_rate(scene.queue, 1, period_ms=20))
    assert take(scene, 1)[0] == 1
    told = []
    while not (claims := scene.run(jobs.claim_many(scene.queue, 1))).jobs:
        told.append((claims.next_at_ms or 0) - claims.now_ms)
    assert [ahead for ahead in told if ahead < 1] == []


def test_a_claim_that_finds_nothing_spends_nothing(scene: Scene) -> None:
    scene.run(admin.set_rate(scene.queue, 2, period_ms=HOUR))
    assert take(scene) == (0, Idle.EMPTY)
    assert scene.execute("EXISTS", scene.keys.limiter) == 0
    fill(scene, 3)
    assert take(scene) == (2, Idle.RATE)


def test_the_rate_that_a_caller_asks_about(scene: Scene) -> None:
    fill(scene, 3)
    assert scene.run(admin.rate_ttl(scene.queue)) == 0
    scene.run(admin.set_rate(scene.queue, 2, period_ms=HOUR))
    assert scene.run(admin.rate_ttl(scene.queue)) == 0
    take(scene, 1)
    assert scene.run(admin.rate_ttl(scene.queue)) == 0
    assert HOUR - 10_000 < scene.run(admin.rate_ttl(scene.queue, n=1)) <= HOUR
    take(scene, 1)
    assert HOUR - 10_000 < scene.run(admin.rate_ttl(scene.queue)) <= HOUR
    assert scene.run(admin.rate_ttl(scene.queue, n=3)) == 0


def test_a_shorter_period_ends_the_window_that_is_open(scene: Scene) -> None:
    fill(scene, 3)
    scene.run(admin.set_rate(scene.queue, 1, period_ms=HOUR))
    assert take(scene)[0] == 1
    scene.run(admin.set_rate(scene.queue, 1, period_ms=50))
    assert scene.execute("PTTL", scene.keys.limiter) <= 50
    wait_until(lambda: take(scene)[0] == 1)


@pytest.mark.parametrize(("n", "period_ms", "tokens"), [(1, HOUR // 2, 1), (2, HOUR // 2, 1), (1, HOUR, 0), (3, 50, 2)])
def test_a_window_that_is_cut_short_wakes_who_sleeps_until_its_end(
    scene: Scene, n: int, period_ms: int, tokens: int
) -> None:
    fill(scene, 4)
    scene.run(admin.set_rate(scene.queue, 1, period_ms=HOUR))
    take(scene)
    scene.drop_tokens()
    scene.run(admin.set_rate(scene.queue, n, period_ms=period_ms))
    assert scene.tokens() == tokens
    scene.drop_tokens()
    scene.run(admin.set_rate(scene.queue, n, period_ms=period_ms))
    assert scene.tokens() == 0


def test_a_budget_that_another_client_left_without_an_end_does_not_shut_the_queue(scene: Scene) -> None:
    fill(scene, 3)
    scene.run(admin.set_rate(scene.queue, 2, period_ms=HOUR))
    scene.execute("SET", scene.keys.limiter, 5)
    assert take(scene) == (2, Idle.RATE)
    assert scene.execute("PTTL", scene.keys.limiter) > 0


def test_a_lifted_rate_wakes_for_what_it_lets_in(scene: Scene) -> None:
    fill(scene, 5)
    scene.run(admin.set_rate(scene.queue, 2, period_ms=HOUR))
    take(scene)
    scene.drop_tokens()
    scene.run(admin.set_rate(scene.queue, None))
    assert scene.tokens() == 3
    assert scene.execute("HGETALL", scene.keys.meta) == {}


# Pause


def test_a_paused_queue_gives_nothing_and_takes_everything(scene: Scene) -> None:
    held, *_ = fill(scene, 3)
    take(scene, 1)
    scene.run(admin.pause_queue(scene.queue))
    assert scene.run(admin.is_paused(scene.queue)) is True
    assert take(scene) == (0, Idle.PAUSED)
    assert scene.run(lanes.claim(scene.queue)) is None
    fill(scene, 2)
    scene.run(jobs.complete(scene.queue, held, 1))
    scene.run(admin.resume_queue(scene.queue))
    assert scene.run(admin.is_paused(scene.queue)) is False
    assert scene.tokens() == 4
    assert take(scene) == (4, Idle.EMPTY)


@pytest.mark.parametrize("value", ["1", "0", "", "false"])
def test_any_value_is_a_pause(scene: Scene, value: str) -> None:
    fill(scene, 1)
    scene.execute("HSET", scene.keys.meta, "paused", value)
    assert scene.run(admin.is_paused(scene.queue)) is True
    assert take(scene) == (0, Idle.PAUSED)


def test_a_queue_that_was_not_paused_wakes_nobody_when_it_is_resumed(scene: Scene) -> None:
    fill(scene, 3)
    scene.run(admin.resume_queue(scene.queue))
    assert scene.tokens() == 0


def test_a_resumed_queue_wakes_for_no_more_than_its_ceiling_lets_in(scene: Scene) -> None:
    fill(scene, 5)
    scene.run(admin.set_ceiling(scene.queue, 2))
    scene.run(admin.pause_queue(scene.queue))
    scene.run(admin.resume_queue(scene.queue))
    assert scene.tokens() == 2


def test_settings_that_let_nothing_in_wake_nobody(scene: Scene) -> None:
    fill(scene, 3)
    scene.run(admin.set_retention(scene.queue, dead_max=5, dead_age_ms=HOUR))
    assert scene.tokens() == 0
    assert scene.execute("HGETALL", scene.keys.meta) == {b"dead_max": b"5", b"dead_age_ms": b"%d" % HOUR}


# Bad input


@pytest.mark.parametrize("value", [0, -1, 1.5, "5", True, 2**53])
def test_a_ceiling_or_rate_that_is_none(value: Any) -> None:
    with pytest.raises(InvalidInputError, match="ceiling"):
        admin.set_ceiling("q", value)
    with pytest.raises(InvalidInputError, match="n must be"):
        admin.set_rate("q", value, period_ms=5)
    with pytest.raises(InvalidInputError, match="period_ms"):
        admin.set_rate("q", 5, period_ms=value)
    if value != 0:
        with pytest.raises(InvalidInputError):
            admin.rate_ttl("q", n=value)


@pytest.mark.parametrize("period_ms", [2**46 - 1, 2**46])
def test_the_longest_period_is_a_rate(scene: Scene, period_ms: int) -> None:
    fill(scene, 3)
    scene.run(admin.set_rate(scene.queue, 1, period_ms=period_ms))
    assert [take(scene), take(scene)] == [(1, Idle.RATE), (0, Idle.RATE)]
    assert period_ms - HOUR < scene.execute("PTTL", scene.keys.limiter) <= period_ms


@pytest.mark.parametrize("period_ms", [2**46 + 1, 2**53 - 1])
def test_a_period_that_no_server_can_hold_is_refused(period_ms: int) -> None:
    with pytest.raises(InvalidInputError, match="period_ms must be from 1 to 70368744177664"):
        admin.set_rate("q", 1, period_ms=period_ms)


def test_a_rate_needs_its_period() -> None:
    with pytest.raises(InvalidInputError, match="period_ms"):
        admin.set_rate("q", 5)
