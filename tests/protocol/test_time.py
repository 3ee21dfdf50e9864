"""Time (protocol §4, §5): whose clock decides, what a time may be, and in which order the checks come."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from echomq.identity.minter import Minter
from echomq.protocol import jobs, repeat
from echomq.protocol.call import Call
from echomq.protocol.errors import KindError, ServerError, StateError
from echomq.protocol.replies import Admission, Rescheduling, Retried
from support.runner import Runner, Scene, with_args
from support.servers import Server

HOUR = 3_600_000
LAST = 2**53 - 1

# Texts that are no canonical whole number from 0 to 2^53 - 1.
NO_TIMES = ["05", "+5", " 5", "5 ", "1e3", "0x10", "-1", "-0", "1.0", "", "nan", "inf", str(2**53), "9" * 30, "5\0"]

skewed = pytest.mark.parametrize("skew", [-HOUR, HOUR], ids=["an-hour-slow", "an-hour-fast"])


def between(scene: Scene, act: Callable[[], object]) -> tuple[int, int]:
    """The server's clock before and after `act`."""
    before = scene.now_ms()
    act()
    return before, scene.now_ms()


@skewed
def test_a_wrong_host_clock_does_not_move_what_counts_from_now(
    scene: Scene, skew: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    true_time, true_ns = time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: true_time() + skew / 1000)
    monkeypatch.setattr(time, "time_ns", lambda: true_ns() + skew * 1_000_000)
    minter = Minter(clock_ms=lambda: true_ns() // 1_000_000 + skew)

    scheduled = minter.mint()
    low, high = between(scene, lambda: scene.run(jobs.enqueue_in(scene.queue, scheduled, b"p", delay_ms=60_000)))
    assert low + 60_000 <= (scene.score("schedule", scheduled) or 0) <= high + 60_000

    failing = minter.mint()
    scene.run(jobs.enqueue(scene.queue, failing, b"p"))
    low, high = between(scene, lambda: scene.run(jobs.claim(scene.queue, lease_ms=5_000)))
    assert low + 5_000 <= (scene.score("active", failing) or 0) <= high + 5_000
    low, high = between(
        scene,
        lambda: scene.run(jobs.retry(scene.queue, failing, 1, delay_ms=70_000, max_attempts=9, error="e")),
    )
    assert low + 70_000 <= (scene.score("schedule", failing) or 0) <= high + 70_000
    low, high = between(scene, lambda: scene.run(jobs.reschedule(scene.queue, failing, delay_ms=80_000)))
    assert low + 80_000 <= (scene.score("schedule", failing) or 0) <= high + 80_000

    assert scene.run(jobs.promote(scene.queue)) == 0
    assert scene.run(jobs.reap(scene.queue)) == 0


def test_at_is_the_callers_instant_and_in_the_servers(scene: Scene) -> None:
    early, late = scene.minter.mint_many(2)
    scene.run(jobs.enqueue_at(scene.queue, late, b"p", at_ms=LAST))
    scene.run(jobs.enqueue_at(scene.queue, early, b"p", at_ms=0))
    assert scene.score("schedule", early) == 0
    assert scene.score("schedule", late) == LAST
    assert scene.run(jobs.promote(scene.queue)) == 1
    assert scene.places(early) == ["pending"]


def test_a_job_is_never_promoted_before_its_instant(scene: Scene) -> None:
    job_id = scene.mint()
    at_ms = scene.now_ms() + 40
    scene.run(jobs.enqueue_at(scene.queue, job_id, b"p", at_ms=at_ms))
    while True:
        promoted = scene.run(jobs.promote(scene.queue))
        if promoted:
            assert scene.now_ms() >= at_ms
            break
        assert scene.now_ms() < at_ms + 5_000


def test_promotion_takes_the_earliest_and_at_most_a_batch(scene: Scene) -> None:
    ids = scene.minter.mint_many(7)
    for i, job_id in enumerate(reversed(ids)):
        scene.run(jobs.enqueue_at(scene.queue, job_id, b"p", at_ms=i))
    assert scene.run(jobs.promote(scene.queue, batch=3)) == 3
    assert scene.run(jobs.browse(scene.queue)) == tuple(ids[:3:-1])
    assert scene.run(jobs.promote(scene.queue, batch=9)) == 4
    assert scene.run(jobs.promote(scene.queue)) == 0


def test_2500_due_jobs_are_promoted_in_one_call(scene: Scene) -> None:
    ids = scene.minter.mint_many(2_500)
    for job_id in ids:
        scene.run(jobs.enqueue_at(scene.queue, job_id, b"p", at_ms=1))
    assert scene.run(jobs.promote(scene.queue, batch=5_000)) == 2_500
    assert scene.run(jobs.browse(scene.queue, limit=5_000, newest_first=False)) == tuple(ids)


def test_a_ghost_on_the_schedule_is_dropped_and_counted(scene: Scene) -> None:
    ghost = scene.ghost("schedule", 1)
    job_id = scene.mint()
    scene.run(jobs.enqueue_at(scene.queue, job_id, b"p", at_ms=2))
    scene.drop_tokens()
    assert scene.run(jobs.promote(scene.queue)) == 2
    assert scene.places(ghost) == []
    assert scene.row(ghost) == {}
    assert scene.places(job_id) == ["pending"]
    assert scene.tokens() == 1


def test_rescheduling_moves_only_what_is_on_the_schedule(scene: Scene) -> None:
    job_id = scene.mint()
    assert scene.run(jobs.reschedule(scene.queue, job_id, at_ms=9)) is Rescheduling.GONE
    scene.run(jobs.enqueue_at(scene.queue, job_id, b"p", at_ms=HOUR))
    row = scene.row(job_id)
    assert scene.run(jobs.reschedule(scene.queue, job_id, at_ms=9)) is Rescheduling.MOVED
    assert scene.score("schedule", job_id) == 9
    assert scene.row(job_id) == row
    scene.run(jobs.promote(scene.queue))
    for _ in range(2):
        refusal = scene.refusal(jobs.reschedule(scene.queue, job_id, at_ms=9))
        assert isinstance(refusal, StateError)
        assert refusal.reply == "EMQSTATE reschedule not scheduled"
        scene.run(jobs.claim(scene.queue))


def test_a_ghost_that_is_rescheduled_is_dropped(scene: Scene) -> None:
    ghost = scene.ghost("schedule", 1)
    assert scene.run(jobs.reschedule(scene.queue, ghost, delay_ms=5)) is Rescheduling.GONE
    assert scene.dump() == {}


def timed_calls(scene: Scene) -> dict[str, tuple[Call[Any], int, str]]:
    """Per verb: a call that would succeed, the index of its time, and the refusal of a wrong one."""
    held, scheduled, fresh = scene.minter.mint_many(3)
    scene.run(jobs.enqueue(scene.queue, held, b"p"))
    scene.run(jobs.claim(scene.queue))
    scene.run(jobs.enqueue_in(scene.queue, scheduled, b"p", delay_ms=HOUR))
    due = "due must be a non-negative integer"
    return {
        "schedule": (jobs.enqueue_in(scene.queue, fresh, b"p", delay_ms=1), 3, f"ERR EMQ.SCHEDULE {due}"),
        "reschedule": (jobs.reschedule(scene.queue, scheduled, delay_ms=1), 2, f"ERR EMQ.RESCHEDULE {due}"),
        "delay": (jobs.delay(scene.queue, held, 1, delay_ms=1), 3, f"ERR EMQ.DELAY {due}"),
        "promote": (jobs.promote(scene.queue), 1, "ERR EMQ.PROMOTE batch must be a positive integer"),
        "retry": (
            jobs.retry(scene.queue, held, 1, delay_ms=1, max_attempts=1, error="e"),
            2,
            "ERR retry delay must be a non-negative integer",
        ),
        "retry max": (
            jobs.retry(scene.queue, held, 1, delay_ms=1, max_attempts=1, error="e"),
            3,
            "ERR retry max must be a non-negative integer",
        ),
        "claim": (jobs.claim(scene.queue), 0, "ERR EMQ.CLAIM lease must be a positive integer"),
        "claim n": (jobs.claim(scene.queue), 1, "ERR EMQ.CLAIM n must be a positive integer"),
        "extend": (jobs.extend(scene.queue, held, 1), 2, "ERR extend lease must be a positive integer"),
        "extend many": (jobs.extend_many(scene.queue, [(held, 1)]), 1, "ERR extend lease must be a positive integer"),
        "sweep max": (jobs.sweep(scene.queue), 1, "ERR sweep max_stalled must be a positive integer"),
        "sweep limit": (jobs.sweep(scene.queue), 2, "ERR sweep limit must be a positive integer"),
        "register": (
            repeat.register(scene.queue, "n", every_ms=1, template=b"", first_run_ms=1),
            1,
            "ERR register every must be a positive integer",
        ),
        "register first": (
            repeat.register(scene.queue, "n", every_ms=1, template=b"", first_run_ms=1),
            3,
            "ERR register first run must be a non-negative integer",
        ),
        "upsert": (
            repeat.upsert(scene.queue, "n", every_ms=1, template=b"", first_run_ms=1),
            1,
            "ERR upsert every must be a positive integer",
        ),
        "upsert first": (
            repeat.upsert(scene.queue, "n", every_ms=1, template=b"", first_in_ms=1),
            4,
            "ERR upsert due must be a non-negative integer",
        ),
        "advance": (
            repeat.advance(scene.queue, "n", next_run_ms=1),
            1,
            "ERR advance next must be a non-negative integer",
        ),
    }


VERBS = [
    *("schedule", "reschedule", "delay", "promote", "retry", "retry max", "claim", "claim n", "extend"),
    *("extend many", "sweep max", "sweep limit", "register", "register first", "upsert", "upsert first", "advance"),
]


@pytest.mark.parametrize("verb", VERBS)
def test_what_is_no_canonical_time_is_refused_and_nothing_is_written(scene: Scene, verb: str) -> None:
    call, index, text = timed_calls(scene)[verb]
    for wrong in NO_TIMES:
        assert scene.refusal(with_args(call, {index: wrong})).reply == text, repr(wrong)
    if "positive" in text:
        assert scene.refusal(with_args(call, {index: "0"})).reply == text


@pytest.mark.parametrize("verb", ["schedule", "reschedule", "delay", "retry", "claim", "extend", "extend many"])
def test_what_runs_past_2_to_53_when_now_is_added_is_refused(scene: Scene, verb: str) -> None:
    call, index, text = timed_calls(scene)[verb]
    room = LAST - scene.now_ms()
    assert scene.refusal(with_args(call, {index: LAST})).reply == text
    assert scene.refusal(with_args(call, {index: room + 1})).reply == text
    assert not isinstance(scene.outcome(with_args(call, {index: room - 60_000})), ServerError)


@pytest.mark.parametrize(("verb", "index"), [("schedule", 2), ("reschedule", 1), ("delay", 2)])
@pytest.mark.parametrize("mode", ["", "IN", "on", "at ", "in\0"])
def test_an_unknown_mode_is_refused(scene: Scene, verb: str, index: int, mode: str) -> None:
    call, _, _ = timed_calls(scene)[verb]
    refusal = scene.refusal(with_args(call, {index: mode}))
    assert refusal.reply == f"ERR EMQ.{verb.upper()} mode must be in or at"


@pytest.mark.parametrize(("verb", "mode"), [("schedule", 2), ("reschedule", 1), ("delay", 2)])
def test_the_checks_come_in_their_order(scene: Scene, verb: str, mode: int) -> None:
    call, due, text = timed_calls(scene)[verb]
    wrong: dict[int, str | int] = {mode: "on", due: "x", 0: scene.minter.mint("ORD")}
    if verb == "delay":
        wrong[1] = "99"
    assert " mode " in scene.refusal(with_args(call, wrong)).reply
    del wrong[mode]
    assert scene.refusal(with_args(call, wrong)).reply == text
    del wrong[due]
    assert isinstance(scene.refusal(with_args(call, wrong)), KindError)
    if verb == "delay":
        del wrong[0]
        assert scene.refusal(with_args(call, wrong)).reply == "EMQSTALE delay token mismatch"
        assert scene.refusal(with_args(call, {0: scene.mint()})).reply == "EMQSTALE job gone"


def test_the_kind_is_refused_before_a_row_is_missed(scene: Scene) -> None:
    call = jobs.reschedule(scene.queue, scene.mint(), at_ms=1)
    assert isinstance(scene.refusal(with_args(call, {0: scene.minter.mint("USR")})), KindError)


@pytest.mark.parametrize("verb", ["schedule", "reschedule", "delay", "promote", "retry"])
@pytest.mark.parametrize("change", [-1, 1])
def test_another_number_of_arguments_is_refused(scene: Scene, verb: str, change: int) -> None:
    call, _, _ = timed_calls(scene)[verb]
    args = call.args[:change] if change < 0 else (*call.args, "more")
    refusal = scene.refusal(replace(call, args=args))
    assert refusal.reply.startswith("ERR wrong number of arguments for ")
    keys = call.keys[:change] if change < 0 else (*call.keys, call.keys[0])
    assert scene.refusal(replace(call, keys=keys)).reply.startswith("ERR wrong number of arguments for ")


def test_a_schedule_survives_a_restart_of_the_server_and_of_every_client(
    start_server: Callable[..., Server],
) -> None:
    server = start_server(aof=True)
    with server.client() as client:
        scene = Scene(Runner(client), "restarted")
        client.execute("CONFIG", "SET", "appendfsync", "always")
        job_id = scene.mint()
        assert scene.run(jobs.enqueue_at("restarted", job_id, b"p", at_ms=5)) is Admission.SCHEDULED
        failing = scene.mint()
        scene.run(jobs.enqueue("restarted", failing, b"p"))
        scene.run(jobs.claim("restarted"))
        retry = jobs.retry("restarted", failing, 1, delay_ms=HOUR, max_attempts=9, error="e")
        assert scene.run(retry) is Retried.SCHEDULED
        before = scene.dump()
    server.restart()
    with server.client() as client:
        scene = Scene(Runner(client), "restarted")
        assert scene.dump() == before
        assert scene.run(jobs.promote("restarted")) == 1
        claimed = scene.run(jobs.claim("restarted"))
        assert claimed is not None
        assert claimed.id == job_id
