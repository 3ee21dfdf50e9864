"""`send.every(...)` and `send.cron(...)`: what a registration keeps, and what can be done with one by its name."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from echomq import (
    CatchUp,
    Dedup,
    EchoMQ,
    InvalidInputError,
    Registration,
    ScheduleInfo,
    State,
    current_job,
    jobs,
    lanes,
    repeat,
)
from echomq import cron as crons
from echomq.app import registering
from echomq.app.registering import Registered
from echomq.protocol.recurring import Kind
from support.raw import RawClient
from support.servers import Server

HOUR = timedelta(hours=1)
REGISTERED, UPDATED, UNCHANGED = Registration.REGISTERED, Registration.UPDATED, Registration.UNCHANGED


@pytest.fixture
def raw(server: Server) -> Iterator[RawClient]:
    with server.client() as client:
        yield client


@pytest.fixture
def send(mq: EchoMQ) -> Any:
    @mq.job(name="send")
    def send(to: str = "all") -> str:
        return to

    return send


def info(mq: EchoMQ, name: str = "n") -> ScheduleInfo:
    found = mq.schedule(name).info()
    assert found is not None
    return found


def where(raw: RawClient, queue: str, name: str = "n") -> list[str]:
    """The registries that a name is in, by their records and by their places."""
    base = f"emq:{{{queue}}}:"
    kinds = ["repeat", "cron"]
    records = [kind for kind in kinds if raw.execute("EXISTS", f"{base}{kind}:{name}")]
    assert records == [kind for kind in kinds if raw.execute("ZSCORE", base + kind, name) is not None]
    return records


def wind_back(raw: RawClient, queue: str, by: timedelta, name: str = "n") -> None:
    """The next slot of a recurrence was that much earlier, and so is its run."""
    base, ms = f"emq:{{{queue}}}:cron", by // timedelta(milliseconds=1)
    slot = int(raw.execute("HGET", f"{base}:{name}", "slot_ms"))
    raw.execute("HSET", f"{base}:{name}", "slot_ms", slot - ms)
    raw.execute("ZINCRBY", base, -ms, name)


def test_a_plain_period_stays_where_other_clients_look_for_it(
    mq: EchoMQ, queue: str, raw: RawClient, send: Any
) -> None:
    send.every(hours=1, name="n").register()
    assert where(raw, queue) == ["repeat"]
    assert sorted(raw.execute("HKEYS", f"emq:{{{queue}}}:repeat:n")) == [b"every_ms", b"template"]
    send.options(max_attempts=5, timeout=HOUR).every(hours=1, name="n", catch_up="one", overlap="allow").register()
    assert where(raw, queue) == ["repeat"]


FULLER: list[Callable[[Any], Any]] = [
    lambda send: send.every(hours=1, name="n", overlap="skip"),
    lambda send: send.every(hours=1, name="n", catch_up="skip"),
    lambda send: send.every(hours=1, name="n", catch_up=("all", 5)),
    lambda send: send.every(hours=1, name="n", max_runs=5),
    lambda send: send.every(hours=1, name="n", end=datetime(2999, 1, 1, tzinfo=UTC)),
    lambda send: send.options(lane="acme").every(hours=1, name="n"),
    lambda send: send.options(dedup="k").every(hours=1, name="n"),
    lambda send: send.options(expires=HOUR).every(hours=1, name="n"),
]


@pytest.mark.parametrize("fuller", FULLER)
def test_options_move_a_name_to_the_other_registry_and_back_and_keep_its_next_run(
    mq: EchoMQ, queue: str, raw: RawClient, send: Any, fuller: Callable[[Any], Any]
) -> None:
    plain = send.every(hours=1, name="n", first_in=timedelta(minutes=30))
    first = plain.register()
    assert fuller(send).register() == Registered(UPDATED, first.next_run, True)
    assert where(raw, queue) == ["cron"]
    assert fuller(send).register() == Registered(UNCHANGED, first.next_run, True)
    assert plain.register() == Registered(UPDATED, first.next_run, True)
    assert where(raw, queue) == ["repeat"]


def test_a_change_keeps_the_next_run_unless_it_is_one_of_the_timing(mq: EchoMQ, send: Any) -> None:
    nightly = send.cron("30 2 * * *", name="n", tz="Europe/Berlin")
    first = nightly.register("a")
    assert first.verdict is REGISTERED
    assert first.next_run is not None
    assert send.cron("30  2 * * *", name="n", tz="Europe/Berlin").register("a") == Registered(
        UNCHANGED, first.next_run, True
    )
    for changed in (
        send.cron("30 2 * * *", name="n", tz="Europe/Berlin", overlap="skip"),
        send.cron("30 2 * * *", name="n", tz="Europe/Berlin", catch_up="skip", max_runs=7),
        send.options(lane="l").cron("30 2 * * *", name="n", tz="Europe/Berlin"),
        send.cron("30 2 * * *", name="n", tz="Europe/Berlin", end=first.next_run),
    ):
        assert changed.register("b") == Registered(UPDATED, first.next_run, True)
    other = send.cron("31 2 * * *", name="n", tz="Europe/Berlin").register("b")
    assert (other.verdict, other.kept, other.next_run) == (UPDATED, False, first.next_run + timedelta(minutes=1))
    tokyo = send.cron("31 2 * * *", name="n", tz="Asia/Tokyo").register("b")
    assert (tokyo.verdict, tokyo.kept) == (UPDATED, False)


@pytest.mark.parametrize("overlap", ["allow", "skip"])
def test_a_changed_period_counts_from_the_last_slot(mq: EchoMQ, send: Any, overlap: str) -> None:
    def every(hours: int, **more: Any) -> Any:
        return send.every(hours=hours, name="n", overlap=overlap, **more)

    with mq.testing():
        first = every(24).register().next_run
        assert mq.drain_blocking().completed == 1
        assert every(12).register() == Registered(UPDATED, first + 12 * HOUR, False)
        assert every(48).register().next_run == first + 48 * HOUR
        assert mq.drain_blocking().completed == 0
        mq.clock.advance(hours=3)
        now = every(2).register().next_run  # what would have come an hour ago comes at once
        assert first + 3 * HOUR <= now < first + 4 * HOUR
        assert mq.drain_blocking().completed == 1
        at_once = every(6, first_in=timedelta(0)).register().next_run
        assert now <= at_once < now + HOUR
        anchor = first + timedelta(minutes=30)
        assert every(5, anchor=anchor).register().next_run == anchor + 5 * HOUR


def test_jitter_moves_the_next_run_and_not_its_slot(mq: EchoMQ, send: Any) -> None:
    first = send.cron("@daily", name="n").register().next_run
    put_off = send.cron("@daily", name="n", jitter=3_600).register()
    assert put_off.verdict is UPDATED
    assert first < put_off.next_run <= first + HOUR
    assert info(mq).next_slot == first
    assert send.cron("@daily", name="n", jitter=HOUR).register() == Registered(UNCHANGED, put_off.next_run, True)


def test_slots_lie_on_the_grid_of_their_anchor_or_their_start(mq: EchoMQ, send: Any) -> None:
    now = datetime.now(UTC)
    for anchor in (now - timedelta(days=9, minutes=7), now + timedelta(days=3), datetime(1955, 11, 5, tzinfo=UTC)):
        send.every(hours=6, name="n", anchor=anchor).register()
        slot = info(mq).next_slot
        assert slot is not None
        assert now - timedelta(minutes=1) < slot <= now + timedelta(hours=6, minutes=1)
        assert abs((slot - anchor) % timedelta(hours=6) - timedelta(milliseconds=1) / 2) < timedelta(milliseconds=1)
    start = (now + timedelta(days=2)).replace(microsecond=0)
    assert send.every(hours=6, name="n", start=start).register().next_run == start
    assert send.cron("0 * * * *", name="m", start=start).register().next_run >= start


def test_a_finished_one_stays_finished_until_it_is_given_more(
    mq: EchoMQ, queue: str, raw: RawClient, send: Any
) -> None:
    past = datetime.now(UTC) - HOUR
    for never in (send.cron("@hourly", name="over", end=past), send.every(hours=1, name="over", end=past, paused=True)):
        with pytest.raises(InvalidInputError, match=r"'over' would never run: its end, .*, has passed .* a later end"):
            never.register()
    with pytest.raises(InvalidInputError, match=r"its end, .*, comes before its first slot"):
        send.every(hours=1, name="over", first_in=2 * HOUR, end=past + 2 * HOUR).register()
    with pytest.raises(InvalidInputError, match="no slot follows its start"):
        send.cron("@hourly", name="over", start=datetime.max.replace(tzinfo=UTC)).register()
    assert mq.schedules() == []
    assert send.cron("@hourly", name="over").register().verdict is REGISTERED
    assert send.cron("@hourly", name="over", end=past).register() == Registered(UPDATED, None, False)
    assert send.cron("@hourly", name="over", end=past).register() == Registered(UNCHANGED, None, False)
    assert info(mq, "over").over
    send.every(hours=1, name="n", max_runs=2, catch_up=CatchUp.all(9)).register()
    wind_back(raw, queue, 5 * HOUR)
    fire(mq, queue)
    assert (info(mq).over, info(mq).runs) == (True, 2)
    assert send.every(hours=1, name="n", max_runs=2).register().next_run is None
    more = send.every(hours=1, name="n", max_runs=3).register()
    assert more.next_run is not None
    assert more.next_run > datetime.now(UTC)


def fire(mq: EchoMQ, queue: str) -> int:
    """What a pump does, by the server's clock."""

    async def pump() -> int:
        from echomq.protocol.discover import clock
        from echomq.runtime.recurrences import Recurrences

        conn = await mq.dial().aconnect("test")
        try:
            return await Recurrences(queue).fire(conn, await conn.run(clock()))
        finally:
            await conn.close()

    return asyncio.run(pump())


