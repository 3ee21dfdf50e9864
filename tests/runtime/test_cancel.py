"""A job in hand that is cancelled learns of it, in any process, and no attempt of it follows."""

from __future__ import annotations

import asyncio
import json
import logging
import threading

import pytest

from echomq.identity.errors import InvalidInputError
from echomq.protocol import admin
from echomq.protocol.backoff import Fixed
from echomq.protocol.replies import Claimed
from echomq.runtime import CancelToken, InThread, JobCancelledError, Later, Router, current_token
from echomq.runtime.cancel import wish_of
from echomq.runtime.telemetry import Cancelled, Dead, Delayed, Retried, Step, Telemetry
from echomq.wire import aconnect
from support.desk import Desk, until

MINUTE = 60_000
HOUR = 60 * MINUTE
LEASE = 400


async def cancel(desk: Desk, job_id: str, reason: str = "enough") -> None:
    async with aconnect(desk.server.url) as conn:
        assert await conn.run(admin.cancel_job(desk.queue, job_id, reason=reason)) is admin.Cancellation.REQUESTED


def buried(desk: Desk, job_id: str) -> str | None:
    row = desk.row(job_id)
    return row["last_error"] if row.get("state") == "dead" else None


async def test_a_coroutine_sees_it_at_once_though_its_consumer_is_parked_and_its_lease_is_long(desk: Desk) -> None:
    (job_id,) = desk.enqueue()
    tokens: list[CancelToken] = []
    told: list[tuple[str, str]] = []

    async def handler(job: Claimed) -> None:
        token = current_token()
        tokens.append(token)
        await until(token.check)
        token.raise_if_cancelled()

    async with desk.consuming(
        handler,
        concurrency=2,
        beat_ms=MINUTE,
        lease_ms=10 * MINUTE,
        on_cancel=lambda job, reason: told.append((job.id, reason)),
    ) as consumer:
        await consumer.parked.reach(1)
        await until(lambda: tokens)
        await cancel(desk, job_id)
        await until(lambda: consumer.tally.buried == 1)
    assert buried(desk, job_id) == "cancelled: enough"
    assert told == [(job_id, "cancelled: enough")]
    assert tokens[0].reason == "cancelled: enough"


async def test_listening_for_it_costs_no_command(desk: Desk) -> None:
    async with desk.consuming(beat_ms=MINUTE) as consumer:
        await consumer.parked.reach(1)
        before = desk.calls()
        for _ in range(20):
            desk.raw.execute("PUBLISH", desk.key("events"), '{"event":"completed","job":"x"}')
        desk.enqueue()
        await until(lambda: consumer.tally.completed == 1)
        await consumer.parked.reach(2)
        spent = {name: count - before.get(name, 0) for name, count in desk.calls().items()}
        assert spent["subscribe"] == 0
        # The one that ended and the one that follows (Redis 7.0 counts a call when it ends); not one an event.
        assert spent["blpop"] <= 2, "an event ended the wait"


async def test_a_plain_function_sees_it_in_its_thread(desk: Desk) -> None:
    (job_id,) = desk.enqueue()
    running = threading.Event()

    def handler(job: Claimed) -> None:
        running.set()
        token = current_token()
        end = threading.Event()
        while not token.check():
            end.wait(0.002)
        token.raise_if_cancelled()

    async with desk.consuming(handler, beat_ms=MINUTE) as consumer:
        await until(running.is_set)
        await cancel(desk, job_id)
        await until(lambda: consumer.tally.buried == 1)
    assert buried(desk, job_id) == "cancelled: enough"


async def test_a_router_hands_the_token_to_what_it_starts(desk: Desk) -> None:
    ids = desk.enqueue(count=2)
    tokens: dict[str, CancelToken] = {}
    go = threading.Event()

    def route(job: Claimed) -> object:
        routed = current_token()

        async def on_the_loop() -> None:
            assert current_token() is routed
            tokens[job.id] = routed
            await until(go.is_set)

        def in_thread() -> None:
            tokens[job.id] = current_token()
            assert tokens[job.id] is routed
            go.wait(10)

        return on_the_loop() if job.id == ids[0] else InThread(in_thread)

    async with desk.consuming(Router(route), concurrency=2, beat_ms=MINUTE) as consumer:
        await until(lambda: len(tokens) == 2)
        await cancel(desk, ids[1])
        await until(lambda: tokens[ids[1]].check())
        assert not tokens[ids[0]].check()
        go.set()
        await until(lambda: consumer.tally.completed == 2)


