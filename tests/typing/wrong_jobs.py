"""Jobs, many at once, codecs and instructions, as a type checker must reject them: see `wrong.py`."""

from __future__ import annotations

from datetime import timedelta

from echomq import Bound, Cancel, Discard, EchoMQ, Job, Retry, current_job

mq = EchoMQ()


@mq.job
async def send(to: str, subject: str = "hi") -> str:
    return f"{subject}, {to}"


@mq.job(name="mail.count", queue="mail", max_attempts=5)
def count(*words: str, upto: int = 10) -> int:
    return min(len(words), upto)


def many() -> None:
    send.s()  # wrong
    send.s(5)  # wrong
    send.s("a@b.c", topic="hi")  # wrong
    send.options(lane="acme").s(5)  # wrong
    send.after(minutes=5).s("a@b.c", "hi", "ho")  # wrong
    count.s("a", upto="many")  # wrong
    send.s("a@b.c").enqueue()  # wrong
    send.s("a@b.c").options(lane="acme")  # wrong
    send.s("a@b.c").payload = b""  # wrong
    mq.enqueue_many(send.s("a@b.c"))  # wrong
    mq.enqueue_many([send])  # wrong
    mq.enqueue_many([send.enqueue("a@b.c")])  # wrong
    mq.enqueue_many(["a@b.c"])  # wrong
    numbers: list[Job[int]] = mq.enqueue_many([send.s("a@b.c")])  # wrong
    text: Bound[int] = send.s("a@b.c")  # wrong
    print(numbers, text)


class Nameless:
    def encode(self, data: bytes, /) -> bytes:
        return data

    def decode(self, data: bytes, /) -> bytes:
        return data


class Texts:
    name = "texts"

    def encode(self, data: str, /) -> str:
        return data

    def decode(self, data: str, /) -> str:
        return data


def set_up() -> None:
    EchoMQ(codec=5)  # wrong
    EchoMQ(codec=Nameless())  # wrong
    EchoMQ(codec=Texts())  # wrong
    EchoMQ(codec=[Nameless()])  # wrong
    EchoMQ(prefix=5)  # wrong
    EchoMQ(queues=5)  # wrong
    EchoMQ(queues=[5])  # wrong
    EchoMQ(max_payload="1 MiB")  # wrong
    mq.queue_name(5)  # wrong
    mq.job(aliases=5)  # wrong
    mq.job(aliases=[5])  # wrong
    mq.job(retry_on="ConnectionError")  # wrong
    mq.job(retry_on=ConnectionError())  # wrong
    mq.job(retry_on=[ConnectionError])  # wrong
    mq.job(discard_on=(ValueError, 5))  # wrong
    mq.job(timeout=5)  # wrong
    mq.job(expires="1 hour")  # wrong
    mq.job(lane=5)  # wrong
    mq.job(meta=["a"])  # wrong
    mq.job(max_attempts=None)  # wrong
    mq.job(max_attempt=5)  # wrong
    mq.job(send, queue="mail")  # wrong


def instructions() -> None:
    Retry(5)  # wrong
    Retry(after=5)  # wrong
    Retry(fortnights=1)  # wrong
    Retry(timedelta(minutes=5))  # wrong
    Discard()  # wrong
    Discard(5)  # wrong
    Cancel(5)  # wrong
    current_job().extend(5)  # wrong
    current_job().extend(minutes="5")  # wrong
    current_job().extend(fortnights=1)  # wrong


async def awaited() -> None:
    await mq.aenqueue_many([send])  # wrong
    await mq.enqueue_many([send.s("a@b.c")])  # wrong
    await send.s("a@b.c")  # wrong
    await current_job().extend(minutes=5)  # wrong