@pytest.mark.parametrize("kind", ["repeat", "cron"])
def test_a_pause_outlives_registrations_and_is_not_caught_up_with(
    mq: EchoMQ, queue: str, raw: RawClient, send: Any, kind: str
) -> None:
    words = {} if kind == "repeat" else {"catch_up": ("all", 9)}
    hourly = send.every(hours=1, name="n", first_in=HOUR, **words)
    first = hourly.register().next_run
    assert [hourly.pause(), hourly.pause()] == [True, True]
    assert (info(mq).paused, info(mq).next_run, info(mq).next_slot) == (True, None, first)
    assert hourly.register("other") == Registered(UPDATED, None, False)
    assert info(mq).paused
    wind_back(raw, queue, 5 * HOUR + timedelta(minutes=1))
    assert fire(mq, queue) == 0
    assert [hourly.resume(), hourly.resume()] == [True, True]
    assert where(raw, queue) == [kind]
    assert info(mq).next_run == first - timedelta(minutes=1)
    assert fire(mq, queue) == 0
    assert mq.run(jobs.pending_size(queue)) == 0


def test_what_is_registered_paused_stays_so_until_it_is_said_otherwise(mq: EchoMQ, send: Any) -> None:
    paused = send.every(hours=1, name="n", paused=True)
    assert paused.register() == Registered(REGISTERED, None, False)
    assert paused.register() == Registered(UNCHANGED, None, False)
    assert send.every(hours=1, name="n").register().verdict is UNCHANGED
    assert send.every(hours=1, name="n", paused=False).register().next_run is not None


