"""Uses of the app's surface that a type checker must accept; `assert_type` says what it must understand."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, assert_type

from echomq import (
    Cancellation,
    Cancelled,
    CatchUp,
    Cron,
    Dedup,
    EchoMQ,
    Every,
    Exponential,
    Fixed,
    Jitter,
    Job,
    JobContext,
    Lane,
    ScheduleInfo,
    Snooze,
    State,
    aconnect,
    admin,
    admission,
    audit,
    connect,
    current_job,
    flows,
    jobs,
    lanes,
    metrics,
    mint,
    repeat,
    workers,
)
from echomq.app.registering import Registered
from echomq.protocol.repeat import Registration
from echomq.protocol.replies import Admission, Claims, Counts

mq = EchoMQ("valkey://localhost:6379/0", default_queue="mail")


@mq.job
async def send(to: str, subject: str = "hi") -> str:
    return f"{subject}, {to}"


@mq.job(name="mail.count", queue="mail", max_attempts=5, backoff=Jitter(Exponential(base=1_000, cap=300_000)))
def count(*words: str, upto: int = 10) -> int:
    return min(len(words), upto)


@mq.job(schedule=Every(hours=1, overlap="skip"))
async def hourly() -> None: ...


@mq.job(schedule=[Cron("30 2 * * *", tz="Europe/Berlin", args=("all",)), Every(timedelta(days=1), name="daily")])
def often(whom: str = "") -> None: ...


@mq.job(backoff=lambda attempts: attempts * 1_000)
def nothing() -> None:
    raise Snooze(minutes=5)


@mq.job(backoff=Fixed(10))
async def nothing_async() -> None:
    raise Snooze(timedelta(minutes=5))


@mq.job
def knows_itself() -> None:
    job = current_job()
    assert_type(job, JobContext)
    assert_type(job.lane, str | None)
    assert_type(job.deadline, datetime | None)
    assert_type(job.meta, Mapping[str, object])
    assert_type(job.cancelled, bool)
    job.progress(50)
    job.progress(0.5)
    job.progress("half")
    job.log("half way", keep=100)
    job.raise_if_cancelled()
    raise Cancelled("the order is gone")


def options() -> None:
    meta: dict[str, int] = {"a": 1}
    assert_type(send.options(lane="acme", dedup="k", queue="mail").enqueue("a@b.c"), Job[str])
    assert_type(send.options(dedup=Dedup("k", window=timedelta(hours=1), replace=True)).enqueue("a@b.c"), Job[str])
    assert_type(
        send.options(max_attempts=5, expires=timedelta(hours=1), timeout=timedelta(1)).enqueue(to="a"), Job[str]
    )
    assert_type(count.options(meta=meta).options(lane=None).enqueue("a", upto=3), Job[int])
    assert_type(send.options(lane="acme").at(datetime.now(UTC)).enqueue("a@b.c"), Job[str])
    assert_type(send.options(lane="acme").after(minutes=5).options(dedup="k").enqueue("a@b.c"), Job[str])
    assert_type(send.after(minutes=5).options(lane="acme").enqueue("a@b.c"), Job[str])
    assert_type(send.options().enqueue("a@b.c").duplicate, bool)


def handles() -> None:
    job = send.enqueue("a@b.c")
    assert_type(job.state(), State)
    assert_type(job.progress(), str | None)
    assert_type(job.cancel(), Cancellation)
    assert_type(job.cancel("not wanted"), Cancellation)
    assert_type(mq.cancel(job.id, queue="mail", reason="not wanted"), Cancellation)
    lane = mq.lane("acme", queue="mail")
    assert_type(lane, Lane)
    lane.pause()
    lane.resume()
    lane.limit(5)
    lane.limit(None)
    lane.weight(2)
    assert_type(lane.depth(), int)


def wires() -> None:
    EchoMQ("valkey://localhost", wire="auto").use_server(wire=6)
    with connect("valkey://localhost", wire=6) as conn:
        assert_type(conn.wire, Literal[4, 6] | None)


def verbs() -> None:
    with connect("valkey://localhost") as conn:
        assert_type(conn.run(lanes.enqueue("mail", mint(), b"{}", lanes.lane_id("acme"))), Admission)
        assert_type(conn.run(admission.admit("mail", mint(), b"{}", delay_ms=5)).id, str)
        child = flows.Node("mail", mint(), b"{}", on_death=flows.OnDeath.IGNORE)
        assert_type(conn.run(flows.add(flows.Node("mail", mint(), b"{}", (child,)))), Mapping[str, Admission])
        assert_type(conn.run(admin.cancel_job("mail", mint())), Cancellation)
        assert_type(conn.run(workers.seen("mail")), tuple[workers.Seen, ...])
        assert_type(conn.run(audit.audit("mail")), tuple[audit.Breach, ...])


def blocking() -> None:
    assert_type(send.enqueue("a@b.c"), Job[str])
    assert_type(send.enqueue("a@b.c", subject="ho"), Job[str])
    assert_type(send.enqueue(to="a@b.c").id, str)
    assert_type(count.enqueue("a", "b", upto=3), Job[int])
    assert_type(nothing.enqueue(), Job[None])
    assert_type(count("a", "b"), int)
    coroutine = send("a@b.c")
    assert_type(coroutine, Coroutine[Any, Any, str]).close()
    assert_type(send.at(datetime.now(UTC)).enqueue("a@b.c"), Job[str])
    assert_type(count.after(minutes=5, seconds=1.5).enqueue("a"), Job[int])
    assert_type(count.after(timedelta(minutes=5)).enqueue("a"), Job[int])
    assert_type(send.every(hours=1, name="digest").register("all"), Registered)
    assert_type(send.every(hours=1, name="digest").register("all").verdict, Registration)
    fuller = send.options(lane="acme").every(
        timedelta(hours=1), name="digest", jitter=30, catch_up="skip", overlap="skip", max_runs=5, paused=True
    )
    assert_type(fuller.register("all", subject="news").next_run, datetime | None)
    nightly = count.cron(
        "30 2 * * *", name="nightly", tz="Europe/Berlin", catch_up=CatchUp.all(10), jitter=timedelta(1)
    )
    assert_type(nightly.register("a", upto=5), Registered)
    assert_type(nightly.run_now(), Job[int])
    assert_type(nightly.info(), ScheduleInfo | None)
    assert_type(count.every(hours=1, name="c", catch_up=("all", 5), anchor=datetime.now(UTC)).pause(), bool)
    assert_type(mq.schedule("nightly", queue="mail").resume(), bool)
    assert_type(mq.schedules(), list[ScheduleInfo])
    assert_type(send.every(timedelta(hours=1), name="digest", first_in=timedelta(hours=1)).cancel(), bool)
    assert_type(mq.run(metrics.counts("mail")), Counts)
    assert_type(mq.run(repeat.cancel("mail", "digest")), bool)
    with connect("valkey://localhost") as conn:
        assert_type(conn.run(jobs.enqueue("mail", mint(), b"{}")), Admission)
    with mq:
        assert_type(mq.connection().run(jobs.claim_many("mail", 10)), Claims)


async def awaited() -> None:
    assert_type(await send.options(lane="acme").aenqueue("a@b.c"), Job[str])
    assert_type(await count.options(dedup="k").after(hours=1).aenqueue("a", upto=1), Job[int])
    assert_type(await (await send.aenqueue("a@b.c")).astate(), State)
    assert_type(await (await send.aenqueue("a@b.c")).acancel("not wanted"), Cancellation)
    assert_type(await mq.acancel("JOB0KHTOWnGLuC"), Cancellation)
    assert_type(await mq.lane("acme").adepth(), int)
    await mq.lane("acme").alimit(5)
    await current_job().aprogress(1)
    await current_job().alog("half way")
    assert_type(await send.aenqueue("a@b.c"), Job[str])
    assert_type(await nothing_async.aenqueue(), Job[None])
    assert_type(await send("a@b.c"), str)
    assert_type(await count.after(hours=1).aenqueue("a", upto=1), Job[int])
    assert_type(await send.every(hours=1, name="digest").aregister("all", subject="news"), Registered)
    assert_type(await mq.schedule("nightly").arun_now(), Job[object])
    assert_type(await mq.arun(metrics.counts("mail")), Counts)
    async with aconnect("valkey://localhost") as conn:
        assert_type(await conn.run(jobs.pending_size("mail")), int)
    async with mq:
        assert_type(await (await mq.aconnection()).run(jobs.pending_size("mail")), int)
