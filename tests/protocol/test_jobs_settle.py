"""Settling (protocol §3, §5): complete, retry, delay, release and extend by a job's holder, stale or not."""

from __future__ import annotations

from typing import Any

import pytest

from echomq.protocol import jobs, metrics
from echomq.protocol.call import Call
from echomq.protocol.errors import ServerError, StaleTokenError, StateError
from echomq.protocol.replies import Completion, Extension, Retried
from support.runner import Scene, with_args


def in_hand(scene: Scene, payload: bytes = b"p") -> str:
    """A job that was just claimed: its token is 1."""
    job_id = scene.mint()
    scene.run(jobs.enqueue(scene.queue, job_id, payload))
    claimed = scene.run(jobs.claim(scene.queue))
    assert claimed is not None
    assert claimed.id == job_id
    scene.drop_tokens()
    return job_id


def settlements(queue: str, job_id: str, token: int) -> dict[str, Call[Any]]:
    """Every move that a holder can make, by its verb."""
    return {
        "complete": jobs.complete(queue, job_id, token),
        "retry": jobs.retry(queue, job_id, token, delay_ms=0, max_attempts=9, error="e"),
        "delay": jobs.delay(queue, job_id, token, delay_ms=0),
        "release": jobs.release(queue, job_id, token),
        "extend": jobs.extend(queue, job_id, token),
    }


def test_completion_leaves_nothing_but_the_count(scene: Scene) -> None:
    job_id = in_hand(scene)
    scene.execute("RPUSH", scene.keys.job(job_id) + ":logs", "line")
    scene.execute("SET", scene.keys.job(job_id) + ":lock", "1", "PX", 60_000)
    assert scene.run(jobs.complete(scene.queue, job_id, 1)) is Completion.RETIRED
    assert scene.dump() == {scene.keys.metrics_completed.encode(): [(b"count", b"1")]}
    assert scene.run(jobs.complete(scene.queue, job_id, 1)) is Completion.GONE
    assert scene.run(metrics.counts(scene.queue)).completed == 1


def test_many_completions_answer_one_by_one(scene: Scene) -> None:
    done, stale, dead = (in_hand(scene) for _ in range(3))
    scene.run(jobs.retry(scene.queue, dead, 1, delay_ms=0, max_attempts=1, error="e"))
    gone = scene.mint()
    answers = scene.run(jobs.complete_many(scene.queue, [(done, 1), (stale, 2), (dead, 1), (gone, 1), (done, 1)]))
    assert answers[0] is Completion.RETIRED
    assert isinstance(answers[1], StaleTokenError)
    assert answers[1].reply == "EMQSTALE complete token mismatch"
    assert isinstance(answers[2], StateError)
    assert answers[2].reply == "EMQSTATE complete not active"
    assert answers[3:] == (Completion.GONE, Completion.GONE)
    assert scene.run(metrics.counts(scene.queue)).completed == 1
    assert scene.places(stale) == ["active"]


@pytest.mark.parametrize("verb", ["complete", "retry", "delay", "release", "extend"])
def test_a_stale_token_is_refused_and_writes_nothing(scene: Scene, verb: str) -> None:
    job_id = in_hand(scene)
    scene.lapse(job_id)
    scene.run(jobs.reap(scene.queue))
    scene.run(jobs.claim(scene.queue))
    for token in (1, 3, 20):
        refusal = scene.refusal(settlements(scene.queue, job_id, token)[verb])
        assert isinstance(refusal, StaleTokenError)
        assert refusal.reply == f"EMQSTALE {verb} token mismatch"
        assert job_id in str(refusal)
        assert f"token {token}" in str(refusal)
    assert not isinstance(scene.outcome(settlements(scene.queue, job_id, 2)[verb]), ServerError)


@pytest.mark.parametrize("token", ["01", "1 ", " 1", "+1", "1.0", "1e0", ""])
def test_a_token_is_compared_as_a_text(scene: Scene, token: str) -> None:
    job_id = in_hand(scene)
    for verb, call in settlements(scene.queue, job_id, 1).items():
        refusal = scene.refusal(with_args(call, {1: token}))
        assert refusal.reply == f"EMQSTALE {verb} token mismatch"