def test_of_a_name_that_is_not_there_nothing_can_be_said_or_done(mq: EchoMQ, send: Any) -> None:
    assert send.queue in mq.queues
    nobody = mq.schedule("nobody")
    assert (nobody.info(), nobody.pause(), nobody.resume(), nobody.cancel()) == (None, False, False, False)
    with pytest.raises(InvalidInputError, match=r"recurrence 'nobody' of queue .* is not registered"):
        nobody.run_now()


@pytest.mark.parametrize(("kind", "writes"), [("cron", "SET"), ("cron", "HSET"), ("repeat", "SET"), ("repeat", "HSET")])
@pytest.mark.parametrize("ahead_ms", [0, 1])
def test_a_record_that_cannot_be_read_is_named_by_every_verb_and_can_be_replaced_or_ended(
    mq: EchoMQ, queue: str, send: Any, raw: RawClient, kind: str, writes: str, ahead_ms: int
) -> None:
    record = f"emq:{{{queue}}}:{kind}:n"
    hourly = send.every(hours=1, name="n", paused=False, **({} if kind == "repeat" else {"overlap": "skip"}))
    for _ in range(2):
        assert hourly.register().next_run is not None
        raw.execute("DEL", record)
        raw.execute(writes, record, *(("every_ms", "0") if writes == "HSET" else ("what is this",)))
        assert (info(mq).definition, [each.name for each in mq.schedules()]) == (None, ["n"])
        verbs = [registering.run_now, registering.resume, registering.pause]
        if (kind, writes) == ("cron", "HSET"):
            assert mq.run(verbs.pop()(queue, "n", ahead_ms))  # a hash can say so, whatever else it says
        for verb in verbs:
            with pytest.raises(InvalidInputError, match=rf"recurrence 'n' of queue '{queue}' has a record that cannot"):
                mq.run(verb(queue, "n", ahead_ms))
    assert hourly.cancel()
    assert mq.schedule("n").info() is None


