"""A supervisor keeps its workers: it replaces what ends, hands on what it is told, and leaves nobody behind."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from inspect import signature
from pathlib import Path

import pytest

from echomq import EchoMQ, InvalidInputError, Job, Supervisor, Worker, metrics
from echomq.app.worker import WorkerWords
from echomq.protocol import workers as registry
from echomq.protocol.replies import Counts, State
from support.embedded import alive
from support.program import NOTING, Process, Start, noted, starting
from support.servers import Server, wait_until

TASKS = (
    NOTING
    + """
@mq.job(name="work")
async def work(number: int, seconds: float = 0.0) -> None:
    note("begun", number)
    await asyncio.sleep(seconds)
    note("done", number)

@mq.job(name="hang", timeout=timedelta(milliseconds=100), max_attempts=1)
def hang(number: int) -> None:
    note("begun", number)
    time.sleep(600)

@mq.job(name="hoard")
def hoard(number: int) -> None:
    note("begun", number)
    sys.hoarded = bytearray(os.urandom(1)) * 300_000_000

if (here / "crash").exists():
    os.abort()
"""
)


@pytest.fixture
def start(tmp_path: Path, server: Server, queue: str) -> Iterator[Start]:
    with starting(tmp_path, TASKS, server, queue, signal.SIGTERM) as start:
        yield start


@pytest.fixture
def app(mq: EchoMQ) -> EchoMQ:
    """The tasks above by their names, to be sent."""
    mq.job(name="work")(lambda number, seconds=0.0: None)
    for name in ("hoard", "hang"):
        mq.job(name=name)(lambda number: None)
    return mq


def seen(mq: EchoMQ, queue: str) -> set[int]:
    """The workers in the registry, by their processes."""
    return {int(each.name.split(":")[1]) for each in mq.run(registry.seen(queue))}


def serving(process: Process, mq: EchoMQ, queue: str, count: int) -> set[int]:
    """The workers, once there are so many and no other."""
    wait_until(lambda: len(seen(mq, queue)) == count, seconds=40, what=f"{count} workers")
    return seen(mq, queue)


def test_each_process_is_a_worker_of_its_own_and_all_end_with_one_signal(start: Start, app: EchoMQ, queue: str) -> None:
    process = start("--processes", "3")
    pids = serving(process, app, queue, 3)
    assert pids == set(process.workers())
    assert process.process.pid not in pids
    process.signal(signal.SIGTERM)
    assert process.wait() == 0
    assert seen(app, queue) == set()


def test_one_that_is_killed_is_replaced(start: Start, app: EchoMQ, queue: str) -> None:
    process = start("--processes", "2")
    first, second = serving(process, app, queue, 2)
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: len(seen(app, queue)) == 3, seconds=40, what="another worker")
    assert "ended with SIGKILL after" in process.log
    assert second in process.workers()
    assert alive(second)


def test_one_that_keeps_dying_is_started_ever_more_slowly(start: Start, tmp_path: Path) -> None:
    (tmp_path / "crash").touch()
    process = start("--processes", "2")
    wait_until(lambda: "another one is started in 2000 ms" in process.log, seconds=50, what="three deaths")
    waits = [line.rpartition(" in ")[2] for line in process.log.splitlines() if "another one is started" in line]
    assert waits == ["500 ms", "1000 ms", "2000 ms"]
    assert "ended with SIGABRT" in process.log
    assert "3 times in a row" in process.log
    assert len(process.workers()) == 3, "the second one waits until the first can begin"
    process.signal(signal.SIGTERM)
    assert process.wait() == 0


def test_a_first_signal_gives_jobs_their_grace_and_a_second_hands_them_back(
    start: Start, app: EchoMQ, queue: str, tmp_path: Path
) -> None:
    process = start("--processes", "2", "--concurrency", "1")
    short, long = app.jobs["work"].enqueue(1, 1.5), app.jobs["work"].enqueue(2, 600)
    wait_until(lambda: len(noted(tmp_path / "begun")) == 2, seconds=40, what="both jobs")
    process.signal(signal.SIGINT)
    wait_until(lambda: app.run(metrics.state(queue, short.id)) is State.ABSENT, what="the end of the short one")
    assert app.run(metrics.state(queue, long.id)) is State.ACTIVE
    process.signal(signal.SIGTERM)
    assert process.wait() == 0
    row = app.run(metrics.row(queue, long.id))
    assert (row["state"], row.get("failures", b"0"), row.get("stalled", b"0")) == (b"pending", b"0", b"0")


def test_workers_end_when_their_supervisor_is_killed_and_finish_what_they_have(
    start: Start, app: EchoMQ, queue: str, tmp_path: Path
) -> None:
    process = start("--processes", "2")
    serving(process, app, queue, 2)
    job = app.jobs["work"].enqueue(1, 1.0)
    wait_until(lambda: noted(tmp_path / "begun"), what="the job")
    process.signal(signal.SIGKILL)
    wait_until(lambda: not any(map(alive, process.workers())), seconds=20, what="the end of the workers")
    assert app.run(metrics.state(queue, job.id)) is State.ABSENT
    assert seen(app, queue) == set()


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--queue", "nowhere"), 2, "no job is in queue 'nowhere'"),
        (("--queue", "mail=much"), 2, "'much' is no weight"),
        (("--url", "valkey://localhost:1"), 1, "cannot connect to localhost:1"),
    ],
)
def test_what_no_worker_can_begin_with_is_said_once(start: Start, options, code: int, said: str) -> None:
    process = start("--processes", "3", "--log-level", "error", *options)
    assert process.wait() == code
    (line,) = process.log.strip().splitlines()
    assert said in line


def test_a_burst_ends_when_all_have_found_nothing(start: Start, app: EchoMQ, tmp_path: Path) -> None:
    for number in range(40):
        app.jobs["work"].enqueue(number, 0.05)
    assert start("--processes", "2", "--burst", "--concurrency", "2").wait() == 0
    assert Counter(number for number, _ in noted(tmp_path / "done")) == Counter(range(40))


def test_a_worker_ends_after_its_jobs_and_is_replaced(start: Start, app: EchoMQ, tmp_path: Path) -> None:
    for number in range(7):
        app.jobs["work"].enqueue(number, 0.01)
    assert start("--max-jobs", "3", "--burst").wait(50) == 0
    assert sorted(Counter(pid for _, pid in noted(tmp_path / "done")).values()) == [1, 3, 3]


def test_a_worker_with_too_much_memory_is_replaced_when_its_hands_are_empty(
    start: Start, app: EchoMQ, queue: str, tmp_path: Path
) -> None:
    process = start("--max-rss", "250M", "--concurrency", "2")
    slow = app.jobs["work"].enqueue(0, 2.0)
    wait_until(lambda: noted(tmp_path / "begun"), seconds=40, what="a worker")
    app.jobs["hoard"].enqueue(1)
    wait_until(lambda: "MB are allowed: it ends what it has in hand" in process.log, seconds=20, what="the memory")
    app.jobs["work"].enqueue(2)
    wait_until(lambda: len(noted(tmp_path / "done")) == 2, seconds=40, what="the job in another process")
    (first, old), (second, new) = noted(tmp_path / "done")
    assert (first, second) == (0, 2)
    assert old != new
    assert app.run(metrics.state(queue, slow.id)) is State.ABSENT
    assert "and is replaced" in process.log


def test_a_worker_whose_slots_are_all_held_past_their_time_is_replaced(
    start: Start, app: EchoMQ, queue: str, tmp_path: Path
) -> None:
    process = start("--max-jobs", "1000", "--concurrency", "2")
    for number in range(2):
        app.jobs["hang"].enqueue(number)
    app.jobs["work"].enqueue(2)
    wait_until(lambda: noted(tmp_path / "done"), seconds=40, what="the job that waits for a slot")
    (_, old), *_ = noted(tmp_path / "begun")
    ((number, new),) = noted(tmp_path / "done")
    assert (number, old != new) == (2, True)
    assert "all its slots are held by functions that go on past their time" in process.log
    ended = Counts(0, 0, 0, dead=2, completed=1, failed=2)
    wait_until(lambda: app.run(metrics.counts(queue)) == ended, what="the three ends")


def test_sighup_replaces_the_workers_one_after_another(start: Start, app: EchoMQ, queue: str) -> None:
    process = start("--processes", "2")
    before = serving(process, app, queue, 2)
    process.signal(signal.SIGHUP)
    wait_until(lambda: process.log.count("and is replaced") == 2, seconds=40, what="two ends")
    after = serving(process, app, queue, 2)
    assert not before & after
    replaced = [n for n, line in enumerate(process.log.splitlines()) if "and is replaced" in line]
    assert any("serving" in line for line in process.log.splitlines()[replaced[0] : replaced[1]])


def test_a_change_starts_the_workers_anew_and_a_mistake_waits_for_the_next(
    start: Start, app: EchoMQ, queue: str, tmp_path: Path
) -> None:
    process = start("--reload")
    (first,) = serving(process, app, queue, 1)
    (tmp_path / "tasks.py").write_text("1 / 0")
    wait_until(lambda: "waiting for a change" in process.log, seconds=30, what="the mistake")
    assert "ZeroDivisionError" in process.log
    assert not alive(first)
    (tmp_path / "tasks.py").write_text(TASKS.replace('note("done", number)', 'note("changed", number)'))
    app.jobs["work"].enqueue(1)
    wait_until(lambda: noted(tmp_path / "changed"), seconds=30, what="the new code")


@pytest.mark.chaos
@pytest.mark.deadline(150)
def test_sigterm_under_load_loses_nothing_runs_nothing_twice_and_spends_no_attempt(
    start: Start, app: EchoMQ, queue: str, tmp_path: Path
) -> None:
    jobs: list[Job[None]] = []
    done: list[tuple[int, int]] = []
    work = app.jobs["work"]
    for _ in range(3):
        numbers = range(len(jobs), total := len(jobs) + 1_500)
        jobs += app.enqueue_many(work.s(number, 0.003 * (number % 20)) for number in numbers)
        process = start("--processes", "2", "--concurrency", "40", "--grace", "20", "--log-level", "warning")
        # Counted from here: before it has run a job it may not hear signals yet.
        enough = len(done) + 250
        wait_until(lambda n=enough: len(noted(tmp_path / "done")) > n, seconds=40, what="some of the jobs")
        process.signal(signal.SIGTERM)
        assert process.wait() == 0
        begun, done = noted(tmp_path / "begun"), noted(tmp_path / "done")
        assert Counter(begun) == Counter(done), "whatever had begun has ended"
        counts = app.run(metrics.counts(queue))
        assert counts == Counts(total - len(done), 0, 0, 0, completed=len(done), failed=0)
    assert len(done) < total, "no signal came while there was work"
    assert max(Counter(number for number, _ in done).values()) == 1
    for job in jobs:
        row = app.run(metrics.row(queue, job.id))
        assert not row or (row.get("failures", b"0"), row.get("stalled", b"0")) == (b"0", b"0")


def test_its_options_are_those_of_a_worker() -> None:
    own = set(signature(Worker).parameters) - {"mq", "address"}
    assert own == set(WorkerWords.__annotations__)


def test_what_is_wrong_is_refused_where_it_is_written(mq: EchoMQ) -> None:
    mq.job(name="work")(lambda: None)
    with pytest.raises(InvalidInputError, match="only as a global of a module"):
        Supervisor(mq)
    with pytest.raises(InvalidInputError, match="processes must be from 1 to 1000, not 0"):
        Supervisor("tasks:mq", processes=0)
    with pytest.raises(InvalidInputError, match="leave one of them out"):
        Supervisor("tasks:mq", reload=True, burst=True)


def test_in_a_program_it_is_stopped_from_any_thread(
    server: Server, app: EchoMQ, queue: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "tasks_" + queue.replace("-", "_")
    (tmp_path / f"{name}.py").write_text(TASKS)
    monkeypatch.setenv("ECHOMQ_URL", server.url)
    monkeypatch.setenv("QUEUE", queue)
    monkeypatch.syspath_prepend(tmp_path)
    supervisor = Supervisor(f"{name}:mq", processes=1, grace=timedelta(seconds=5))
    thread = threading.Thread(target=supervisor.run)
    thread.start()
    app.jobs["work"].enqueue(1)
    wait_until(lambda: noted(tmp_path / "done"), seconds=40, what="the job")
    (pid,) = supervisor.pids()
    supervisor.stop()
    thread.join(40)
    assert not thread.is_alive()
    assert not alive(pid)
