"""Protocol §5, Native twins: the replies, the refusals and their order, beside the scripts on the same server."""

from __future__ import annotations

from typing import Any

import pytest

from echomq.protocol import jobs
from echomq.protocol.call import Call
from support.native import Pair
from support.runner import Scene, with_args

FAR = 2**52
GROUP = "LAN00000000001"


def scheduled(pair: Pair, *, at_ms: int = FAR) -> str:
    job_id = pair.mint()
    pair.arrange(lambda s: s.run(jobs.enqueue_at(s.queue, job_id, b"p", at_ms=at_ms)))
    pair.arrange(Scene.drop_tokens)
    return job_id


def in_hand(pair: Pair) -> str:
    job_id = pair.mint()
    pair.arrange(lambda s: s.run(jobs.enqueue(s.queue, job_id, b"p")))
    pair.arrange(lambda s: s.run(jobs.claim(s.queue)))
    pair.arrange(Scene.drop_tokens)
    return job_id


def grouped(scene: Scene, *ids: str) -> None:
    for job_id in ids:
        scene.execute("HSET", scene.keys.job(job_id), "group", GROUP)


# EMQ.SCHEDULE


def test_schedule_admits_once_and_wakes_for_the_earliest(pair: Pair) -> None:
    late, early = pair.mint_many(2)
    assert pair.both(lambda s: jobs.enqueue_at(s.queue, late, b"late", at_ms=FAR)) == 1
    assert pair.both(lambda s: jobs.enqueue_at(s.queue, early, b"early", at_ms=7)) == 1
    assert pair.both(lambda s: jobs.enqueue_at(s.queue, early, b"again", at_ms=9)) == 0
    assert pair.native.row(early) == {b"state": b"scheduled", b"attempts": b"0", b"payload": b"early"}
    assert pair.native.score("schedule", early) == 7
    assert pair.native.tokens() == 2


def test_schedule_wakes_nobody_for_what_is_not_the_earliest(pair: Pair) -> None:
    scheduled(pair, at_ms=1)
    pair.arrange(Scene.drop_tokens)
    other = pair.mint()
    assert pair.both(lambda s: jobs.enqueue_at(s.queue, other, b"p", at_ms=2)) == 1
    assert pair.native.tokens() == 0


def test_schedule_counts_in_from_the_servers_now(scene: Scene) -> None:
    job_id = scene.mint()
    low = scene.now_ms()
    scene.run(jobs.enqueue_in(scene.queue, job_id, b"p", delay_ms=60_000))
    assert low + 60_000 <= (scene.score("schedule", job_id) or 0) <= scene.now_ms() + 60_000


def test_schedule_answers_duplicate_while_a_result_lives(pair: Pair) -> None:
    job_id = pair.mint()
    pair.arrange(lambda s: s.execute("SET", s.keys.job(job_id) + ":result", "r", "PX", 60_000))
    assert pair.both(lambda s: jobs.enqueue_at(s.queue, job_id, b"p", at_ms=5)) == 0


def test_schedule_takes_over_a_ghost(pair: Pair) -> None:
    job_id = pair.mint()
    pair.arrange(lambda s: s.execute("ZADD", s.keys.schedule, 3, job_id))
    assert pair.both(lambda s: jobs.enqueue_at(s.queue, job_id, b"p", at_ms=5)) == 1
    assert pair.native.score("schedule", job_id) == 5


@pytest.mark.parametrize("payload", [b"", b"\0\xff\r\n", b"x" * 5_000], ids=["empty", "bytes", "long"])
def test_schedule_keeps_any_payload(pair: Pair, payload: bytes) -> None:
    job_id = pair.mint()
    assert pair.both(lambda s: jobs.enqueue_at(s.queue, job_id, payload, at_ms=5)) == 1
    assert pair.native.row(job_id)[b"payload"] == payload


# EMQ.RESCHEDULE


def test_reschedule_moves_the_score_and_nothing_else(pair: Pair) -> None:
    job_id, other = scheduled(pair), scheduled(pair, at_ms=50)
    assert pair.both(lambda s: jobs.reschedule(s.queue, job_id, at_ms=60)) == 1
    assert pair.native.tokens() == 0
    assert pair.both(lambda s: jobs.reschedule(s.queue, job_id, at_ms=40)) == 1
    assert pair.native.tokens() == 1
    assert (pair.native.score("schedule", job_id), pair.native.score("schedule", other)) == (40, 50)


def test_reschedule_answers_minus_one_without_a_row_and_drops_the_ghost(pair: Pair) -> None:
    job_id = pair.mint()
    assert pair.both(lambda s: jobs.reschedule(s.queue, job_id, at_ms=5)) == -1
    pair.arrange(lambda s: s.execute("ZADD", s.keys.schedule, 3, job_id))
    assert pair.both(lambda s: jobs.reschedule(s.queue, job_id, at_ms=5)) == -1
    assert pair.native.places(job_id) == []


def test_reschedule_refuses_what_is_not_on_the_schedule(pair: Pair) -> None:
    job_id = in_hand(pair)
    assert pair.refused(lambda s: jobs.reschedule(s.queue, job_id, at_ms=5)) == "EMQSTATE reschedule not scheduled"