@pytest.mark.parametrize("verb", ["retry", "delay", "release"])
def test_a_job_that_is_gone_is_refused(scene: Scene, verb: str) -> None:
    refusal = scene.refusal(settlements(scene.queue, scene.mint(), 1)[verb])
    assert isinstance(refusal, StaleTokenError)
    assert refusal.reply == "EMQSTALE job gone"


@pytest.mark.parametrize("verb", ["complete", "retry", "delay", "release", "extend"])
def test_a_ghost_in_hand_is_dropped_by_whoever_settles_it(scene: Scene, verb: str) -> None:
    ghost = scene.ghost("active", 10**13)
    outcome = scene.outcome(settlements(scene.queue, ghost, 1)[verb])
    assert outcome in (Completion.GONE, Extension.GONE) or str(outcome).startswith(f"{verb} {ghost}")
    assert scene.dump() == {}


def test_a_retry_keeps_the_error_and_the_next_claim_has_the_next_token(scene: Scene) -> None:
    job_id = in_hand(scene)
    before = scene.now_ms()
    verdict = scene.run(jobs.retry(scene.queue, job_id, 1, delay_ms=60_000, max_attempts=3, error="boom \ud800"))
    after = scene.now_ms()
    assert verdict is Retried.SCHEDULED
    row = scene.row(job_id)
    assert row[b"state"] == b"scheduled"
    assert row[b"last_error"] == b"boom \\ud800"
    assert (row[b"attempts"], row[b"failures"]) == (b"1", b"1")
    score = scene.score("schedule", job_id)
    assert score is not None
    assert before + 60_000 <= score <= after + 60_000
    scene.fall_due(job_id)
    assert scene.run(jobs.promote(scene.queue)) == 1
    claimed = scene.run(jobs.claim(scene.queue))
    assert claimed is not None
    assert (claimed.attempts, claimed.failures, claimed.stalled) == (2, 1, 0)


def test_a_retry_at_the_cap_buries_with_the_error(scene: Scene) -> None:
    job_id = in_hand(scene)
    before = scene.now_ms()
    verdict = scene.run(jobs.retry(scene.queue, job_id, 1, delay_ms=60_000, max_attempts=1, error="the end"))
    after = scene.now_ms()
    assert verdict is Retried.DEAD
    row = scene.row(job_id)
    died_ms = int(row.pop(b"died_ms"))
    assert before <= died_ms <= after
    assert row == {
        b"state": b"dead",
        b"attempts": b"1",
        b"payload": b"p",
        b"failures": b"1",
        b"last_error": b"the end",
    }
    assert scene.run(jobs.browse_dead(scene.queue)) == (job_id,)
    assert scene.run(metrics.counts(scene.queue)).failed == 1


def test_the_poison_drill_dies_at_exactly_its_third_attempt(scene: Scene) -> None:
    from echomq.protocol.backoff import Exponential, delay_ms

    job_id = in_hand(scene)
    prices = []
    for token in (1, 2, 3):
        price = delay_ms(Exponential(1, 10), token)
        prices.append(price)
        verdict = scene.run(
            jobs.retry(scene.queue, job_id, token, delay_ms=price, max_attempts=3, error=f"error {token}")
        )
        if token < 3:
            assert verdict is Retried.SCHEDULED
            scene.fall_due(job_id)
            scene.run(jobs.promote(scene.queue))
            scene.run(jobs.claim(scene.queue))
    assert verdict is Retried.DEAD
    assert prices == [1, 2, 4]
    assert scene.row(job_id)[b"last_error"] == b"error 3"
    assert scene.row(job_id)[b"attempts"] == b"3"


def test_a_delay_spends_nothing(scene: Scene) -> None:
    job_id = in_hand(scene)
    scene.execute("HSET", scene.keys.job(job_id), "failures", 2, "stalled", 1)
    row = scene.row(job_id)
    before = scene.now_ms()
    scene.run(jobs.delay(scene.queue, job_id, 1, delay_ms=60_000))
    after = scene.now_ms()
    assert scene.row(job_id) == row | {b"state": b"scheduled"}
    score = scene.score("schedule", job_id)
    assert score is not None
    assert before + 60_000 <= score <= after + 60_000
    assert scene.places(job_id) == ["schedule"]


