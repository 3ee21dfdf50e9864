"""`mq.testing()`: an app on a server for one test, and back where it was."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from echomq import EchoMQ, State, Worker, current_job, jobs, metrics
from echomq.errors import ConnectError, InvalidInputError, NotTestingError
from echomq.protocol.discover import queues
from echomq.testing import Throwaway
from support.desk import until
from support.embedded import alive, is_gone, server_pid
from support.servers import Server, wait_until


def make() -> tuple[EchoMQ, list[str]]:
    mq, ran = EchoMQ("valkey://localhost:1"), list[str]()

    @mq.job(queue="mail", name="send")
    def send(to: str) -> str:
        ran.append(to)
        return to

    return mq, ran


def home_of(url: str) -> Path:
    return Path(urlsplit(url).path).parent


def test_a_block_has_a_server_of_its_own_and_leaves_nothing_behind() -> None:
    mq, ran = make()
    before = repr(mq)
    with mq.testing() as trial:
        home = home_of(trial.url)
        pid = server_pid(home)
        job = mq.jobs["send"].enqueue("ada")
        assert job.queue == "mail"
        mq.drain_blocking()
        assert job.get() == "ada"
    assert ran == ["ada"]
    assert repr(mq) == before
    assert is_gone(home)
    assert not alive(pid)
    assert not home.exists()
    with pytest.raises(ConnectError):
        mq.jobs["send"].enqueue("eve")


def test_a_failure_inside_ends_the_server_too() -> None:
    mq, _ = make()
    with pytest.raises(RuntimeError, match="mine"), mq.testing() as trial:  # noqa: PT012  (the block is the point)
        home = home_of(trial.url)
        raise RuntimeError("mine")
    assert not home.exists()
    with pytest.raises(NotTestingError):
        mq.enqueued()


async def test_it_can_be_awaited() -> None:
    mq, ran = make()
    send = mq.jobs["send"]
    async with mq.testing() as trial:
        home = home_of(trial.url)
        handles = await asyncio.gather(*(send.aenqueue(str(n)) for n in range(20)))
        assert (await mq.drain()).completed == 20
        assert await asyncio.gather(*(each.result() for each in handles)) == [str(n) for n in range(20)]
    assert sorted(ran, key=int) == [str(n) for n in range(20)]
    assert not home.exists()


async def test_one_that_is_cancelled_while_it_opens_leaves_no_server() -> None:
    mq, _ = make()
    trial = mq.testing()
    opening = asyncio.ensure_future(trial.__aenter__())
    await until(lambda: mq.ground.trial is not None)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert mq.ground.trial is None
    with pytest.raises(InvalidInputError, match="does not run"):
        assert trial.url


def test_what_is_for_tests_is_refused_elsewhere() -> None:
    mq, _ = make()
    for use in (
        lambda: mq.clock,
        mq.enqueued,
        mq.drain_blocking,
        lambda: mq.assert_enqueued("send"),
        lambda: mq.assert_not_enqueued("send"),
    ):
        with pytest.raises(NotTestingError, match=r"use it inside of `with mq\.testing\(\):`"):
            use()


def test_a_block_is_used_once_and_blocks_may_nest() -> None:
    mq, _ = make()
    send = mq.jobs["send"]
    with Throwaway() as one, Throwaway() as other, mq.testing(one) as outer:
        send.enqueue("outer")
        with mq.testing(other):
            assert mq.enqueued() == []
            send.enqueue("inner")
        assert [job.args for job in mq.enqueued()] == [("outer",)]
        with pytest.raises(InvalidInputError, match="begin another one"):
            outer.__enter__()
        assert mq.ground.trial is outer


def test_another_server_during_the_test_is_forgotten_at_its_end(server: Server) -> None:
    mq, _ = make()
    before = repr(mq)
    with mq.testing():
        mq.use_server(server.url)
        assert repr(mq) != before
    assert repr(mq) == before


def test_a_throwaway_server_is_empty_for_each_test() -> None:
    mq, ran = make()
    send = mq.jobs["send"]
    with Throwaway() as server:
        for n in range(3):
            with mq.testing(server) as trial:
                assert trial.url == server.url
                assert mq.enqueued() == []
                send.options(lane="acme", dedup="k").enqueue(str(n))
                send.every(hours=1, name="hourly").register("x")
                assert mq.connection().run(metrics.counts("mail")).pending == 0
        home = home_of(server.url)
    assert not home.exists()
    assert ran == []


def test_two_apps_may_share_a_throwaway_server_in_one_test() -> None:
    one, ran = make()
    other, also_ran = make()
    with Throwaway() as server:
        with one.testing(server), other.testing(server):
            one.jobs["send"].enqueue("one")
            other.jobs["send"].enqueue("other")
            assert [job.args for job in one.enqueued()] == [("one",)]
            assert [job.args for job in other.enqueued()] == [("other",)]
            assert one.drain_blocking().completed == 1
            assert (ran, also_ran) == (["one"], [])
            with one.testing(server):
                one.jobs["send"].enqueue("inner")
                assert one.drain_blocking().completed == 1
            assert other.drain_blocking().completed == 1
        with EchoMQ(server.url) as anybody:
            assert anybody.run(queues()) == ()


async def test_a_plain_block_in_a_coroutine_closes_what_its_loop_has_opened() -> None:
    mq, _ = make()
    with mq.testing():
        await mq.jobs["send"].aenqueue("ada")
        conn = await mq.aconnection()
    await until(lambda: "closed" in repr(conn))


def test_apps_with_other_fences_follow_each_other_on_one_server() -> None:
    with Throwaway() as server:
        for fence in ("echomq:4.0.0", "mine:1"):
            with EchoMQ(fence=fence).testing(server) as trial:
                trial.mq.run(jobs.pending_size("default"))


def test_a_server_outlives_no_killed_process(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.environ["ECHOMQ_IDLE_SECONDS"] = "0.2"
        server = Throwaway().start()
        os.write(writing, server.url.encode())
        signal.pause()
    home = home_of(os.read(reading, 1_000).decode())
    assert not is_gone(home)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(reading)
    os.close(writing)
    wait_until(lambda: is_gone(home), what="the end of the server")
    for each in sorted(home.rglob("*"), reverse=True):
        each.unlink() if not each.is_dir() else each.rmdir()
    home.rmdir()


@pytest.mark.parametrize("own", [True, False])
def test_a_forked_child_that_leaves_the_block_takes_nothing_along(server: Server, *, own: bool) -> None:
    mq, ran = make()
    with mq.testing(None if own else server.url):
        mq.jobs["send"].enqueue("ada")
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(BaseException):
                mq.ground.trial.__exit__(None, None, None)  # type: ignore[union-attr]
                gc.collect()
            os._exit(0 if mq.ground.trial is None else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert [job.args for job in mq.enqueued()] == [("ada",)]
        mq.drain_blocking()
    assert ran == ["ada"]


def test_one_that_is_never_stopped_ends_with_its_process() -> None:
    program = "from echomq.testing import Throwaway; server = Throwaway().start(); print(server.url)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=50)
    assert not home_of(done.stdout.strip()).exists()


@pytest.mark.filterwarnings("ignore::echomq.errors.UndeclaredQueueWarning")
def test_a_given_server_keeps_what_is_not_the_tests(server: Server) -> None:
    mq, ran = make()
    send = mq.jobs["send"]
    with EchoMQ(server.url) as other:
        other.run(jobs.enqueue("mail", "JOB0NgWEfAEJfs", b"mine"))
        with server.client() as client:
            before = sorted(client.execute("KEYS", "*"))
            with mq.testing(server.url) as trial:
                job = send.enqueue("ada")
                assert job.queue == f"{trial.aside}mail"
                send.options(queue="stray:[x]*", lane="acme").after(hours=1).enqueue("eve")
                assert [each.args for each in mq.enqueued()] == [("ada",), ("eve",)]
                assert mq.drain_blocking().scheduled == 1
                assert job.get() == "ada"
                mq.clock.advance(hours=1)
                mq.drain_blocking()
            assert sorted(client.execute("KEYS", "*")) == before
    assert ran == ["ada", "eve"]


def test_what_was_made_before_the_test_goes_to_its_queues(server: Server) -> None:
    mq = EchoMQ("valkey://localhost:1", prefix="staging")

    @mq.job(queue="mail", name="send")
    def send(to: str) -> None: ...

    elsewhere = send.options(queue="mail")
    call = elsewhere.s("call")
    hourly = elsewhere.every(hours=1, name="hourly")
    lane = mq.lane("acme", queue="mail")
    with mq.testing(server.url) as trial:
        place = f"{trial.aside}staging:mail"
        assert (mq.queues, Worker(mq).queues, mq.queue_name(place), mq.queue_name("mail")) == (
            *((place,), (place,)),
            *(place, place),
        )
        assert elsewhere.enqueue("a").queue == send.enqueue("b").queue == place
        (sent,) = mq.enqueue_many([call])
        hourly.register("c")
        lane.limit(2)

        @mq.job(name="late")
        def late() -> None: ...

        assert {sent.queue, hourly.queue, lane.queue, send.handle(sent.id).queue} == {place}
        assert [info.queue for info in mq.schedules()] == [place]
        assert mq.default_queue == late.queue == f"{trial.aside}staging:default"
    assert (mq.queues, late.queue, hourly.queue) == (
        *(("staging:mail", "staging:default"), "staging:default"),
        "staging:mail",
    )


def test_a_wrong_server_is_said(server: Server) -> None:
    mq, _ = make()
    before = repr(mq)
    with pytest.raises(ConnectError), mq.testing("valkey://localhost:1"):
        pytest.fail("it cannot begin")
    with pytest.raises(InvalidInputError):
        mq.testing(7)  # type: ignore[call-overload]
    assert (repr(mq), mq.ground.trial) == (before, None)


def test_nothing_stays_open(start_server: Callable[..., Server]) -> None:
    mq, _ = make()
    server = start_server()

    def clients() -> int:
        with server.client() as client:
            return len(client.execute("CLIENT", "LIST").splitlines())

    before = clients()
    for _ in range(3):
        with mq.testing(server.url):
            mq.jobs["send"].enqueue("a")
            mq.drain_blocking()
    gc.collect()
    wait_until(lambda: clients() == before, what="the end of the connections")


def test_a_job_in_a_process_of_its_own_is_in_the_test_as_well(server: Server) -> None:
    with mq_in_module.testing(server.url) as trial:
        job = in_process.enqueue(2)
        done = mq_in_module.drain_blocking()
        assert done.completed == 2, done.runs
        assert job.get() == f"{trial.aside}default"
        assert job.state() is State.ABSENT


mq_in_module = EchoMQ("valkey://localhost:1")


@mq_in_module.job(process=True)
def in_process(n: int) -> str:
    other.enqueue(n)
    return current_job().queue


@mq_in_module.job
def other(n: int) -> int:
    return n