# EMQ.PROMOTE


def test_promote_takes_the_earliest_first_and_at_most_a_batch(pair: Pair) -> None:
    ids = [scheduled(pair, at_ms=at_ms) for at_ms in (30, 10, 20, FAR)]
    assert pair.both(lambda s: jobs.promote(s.queue, batch=2)) == 2
    assert [pair.native.places(job_id) for job_id in ids] == [["schedule"], ["pending"], ["pending"], ["schedule"]]
    assert pair.native.row(ids[1])[b"state"] == b"pending"
    assert pair.native.tokens() == 2
    assert pair.both(lambda s: jobs.promote(s.queue, batch=2)) == 1
    assert pair.both(lambda s: jobs.promote(s.queue, batch=2)) == 0


def test_promote_takes_what_is_due_this_very_millisecond(scene: Scene) -> None:
    job_id = scene.mint()
    scene.run(jobs.enqueue_in(scene.queue, job_id, b"p", delay_ms=0))
    assert scene.run(jobs.promote(scene.queue)) == 1


def test_promote_removes_and_counts_a_ghost(pair: Pair) -> None:
    job_id, ghost, wrong = scheduled(pair, at_ms=2), pair.mint(), pair.mint()
    pair.arrange(lambda s: s.execute("ZADD", s.keys.schedule, 1, ghost, 3, wrong, 4, "no id at all"))
    pair.arrange(lambda s: s.execute("SET", s.keys.job(wrong), "no hash"))
    assert pair.both(lambda s: jobs.promote(s.queue)) == 4
    pair.arrange(lambda s: s.execute("DEL", s.keys.job(wrong)))
    assert pair.native.places(job_id) == ["pending"]
    assert pair.native.tokens() == 1


def test_promote_moves_thousands_in_one_call_and_leaves_at_most_64_tokens(pair: Pair) -> None:
    ids = pair.mint_many(2_345)
    pair.arrange(lambda s: [s.run(jobs.enqueue_at(s.queue, i, b"p", at_ms=1)) for i in ids])
    pair.arrange(Scene.drop_tokens)
    assert pair.both(lambda s: jobs.promote(s.queue, batch=9_000)) == 2_345
    assert pair.native.tokens() == 64
    assert pair.native.run(jobs.pending_size(pair.native.queue)) == 2_345


def test_promote_leaves_a_batch_with_a_grouped_row_to_the_script(pair: Pair) -> None:
    ids = [scheduled(pair, at_ms=i) for i in range(1, 6)]
    pair.arrange(lambda s: grouped(s, ids[3]))
    assert pair.left_to_script(lambda s: jobs.promote(s.queue)) == "EMQSTATE promote lane not native"
    assert pair.both(lambda s: jobs.promote(s.queue, batch=3)) == 3
    assert pair.left_to_script(lambda s: jobs.promote(s.queue, batch=1)) == "EMQSTATE promote lane not native"
    pair.arrange(lambda s: s.execute("HDEL", s.keys.job(ids[3]), "group"))


@pytest.mark.parametrize("batch", ["0", "-1", "", "many", "1.5", " 1", "+1", "01", "1e3", str(2**53), "9" * 40, "1\0"])
def test_promote_refuses_a_batch_that_is_no_positive_integer(pair: Pair, batch: str) -> None:
    scheduled(pair, at_ms=1)
    refusal = pair.refused(lambda s: with_args(jobs.promote(s.queue), {1: batch}))
    assert refusal == "ERR EMQ.PROMOTE batch must be a positive integer"


# EMQ.DELAY


def test_delay_puts_a_job_in_hand_back_and_spends_nothing(pair: Pair) -> None:
    job_id = in_hand(pair)
    pair.arrange(
        lambda s: s.execute("HSET", s.keys.job(job_id), "failures", 2, "stalled", 1, "lock", "1", "else", "kept")
    )
    pair.arrange(lambda s: s.execute("SET", s.keys.job(job_id) + ":lock", "1", "PX", 60_000))
    assert pair.both(lambda s: jobs.delay(s.queue, job_id, 1, at_ms=FAR)) == 1
    assert pair.native.places(job_id) == ["schedule"]
    assert pair.native.row(job_id) == {
        b"state": b"scheduled",
        b"attempts": b"1",
        b"payload": b"p",
        b"failures": b"2",
        b"stalled": b"1",
        b"else": b"kept",
    }
    assert pair.native.execute("EXISTS", pair.native.keys.job(job_id) + ":lock") == 0
    assert pair.native.tokens() == 1


