"""Uses of testing that a type checker must reject: every line that ends in `# wrong`, and no other."""

from __future__ import annotations

from datetime import timedelta

from echomq import EchoMQ

mq = EchoMQ()


@mq.job
def send(to: str, *, copies: int = 1) -> str:
    return to * copies


def blocking() -> None:
    mq.testing(7)  # wrong
    mq.testing("valkey://localhost", eager=True)  # wrong
    mq.eager(raise_errors="yes")  # wrong
    mq.drain_blocking(timeout=60)  # wrong
    mq.drain_blocking(concurrency="many")  # wrong
    mq.clock.advance(hour=1)  # wrong
    mq.clock.advance(3600)  # wrong
    mq.clock.ahead = timedelta(0)  # wrong
    mq.assert_enqueued(7)  # wrong
    mq.assert_enqueued(send, copies=2)  # wrong
    mq.assert_enqueued(send.s("ada", copies="2"))  # wrong
    mq.assert_enqueued(send, at="noon")  # wrong
    mq.assert_enqueued(send, within=5)  # wrong
    mq.assert_enqueued(send, times="once")  # wrong
    mq.assert_not_enqueued(send, times=2)  # wrong
    print(mq.enqueued(send).name)  # wrong
    with mq.eager() as eager:
        print(eager.url)  # wrong


async def awaited() -> None:
    done = await mq.drain(raise_errors=True)
    done.completed()  # wrong
    done.runs = ()  # wrong
    (await mq.aenqueued(send))[0].args = ("eve",)  # wrong
    await mq.drain_blocking()  # wrong
