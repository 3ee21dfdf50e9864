"""A job in a process of its own has around it what every job has, begun and ended in that process."""

from __future__ import annotations

from pathlib import Path

from support.program import cli, python
from support.servers import Server

TASKS = """
import os
from echomq import Depends, EchoMQ, Failure, Middleware, Success, current_job

mq = EchoMQ("{url}", default_queue="{queue}")
worker = os.environ.setdefault("WORKER", str(os.getpid()))

def say(*words):
    print("cell" if str(os.getpid()) != worker else "worker", *words, flush=True)

@mq.middleware
class Says(Middleware):
    def before(self, job): say("before", job.name)
    async def after(self, job, result): say("after", job.name, result)

@mq.on_startup
def start(): say("startup")

@mq.lifespan
async def life():
    yield {{"number": 7}}
    say("life ends")

def database():
    yield "db"
    say("db closes")

@mq.job(name="success")
def success(told: Success): say("success", told.result, told.args)

@mq.job(name="dead")
def dead(told: Failure): say("dead", told.error.split(chr(10))[0])

@mq.job(name="apart", process=True, on_success="success", on_dead="dead", max_attempts=1)
def apart(n: int, db: str = Depends(database, scope="worker")) -> int:
    say("apart", n, db, current_job().state["number"])
    return 1 // n
"""


def test_it_begins_and_ends_in_the_process_and_is_followed_in_the_worker(
    server: Server, queue: str, tmp_path: Path
) -> None:
    (tmp_path / "tasks.py").write_text(TASKS.format(url=server.url, queue=queue))
    sent = python("-c", "import tasks; tasks.apart.enqueue(1); tasks.apart.enqueue(0)", folder=tmp_path)
    assert sent.returncode == 0, sent.stderr
    done = cli("worker", "tasks:mq", "--burst", "--pool", "1", "--concurrency", "1", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == sorted(
        [
            *("worker startup", "worker life ends", "worker db closes"),
            *("cell startup", "cell life ends", "cell db closes"),
            *("cell before apart", "cell apart 1 db 7", "cell after apart 1"),
            *("cell before apart", "cell apart 0 db 7"),
            *("worker before success", "worker success 1 [1]", "worker after success None"),
            *("worker before dead", "worker dead ZeroDivisionError: integer division or modulo by zero"),
            "worker after dead None",
        ]
    )