def test_delay_refuses_in_order_what_is_gone_stale_or_not_in_hand(pair: Pair) -> None:
    gone, job_id = pair.mint(), in_hand(pair)
    assert pair.refused(lambda s: jobs.delay(s.queue, gone, 1, at_ms=5)) == "EMQSTALE job gone"
    for token in ("2", "01", "1\0", ""):
        call: Any = lambda s, token=token: with_args(jobs.delay(s.queue, job_id, 1, at_ms=5), {1: token})  # noqa: E731 - bound to its token
        assert pair.refused(call) == "EMQSTALE delay token mismatch"
    pair.arrange(lambda s: s.execute("HDEL", s.keys.job(job_id), "attempts"))
    assert pair.refused(lambda s: jobs.delay(s.queue, job_id, 1, at_ms=5)) == "EMQSTALE delay token mismatch"
    pair.arrange(lambda s: s.execute("HSET", s.keys.job(job_id), "attempts", 1))
    pair.arrange(lambda s: s.run(jobs.delay(s.queue, job_id, 1, at_ms=FAR)))
    assert pair.refused(lambda s: jobs.delay(s.queue, job_id, 1, at_ms=5)) == "EMQSTATE delay not active"


def test_delay_drops_a_ghost_in_hand(pair: Pair) -> None:
    job_id = pair.mint()
    pair.arrange(lambda s: s.execute("ZADD", s.keys.active, FAR, job_id))
    assert str(pair.both(lambda s: jobs.delay(s.queue, job_id, 1, at_ms=5))) == "EMQSTALE job gone"
    assert pair.native.places(job_id) == []


def test_delay_leaves_a_grouped_row_to_the_script_once_all_else_is_right(pair: Pair) -> None:
    job_id = in_hand(pair)
    pair.arrange(lambda s: grouped(s, job_id))

    def call(scene: Scene) -> Call[Any]:
        return jobs.delay(scene.queue, job_id, 1, at_ms=FAR)

    assert pair.refused(lambda s: with_args(call(s), {1: "2"})) == "EMQSTALE delay token mismatch"
    assert pair.left_to_script(call) == "EMQSTATE delay lane not native"
    pair.arrange(lambda s: s.execute("ZREM", s.keys.active, job_id))
    assert pair.refused(call) == "EMQSTATE delay not active"
    pair.arrange(lambda s: s.execute("HDEL", s.keys.job(job_id), "group"))
    pair.arrange(lambda s: s.execute("ZADD", s.keys.active, FAR, job_id))


def test_delay_leaves_a_cancelled_job_to_the_script_once_all_else_is_right(pair: Pair) -> None:
    job_id = in_hand(pair)
    pair.arrange(lambda s: s.execute("HSET", s.keys.job(job_id), "cancel", "cancelled: stop"))

    def call(scene: Scene) -> Call[Any]:
        return jobs.delay(scene.queue, job_id, 1, at_ms=FAR)

    assert pair.refused(lambda s: with_args(call(s), {1: "2"})) == "EMQSTALE delay token mismatch"
    assert pair.left_to_script(call) == "EMQSTATE delay job not native"
    pair.arrange(lambda s: grouped(s, job_id))
    assert pair.left_to_script(call) == "EMQSTATE delay lane not native"
    pair.arrange(lambda s: s.execute("HDEL", s.keys.job(job_id), "group", "cancel"))
    assert pair.both(call) == 1


@pytest.mark.parametrize(
    ("ceiling", "hands", "waiting", "tokens"),
    [("2", 2, 5, 1), ("2", 2, 0, 0), ("1", 2, 5, 0), ("9", 2, 5, 0), ("0", 1, 5, 0), ("x", 1, 5, 0), (" 2 ", 2, 5, 1)],
)
def test_delay_wakes_for_the_place_below_a_ceiling(
    pair: Pair, ceiling: str, hands: int, waiting: int, tokens: int
) -> None:
    first = scheduled(pair, at_ms=1)
    held = [in_hand(pair) for _ in range(hands)]
    more = pair.mint_many(max(waiting, 1))[:waiting]
    pair.arrange(lambda s: [s.run(jobs.enqueue(s.queue, job_id, b"p")) for job_id in more])
    pair.arrange(lambda s: s.execute("HSET", s.keys.base + "meta", "concurrency", ceiling))
    pair.arrange(Scene.drop_tokens)
    assert pair.both(lambda s: jobs.delay(s.queue, held[0], 1, at_ms=FAR)) == 1
    assert pair.native.tokens() == tokens
    assert pair.native.score("schedule", first) == 1


@pytest.mark.parametrize(("lane", "limit", "paused"), [(1, 0, False), (3, 0, False), (3, 2, False), (3, 1, True)])
def test_delay_counts_lanes_as_its_script_does(pair: Pair, lane: int, limit: int, paused: bool) -> None:
    held = [in_hand(pair) for _ in range(3)]
    scheduled(pair, at_ms=1)
    ids = pair.mint_many(lane)
    pair.arrange(lambda s: s.into_lane(GROUP, *ids))
    if limit:
        pair.arrange(lambda s: s.execute("HSET", s.keys.base + "glimit", GROUP, limit))
    if paused:
        pair.arrange(lambda s: (s.execute("SADD", s.keys.base + "paused", GROUP), s.execute("DEL", s.keys.ring)))
    pair.arrange(lambda s: s.execute("HSET", s.keys.base + "meta", "concurrency", 3))
    pair.arrange(Scene.drop_tokens)
    for job_id in held:
        assert pair.both(lambda s, job_id=job_id: jobs.delay(s.queue, job_id, 1, at_ms=FAR)) == 1
