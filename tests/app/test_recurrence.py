"""`every(...)` registers by name, says what it did, and its occurrences are ordinary jobs."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from datetime import timedelta

import pytest

from echomq import EchoMQ, errors, repeat
from echomq.app.registering import Registered
from echomq.protocol.repeat import Registration
from support.servers import Server


def test_registering_says_what_it_did(mq: EchoMQ, queue: str) -> None:
    @mq.job
    def digest(whom: str) -> None: ...

    hourly = digest.every(hours=1, name="digest")
    first = hourly.register("all")
    assert (first.verdict, first.kept) == (Registration.REGISTERED, False)
    assert hourly.register("all") == Registered(Registration.UNCHANGED, first.next_run, True)
    assert hourly.register("some") == Registered(Registration.UPDATED, first.next_run, True)
    slower = digest.every(hours=2, name="digest").register("some")
    assert (slower.verdict, slower.kept) == (Registration.UPDATED, False)
    assert mq.run(repeat.count(queue)) == 1
    assert hourly.cancel()
    assert not hourly.cancel()
    assert mq.run(repeat.count(queue)) == 0


async def test_registering_on_a_running_loop_warns(mq: EchoMQ) -> None:
    @mq.job
    def digest() -> None: ...

    with pytest.warns(errors.BlockingCallWarning, match="await aregister") as caught:
        digest.every(hours=1, name="digest").register()
    assert caught[0].filename == __file__


async def test_awaited_registration_is_the_same(mq: EchoMQ, queue: str) -> None:
    @mq.job
    def digest(whom: str) -> None: ...

    hourly = digest.every(timedelta(hours=1), name="digest")
    assert (await hourly.aregister("all")).verdict is Registration.REGISTERED
    assert (await hourly.aregister("all")).verdict is Registration.UNCHANGED
    assert await hourly.acancel()
    await mq.aclose()


@pytest.mark.parametrize(("first_in", "ms"), [(timedelta(0), 0), (timedelta(minutes=5), 300_000)])
def test_the_first_run_is_at_once_or_when_asked_for(
    mq: EchoMQ, server: Server, queue: str, first_in: timedelta, ms: int
) -> None:
    @mq.job
    def digest() -> None: ...

    before = time.time_ns() // 1_000_000
    digest.every(hours=1, name="digest", first_in=first_in).register()
    after = time.time_ns() // 1_000_000
    with server.client() as client:
        score = float(client.execute("ZSCORE", f"emq:{{{queue}}}:repeat", "digest"))
    assert before + ms <= score <= after + ms


WRONG_CLOCK = """
import asyncio, sys
from time import time_ns
from echomq.identity import minter

wrong_ns = int(sys.argv[3]) * 1_000_000_000
minter.time_ns = lambda: time_ns() + wrong_ns
from echomq import EchoMQ, Worker

mq = EchoMQ(sys.argv[1], default_queue=sys.argv[2])

@mq.job
async def digest() -> None:
    print("ran", flush=True)
    worker.stop()

worker = Worker(mq)
digest.every(hours=2, name="digest").register()
worker.run()
"""


@pytest.mark.parametrize("wrong_s", [-3_600, 3_600])
def test_the_first_occurrence_comes_at_once_though_the_clock_of_the_host_is_wrong(
    server: Server, queue: str, wrong_s: int
) -> None:
    words = [sys.executable, "-c", WRONG_CLOCK, server.url, queue, str(wrong_s)]
    assert subprocess.run(words, check=True, timeout=30, capture_output=True, text=True).stdout == "ran\n"


def test_wrong_arguments_register_nothing(mq: EchoMQ, queue: str) -> None:
    @mq.job
    def digest(whom: str) -> None: ...

    with pytest.raises(TypeError):
        digest.every(hours=1, name="digest").register()
    with pytest.raises(errors.SerializationError):
        digest.every(hours=1, name="digest").register(5)
    assert mq.run(repeat.count(queue)) == 0


async def test_a_worker_fires_it_with_its_arguments(mq: EchoMQ, working) -> None:
    seen: asyncio.Queue[tuple[str, int]] = asyncio.Queue()

    @mq.job
    async def tick(text: str, number: int = 0) -> None:
        await seen.put((text, number))

    await tick.every(milliseconds=50, name="tick").aregister("tock", number=7)
    async with working():
        for _ in range(3):
            assert await seen.get() == ("tock", 7)
    await tick.every(milliseconds=50, name="tick").acancel()
    await mq.aclose()
