"""Uses of the app's surface that a type checker must reject: every line that ends in `# wrong`, and no other."""

from __future__ import annotations

from datetime import timedelta

import echomq
from echomq import Cancelled, Cron, Dedup, EchoMQ, Every, Fixed, Job, connect, current_job, flows, mint

print(echomq.NoSuchName)  # wrong

mq = EchoMQ(5)  # wrong
mq = EchoMQ(nothing=1)  # wrong


@mq.job
async def send(to: str, subject: str = "hi") -> str:
    return f"{subject}, {to}"


@mq.job(name="mail.count", queue="mail", max_attempts=5)
def count(*words: str, upto: int = 10) -> int:
    return min(len(words), upto)


mq.job(queue=5)  # wrong
mq.job(max_attempts="many")  # wrong
mq.job(backoff="slow")  # wrong
mq.job(backoff=Fixed("slow"))  # wrong
mq.job(nothing=1)  # wrong
mq.job(schedule="@daily")  # wrong
mq.job(schedule=Every(hour=1))  # wrong
mq.job(schedule=Cron())  # wrong
mq.job(schedule=[Every(hours=1), "@daily"])  # wrong
mq.job(5)  # wrong


def blocking() -> None:
    send.enqueue()  # wrong
    send.enqueue(5)  # wrong
    send.enqueue("a@b.c", "hi", "ho")  # wrong
    send.enqueue("a@b.c", topic="hi")  # wrong
    send.enqueue("a@b.c", subject=5)  # wrong
    count.enqueue("a", 5)  # wrong
    count.enqueue("a", upto="many")  # wrong
    text: Job[int] = send.enqueue("a@b.c")  # wrong
    number: str = count("a")  # wrong
    send(5)  # wrong
    send.at("tomorrow")  # wrong
    send.at(5)  # wrong
    send.at(timedelta(hours=1))  # wrong
    send.after(5)  # wrong
    send.after(minutes="5")  # wrong
    send.after(fortnights=1)  # wrong
    send.after(minutes=5).enqueue(5)  # wrong
    send.after(minutes=5).after(minutes=5)  # wrong
    send.every(hours=1)  # wrong
    send.every(hours=1, name=5)  # wrong
    send.every(hours=1, name="digest", first_in=5)  # wrong
    send.every(hours=1, name="digest").register(5)  # wrong
    send.every(hours=1, name="digest").enqueue("all")  # wrong
    send.every(hours=1, name="digest", tz="Europe/Berlin")  # wrong
    send.every(hours=1, name="digest", catch_up="all")  # wrong
    send.every(hours=1, name="digest", overlap="queue")  # wrong
    send.every(hours=1, name="digest", anchor=5)  # wrong
    send.every(hours=1, name="digest", jitter="30")  # wrong
    send.cron("@daily")  # wrong
    send.cron(5, name="digest")  # wrong
    send.cron("@daily", name="digest", tz=1)  # wrong
    send.cron("@daily", name="digest", anchor=timedelta(hours=1))  # wrong
    send.cron("@daily", name="digest", start="2026-01-01")  # wrong
    send.cron("@daily", name="digest").register(5)  # wrong
    mq.schedule(5)  # wrong
    print(text, number)


def options() -> None:
    send.options("acme")  # wrong
    send.options(lain="acme")  # wrong
    send.options(lane=5)  # wrong
    send.options(queue=5)  # wrong
    send.options(dedup=5)  # wrong
    send.options(max_attempts="many")  # wrong
    send.options(expires=5)  # wrong
    send.options(timeout="1 minute")  # wrong
    send.options(meta=["a"])  # wrong
    send.options(meta={1: "a"})  # wrong
    send.options(dedup=Dedup(5))  # wrong
    send.options(dedup=Dedup("k", window=60))  # wrong
    send.options(dedup=Dedup("k", replace="yes"))  # wrong
    send.options(lane="acme").enqueue()  # wrong
    send.options(lane="acme").enqueue(5)  # wrong
    send.options(lane="acme").enqueue("a@b.c", topic="hi")  # wrong
    count.options(dedup="k").enqueue("a", upto="many")  # wrong
    send.options(lane="acme").after(minutes=5).enqueue(5)  # wrong
    send.options(lane="acme").at("tomorrow")  # wrong
    send.after(minutes=5).at(5)  # wrong
    send.options(lane="acme").after(minutes=5).after(minutes=5)  # wrong
    send.options(lane="acme").every(hours=1)  # wrong
    send.after(minutes=5).every(hours=1, name="digest")  # wrong
    send.after(minutes=5).cron("@daily", name="digest")  # wrong
    text: Job[int] = send.options(lane="acme").enqueue("a@b.c")  # wrong
    print(text)


def wires() -> None:
    EchoMQ("valkey://localhost", wire=5)  # wrong
    EchoMQ("valkey://localhost").use_server(wire="six")  # wrong
    connect("valkey://localhost", wire="4")  # wrong


def handles() -> None:
    job = send.enqueue("a@b.c")
    job.cancel(5)  # wrong
    job.duplicate = True  # wrong
    mq.cancel(job)  # wrong
    mq.cancel(job.id, "mail")  # wrong
    mq.lane(5)  # wrong
    mq.lane("acme", "mail")  # wrong
    mq.lane("acme").limit("few")  # wrong
    mq.lane("acme").weight(None)  # wrong
    current_job().progress(None)  # wrong
    current_job().log(5)  # wrong
    current_job().attempt = 5  # wrong
    flows.Node("mail", mint(), b"{}", [])  # wrong
    raise Cancelled(5)  # wrong


async def awaited() -> None:
    await send.options(lane="acme").aenqueue(5)  # wrong
    await mq.lane("acme").alimit("few")  # wrong
    await current_job().progress(1)  # wrong
    await send.aenqueue(5)  # wrong
    await send.aenqueue()  # wrong
    await send.enqueue("a@b.c")  # wrong
    await send.after(minutes=5).aenqueue("a", "b", "c")  # wrong
    await send.every(hours=1, name="digest").aregister(5)  # wrong
    text: int = await send("a@b.c")  # wrong
    number: Job[str] = await count.aenqueue("a")  # wrong
    print(text, number)
