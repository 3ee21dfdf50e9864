"""`mq.clock`: what waits for a time comes nearer, and slots stay exact."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from echomq import CatchUp, EchoMQ, Every, Snooze, State, Worker, current_job, jobs, repeat
from echomq.errors import InvalidInputError
from echomq.protocol.repeat import Registration
from echomq.runtime.recurrences import Recurrences
from support.servers import Server

BERLIN = ZoneInfo("Europe/Berlin")
HOUR = timedelta(hours=1)


class Scene:
    """An app with a job that notes its slots."""

    def __init__(self, mq: EchoMQ) -> None:
        self.mq = mq
        self.slots: list[datetime] = []

        @mq.job(name="tick")
        def tick(what: str = "") -> None:
            if (slot := current_job().slot) is not None:
                self.slots.append(slot)

        self.tick = tick

    def drained(self) -> list[datetime]:
        """The slots that were due."""
        self.slots.clear()
        self.mq.drain_blocking(raise_errors=True, concurrency=1)
        return list(self.slots)

    async def has(self, count: int) -> None:
        """Wait until so many slots have run."""
        async with asyncio.timeout(20):
            while len(self.slots) < count:
                await asyncio.sleep(0.001)


@asynccontextmanager
async def serving(mq: EchoMQ) -> AsyncIterator[None]:
    """A worker that serves inside the block."""
    worker = Worker(mq, grace=timedelta(seconds=1))
    task = asyncio.ensure_future(worker.serve())
    try:
        yield
    finally:
        worker.stop()
        await task


@pytest.fixture
def scene(server: Server) -> Iterator[Scene]:
    mq = EchoMQ("valkey://localhost:1")
    with mq.testing(server.url):
        yield Scene(mq)


def test_what_is_due_in_an_hour_is_due_now_and_nothing_later(scene: Scene) -> None:
    mq, tick = scene.mq, scene.tick
    soon, later = tick.after(minutes=59).enqueue("soon"), tick.after(minutes=61).enqueue("later")
    at = tick.at(datetime.now(UTC) + timedelta(minutes=59)).options(lane="acme").enqueue("at")
    moved = mq.clock.advance(hours=1)
    assert (moved.jobs, moved.recurrences, mq.clock.ahead) == (3, 0, HOUR)
    assert mq.drain_blocking().completed == 2
    assert (soon.state(), at.state(), later.state()) == (State.ABSENT, State.ABSENT, State.SCHEDULED)
    mq.clock.advance(timedelta(minutes=2))
    assert mq.drain_blocking().completed == 1


def test_retries_and_snoozed_jobs_come_nearer_too(scene: Scene) -> None:
    mq = scene.mq
    runs: list[str] = []

    @mq.job(name="fails", backoff=lambda _: 600_000)
    def fails() -> None:
        runs.append("fails")
        if len(runs) < 3:
            raise ValueError

    @mq.job(name="naps")
    def naps() -> None:
        runs.append("naps")
        if runs.count("naps") == 1:
            raise Snooze(minutes=10)

    fails.enqueue()
    naps.enqueue()
    assert mq.drain_blocking(concurrency=1).scheduled == 2
    mq.clock.advance(minutes=9)
    assert mq.drain_blocking().runs == ()
    mq.clock.advance(minutes=1)
    assert mq.drain_blocking(concurrency=1).completed == 2


@pytest.mark.deadline(120)
def test_a_cron_line_has_its_own_slots_however_far_it_is_moved(scene: Scene) -> None:
    mq = scene.mq
    scene.tick.cron("30 2 * * *", name="nightly", tz="Europe/Berlin").register()
    first = mq.schedule("nightly").info()
    assert first is not None
    assert first.next_slot is not None
    slot = first.next_slot.astimezone(BERLIN)
    mq.clock.advance(first.next_slot - datetime.now(UTC) - timedelta(minutes=2))
    assert scene.drained() == []
    for day in range(4):
        mq.clock.advance(minutes=5)
        (found,) = scene.drained()
        assert found.astimezone(BERLIN) == slot + timedelta(days=day)
        mq.clock.advance(hours=23, minutes=55)
        assert scene.drained() == []
    info = mq.schedule("nightly").info()
    assert info is not None
    assert info.next_run == info.next_slot == first.next_slot + timedelta(days=4)
    assert info.runs == 4


def test_a_plain_period_keeps_its_grid_and_its_slots_differ(scene: Scene) -> None:
    mq = scene.mq
    first = scene.tick.every(hours=1, name="hourly").register().next_run
    assert first is not None
    assert scene.drained() == [first]
    for n in (1, 2, 3):
        mq.clock.advance(hours=1)
        assert scene.drained() == [first + n * HOUR]
    assert [info.next_run for info in mq.schedules()] == [first + 4 * HOUR]


@pytest.mark.parametrize(
    ("catch_up", "expected"),
    [("skip", []), ("one", [5]), (CatchUp.all(3), [3, 4, 5]), (CatchUp.all(9), [1, 2, 3, 4, 5])],
)
def test_moving_far_is_as_if_no_worker_had_been_there(scene: Scene, catch_up: CatchUp, expected: list[int]) -> None:
    mq, anchor = scene.mq, datetime.now(UTC) + 5 * HOUR
    first = scene.tick.every(hours=10, name="n", anchor=anchor, catch_up=catch_up).register().next_run
    assert first is not None
    mq.clock.advance(hours=4)
    assert scene.drained() == []
    mq.clock.advance(hours=46)
    assert scene.drained() == [first + (n - 1) * 10 * HOUR for n in expected]


def test_jitter_is_that_of_the_true_slot(scene: Scene) -> None:
    mq = scene.mq
    scene.tick.every(days=1, name="n", anchor=datetime(2026, 1, 1, tzinfo=UTC), jitter=3_600).register()
    for _ in range(3):
        info = mq.schedule("n").info()
        assert info is not None
        assert info.next_run is not None
        assert info.next_slot is not None
        put_off = info.next_run - info.next_slot
        mq.clock.advance(info.next_run - mq.clock.ahead - datetime.now(UTC) - timedelta(minutes=1))
        assert scene.drained() == []
        mq.clock.advance(minutes=2)
        assert scene.drained() == [info.next_slot]
        assert timedelta(0) <= put_off <= HOUR


def test_max_runs_and_end_are_met_in_moved_time(scene: Scene) -> None:
    mq = scene.mq
    end = datetime.now(UTC) + timedelta(days=10)
    scene.tick.every(days=1, name="runs", max_runs=2).register()
    scene.tick.every(days=7, name="ends", end=end).register()
    for _ in range(5):
        scene.drained()
        mq.clock.advance(days=4)
    found = [mq.schedule(name).info() for name in ("runs", "ends")]
    assert [info and info.over for info in found] == [True, True]
    assert [info and info.runs for info in found] == [2, 2]


def test_what_is_registered_paused_and_resumed_later_lives_by_the_moved_clock(scene: Scene) -> None:
    mq = scene.mq
    mq.clock.advance(hours=5, minutes=7)
    now = datetime.now(UTC) + mq.clock.ahead
    hourly = scene.tick.every(hours=1, name="hourly")
    first = hourly.register().next_run
    assert first is not None
    assert now - timedelta(milliseconds=1) <= first <= now + timedelta(minutes=1)
    assert hourly.register().verdict is Registration.UNCHANGED
    assert scene.drained() == [first]
    assert hourly.pause()
    mq.clock.advance(minutes=150)
    assert scene.drained() == []
    assert hourly.resume()
    info = hourly.info()
    assert info is not None
    assert info.next_run == first + 3 * HOUR
    mq.clock.advance(minutes=30)
    assert scene.drained() == [first + 3 * HOUR]
    job = hourly.run_now()
    (slot,) = scene.drained()
    assert job.state() is State.ABSENT
    assert timedelta(0) <= datetime.now(UTC) + mq.clock.ahead - slot < timedelta(minutes=1)


def test_declared_schedules_are_registered_when_a_drain_is_told_to(scene: Scene) -> None:
    mq = scene.mq

    @mq.job(name="declared", schedule=Every(hours=2, first_in=timedelta(hours=2)))
    def declared() -> None: ...

    assert mq.drain_blocking().runs == ()
    assert mq.schedule("declared").info() is None
    mq.drain_blocking(schedules=True)
    mq.clock.advance(hours=2)
    assert [run.name for run in mq.drain_blocking(schedules=True).runs] == ["declared"]


async def test_a_worker_that_runs_beside_fires_each_slot_once(server: Server) -> None:
    mq = EchoMQ("valkey://localhost:1")
    async with mq.testing(server.url):
        scene = Scene(mq)
        first = (await scene.tick.every(hours=1, name="plain").aregister()).next_run
        assert first is not None
        await scene.tick.every(hours=1, name="rich", anchor=first, catch_up=CatchUp.all(1_000)).aregister()
        async with serving(mq):
            await scene.has(1)
            for n in range(1, 41):
                await mq.clock.aadvance(hours=1)
                await scene.has(1 + 2 * n)
        assert sorted(scene.slots) == sorted([first, *(first + n * HOUR for n in range(1, 41) for _ in range(2))])


async def test_many_moves_while_a_worker_fires_lose_and_double_no_slot(server: Server) -> None:
    mq = EchoMQ("valkey://localhost:1")
    async with mq.testing(server.url):
        scene = Scene(mq)
        anchor = datetime.now(UTC) + timedelta(minutes=30)
        await scene.tick.every(hours=1, name="n", anchor=anchor, catch_up=CatchUp.all(1_000)).aregister()
        async with serving(mq):
            for n in range(60):
                await mq.clock.aadvance(minutes=20 + n)
            passed = (datetime.now(UTC) + mq.clock.ahead - anchor) // HOUR + 1
            await scene.has(passed)
        rounded = [slot.replace(microsecond=anchor.microsecond) for slot in sorted(scene.slots)]
        assert rounded == [anchor + n * HOUR for n in range(passed)]


async def test_nothing_fires_while_scores_are_being_moved(server: Server, queue: str) -> None:
    now_ms = int(datetime.now(UTC).timestamp() * 1_000)
    moving = {"while": lambda: None, "meanwhile": iter([0, 3_600_000]).__next__}
    async with EchoMQ(server.url) as mq:
        await mq.arun(repeat.register(queue, "n", every_ms=3_600_000, template=b"{}", first_run_ms=1))
        conn = await mq.aconnection()
        for ahead in moving.values():
            assert await Recurrences(queue, ahead=ahead).fire(conn, now_ms) == 1, "so that it looks again"
            assert await mq.arun(jobs.pending_size(queue)) == 0
        await Recurrences(queue, ahead=lambda: 0).fire(conn, now_ms)
        assert await mq.arun(jobs.pending_size(queue)) == 1


def test_only_the_queues_of_the_test_are_moved(server: Server) -> None:
    with EchoMQ(server.url) as other:
        other.run(jobs.enqueue_in("default", "JOB0NgWEfAEJfs", b"{}", delay_ms=3_600_000))
        other.run(repeat.register("default", "n", every_ms=1_000, template=b"{}", first_run_ms=10**13))
        mq = EchoMQ("valkey://localhost:1")
        with mq.testing(server.url), server.client() as client:
            Scene(mq).tick.after(hours=1).enqueue()
            before = client.execute("ZRANGE", "emq:{default}:schedule", 0, -1, "WITHSCORES")
            moved = mq.clock.advance(days=2)
            assert (moved.jobs, moved.recurrences) == (1, 0)
            assert client.execute("ZRANGE", "emq:{default}:schedule", 0, -1, "WITHSCORES") == before
            assert client.execute("ZSCORE", "emq:{default}:repeat", "n") == b"10000000000000"


def test_thousands_are_moved_at_one_instant_and_keep_their_order(scene: Scene) -> None:
    mq, tick = scene.mq, scene.tick
    sent = mq.enqueue_many(tick.after(hours=1, milliseconds=n).s(str(n)) for n in range(2_500))
    paused = tick.every(hours=1, name="paused")
    paused.register()
    paused.pause()
    before = {each.id: each.run_at for each in mq.enqueued()}
    assert mq.clock.advance(minutes=30).jobs == 2_500
    after = {each.id: each.run_at for each in mq.enqueued()}
    assert {each.id for each in sent} == after.keys()
    assert {a - b for job in sent if (a := after[job.id]) and (b := before[job.id])} == {timedelta(minutes=-30)}
    info = paused.info()
    assert info is not None
    assert (info.paused, info.next_run) == (True, None)


def test_a_span_that_is_none_is_refused(scene: Scene) -> None:
    clock = scene.mq.clock
    for wrong in ({}, {"hours": 0}, {"hours": -1}, {"days": 20 * 366 + 1}):
        with pytest.raises(InvalidInputError, match="advance"):
            clock.advance(**wrong)
    clock.advance(days=20 * 366)
    with pytest.raises(InvalidInputError, match="beyond 20 years"):
        clock.advance(days=1)
    assert clock.ahead == timedelta(days=20 * 366)
