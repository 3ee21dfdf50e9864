"""Waiting for results: soon, cheap, and whatever happens to the connection, the loop, the thread or the process."""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import threading
import time
import weakref
from datetime import timedelta
from typing import Any

import pytest

from echomq import EchoMQ, Job, State, admin, jobs
from echomq.errors import (
    BlockingCallWarning,
    DisconnectedError,
    JobCancelled,
    JobFailed,
    ResultTimeoutError,
)
from echomq.protocol.checks import MAX_SPAN_MS
from echomq.protocol.keys import keys
from support.desk import until
from support.servers import Server

SOON = timedelta(seconds=40)
HOUR_MS = 3_600_000


def number(mq: EchoMQ) -> Any:
    """A job of the app that gives back its argument."""
    if (known := mq.jobs.get("number")) is not None:
        return known

    @mq.job(name="number")
    async def number(n: int) -> int:
        return n

    return number


async def finish(mq: EchoMQ, queue: str, job: Job[Any], left: bytes = b"1") -> None:
    """Ends a job as a worker would."""
    claimed = await mq.arun(jobs.claim(queue))
    assert claimed is not None
    assert claimed.id == job.id
    await mq.arun(jobs.complete(queue, job.id, claimed.attempts, result=left, result_ttl_ms=HOUR_MS))


def listeners(server: Server, queue: str) -> int:
    with server.client() as client:
        return int(client.execute("PUBSUB", "NUMSUB", keys(queue).results)[1])


async def test_a_result_comes_when_it_is_told_and_not_at_the_next_look(
    mq: EchoMQ, queue: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("echomq.app.waiting.LOOK_S", 3_600.0)
    job = await number(mq).aenqueue(1)
    waiting = asyncio.ensure_future(job.result(SOON))
    await until(lambda: listeners(server, queue))
    await finish(mq, queue, job)
    assert await waiting == 1


async def test_a_thousand_that_wait_cost_one_subscription_and_a_look_a_message(
    mq: EchoMQ, queue: str, server: Server
) -> None:
    sent = await mq.aenqueue_many([number(mq).s(n) for n in range(1_000)])
    with server.client() as client:
        client.execute("CONFIG", "RESETSTAT")
        began = time.monotonic()
        waiting = asyncio.gather(*[job.result() for job in sent])
        await until(lambda: listeners(server, queue))
        while claimed := (await mq.arun(jobs.claim_many(queue, 50))).jobs:
            done = [jobs.Finished(job.id, job.attempts, b"7", HOUR_MS) for job in claimed]
            await mq.arun(jobs.complete_many(queue, done))
        assert await waiting == [7] * 1_000
        took, counted = time.monotonic() - began, client.calls()
    assert counted["subscribe"] == 1
    assert counted["publish"] == 20
    # The first, one for each message, and one a second; a look reads all that it is about at once.
    assert counted["mget"] <= 1 + 20 + took + 1


async def test_a_thousand_that_wait_for_nothing_cost_one_look_a_second(mq: EchoMQ, queue: str, server: Server) -> None:
    sent = await mq.aenqueue_many([number(mq).s(n) for n in range(1_000)])
    waiting = [asyncio.ensure_future(job.result()) for job in sent]
    with server.client() as client:
        await until(lambda: listeners(server, queue))
        client.execute("CONFIG", "RESETSTAT")
        began = time.monotonic()
        await until(lambda: client.calls().get("mget", 0) >= 3)
        took, counted = time.monotonic() - began, client.calls()
    assert took > 1
    assert counted["mget"] <= took + 2
    assert not counted.keys() & {"subscribe", "unsubscribe", "publish", "get"}
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)