async def test_everything_is_awaited_as_well(mq: EchoMQ, send: Any) -> None:
    nightly = send.cron("@daily", name="n")
    assert (await nightly.aregister("a")).verdict is REGISTERED
    assert await nightly.apause()
    assert await nightly.aresume()
    job = await nightly.arun_now()
    assert await job.astate() is State.PENDING
    assert [each.name for each in await mq.aschedules()] == ["n"]
    found = await mq.schedule("n").ainfo()
    assert found is not None
    assert found.job == "send"
    assert await nightly.acancel()
    await mq.aclose()


@pytest.mark.parametrize("kind", ["repeat", "cron"])
def test_running_it_now_leaves_its_next_run(mq: EchoMQ, queue: str, send: Any, kind: str) -> None:
    hourly = send.every(hours=1, name="n", first_in=HOUR, **({} if kind == "repeat" else {"overlap": "skip"}))
    first = hourly.register("b").next_run
    before = datetime.now(UTC)
    job = hourly.run_now()
    assert (job.name, job.queue, job.duplicate, job.state()) == ("send", queue, False, State.PENDING)
    claimed = mq.run(jobs.claim(queue))
    assert claimed is not None
    payload = json.loads(claimed.payload)
    assert payload["args"] == ["b"]
    slot = datetime.fromtimestamp(payload["slot_ms"] / 1_000, UTC)
    assert before - timedelta(minutes=1) < slot < before + timedelta(minutes=1)
    assert info(mq).next_run == first
    hourly.pause()
    assert mq.schedule("n").run_now().state() is State.PENDING


def test_running_it_now_asks_no_overlap(mq: EchoMQ, send: Any) -> None:
    hourly = send.every(hours=1, name="n", first_in=HOUR, overlap="skip")
    hourly.register("b")
    sent = [hourly.run_now() for _ in range(3)]
    assert len({job.id for job in sent}) == 3
    assert {job.state() for job in sent} == {State.PENDING}


def test_occurrences_have_the_options_of_the_recurrence(mq: EchoMQ, queue: str, raw: RawClient, send: Any) -> None:
    fuller = send.options(
        lane="acme", dedup=Dedup("k", window=HOUR), max_attempts=7, timeout=HOUR, expires=HOUR, meta={"a": 1}
    )
    fuller.every(hours=1, name="n").register("b")
    fire(mq, queue)
    claimed = mq.run(jobs.claim(queue))
    assert claimed is not None
    payload, slot = json.loads(claimed.payload), info(mq).last_slot
    assert (payload.pop("v"), payload.pop("job"), payload.pop("meta")) == (1, "send", {"a": 1})
    assert claimed.group == lanes.lane_id("acme")
    assert raw.execute("PTTL", f"emq:{{{queue}}}:de:k") > 0
    slot_ms = payload.pop("slot_ms")
    assert datetime.fromtimestamp(slot_ms / 1_000, UTC) == slot
    assert payload.pop("expires_ms") == slot_ms + 3_600_000
    assert payload == {"args": ["b"], "kwargs": {}, "max_attempts": 7, "timeout_ms": 3_600_000}


def test_a_recurrence_lives_in_the_queue_of_its_options(mq: EchoMQ, queue: str, send: Any) -> None:
    other = queue + "-other"
    send.options(queue=other).cron("@daily", name="n").register()
    assert mq.schedule("n").info() is None
    assert [each.queue for each in mq.schedules(queue=other)] == [other]