async def test_an_owner_may_have_coroutines_interrupted(desk: Desk) -> None:
    (job_id,) = desk.enqueue()
    started, cleaned = asyncio.Event(), asyncio.Event()

    async def handler(job: Claimed) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            assert current_token().check()
            cleaned.set()

    async with desk.consuming(handler, beat_ms=MINUTE, interrupt=True) as consumer:
        await started.wait()
        await cancel(desk, job_id)
        await until(lambda: consumer.tally.buried == 1)
    assert cleaned.is_set()
    assert buried(desk, job_id) == "cancelled: enough"


@pytest.mark.parametrize("how", ["raises", "snoozes"])
async def test_a_cancelled_job_is_not_run_again_whatever_its_handler_says(desk: Desk, how: str) -> None:
    (job_id,) = desk.enqueue()

    async def handler(job: Claimed) -> object:
        desk.seen.append(job)
        await until(current_token().check)
        if how == "raises":
            raise ValueError("while cleaning up")
        return Later(0)

    async with desk.consuming(handler, beat_ms=MINUTE) as consumer:
        await until(lambda: desk.seen)
        await cancel(desk, job_id)
        await until(lambda: consumer.tally.buried == 1)
    assert len(desk.seen) == 1
    assert buried(desk, job_id) == "cancelled: enough"


async def test_a_job_that_is_done_all_the_same_is_done(desk: Desk) -> None:
    (job_id,) = desk.enqueue()

    async def handler(job: Claimed) -> None:
        desk.seen.append(job)
        await until(current_token().check)

    async with desk.consuming(handler, beat_ms=MINUTE) as consumer:
        await until(lambda: desk.seen)
        await cancel(desk, job_id)
        await until(lambda: consumer.tally.completed == 1)


async def test_a_wish_whose_event_was_missed_reaches_the_job_by_the_keeper(desk: Desk) -> None:
    (job_id,) = desk.enqueue()

    async def handler(job: Claimed) -> None:
        desk.seen.append(job)
        await until(current_token().check)
        current_token().raise_if_cancelled()

    async with desk.consuming(handler, beat_ms=MINUTE, lease_ms=LEASE) as consumer:
        await until(lambda: desk.seen)
        desk.raw.execute("HSET", desk.key(f"job:{job_id}"), "cancel", "cancelled: unheard")
        await until(lambda: consumer.tally.buried == 1)
    assert buried(desk, job_id) == "cancelled: unheard"


@pytest.mark.parametrize("end", ["raises", "snoozes", "stops", "lapses", "raises at last"])
async def test_a_wish_that_comes_between_verdict_and_settlement_is_minded(
    desk: Desk, caplog: pytest.LogCaptureFixture, end: str
) -> None:
    (job_id,) = desk.enqueue()
    steps: list[Step] = []

    async def handler(job: Claimed) -> object:
        desk.seen.append(job)
        desk.raw.execute("HSET", desk.key(f"job:{job_id}"), "cancel", "cancelled: unheard")
        if end.startswith("raises"):
            raise ValueError("no")
        if end == "snoozes":
            return Later(HOUR)
        return await asyncio.Event().wait()

    caplog.set_level(logging.INFO, "echomq")
    most = 1 if end == "raises at last" else 9
    async with desk.consuming(
        handler,
        beat_ms=20 if end == "lapses" else MINUTE,
        retry_delay=Fixed(HOUR),
        max_attempts=most,
        max_stalled=9,
        watch=Telemetry(steps.append),
    ) as consumer:
        await until(lambda: desk.seen)
        if end == "lapses":
            desk.raw.execute("ZADD", desk.key("active"), "1", job_id)
            await until(lambda: desk.size("dead") == 1)
        elif end != "stops":
            await until(lambda: consumer.in_hand == 0)
    tally = consumer.tally
    assert (tally.buried, tally.retried, tally.snoozed) == (int(end != "lapses"), 0, 0)
    ends = [step for step in steps if isinstance(step, Cancelled | Dead | Retried | Delayed)]
    if end == "raises at last":
        assert [type(step) for step in ends] == [Dead]
        assert str(buried(desk, job_id)).startswith("ValueError: no")
        return
    assert buried(desk, job_id) == "cancelled: unheard"
    assert ends == [Cancelled(desk.queue, job_id, "cancelled: unheard" if end == "lapses" else "cancelled")]
    said = [r for r in caplog.records if "buried" in r.getMessage()]
    assert [(r.levelname, "cancelled" in r.getMessage()) for r in said] == [("INFO", True)]