def test_a_delay_until_an_instant_is_that_instant(scene: Scene) -> None:
    job_id = in_hand(scene)
    scene.run(jobs.delay(scene.queue, job_id, 1, at_ms=5))
    assert scene.score("schedule", job_id) == 5


def test_a_release_hands_back_and_the_token_goes_on_rising(scene: Scene) -> None:
    job_id = in_hand(scene)
    scene.execute("HSET", scene.keys.job(job_id), "failures", 2, "stalled", 1)
    row = scene.row(job_id)
    scene.run(jobs.release(scene.queue, job_id, 1))
    assert scene.row(job_id) == row | {b"state": b"pending"}
    assert scene.places(job_id) == ["pending"]
    assert scene.tokens() == 1
    claimed = scene.run(jobs.claim(scene.queue))
    assert claimed is not None
    assert (claimed.attempts, claimed.failures, claimed.stalled) == (2, 2, 1)


def test_an_extension_moves_the_deadline_both_ways(scene: Scene) -> None:
    job_id = in_hand(scene)
    for lease_ms in (90_000, 10):
        before = scene.now_ms()
        assert scene.run(jobs.extend(scene.queue, job_id, 1, lease_ms=lease_ms)) is Extension.EXTENDED
        after = scene.now_ms()
        score = scene.score("active", job_id)
        assert score is not None
        assert before + lease_ms <= score <= after + lease_ms
    assert scene.run(jobs.extend(scene.queue, scene.mint(), 1)) is Extension.GONE


def test_a_lapsed_lease_that_nobody_has_swept_can_still_be_extended(scene: Scene) -> None:
    job_id = in_hand(scene)
    scene.lapse(job_id)
    assert scene.run(jobs.extend(scene.queue, job_id, 1)) is Extension.EXTENDED
    assert scene.run(jobs.sweep(scene.queue)).recovered == ()


def test_extend_many_gives_back_exactly_those_it_could_not(scene: Scene) -> None:
    live, stale, back = (in_hand(scene) for _ in range(3))
    scene.run(jobs.release(scene.queue, back, 1))
    gone = scene.mint()
    score = scene.score("active", stale)
    lost = scene.run(jobs.extend_many(scene.queue, [(live, 1), (stale, 7), (back, 1), (gone, 1)], lease_ms=600_000))
    assert lost == (stale, back, gone)
    assert scene.score("active", stale) == score
    extended = scene.score("active", live)
    assert extended is not None
    assert extended > scene.now_ms() + 500_000


def test_refusals_hold_right_after_the_script_cache_was_flushed(scene: Scene) -> None:
    job_id = in_hand(scene)
    scene.execute("SCRIPT", "FLUSH")
    refusal = scene.outcome(jobs.complete(scene.queue, job_id, 2))
    assert isinstance(refusal, StaleTokenError)
    scene.execute("SCRIPT", "FLUSH")
    assert scene.run(jobs.complete(scene.queue, job_id, 1)) is Completion.RETIRED


def test_fields_that_ours_does_not_know_are_kept(scene: Scene) -> None:
    job_id = in_hand(scene)
    scene.execute("HSET", scene.keys.job(job_id), "of_another_client", "\0x")
    scene.run(jobs.retry(scene.queue, job_id, 1, delay_ms=0, max_attempts=9, error="e"))
    scene.run(jobs.promote(scene.queue))
    scene.run(jobs.claim(scene.queue))
    scene.run(jobs.release(scene.queue, job_id, 2))
    assert scene.row(job_id)[b"of_another_client"] == b"\0x"


def test_attempts_rise_only_by_claims(scene: Scene) -> None:
    job_id = in_hand(scene)
    seen = [1]
    for token in range(1, 6):
        move = (
            jobs.retry(scene.queue, job_id, token, delay_ms=0, max_attempts=99, error="e"),
            jobs.delay(scene.queue, job_id, token, delay_ms=0),
            jobs.release(scene.queue, job_id, token),
        )[token % 3]
        scene.run(move)
        assert scene.row(job_id)[b"attempts"] == b"%d" % token
        scene.run(jobs.promote(scene.queue))
        claimed = scene.run(jobs.claim(scene.queue))
        assert claimed is not None
        seen.append(claimed.attempts)
    assert seen == [1, 2, 3, 4, 5, 6]