def test_what_has_become_of_it_can_be_read(mq: EchoMQ, queue: str, raw: RawClient, send: Any) -> None:
    send.cron("0 * * * *", name="n", tz="Europe/Berlin", catch_up=CatchUp.all(2)).register()
    wind_back(raw, queue, 3 * HOUR)
    before = info(mq)
    assert before.last_run is None
    assert 2 * HOUR <= before.overdue <= 3 * HOUR
    fire(mq, queue)
    after = info(mq)
    assert after.last_run is not None
    assert after.last_slot is not None
    assert (after.kind, after.line, after.tz, after.every, after.paused, after.over) == (
        *(Kind.CRON, "0 * * * *", "Europe/Berlin", None, False, False),
    )
    assert (after.runs, after.skipped, after.overdue, after.job) == (2, 0, timedelta(0), "send")
    assert after.last_slot + HOUR == after.next_slot == after.next_run
    assert after.lateness == after.last_run - after.last_slot
    plain = send.every(hours=1, name="m", first_in=HOUR)
    plain.register()
    found = plain.info()
    assert found is not None
    assert (found.kind, found.every, found.runs, found.last_run) == (Kind.REPEAT, HOUR, None, None)
    assert [each.name for each in mq.schedules()] == sorted(
        ("m", "n"), key=lambda name: info(mq, name).next_run or datetime.max.replace(tzinfo=UTC)
    )


async def test_a_job_knows_its_slot(mq: EchoMQ, working: Any, send: Any) -> None:
    seen: asyncio.Queue[datetime | None] = asyncio.Queue()

    @mq.job
    async def tick() -> None:
        await seen.put(current_job().slot)

    anchor = datetime(2026, 1, 1, 12, 34, 56, 789_000, tzinfo=UTC)
    fast = tick.every(milliseconds=250, name="n", anchor=anchor)
    await fast.aregister()
    await tick.aenqueue()
    async with working():
        slots = [await seen.get() for _ in range(4)]
    await fast.acancel()
    await mq.aclose()
    assert slots.count(None) == 1
    found = sorted(slot for slot in slots if slot is not None)
    assert len(set(found)) == 3
    assert all((slot - anchor) % timedelta(milliseconds=250) == timedelta(0) for slot in found)


def test_entries_of_other_clients_go_on_beside_ours(mq: EchoMQ, queue: str, raw: RawClient, send: Any) -> None:
    mq.run(repeat.register(queue, "theirs", every_ms=60_000, template=b"\x83m", first_run_ms=5))
    send.cron("@daily", name="ours").register()
    fire(mq, queue)
    (job_id,) = mq.run(jobs.browse(queue))
    assert raw.execute("HGET", f"emq:{{{queue}}}:job:{job_id}", "payload") == b"\x83m"
    found = {each.name: each for each in mq.schedules()}
    assert (found["theirs"].job, found["theirs"].every) == (None, timedelta(minutes=1))
    assert mq.schedule("theirs").cancel()


def test_many_who_register_at_once_leave_one(mq: EchoMQ, server: Server, queue: str, raw: RawClient) -> None:
    async def register(app: EchoMQ) -> Registered:
        @app.job(name="send")
        def send() -> None: ...

        return await send.every(hours=1, name="n", first_in=HOUR, overlap="skip").aregister()

    async def together() -> list[Registered]:
        apps = [EchoMQ(server.url, default_queue=queue) for _ in range(8)]
        try:
            return await asyncio.gather(*map(register, apps))
        finally:
            for app in apps:
                await app.aclose()

    answers = asyncio.run(together())
    assert sorted(each.verdict.value for each in answers) == ["registered", *["unchanged"] * 7]
    assert len({each.next_run for each in answers}) == 1
    assert where(raw, queue) == ["cron"]


def test_a_recurrence_without_its_place_is_put_back(mq: EchoMQ, queue: str, raw: RawClient, send: Any) -> None:
    for words in ({}, {"overlap": "skip"}):
        hourly = send.every(hours=1, name="n", first_in=HOUR, **words)
        hourly.register()
        raw.execute("ZREM", f"emq:{{{queue}}}:{'cron' if words else 'repeat'}", "n")
        again = hourly.register()
        assert (again.verdict, again.kept) == (UPDATED, False)
        assert again.next_run is not None
    assert mq.run(crons.cancel(queue, "n"))
