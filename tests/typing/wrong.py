"""Uses of the app's surface that a type checker must reject: every line that ends in `# wrong`, and no other."""

from __future__ import annotations

from datetime import timedelta

import echomq
from echomq import EchoMQ, Fixed, Job

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
    print(text, number)


async def awaited() -> None:
    await send.aenqueue(5)  # wrong
    await send.aenqueue()  # wrong
    await send.enqueue("a@b.c")  # wrong
    await send.after(minutes=5).aenqueue("a", "b", "c")  # wrong
    await send.every(hours=1, name="digest").aregister(5)  # wrong
    text: int = await send("a@b.c")  # wrong
    number: Job[str] = await count.aenqueue("a")  # wrong
    print(text, number)
