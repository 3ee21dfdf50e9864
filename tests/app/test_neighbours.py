"""A job that kills its worker dies alone: whatever was in hand beside it runs again, by itself, and is never buried."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from echomq import EchoMQ, admin, jobs, lanes, metrics
from echomq.protocol.keys import keys
from echomq.protocol.replies import Counts
from support.program import NOTING, Process, noted
from support.servers import Server, wait_until

TASKS = (
    NOTING
    + """
from echomq import Supervisor

def is_safe() -> bool:
    # The killer has begun, and not in this process: nothing that is done here is lost.
    killed = here / "killed"
    pids = [line.split()[1] for line in killed.read_text().splitlines()] if killed.exists() else []
    return bool(pids) and str(os.getpid()) not in pids

@mq.job(name="coroutine")
async def coroutine(number: int) -> None:
    note("begun", number)
    while not is_safe():
        await asyncio.sleep(0.01)
    note("done", number)

@mq.job(name="plain")
def plain(number: int) -> None:
    note("begun", number)
    while not is_safe():
        time.sleep(0.01)
    note("done", number)

@mq.job(name="killer")
async def killer() -> None:
    note("killed", 0)
    await asyncio.sleep(0.1)
    os._exit(9)

if __name__ == "__main__":
    Supervisor(mq, processes=int(os.environ["PROCESSES"]), lease=timedelta(seconds=20)).run()
"""
)


@pytest.mark.chaos
@pytest.mark.deadline(150)
@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_killer_is_buried_alone_and_its_neighbours_run_once(
    mq: EchoMQ, server: Server, queue: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: str
) -> None:
    for name in ("coroutine", "plain", "killer"):
        mq.job(name=name)(lambda *_: None)
    sent = [mq.jobs[("coroutine", "plain")[n % 2]].options(lane="l").enqueue(n) for n in range(9)]
    killer = mq.jobs["killer"].options(lane="l").enqueue()
    monkeypatch.setenv("PROCESSES", processes)
    program = Process(tmp_path, TASKS, server, queue, command=("tasks.py",))
    try:
        wait_until(lambda: "another one is started" in program.log, seconds=60, what="the first death")
        ((_, dead),) = noted(tmp_path / "killed")
        lost = [killer, *(sent[n] for n, pid in noted(tmp_path / "begun") if pid == dead)]
        # Their leases would end by themselves, but that takes long enough for a busy machine to keep the others.
        mq.connection().execute("ZADD", keys(queue).active, "XX", *(word for job in lost for word in (1, job.id)))
        wait_until(
            lambda: mq.run(metrics.counts(queue)) == Counts(0, 0, 0, 1, completed=9, failed=1),
            seconds=120,
            what="nine done and one dead",
        )
    finally:
        program.signal(15)
        code = program.wait()
        program.close()
    assert code == 0
    assert mq.run(jobs.browse_dead(queue)) == (killer.id,)
    row = mq.run(metrics.row(queue, killer.id))
    assert row["last_error"] == b"stalled", program.log
    assert (row["stalled"], row["attempts"], row.get("failures", b"0")) == (b"3", b"3", b"0")
    ways = [f"lapse {lapse}: its process ended with exit code 9" for lapse in (2, 3)]
    assert list(mq.run(admin.logs(queue, killer.id))) == ways, "the first one took its worker along, who told nobody"
    assert len(noted(tmp_path / "killed")) == 3
    done = Counter(number for number, _ in noted(tmp_path / "done"))
    assert done == Counter(range(len(sent))), "each neighbour took effect once"
    held = mq.connection().execute("HGET", keys(queue).base + "gactive", lanes.lane_id("l"))
    assert held in (None, b"0"), "the lane has its slots back"
    assert program.log.count("another one is started") == 1, "only the first death took a worker with it"
