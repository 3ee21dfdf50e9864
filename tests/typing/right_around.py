"""What stands around jobs, as a type checker must accept it; `assert_type` says what it must understand."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import assert_type

from echomq import Depends, EchoMQ, Failure, JobContext, Middleware, Sending, Success

mq = EchoMQ("valkey://localhost")


class Db: ...


def value() -> Db:
    return Db()


async def coroutine() -> Db:
    return Db()


def it() -> Iterator[Db]:
    yield Db()


async def ait() -> AsyncIterator[Db]:
    yield Db()


def gen() -> Generator[Db, None, None]:
    yield Db()


async def agen() -> AsyncGenerator[Db, None]:
    yield Db()


@contextmanager
def cm() -> Generator[Db, None, None]:
    yield Db()


@asynccontextmanager
async def acm() -> AsyncGenerator[Db, None]:
    yield Db()


assert_type(Depends(value), Db)
assert_type(Depends(coroutine), Db)
assert_type(Depends(it), Db)
assert_type(Depends(ait), Db)
assert_type(Depends(gen), Db)
assert_type(Depends(agen), Db)
assert_type(Depends(cm), Db)
assert_type(Depends(acm, scope="worker"), Db)
assert_type(Depends(Db), Db)


@mq.job
async def pay(cents: int, db: Db = Depends(ait)) -> int:
    return cents


pay.enqueue(5)


@mq.middleware
class Mine(Middleware):
    def before(self, job: JobContext) -> None: ...
    async def after(self, job: JobContext, result: object) -> None: ...
    def before_enqueue(self, sending: Sending) -> None:
        sending.meta["a"] = 1


assert_type(mq.middleware(Mine()), Mine)


@mq.on_startup
async def start() -> None: ...
@mq.on_shutdown
def stop() -> None: ...
@mq.lifespan
async def life() -> AsyncIterator[dict[str, object]]:
    yield {}


@mq.job
def done(told: Success) -> None: ...
@mq.job(on_success=done, on_dead="mail.dead", on_failure=None)
def work() -> None: ...
@mq.job
def both(told: Success | Failure) -> None:
    print(told.id)
