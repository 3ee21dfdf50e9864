"""What only a client that goes on living can keep (protocol §1, §3, §12.2, §12.5): its node, its sleep, its counts."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from echomq.conformance.desk import FAR_MS, WAIT_S, Desk
from echomq.conformance.scenario import BreachError, scenario
from echomq.identity.minter import minter
from echomq.protocol import jobs
from echomq.protocol.backoff import Fixed
from echomq.protocol.keys import NODE_PREFIX
from echomq.protocol.replies import Claimed
from echomq.runtime import Consumer, Later, Outcome, Retry
from echomq.runtime.telemetry import Telemetry
from echomq.wire.node import LEASE_MS, NodeLease
from echomq.wire.plans import drive_blocking

_SHORT_MS = 50


@scenario("node_replaced", "A node lease is renewed, and replaced when it is lost; its new holder is not touched.")
def _node_replaced(desk: Desk) -> None:
    before = minter.node
    lease = NodeLease("conformance", beat_s=0)

    def kept() -> str:
        drive_blocking(lease.keep(), desk.bench.conn.run)
        return f"{NODE_PREFIX}{lease.node}"

    taken: list[str] = []
    try:
        taken.append(kept())
        desk.raw("PEXPIRE", taken[0], LEASE_MS // 2)
        desk.expect("the node, renewed", kept(), taken[0])
        desk.between("its PTTL", desk.raw("PTTL", taken[0]), LEASE_MS // 2 + 1, LEASE_MS)
        desk.raw("SET", taken[0], "another's", "PX", LEASE_MS)
        taken.append(kept())
        if taken[1] == taken[0]:
            raise BreachError(f"{taken[0]} is held although another has it")
        desk.expect("the node in the minter", f"{NODE_PREFIX}{minter.node}", taken[1])
        desk.expect("what the new holder has written", desk.raw("GET", taken[0]), b"another's")
    finally:
        drive_blocking(lease.give_back(), desk.bench.conn.run)
        desk.bench.delete(taken[:1])
        minter.node = before


@contextmanager
def _silent() -> Generator[None, None, None]:
    """Nobody is told of failures that are part of a scenario."""
    logger = logging.getLogger("echomq")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)


async def _soon(what: str, work: Awaitable[None]) -> None:
    try:
        async with asyncio.timeout(WAIT_S):
            await work
    except TimeoutError:
        raise BreachError(f"{what}: not within {WAIT_S:g} s") from None


@asynccontextmanager
async def _consuming(
    desk: Desk, handler: Callable[[Claimed], Outcome | None], **options: Any
) -> AsyncGenerator[Consumer, None]:
    async def handle(job: Claimed) -> Outcome | None:
        return handler(job)

    consumer = Consumer(desk.bench.dial(), desk.queue, handle, watch=Telemetry(), **options)
    await _soon("a consumer starts", consumer.start())
    try:
        yield consumer
    finally:
        await _soon("a consumer stops", consumer.stop(0))


async def _until(what: str, condition: Callable[[], object]) -> None:
    end = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > end:
            raise BreachError(f"{what}: not within {WAIT_S:g} s")
        await asyncio.sleep(0.002)


@scenario("parked_wakes", "A parked consumer starts work at its token and at the next run-at, long before its beat.")
def _parked_wakes(desk: Desk) -> None:
    seen: list[str] = []

    async def go() -> None:
        async with _consuming(desk, lambda job: seen.append(job.id), beat_ms=FAR_MS) as consumer:
            await _until("the consumer parks", lambda: consumer.parked.count)
            at_once = desk.job()
            await _until("a job with its token is started", lambda: seen == [at_once])
            later = desk.later(delay_ms=_SHORT_MS)
            await _until("a job is started at its run-at", lambda: seen == [at_once, later])

    with _silent():
        desk.bench.loop(go())


@scenario("parked_beats", "Work that an original admits without a token is started within a beat.")
def _parked_beats(desk: Desk) -> None:
    seen: list[str] = []

    async def go() -> None:
        async with _consuming(desk, lambda job: seen.append(job.id), beat_ms=_SHORT_MS) as consumer:
            await _until("the consumer parks", lambda: consumer.parked.count)
            job_id = desk.mint()
            desk.raw("HSET", desk.row_key(job_id), "state", "pending", "attempts", "0", "payload", "p")
            desk.raw("ZADD", desk.keys.pending, 0, job_id)
            await _until("a job without a token is started", lambda: seen == [job_id])

    with _silent():
        desk.bench.loop(go())


@scenario("loops_sweep", "A consumer recovers by the sweep: each lapse is counted, and its own cap buries.")
def _loops_sweep(desk: Desk) -> None:
    seen: list[tuple[str, int]] = []
    first = desk.in_hand().id
    desk.lapse(first)

    async def go(cap: int, ended: Callable[[], object]) -> None:
        async with _consuming(desk, lambda job: seen.append((job.id, job.stalled)), beat_ms=_SHORT_MS, max_stalled=cap):
            await _until(f"a lapse under a cap of {cap} is recovered", ended)

    with _silent():
        desk.bench.loop(go(2, lambda: seen))
        desk.expect("the claim after one lapse", seen, [(first, 1)])
        second = desk.in_hand().id
        desk.lapse(second)
        desk.bench.loop(go(1, lambda: desk.score("dead", second) is not None))
    desk.stands(second, "dead", "dead")
    desk.expect("its error", desk.field(second, "last_error"), b"stalled")


@scenario("budget", "Failures alone spend a job's budget: put off and lapsed, it still fails max_attempts times.")
def _budget(desk: Desk) -> None:
    seen: list[tuple[int, int]] = []
    job = desk.in_hand()
    desk.lapse(job.id)
    desk.run(jobs.sweep(desk.queue, max_stalled=9))

    def handler(job: Claimed) -> Outcome:
        seen.append((job.attempts, job.failures))
        return Later(0) if len(seen) <= 2 else Retry("no")

    async def go() -> None:
        options = {"max_attempts": 2, "retry_delay": Fixed(0), "beat_ms": _SHORT_MS}
        async with _consuming(desk, handler, **options):
            await _until("it is buried", lambda: desk.score("dead", job.id) is not None)

    with _silent():
        desk.bench.loop(go())
    desk.expect("attempts and failures at each claim", seen, [(2, 0), (3, 0), (4, 0), (5, 1)])
    desk.stands(job.id, "dead", "dead")
    desk.expect("failures in the row", desk.field(job.id, "failures"), b"2")
