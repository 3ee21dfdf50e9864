"""Uses of what stands around jobs that a type checker must reject: those lines that end so, and no others."""

from __future__ import annotations

from collections.abc import AsyncIterator

from echomq import Depends, EchoMQ, JobContext, Middleware

mq = EchoMQ("valkey://localhost")


class Db: ...


async def database() -> AsyncIterator[Db]:
    yield Db()


@mq.job
async def pay(cents: int, db: Db = Depends(database)) -> int:
    return cents


def text(word: str = Depends(database)) -> None:  # wrong
    del word


class Mine(Middleware):
    def before(self, job: str) -> None: ...  # wrong

    def after(self, job: JobContext) -> None: ...  # wrong


def uses() -> None:
    pay.enqueue()  # wrong
    pay.enqueue("5")  # wrong
    Depends(5)  # wrong
    Depends(database, scope="app")  # wrong
    mq.on_startup(5)  # wrong
    mq.on_startup(lambda word: word)  # wrong
    mq.job(on_success=5)  # wrong
    mq.job(on_dead=text)  # wrong