async def test_a_lost_message_costs_a_second_at_most(
    mq: EchoMQ, queue: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await number(mq).aenqueue(1)
    waiting = asyncio.ensure_future(job.result(SOON))
    await until(lambda: listeners(server, queue))
    # Whoever listens is not let: as if the message had been lost.
    monkeypatch.setattr("echomq.app.waiting.ids_in", lambda data: [])
    await finish(mq, queue, job)
    assert await waiting == 1


async def test_a_result_comes_though_the_connection_is_killed_while_it_is_waited_for(
    mq: EchoMQ, queue: str, server: Server
) -> None:
    send = number(mq)
    for _ in range(3):
        job = await send.aenqueue(1)
        waiting = asyncio.ensure_future(job.result(SOON))
        await until(lambda: listeners(server, queue))
        with server.client() as client:
            client.execute("CLIENT", "KILL", "TYPE", "pubsub", "SKIPME", "yes")
        await until(lambda: listeners(server, queue))
        await finish(mq, queue, job)
        assert await waiting == 1


async def test_where_nobody_may_listen_results_come_all_the_same(
    queue: str, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    with server.client() as client:
        client.execute("ACL", "SETUSER", "deaf", "on", ">word", "~*", "+@all", "resetchannels")
    try:
        address = server.url.replace("://", "://deaf:word@", 1)
        async with EchoMQ(address, default_queue=queue) as mq:
            job = await number(mq).aenqueue(1)
            waiting = asyncio.ensure_future(job.result(SOON))
            await until(lambda: "nobody may listen" in caplog.text)
            await finish(mq, queue, job)
            assert await waiting == 1
    finally:
        with server.client() as client:
            client.execute("ACL", "DELUSER", "deaf")


async def test_a_time_that_is_over_says_where_the_job_is_and_leaves_it_alone(mq: EchoMQ, queue: str) -> None:
    job = await number(mq).aenqueue(1)
    for timeout in (timedelta(milliseconds=1), timedelta(0), timedelta(milliseconds=50)):
        with pytest.raises(ResultTimeoutError, match=f"{job.id} .*has not ended after .* s: it is pending") as caught:
            await job.result(timeout)
        assert caught.value.state is State.PENDING
        assert isinstance(caught.value, TimeoutError)
        with pytest.raises(ResultTimeoutError, match="pending"):
            await asyncio.to_thread(job.get, timeout)
    claimed = await mq.arun(jobs.claim(queue))
    assert claimed is not None
    with pytest.raises(ResultTimeoutError) as caught:
        await job.result(timedelta(0))
    assert caught.value.state is State.ACTIVE


async def test_who_gives_up_leaves_nothing_behind_and_others_wait_on(mq: EchoMQ, queue: str, server: Server) -> None:
    job = await number(mq).aenqueue(1)
    waiting = [asyncio.ensure_future(job.result()) for _ in range(3)]
    await until(lambda: listeners(server, queue))
    for task in waiting[:2]:
        task.cancel()
    await asyncio.wait(waiting[:2])
    await finish(mq, queue, job)
    assert await waiting[2] == 1


async def test_the_subscription_ends_when_nobody_waits_for_a_while(
    mq: EchoMQ, queue: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("echomq.app.waiting.LINGER_S", 0.05)
    for _ in range(2):
        job = await number(mq).aenqueue(1)
        waiting = asyncio.ensure_future(job.result())
        await until(lambda: listeners(server, queue))
        waiting.cancel()
        await until(lambda: not listeners(server, queue))
        await finish(mq, queue, job)
        assert await job.result() == 1
    await until(lambda: not any("echomq" in task.get_name() for task in asyncio.all_tasks()))


async def test_ten_thousand_handles_and_waits_leave_nothing(mq: EchoMQ, queue: str) -> None:
    job = await number(mq).aenqueue(1)
    await finish(mq, queue, job)
    handles = [number(mq).handle(job.id) for _ in range(10_000)]
    assert await asyncio.gather(*[each.result(SOON) for each in handles]) == [1] * 10_000
    hub = await mq.ground.connections.waiting()
    assert [desk._waits for desk in hub._desks.values()] == [{}]
    assert [desk._due for desk in hub._desks.values()] == [{}]
    gc.collect()
    assert sum(isinstance(each, asyncio.Future) and not each.done() for each in gc.get_objects()) < 50


async def test_whoever_waits_when_all_is_closed_is_told(mq: EchoMQ, queue: str, server: Server) -> None:
    job = await number(mq).aenqueue(1)
    waiting = asyncio.ensure_future(job.result())
    blocked = asyncio.ensure_future(asyncio.to_thread(job.get))
    await until(lambda: listeners(server, queue) == 2)
    await mq.aclose()
    for each in (waiting, blocked):
        with pytest.raises(DisconnectedError, match="closed while"):
            await each
    # And a later wait opens everything again.
    await finish(mq, queue, job)
    assert await job.result(SOON) == 1
    assert await asyncio.to_thread(job.get, SOON) == 1


def test_threads_share_one_connection_and_one_thread(mq: EchoMQ, queue: str, server: Server) -> None:
    sent = [number(mq).enqueue(n) for n in range(20)]
    results: dict[int, int] = {}

    def wait(n: int) -> None:
        results[n] = sent[n].get(SOON)

    before = threading.active_count()
    threads = [threading.Thread(target=wait, args=(n,)) for n in range(20)]
    for thread in threads:
        thread.start()
    while not listeners(server, queue):
        time.sleep(0.005)
    assert threading.active_count() <= before + len(threads) + 1
    assert listeners(server, queue) == 1
    for claimed in mq.run(jobs.claim_many(queue, 20)).jobs:
        mq.run(jobs.complete(queue, claimed.id, claimed.attempts, result=b"3", result_ttl_ms=HOUR_MS))
    for thread in threads:
        thread.join(40)
    assert results == dict.fromkeys(range(20), 3)
    mq.close()
    assert threading.active_count() == before


def test_a_result_that_is_there_costs_one_command_and_no_thread(mq: EchoMQ, queue: str, server: Server) -> None:
    job = number(mq).enqueue(1)
    (claimed,) = mq.run(jobs.claim_many(queue, 1)).jobs
    mq.run(jobs.complete(queue, claimed.id, claimed.attempts, result=b"1", result_ttl_ms=HOUR_MS))
    before = threading.active_count()
    assert job.get() == 1
    assert threading.active_count() == before
    assert listeners(server, queue) == 0


def test_loops_one_after_the_other_and_at_once(mq: EchoMQ, queue: str) -> None:
    job = number(mq).enqueue(1)
    (claimed,) = mq.run(jobs.claim_many(queue, 1)).jobs

    async def wait() -> int:
        got: int = await job.result(SOON)
        return got

    got = list[int]()
    threads = [threading.Thread(target=lambda: got.append(asyncio.run(wait()))) for _ in range(3)]
    for thread in threads:
        thread.start()
    mq.run(jobs.complete(queue, claimed.id, claimed.attempts, result=b"1", result_ttl_ms=HOUR_MS))
    for thread in threads:
        thread.join(40)
    assert [*got, asyncio.run(wait()), asyncio.run(wait())] == [1] * 5


def test_nothing_is_kept_for_loops_that_have_ended(mq: EchoMQ) -> None:
    loops = list[weakref.ref[Any]]()

    async def use() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        with pytest.raises(ResultTimeoutError):
            await job.result(timedelta(milliseconds=1))

    job = number(mq).enqueue(1)
    for _ in range(5):
        asyncio.run(use())
    gc.collect()
    assert sum(loop() is not None for loop in loops) <= 1, "the last one goes with the next"


def test_a_forked_child_waits_for_itself(mq: EchoMQ, queue: str, server: Server) -> None:
    job = number(mq).enqueue(1)
    with pytest.raises(ResultTimeoutError):
        job.get(timedelta(milliseconds=20))  # a thread and a connection of the parent's
    reading, writing = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            os.write(writing, b"%d" % job.get(SOON))
        finally:
            os._exit(0)
    os.close(writing)
    while listeners(server, queue) < 2:
        time.sleep(0.005)
    (claimed,) = mq.run(jobs.claim_many(queue, 1)).jobs
    mq.run(jobs.complete(queue, claimed.id, claimed.attempts, result=b"5", result_ttl_ms=HOUR_MS))
    with os.fdopen(reading, "rb") as answer:
        assert answer.read() == b"5"
    os.waitpid(pid, 0)
    assert job.get(SOON) == 5


async def test_a_failure_has_the_text_of_the_workers_traceback(mq: EchoMQ, working) -> None:
    @mq.job(name="fails", max_attempts=2, backoff=lambda failures: 1)
    async def fails(what: str) -> int:
        raise ValueError(f"no\n{what}")

    async with working():
        job = await fails.aenqueue("way")
        with pytest.raises(JobFailed, match=rf"job {job.id} \(fails\) of .* failed at attempt 2: ValueError: no\nway"):
            await job.result(SOON)
        with pytest.raises(JobFailed) as caught:
            await asyncio.to_thread(job.get)
    error = caught.value
    assert type(error) is JobFailed
    assert (error.id, error.name, error.queue, error.attempt) == (job.id, "fails", job.queue, 2)
    assert error.error == "ValueError: no\nway"
    assert 'raise ValueError(f"no\\n{what}")' in error.traceback
    assert error.traceback in "".join(error.__notes__)


def test_errors_can_be_handed_to_another_process() -> None:
    for error in (JobFailed("JOB1", "n", "q", 2, 'V: no\n  File "x"'), JobCancelled("JOB1", "", "q", 0, "cancelled")):
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error)
        assert (str(again), again.traceback, again.attempt) == (str(error), error.traceback, error.attempt)
    late = pickle.loads(pickle.dumps(ResultTimeoutError("late", State.ACTIVE)))
    assert (str(late), late.state) == ("late", State.ACTIVE)


async def test_the_longest_span_is_waited_for(mq: EchoMQ, queue: str, server: Server) -> None:
    job = await number(mq).aenqueue(1)
    most = timedelta(milliseconds=MAX_SPAN_MS)
    waiting = asyncio.gather(job.result(most), asyncio.to_thread(job.get, most))
    await until(lambda: listeners(server, queue) == 2)
    await finish(mq, queue, job)
    assert await waiting == [1, 1]


async def test_a_cancelled_job_says_so_whether_it_ran_or_not(mq: EchoMQ, working) -> None:
    started = asyncio.Event()

    @mq.job(name="long")
    async def long() -> None:
        started.set()
        await asyncio.Event().wait()

    waits = await long.aenqueue()
    waiting = asyncio.ensure_future(waits.result(SOON))
    await waits.acancel("no longer wanted")
    with pytest.raises(JobCancelled, match=r"was cancelled: cancelled: no longer wanted") as caught:
        await waiting
    assert isinstance(caught.value, JobFailed)
    assert caught.value.traceback == ""
    async with working():
        runs = await long.aenqueue()
        await started.wait()
        waiting = asyncio.ensure_future(runs.result(SOON))
        await runs.acancel()
        with pytest.raises(JobCancelled):
            await waiting


async def test_a_job_that_lapsed_too_often_has_failed_at_the_attempt_that_it_had_begun(mq: EchoMQ, queue: str) -> None:
    job = await number(mq).aenqueue(1)
    waiting = asyncio.ensure_future(job.result(SOON))
    await mq.arun(jobs.claim_many(queue, 1, lease_ms=1))

    async def swept() -> bool:
        return bool((await mq.arun(jobs.sweep(queue, max_stalled=1))).dead)

    await until(swept)
    with pytest.raises(JobFailed, match="failed at attempt 1: stalled") as caught:
        await waiting
    assert caught.value.attempt == 1


async def test_a_job_that_is_tried_again_by_hand_can_be_waited_for_again(mq: EchoMQ, queue: str) -> None:
    job = await number(mq).aenqueue(1)
    await job.acancel()
    with pytest.raises(JobCancelled):
        await job.result(SOON)
    await mq.arun(admin.reprocess_job(queue, job.id))
    waiting = asyncio.ensure_future(job.result(SOON))
    await finish(mq, queue, job)
    assert await waiting == 1


async def test_blocking_on_a_running_loop_warns(mq: EchoMQ, queue: str) -> None:
    job = await number(mq).aenqueue(1)
    said = r"get\(\) blocks the running event loop .*; await result\(\) instead"
    with pytest.raises(ResultTimeoutError), pytest.warns(BlockingCallWarning, match=said):
        job.get(timedelta(0))
