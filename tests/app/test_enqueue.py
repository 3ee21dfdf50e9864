"""Sending: every way admits exactly one job with the envelope of protocol §13, and wrong input sends nothing."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import warnings
from datetime import UTC, datetime, timedelta

import pytest

from echomq import EchoMQ, Job, errors, jobs, metrics, mint
from echomq.app import sending
from echomq.errors import BlockingCallWarning, DisconnectedError
from echomq.protocol.replies import State
from support.apps import ahead
from support.servers import Server


def payload(mq: EchoMQ, job: Job[object]) -> object:
    return json.loads(mq.run(metrics.row(job.queue, job.id))["payload"])


def test_a_job_lies_in_its_queue_with_its_envelope(mq: EchoMQ, queue: str) -> None:
    @mq.job(name="send")
    def send(to: str, *more: int, subject: str = "hi") -> None: ...

    job = send.enqueue("a@b.c", 1, 2, subject="ho")
    assert (job.name, job.queue) == ("send", queue)
    assert payload(mq, job) == {"v": 1, "job": "send", "args": ["a@b.c", 1, 2], "kwargs": {"subject": "ho"}}
    assert mq.run(metrics.state(queue, job.id)) is State.PENDING
    # A default is not sent, so that it may change while jobs wait.
    assert payload(mq, send.enqueue("a@b.c")) == {"v": 1, "job": "send", "args": ["a@b.c"], "kwargs": {}}


async def test_awaited_sends_are_the_same(mq: EchoMQ, queue: str) -> None:
    @mq.job
    async def send(to: str) -> str:
        return to

    sent = await asyncio.gather(*(send.aenqueue(str(i)) for i in range(50)))
    await send.after(minutes=5).aenqueue("later")
    assert len({job.id for job in sent}) == 50
    now = await mq.arun(metrics.counts(queue))
    assert (now.pending, now.schedule) == (50, 1)
    await mq.aclose()


def test_at_and_after_are_on_the_schedule_never_early(mq: EchoMQ, server: Server, queue: str) -> None:
    @mq.job
    def work() -> None: ...

    when = datetime(2040, 1, 1, 12, 0, 0, 500, tzinfo=UTC)
    at = work.at(when).enqueue()
    with server.client() as client:
        before = client.now_ms()
        after = work.after(
            timedelta(minutes=5),
        ).enqueue()
        later = client.now_ms()
        scores = {job.id: float(client.execute("ZSCORE", f"emq:{{{queue}}}:schedule", job.id)) for job in (at, after)}
    assert scores[at.id] == when.replace(microsecond=0).timestamp() * 1_000 + 1
    assert before + 300_000 <= scores[after.id] <= later + 300_000


def test_an_instant_that_has_passed_is_at_once(mq: EchoMQ, queue: str) -> None:
    @mq.job
    def work() -> None: ...

    work.at(datetime(1999, 1, 1, tzinfo=UTC)).enqueue()
    assert mq.run(jobs.promote(queue)) == 1
    assert ahead(mq, queue) == (1, 0)


def test_wrong_input_sends_nothing(mq: EchoMQ, queue: str) -> None:
    @mq.job
    def work(a: int) -> None: ...

    every = work.every(hours=1, name="n")
    for wrong in (work.enqueue, work.after(minutes=1).enqueue, work.at(datetime.now(UTC)).enqueue, every.register):
        with pytest.raises(TypeError):
            wrong()
        with pytest.raises(errors.SerializationError):
            wrong(object())
    assert ahead(mq, queue) == (0, 0)


def test_a_payload_above_the_apps_limit_sends_nothing(server: Server, queue: str) -> None:
    with EchoMQ(server.url, default_queue=queue, max_payload=100) as mq:

        @mq.job(name="big")
        def big(text: str) -> None: ...

        big.enqueue("x" * 40)
        with pytest.raises(errors.PayloadTooLargeError, match=r"job 'big' is \d\d\d bytes; at most 100"):
            big.enqueue("x" * 80)
        assert ahead(mq, queue) == (1, 0)


async def test_enqueue_on_a_running_loop_works_and_warns_once(mq: EchoMQ, queue: str) -> None:
    @mq.job
    def work() -> None: ...

    with pytest.warns(BlockingCallWarning, match="aenqueue") as caught:
        work.enqueue()
    assert caught[0].filename == __file__
    work.enqueue()  # a second warning would be an error
    assert ahead(mq, queue) == (2, 0)


async def test_enqueue_in_a_thread_beside_a_loop_does_not_warn(mq: EchoMQ, queue: str) -> None:
    @mq.job
    def work() -> None: ...

    await asyncio.to_thread(work.enqueue)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        await work.aenqueue()
    assert not caught
    assert ahead(mq, queue) == (2, 0)
    await mq.aclose()


def test_an_id_that_is_taken_is_minted_again(mq: EchoMQ, queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    @mq.job(name="work")
    def work() -> None: ...

    first = work.enqueue()
    ids = iter([first.id, first.id, fresh := mint()])
    monkeypatch.setattr(sending, "mint", lambda: next(ids))
    assert work.enqueue().id == fresh
    assert ahead(mq, queue) == (2, 0)
    monkeypatch.setattr(sending, "mint", lambda: first.id)
    with pytest.raises(errors.EchoMQError, match="100 fresh ids"):
        work.enqueue()


def test_a_send_without_an_answer_names_its_id_and_is_not_repeated(start_server, queue: str) -> None:
    server: Server = start_server(tcp=True)
    with EchoMQ(server.url, default_queue=queue) as mq:

        @mq.job(name="work")
        def work() -> None: ...

        work.enqueue()
        server.freeze()
        errors_seen: list[BaseException] = []

        def send() -> None:
            try:
                work.enqueue()
            except BaseException as error:  # noqa: BLE001
                errors_seen.append(error)

        thread = threading.Thread(target=send)
        thread.start()
        server.kill9()
        thread.join()
        (error,) = errors_seen
        assert isinstance(error, DisconnectedError)
        assert "JOB" in error.__notes__[0]


def test_a_forked_child_sends_for_itself(mq: EchoMQ, queue: str) -> None:
    @mq.job
    def work() -> None: ...

    async def awaited() -> None:
        await work.aenqueue()

    work.enqueue()
    asyncio.run(awaited())
    pid = os.fork()
    if pid == 0:
        try:
            work.enqueue()
            asyncio.run(awaited())
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    work.enqueue()
    assert ahead(mq, queue) == (5, 0)


def test_threads_share_one_connection(mq: EchoMQ, server: Server, queue: str) -> None:
    @mq.job
    def work() -> None: ...

    threads = [threading.Thread(target=lambda: [work.enqueue() for _ in range(20)]) for _ in range(8)]
    with server.client() as client:
        before = len(client.execute("CLIENT", "LIST").splitlines())
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(client.execute("CLIENT", "LIST").splitlines()) == before + 1
    assert ahead(mq, queue) == (160, 0)


def test_a_loop_that_ends_closes_its_connection(mq: EchoMQ, server: Server, queue: str) -> None:
    @mq.job
    def work() -> None: ...

    async def awaited() -> None:
        await asyncio.gather(work.aenqueue(), work.aenqueue())

    with server.client() as client:
        before = len(client.execute("CLIENT", "LIST").splitlines())
        for _ in range(3):
            asyncio.run(awaited())
        assert len(client.execute("CLIENT", "LIST").splitlines()) == before
    assert ahead(mq, queue) == (6, 0)


def test_an_app_that_is_closed_opens_again(mq: EchoMQ, queue: str) -> None:
    @mq.job
    def work() -> None: ...

    work.enqueue()
    mq.close()
    mq.close()
    work.enqueue()
    assert ahead(mq, queue) == (2, 0)


async def test_a_server_that_is_not_there_is_told_and_can_come_back(start_server, queue: str) -> None:
    server: Server = start_server()
    server.kill9()
    mq = EchoMQ(server.url, default_queue=queue)

    @mq.job
    def work() -> None: ...

    for _ in range(2):
        with pytest.raises(errors.ConnectError):
            await work.aenqueue()
    server.start()
    await work.aenqueue()
    await mq.aclose()
