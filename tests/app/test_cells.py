"""Jobs in processes of their own: they run as elsewhere, they can be killed, and what kills them harms nobody else."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path
from types import ModuleType

import pytest

from echomq import EchoMQ, InvalidInputError, Worker, admin, errors, jobs, metrics, mint
from echomq.app.address import Address
from echomq.app.pool import Pool
from echomq.protocol.replies import Claimed, Counts, State
from echomq.runtime import Done
from support.apps import Rows, burst
from support.desk import until
from support.embedded import alive
from support.program import Process
from support.servers import Server, wait_until

TASKS = """
import asyncio, os, signal, sys, time
from datetime import timedelta
from pathlib import Path
from echomq import EchoMQ, current_job

mq = EchoMQ(os.environ["ECHOMQ_URL"], default_queue=os.environ["QUEUE"])
here = Path(__file__).parent

@mq.job(name="who", process=True)
def who(word: str = "") -> None:
    job = current_job()
    job.progress(f"{job.attempt} {word}")
    with (here / "who").open("a") as file:
        file.write(f"{os.getpid()} {os.getppid()}\\n")

@mq.job(name="gives", process=True)
def gives(n: int) -> dict[str, int]:
    return {"own": n}

@mq.job(name="fails", process=True, max_attempts=1)
def fails() -> None:
    raise ValueError("so not")

@mq.job(name="dies", process=True)
def dies(how: str) -> None:
    if how == "exit":
        os._exit(7)
    os.kill(os.getpid(), int(how))

@mq.job(name="sleeps", process=True, max_attempts=1)
def sleeps(seconds: float) -> None:
    (here / "asleep").write_text(str(os.getpid()))
    time.sleep(seconds)

@mq.job(name="notices", process=True, max_attempts=1)
def notices() -> str:
    (here / "asleep").write_text(str(os.getpid()))
    while not current_job().cancelled:
        time.sleep(0.01)
    return "noticed"

@mq.job(name="exits")
async def exits() -> str:
    async def child() -> None:
        raise SystemExit(3)

    task = asyncio.create_task(child())
    await asyncio.wait({task})
    return type(task.exception()).__name__

@mq.job(name="limited", process=True, max_attempts=1, timeout=timedelta(milliseconds=200))
def limited() -> None:
    (here / "asleep").write_text(str(os.getpid()))
    time.sleep(60)

@mq.job(name="extends", process=True, max_attempts=1, timeout=timedelta(seconds=2))
def extends() -> None:
    current_job().extend(minutes=1)
    time.sleep(2.1)
    (here / "extended").write_text("")

@mq.job(name="late", max_attempts=1, timeout=timedelta(milliseconds=100))
def late() -> None:
    job = current_job()
    while not job.cancelled:
        time.sleep(0.01)
    (here / "noticed").write_text(job.reason)

@mq.job(name="awaits", max_attempts=1, timeout=timedelta(milliseconds=100))
async def awaits() -> None:
    assert current_job().deadline is not None
    await asyncio.sleep(60)
"""


@pytest.fixture
def tasks(tmp_path: Path, server: Server, queue: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The tasks above as a module of this process, which its children can import as well."""
    name = "tasks_" + queue.replace("-", "_")
    (tmp_path / f"{name}.py").write_text(TASKS)
    monkeypatch.setenv("ECHOMQ_URL", server.url)
    monkeypatch.setenv("QUEUE", queue)
    monkeypatch.syspath_prepend(tmp_path)
    module = __import__(name)
    yield module
    module.mq.close()
    del sys.modules[name]


def pids(tmp_path: Path) -> list[tuple[int, int]]:
    return [(int(own), int(parent)) for own, parent in map(str.split, (tmp_path / "who").read_text().splitlines())]


def test_they_run_in_a_few_processes_that_are_used_again(tasks: ModuleType, tmp_path: Path, queue: str) -> None:
    for _ in range(6):
        tasks.who.enqueue("a")
    burst(tasks.mq, pool=2)
    seen = pids(tmp_path)
    assert {parent for _, parent in seen} == {os.getpid()}
    assert 1 <= len({own for own, _ in seen}) <= 2
    assert tasks.mq.run(metrics.counts(queue)) == Counts(0, 0, 0, 0, completed=6, failed=0)
    wait_until(lambda: not any(alive(own) for own, _ in seen), what="the end of the processes")


def test_a_process_is_not_killed_while_its_job_has_given_itself_more_time(
    tasks: ModuleType, tmp_path: Path, queue: str
) -> None:
    tasks.extends.enqueue()
    burst(tasks.mq)
    assert (tmp_path / "extended").exists()
    assert tasks.mq.run(metrics.counts(queue)) == Counts(0, 0, 0, 0, completed=1, failed=0)