async def test_a_lost_lease_sets_the_token_and_buries_nothing(desk: Desk) -> None:
    (job_id,) = desk.enqueue()
    reasons: list[str | None] = []

    async def handler(job: Claimed) -> None:
        if job.attempts > 1:
            return
        try:
            await asyncio.Event().wait()
        finally:
            reasons.append(current_token().reason)

    async with desk.consuming(handler, concurrency=2, lease_ms=LEASE, beat_ms=20, interrupt=True) as consumer:
        await until(lambda: desk.size("active"))
        desk.raw.execute("ZADD", desk.key("active"), "1", job_id)
        await until(lambda: reasons)
        await until(lambda: consumer.tally.completed == 1 and consumer.in_hand == 0)
    assert "lease was lost" in str(reasons[0])
    assert desk.size("dead") == 0


async def test_a_wish_survives_the_worker_that_held_the_job(desk: Desk) -> None:
    (job_id,) = desk.enqueue()

    async def stubborn(job: Claimed) -> None:
        desk.seen.append(job)
        await asyncio.Event().wait()

    async with desk.consuming(stubborn, beat_ms=MINUTE):
        await until(lambda: desk.seen)
        await cancel(desk, job_id)
    async with desk.consuming(beat_ms=MINUTE) as after:
        await until(lambda: desk.size("dead") == 1)
        assert after.tally.claimed == 0
    assert buried(desk, job_id) == "cancelled: enough"


async def test_the_wish_for_a_job_that_waits_is_no_business_of_its_neighbours(desk: Desk) -> None:
    first, second = desk.enqueue(count=2)
    go = asyncio.Event()

    async def handler(job: Claimed) -> None:
        desk.seen.append(job)
        await go.wait()
        assert not current_token().check()

    async with desk.consuming(handler, beat_ms=MINUTE) as consumer, aconnect(desk.server.url) as conn:
        await until(lambda: desk.seen)
        assert await conn.run(admin.cancel_job(desk.queue, second)) is admin.Cancellation.DEAD
        go.set()
        await until(lambda: consumer.tally.completed == 1)
    assert [job.id for job in desk.seen] == [first]


async def test_it_is_heard_again_after_the_connection_was_lost(desk: Desk) -> None:
    (job_id,) = desk.enqueue()

    async def handler(job: Claimed) -> None:
        desk.seen.append(job)
        await until(current_token().check)
        current_token().raise_if_cancelled()

    async with desk.consuming(handler, beat_ms=MINUTE, lease_ms=10 * MINUTE) as consumer:
        await until(lambda: desk.seen)
        assert desk.kill_clients(":park") == 1
        await until(lambda: desk.raw.execute("PUBSUB", "NUMSUB", desk.key("events"))[1] == 1)
        await cancel(desk, job_id)
        await until(lambda: consumer.tally.buried == 1)


async def test_a_wish_that_overtakes_the_claim_it_is_about_is_kept_until_the_claim_has_come(desk: Desk) -> None:
    (job_id,) = desk.enqueue(token=False)
    event = json.dumps({"event": "cancelled", "state": "active", "job": job_id, "error": "cancelled: early"})
    desk.raw.execute("HSET", desk.key("meta"), "paused", "1")
    async with desk.consuming(beat_ms=MINUTE) as consumer:
        await consumer.parked.reach(1)
        desk.raw.execute("HDEL", desk.key("meta"), "paused")
        desk.server.freeze()
        beat = asyncio.ensure_future(consumer.beat())
        await until(lambda: consumer._turns.asking)
        consumer._told(event.encode())
        desk.server.thaw()
        await beat
        await until(lambda: consumer.tally.claimed == 1 and consumer.in_hand == 0)
        assert consumer.tally.buried == 1
        assert consumer._wishes == {}
    assert desk.seen == []
    assert buried(desk, job_id) == "cancelled: early"


def test_only_a_wish_about_a_job_in_hand_is_one() -> None:
    good = {"event": "cancelled", "job": "JOB0", "state": "active", "error": "cancelled: x"}
    assert wish_of(json.dumps(good).encode()) == ("JOB0", "cancelled: x")
    for bad in (
        b"",
        b"\xff\x00",
        b'"cancelled"',
        b'{"cancelled"',
        json.dumps(good | {"state": "dead"}).encode(),
        json.dumps(good | {"job": 7}).encode(),
        json.dumps(good | {"error": ["cancelled"]}).encode(),
        json.dumps(good | {"event": "completed", "x": "cancelled"}).encode(),
    ):
        assert wish_of(bad) is None


def test_outside_a_job_there_is_no_token() -> None:
    with pytest.raises(InvalidInputError, match="no job runs here"):
        current_token()


def test_the_first_reason_stays() -> None:
    token = CancelToken()
    token.raise_if_cancelled()
    assert (token.check(), token.reason) == (False, None)
    token.cancel("one")
    token.cancel("two")
    assert (token.check(), token.reason) == (True, "one")
    with pytest.raises(JobCancelledError, match="one"):
        token.raise_if_cancelled()
