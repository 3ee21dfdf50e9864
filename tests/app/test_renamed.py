"""A job that is renamed with `aliases` takes its declared schedule along: no slot twice, and none lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from echomq import Cron, EchoMQ, Every, ScheduleInfo
from echomq.app.declared import ScheduleWord, Synced, sync, sync_at_start
from echomq.app.renamed import take_over
from echomq.protocol.call import Plan
from echomq.protocol.repeat import Registration
from support.raw import RawClient
from support.servers import Server

HOURLY = Every(hours=1, anchor=datetime(2026, 1, 1, tzinfo=UTC))


@pytest.fixture
def raw(server: Server) -> Iterator[RawClient]:
    with server.client() as client:
        yield client


def app(
    server: Server, queue: str, name: str, *aliases: str, schedule: ScheduleWord = HOURLY, package: str = "shop"
) -> EchoMQ:
    """An app whose one job has that name."""
    mq = EchoMQ(server.url, default_queue=queue)
    namespace: dict[str, Any] = {"__name__": f"{package}.tasks"}
    exec("def rep() -> None: ...", namespace)
    mq.job(name=name, aliases=aliases, schedule=schedule)(namespace["rep"])
    return mq


def synced(mq: EchoMQ, **more: Any) -> Synced:
    return mq.run(sync(mq, mq.queues, **more))


def seen(mq: EchoMQ) -> dict[str, ScheduleInfo]:
    return {each.name: each for each in mq.schedules()}


@pytest.mark.parametrize("schedule", [HOURLY, Cron("@daily"), Every(hours=1)])
def test_a_schedule_goes_on_under_the_new_name_of_its_job(
    server: Server, queue: str, raw: RawClient, schedule: ScheduleWord
) -> None:
    with app(server, queue, "old", schedule=schedule) as mq:
        before = synced(mq).registered[queue, "old"].next_run
        raw.execute("HSET", f"emq:{{{queue}}}:cron:old", "runs", "7", "last_slot_ms", "5", "last_id", "x")
    with app(server, queue, "new", "older", "old", schedule=schedule) as mq:
        done = synced(mq)
        assert (done.renamed, done.removed) == (((queue, "old", "new"),), ())
        found = seen(mq)
        assert set(found) == {"new"}
        now = found["new"]
        assert (now.next_run, now.runs, now.last_id, now.job) == (before, 7, "x", "new")
        assert done.registered[queue, "new"].kept
        again = synced(mq)
        assert (again.changed, again.renamed, again.removed) == (0, (), ())


def test_a_pause_goes_along(server: Server, queue: str) -> None:
    with app(server, queue, "old") as mq:
        synced(mq)
        mq.schedule("old").pause()
    with app(server, queue, "new", "old") as mq:
        assert synced(mq).registered[queue, "new"].next_run is None
        assert {name: each.paused for name, each in seen(mq).items()} == {"new": True}


def test_older_code_that_starts_beside_it_registers_its_name_until_the_next_start(server: Server, queue: str) -> None:
    with app(server, queue, "old") as old, app(server, queue, "new", "old") as new:
        synced(old)
        synced(new)
        synced(old)
        assert set(seen(new)) == {"old", "new"}
        done = synced(new)
        assert (done.removed, done.renamed) == (((queue, "old"),), ())
        assert done.registered[queue, "new"].verdict is Registration.UNCHANGED
        assert set(seen(new)) == {"new"}


def test_what_was_registered_by_hand_or_by_another_package_or_for_another_job_stays(server: Server, queue: str) -> None:
    with app(server, queue, "hand", schedule=[]) as mq:
        mq.jobs["hand"].every(hours=1, name="hand", overlap="skip").register()
        mq.jobs["hand"].every(hours=1, name="plain").register()
    with app(server, queue, "theirs", package="store") as mq:
        synced(mq)
    with app(server, queue, "strange", schedule=Every(hours=1, name="other")) as mq:
        synced(mq)
    with app(server, queue, "new", "hand", "plain", "theirs", "other") as mq:
        done = synced(mq)
        assert (done.renamed, done.removed) == ((), ())
        assert set(seen(mq)) == {"new", "hand", "plain", "theirs", "other"}


def test_a_job_that_has_moved_to_another_package_takes_it_along(server: Server, queue: str) -> None:
    with app(server, queue, "shop.tasks.rep") as mq:
        synced(mq)
    with app(server, queue, "store.tasks.rep", "shop.tasks.rep", package="store") as mq:
        assert synced(mq).renamed == ((queue, "shop.tasks.rep", "store.tasks.rep"),)
        assert {name: each.declared_by for name, each in seen(mq).items()} == {"store.tasks.rep": "store"}


def test_a_former_name_that_is_declared_as_a_schedule_of_its_own_stays(server: Server, queue: str) -> None:
    with app(server, queue, "old") as mq:
        synced(mq)
    with app(server, queue, "new", "old", schedule=[Every(hours=1), Every(hours=2, name="old")]) as mq:
        done = synced(mq)
        assert (done.renamed, done.removed) == ((), ())
        assert set(seen(mq)) == {"old", "new"}


async def test_of_many_that_start_at_once_one_takes_it_over(
    server: Server, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    old = app(server, queue, "old")
    before = (await old.arun(sync(old, old.queues))).registered[queue, "old"].next_run
    apps = [app(server, queue, "new", "old") for _ in range(8)]
    with caplog.at_level(logging.INFO, "echomq.worker"):
        await asyncio.gather(*(sync_at_start(mq, mq.queues, prune=False) for mq in apps))
    said = [each.getMessage() for each in caplog.records if "goes on" in each.getMessage()]
    assert said == [f"the schedule old of queue {queue} goes on as new, as its job is named now"]
    assert [(each.name, each.next_run) for each in await old.aschedules()] == [("new", before)]
    for mq in (old, *apps):
        await mq.aclose()


def test_a_turn_between_the_reading_and_the_renaming_is_not_undone(server: Server, queue: str, raw: RawClient) -> None:
    registry = f"emq:{{{queue}}}:cron"

    def disturbed(plan: Plan[str | None]) -> Plan[str | None]:
        call, turned = next(plan), False
        try:
            while True:
                answer: object = yield call
                if not turned:
                    raw.execute("HINCRBY", f"{registry}:old", "runs", 1)
                    raw.execute("ZINCRBY", registry, 3_600_000, "old")
                    turned = True
                call = plan.send(answer)
        except StopIteration as done:
            return cast("str | None", done.value)

    with app(server, queue, "old") as mq:
        synced(mq)
    with app(server, queue, "new", "old") as mq:
        before = float(raw.execute("ZSCORE", registry, "old"))
        assert mq.run(disturbed(take_over(queue, mq.jobs["new"], ["old"]))) == "old"
        assert float(raw.execute("ZSCORE", registry, "new")) == before + 3_600_000
        assert raw.execute("HGET", f"{registry}:new", "runs") == b"1"