def test_a_process_that_has_done_enough_is_replaced(
    tasks: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(6):
        tasks.who.enqueue()
    monkeypatch.setattr(Worker, "_is_worn", lambda worker, cell: cell.jobs >= 2 and cell.rss > 1_000_000)
    burst(tasks.mq, pool=1)
    assert len({own for own, _ in pids(tmp_path)}) == 3


def test_what_they_return_is_their_result(tasks: ModuleType) -> None:
    job = tasks.gives.enqueue(5)
    burst(tasks.mq)
    assert job.get(timedelta(seconds=20)) == {"own": 5}


def test_a_failure_is_the_jobs_own(tasks: ModuleType, dead_rows: Rows) -> None:
    tasks.fails.enqueue()
    burst(tasks.mq)
    (row,) = dead_rows()
    assert row["last_error"].startswith(b"ValueError: so not\n")
    assert row["failures"] == b"1"


@pytest.mark.parametrize(
    ("how", "said"), [("exit", "exit code 7"), (str(int(signal.SIGKILL)), "SIGKILL"), ("11", "SIGSEGV")]
)
def test_what_kills_its_process_is_buried_with_the_reason(
    tasks: ModuleType, dead_rows: Rows, queue: str, how: str, said: str
) -> None:
    killer = tasks.dies.enqueue(how)
    others = [tasks.who.enqueue() for _ in range(5)]
    burst(tasks.mq, pool=1)
    (row,) = dead_rows()
    assert (row["last_error"], row["stalled"], row["attempts"]) == (b"stalled", b"3", b"3")
    assert row.get("failures", b"0") == b"0"
    ways = [f"lapse {lapse}: its process ended with {said}" for lapse in (1, 2, 3)]
    assert list(tasks.mq.run(admin.logs(queue, killer.id))) == ways
    assert all(tasks.mq.run(metrics.state(queue, each.id)) is State.ABSENT for each in others)
    assert tasks.mq.run(metrics.counts(queue)).completed == 5


def test_one_past_its_time_is_killed(tasks: ModuleType, dead_rows: Rows, tmp_path: Path) -> None:
    tasks.limited.enqueue()
    other = tasks.who.enqueue()
    burst(tasks.mq, pool=1)
    (row,) = dead_rows()
    assert row["last_error"].decode().split("\n")[0] == "TimeoutError: not done after 200 ms; its process was killed"
    assert row.get("stalled", b"0") == b"0"
    assert tasks.mq.run(metrics.state(other.queue, other.id)) is State.ABSENT
    asleep = tmp_path / "asleep"
    pid = asleep.read_text() if asleep.exists() else ""  # its time may be over before it has said so
    wait_until(lambda: not (pid and alive(int(pid))))


def test_one_that_is_cancelled_is_killed(tasks: ModuleType, dead_rows: Rows, tmp_path: Path, server: Server) -> None:
    job = tasks.sleeps.enqueue(60)
    worker = Process(tmp_path, TASKS, server, job.queue, "--burst")
    try:
        asleep = tmp_path / "asleep"
        wait_until(lambda: asleep.exists() and asleep.read_text(), seconds=30, what="the job")
        assert job.cancel("enough") is admin.Cancellation.REQUESTED
        assert worker.wait() == 0
    finally:
        worker.close()
    (row,) = dead_rows()
    assert row["last_error"] == b"cancelled: enough"
    wait_until(lambda: not alive(int(asleep.read_text())))


def test_the_processes_die_with_their_worker(tasks: ModuleType, tmp_path: Path, server: Server, queue: str) -> None:
    tasks.sleeps.enqueue(60)
    worker = Process(tmp_path, TASKS, server, queue)
    try:
        asleep = tmp_path / "asleep"
        wait_until(lambda: asleep.exists() and asleep.read_text(), seconds=30, what="the job")
        worker.signal(signal.SIGKILL)
        worker.process.wait()
        wait_until(lambda: not alive(int(asleep.read_text())), what="the end of the job")
    finally:
        worker.close()


async def test_one_that_is_told_to_end_may_still_be_done(tasks: ModuleType, tmp_path: Path) -> None:
    job = await tasks.notices.aenqueue()
    worker = Worker(tasks.mq, grace=timedelta(0))
    serving = asyncio.ensure_future(worker.serve())
    await until((tmp_path / "asleep").exists)
    worker.stop()
    await serving
    assert await job.result(timedelta(seconds=20)) == "noticed"
    await tasks.mq.aclose()


async def test_what_is_killed_to_be_handed_back_has_not_died_by_itself(tasks: ModuleType, tmp_path: Path) -> None:
    job = await tasks.sleeps.aenqueue(60)
    row = await tasks.mq.arun(metrics.row(job.queue, job.id))
    pool = Pool(Address(f"{tasks.__name__}:mq"), 1, lambda cell: False)
    running = asyncio.ensure_future(
        pool.run(job.queue, Claimed(job.id, row["payload"], 1, 0, 0), fresh=False, limit_s=None)
    )
    asleep = tmp_path / "asleep"
    await until(lambda: asleep.exists() and asleep.read_text())
    pool.kill()
    await until(lambda: not alive(int(asleep.read_text())), "the end of the job")
    done, _ = await asyncio.wait((running,), timeout=0.5)
    assert not done, "it waits to be cancelled"
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await pool.close()
    await tasks.mq.aclose()


async def test_an_exit_of_a_task_in_a_cell_does_not_end_it(tasks: ModuleType, queue: str) -> None:
    payload = tasks.exits.payload((), {})
    pool = Pool(Address(f"{tasks.__name__}:mq"), 1, lambda cell: False)
    outcome = await pool.run(queue, Claimed(mint(), payload, 2, 0, 1), fresh=True, limit_s=20)
    assert isinstance(outcome, Done)
    assert outcome.result == b'"SystemExit"'
    await pool.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_whoever_tells_all_processes_to_end_costs_no_job_anything(
    tasks: ModuleType, tmp_path: Path, server: Server, queue: str, number: int
) -> None:
    job = tasks.sleeps.enqueue(1.5)
    worker = Process(tmp_path, TASKS, server, queue)
    try:
        asleep = tmp_path / "asleep"
        wait_until(lambda: asleep.exists() and asleep.read_text(), seconds=30, what="the job")
        for pid in (int(asleep.read_text()), worker.process.pid):
            os.kill(pid, number)
        assert worker.wait() == 0
    finally:
        worker.close()
    assert tasks.mq.run(metrics.state(queue, job.id)) is State.ABSENT
    assert tasks.mq.run(metrics.counts(queue)).completed == 1


def test_a_program_of_ones_own_may_have_them(server: Server, queue: str, tmp_path: Path, mq: EchoMQ) -> None:
    guarded = TASKS + '\nif __name__ == "__main__":\n    from echomq import Worker\n    Worker(mq, burst=True).run()\n'
    mq.job(name="who", process=True)(lambda word: None).enqueue("a")
    program = Process(tmp_path, guarded, server, queue, command=("tasks.py",))
    try:
        assert program.wait() == 0, program.log
    finally:
        program.close()
    assert len(pids(tmp_path)) == 1


def test_a_function_in_a_thread_past_its_time_fails_and_is_told(
    tasks: ModuleType, dead_rows: Rows, tmp_path: Path
) -> None:
    tasks.late.enqueue()
    tasks.awaits.enqueue()
    asyncio.run(Worker(tasks.mq, burst=True).serve())  # `run` ends the process while a function is in its thread
    late, awaits = dead_rows()
    assert late["last_error"].decode().split("\n")[0] == (
        "TimeoutError: not done after 100 ms; its function still runs in its thread, which nothing can stop "
        "(process=True can)"
    )
    assert awaits["last_error"].startswith(b"TimeoutError: not done after 100 ms\n")
    wait_until(lambda: (tmp_path / "noticed").exists())


def test_what_no_process_can_find_is_refused(server: Server, queue: str) -> None:
    mq = EchoMQ(server.url, default_queue=queue)
    mq.job(name="apart", process=True)(lambda: None)
    with pytest.raises(
        InvalidInputError, match="'apart' is to run in a process of its own, which finds an EchoMQ only"
    ):
        Worker(mq, burst=True).run()


def test_a_coroutine_has_no_process_of_its_own(mq: EchoMQ) -> None:
    async def coroutine() -> None: ...

    with pytest.raises(errors.JobDefinitionError, match="'c' is a coroutine: process=True is for plain functions"):
        mq.job(name="c", process=True)(coroutine)
    with pytest.raises(InvalidInputError, match="process must be True or False, not 1"):
        mq.job(name="c", process=1)  # type: ignore[call-overload]  # what no type checker lets through


def test_an_app_that_a_child_cannot_import_puts_its_jobs_off(
    tasks: ModuleType, queue: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = tasks.who.enqueue()
    (tmp_path / f"{tasks.__name__}.py").write_text("1 / 0")
    burst(tasks.mq)
    row = tasks.mq.run(metrics.row(queue, job.id))
    assert (row["state"], row.get("failures", b"0"), row.get("stalled", b"0")) == (b"scheduled", b"0", b"0")
    assert "ZeroDivisionError" in caplog.text
    tasks.mq.run(jobs.reschedule(queue, job.id, at_ms=0))
    (tmp_path / f"{tasks.__name__}.py").write_text(TASKS)
    burst(tasks.mq, unknown_patience=timedelta(seconds=1))
    assert tasks.mq.run(metrics.state(queue, job.id)) is State.ABSENT
