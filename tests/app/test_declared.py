"""Schedules in code: registered at worker start by however many workers, and removed only when that is asked for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from echomq import Cron, EchoMQ, Every, Worker
from echomq.app.declared import ScheduleWord, Synced, sync
from echomq.errors import JobDefinitionError, SerializationError
from echomq.protocol.recurring import Kind
from echomq.protocol.repeat import Registration
from support.servers import Server

HOUR = timedelta(hours=1)


def app(server: Server, queue: str, schedule: ScheduleWord | None, *, name: str = "digest") -> EchoMQ:
    mq = EchoMQ(server.url, default_queue=queue)

    @mq.job(name=name, schedule=schedule)
    def digest(whom: str = "all") -> None: ...

    return mq


def synced(mq: EchoMQ, **more: Any) -> Synced:
    return mq.run(sync(mq, mq.queues, **more))


def names(mq: EchoMQ) -> list[str]:
    return sorted(each.name for each in mq.schedules())


def test_what_is_declared_is_registered_and_kept(server: Server, queue: str) -> None:
    with app(server, queue, [Every(hours=1, overlap="skip"), Cron("@daily", name="nightly", args=("some",))]) as mq:
        first = synced(mq)
        assert {place: each.verdict for place, each in first.registered.items()} == {
            (queue, "digest"): Registration.REGISTERED,
            (queue, "nightly"): Registration.REGISTERED,
        }
        again = synced(mq)
        assert (again.changed, again.removed) == (0, ())
        assert [each.next_run for each in again.registered.values()] == [
            each.next_run for each in first.registered.values()
        ]
        assert {each.declared_by for each in mq.schedules()} == {"tests"}
        assert {each.kind for each in mq.schedules()} == {Kind.CRON}


def test_a_declaration_that_has_come_to_its_end_keeps_no_worker_from_starting_and_is_said(
    server: Server, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    past = datetime.now(UTC) - HOUR
    with app(server, queue, [Every(hours=1, end=past), Every(days=1, name="off", paused=True)]) as mq:
        assert synced(mq).registered[queue, "digest"].next_run is None
        assert synced(mq).changed == 0
        (said,) = [each.getMessage() for each in caplog.records if each.name == "echomq.worker"]
        assert said.startswith(f"the schedule digest of queue {queue}, declared by job digest, never runs: no slot")


def test_a_changed_declaration_changes_the_recurrence(server: Server, queue: str) -> None:
    with app(server, queue, Every(hours=1, anchor=datetime(2026, 1, 1, tzinfo=UTC))) as mq:
        before = synced(mq).registered[queue, "digest"].next_run
    with app(server, queue, Every(hours=1, anchor=datetime(2026, 1, 1, tzinfo=UTC), args=("b",))) as mq:
        now = synced(mq).registered[queue, "digest"]
        assert (now.verdict, now.kept, now.next_run) == (Registration.UPDATED, True, before)


def test_two_queues_may_each_have_a_schedule_of_the_same_name(server: Server, queue: str) -> None:
    other = f"{queue}-other"
    with app(server, queue, Every(hours=1)) as mq:
        mq.job(name="second", queue=other, schedule=Every(hours=1, name="digest"))(lambda: None)
        done = synced(mq)
        assert (set(done.registered), done.changed) == ({(queue, "digest"), (other, "digest")}, 2)
        mq.schedule("digest", queue=other).cancel()
        again = synced(mq)
        assert (again.changed, again.registered[other, "digest"].verdict) == (1, Registration.REGISTERED)
    with EchoMQ(server.url, default_queue=queue, queues=[other]) as mq:
        mq.job(name="digest")(names)
        assert sorted(synced(mq, prune=True).removed) == [(queue, "digest"), (other, "digest")]


def test_removed_names_are_removed_only_when_asked_for(server: Server, queue: str) -> None:
    with app(server, queue, [Every(hours=1), Cron("@daily", name="nightly")]) as mq:
        synced(mq)
        mq.jobs["digest"].every(hours=1, name="by hand", overlap="skip").register()
        mq.jobs["digest"].every(hours=1, name="plain").register()
    with app(server, queue, Every(hours=2)) as mq:
        assert synced(mq).removed == ()
        assert names(mq) == ["by hand", "digest", "nightly", "plain"]
        assert synced(mq, prune=True).removed == ((queue, "nightly"),)
        assert names(mq) == ["by hand", "digest", "plain"]
    with app(server, queue, None) as mq:
        assert synced(mq, prune=True).removed == ((queue, "digest"),)


def test_what_another_app_declares_in_the_same_queue_is_left_alone(server: Server, queue: str) -> None:
    with app(server, queue, Every(hours=1)) as mq:
        synced(mq)
    with EchoMQ(server.url, default_queue=queue) as other:
        namespace: dict[str, Any] = {"__name__": "shop.tasks"}
        exec("def sweep() -> None: ...", namespace)
        other.job(schedule=Every(hours=1))(namespace["sweep"])
        assert synced(other, prune=True).removed == ()
        assert names(other) == ["digest", "shop.tasks.sweep"]
        assert {each.declared_by for each in other.schedules()} == {"tests", "shop"}


async def test_workers_that_start_at_once_register_it_once(
    server: Server, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    apps = [app(server, queue, Cron("@yearly")) for _ in range(3)]
    workers = [Worker(mq, burst=True, grace=timedelta(0)) for mq in apps]
    with caplog.at_level(logging.INFO, "echomq.worker"):
        await asyncio.gather(*(worker.serve() for worker in workers))
    said = [each.getMessage() for each in caplog.records if "declared" in each.getMessage()]
    assert sorted(said) == [
        *["1 schedules are declared, 0 new or changed"] * 2,
        "1 schedules are declared, 1 new or changed",
    ]
    assert [each.name for each in await apps[0].aschedules()] == ["digest"]
    for mq in apps:
        await mq.aclose()


async def test_a_worker_runs_what_is_declared_and_prunes_when_asked(
    server: Server, queue: str, working: Callable[..., Any]
) -> None:
    old = app(server, queue, Every(hours=1, name="old"))
    await old.arun(sync(old, old.queues))
    await old.aclose()
    seen: asyncio.Queue[str] = asyncio.Queue()
    mq = EchoMQ(server.url, default_queue=queue)

    @mq.job(schedule=Every(milliseconds=100, kwargs={"whom": "me"}))
    async def tick(whom: str) -> None:
        await seen.put(whom)

    worker = Worker(mq, grace=timedelta(0), prune_schedules=True)
    serving = asyncio.ensure_future(worker.serve())
    assert [await seen.get(), await seen.get()] == ["me", "me"]
    assert [each.name for each in await mq.aschedules()] == [tick.name]
    worker.stop()
    await serving
    await mq.aclose()


async def test_a_worker_registers_for_the_queues_that_it_serves(server: Server, queue: str) -> None:
    mq = app(server, queue, Every(hours=1))

    @mq.job(queue=queue + "-other", name="other", schedule=Every(hours=1))
    def other() -> None: ...

    await Worker(mq, queues=[queue], burst=True).serve()
    assert [each.name for each in await mq.aschedules()] == ["digest"]
    await mq.aclose()


async def test_an_argument_that_cannot_be_sent_keeps_the_worker_from_starting(server: Server, queue: str) -> None:
    def digest(whom: Later) -> None: ...  # type: ignore[name-defined]  # noqa: F821  (known once the worker starts)

    mq = EchoMQ(server.url, default_queue=queue)
    mq.job(name="digest", schedule=Every(hours=1, args=(5,)))(digest)
    digest.__annotations__["whom"] = str
    with pytest.raises(SerializationError):
        await Worker(mq, burst=True).serve()
    await mq.aclose()


@pytest.mark.parametrize("first", [Every(hours=1, name="x"), [Every(hours=1), Every(hours=1, name="x")]])
def test_no_two_jobs_of_a_queue_declare_one_name(first: ScheduleWord) -> None:
    mq = EchoMQ("valkey://localhost:1", default_queue="a")
    mq.job(name="one", schedule=first)(lambda: None)
    with pytest.raises(JobDefinitionError, match="'one' and 'two' both declare a schedule 'x' in queue 'a'"):
        mq.job(name="two", schedule=Every(hours=2, name="x"))(lambda: None)
    assert list(mq.jobs) == ["one"]
    mq.job(name="three", schedule=Every(hours=2, name="x"), queue="b")(lambda: None)


def test_a_schedule_that_is_named_as_its_job_is_one_name_with_that_of_no_name() -> None:
    mq = EchoMQ("valkey://localhost:1", default_queue="a")
    with pytest.raises(JobDefinitionError, match="'one' has twice a schedule 'one'"):
        mq.job(name="one", schedule=[Every(hours=2), Cron("@daily", name="one")])(lambda: None)
