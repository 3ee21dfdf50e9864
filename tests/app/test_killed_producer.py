"""A producer killed with -9 at any instant: what was confirmed to it is there, once, and nothing by halves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import echomq
from support.servers import Server

PRODUCERS = {
    "enqueue": """
while True:
    tell([send.enqueue().id])
""",
    "aenqueue": """
async def go():
    while True:
        tell([job.id for job in await asyncio.gather(*(send.aenqueue() for _ in range(20)))])
asyncio.run(go())
""",
    "after": """
while True:
    tell([send.after(hours=1).enqueue().id])
""",
    "enqueue_many": """
from echomq import jobs
from echomq.identity.minter import minter
while True:
    ids = minter.mint_many(50)
    mq.run(jobs.enqueue_many(mq.default_queue, [(i, b"p") for i in ids]))
    tell(ids)
""",
}

HEAD = """
import asyncio, sys
from echomq import EchoMQ
mq = EchoMQ(sys.argv[1], default_queue=sys.argv[2])
send = mq.job(name="send")(lambda: None)
def tell(ids):
    print(*ids, sep="\\n", flush=True)
"""


@pytest.mark.chaos
@pytest.mark.parametrize("kind", PRODUCERS)
def test_a_killed_producer_loses_nothing_that_was_confirmed_to_it(server: Server, queue: str, kind: str) -> None:
    env = os.environ | {"PYTHONPATH": str(Path(echomq.__file__).parents[1])}
    told: list[str] = []
    for lines in (1, 40, 200):  # so many confirmations before each death
        with subprocess.Popen(
            [sys.executable, "-c", HEAD + PRODUCERS[kind], server.url, queue],
            stdout=subprocess.PIPE,
            text=True,
            env=env,
        ) as producer:
            assert producer.stdout is not None
            told += [producer.stdout.readline().strip() for _ in range(lines)]
            producer.send_signal(signal.SIGKILL)
            told += [line.strip() for line in producer.stdout.readlines() if line.endswith("\n")]
    with server.client() as client:
        base = f"emq:{{{queue}}}:"
        place = base + ("schedule" if kind == "after" else "pending")
        lying = [member.decode() for member in client.execute("ZRANGE", place, 0, -1)]
        rows = {key.decode().removeprefix(base + "job:") for key in client.execute("KEYS", base + "job:*")}
    assert len(told) == len(set(told))
    assert set(told) <= set(lying)
    assert sorted(rows) == sorted(lying)
    most = {"aenqueue": 20, "enqueue_many": 50}.get(kind, 1)
    # Confirmed but not yet said, or said by half a line, and one more that was under way, for each death.
    assert len(lying) - len(told) <= 3 * 3 * most
