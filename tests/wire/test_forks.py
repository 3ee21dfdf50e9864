"""A forked child leaves the parent's connections alone and opens its own."""

from __future__ import annotations

import subprocess
import sys

import pytest

from support.scripted import key
from support.servers import Server

PROGRAM = """
import asyncio, os, sys, warnings
warnings.simplefilter("ignore")
from echomq.identity.minter import minter
from echomq.wire import AsyncConnector, connect
from support.scripted import count

url, queue, face = sys.argv[1:]
loop = asyncio.new_event_loop()
if face == "awaited":
    conn = AsyncConnector(url)
    def run(loop, name): return loop.run_until_complete(conn.run(count(queue, name)))
else:
    conn = connect(url)
    def run(loop, name): return conn.run(count(queue, name))

assert run(loop, "parent") == 1
for generation in range(3):
    node = minter.node
    child = os.fork()
    if child == 0:
        own = asyncio.new_event_loop()
        for i in range(50):
            assert run(own, f"child{generation}") == i + 1
        assert minter.node != node, "a lease of its own"
        if face == "awaited":
            own.run_until_complete(conn.close())
        else:
            conn.close()
        os._exit(0)
    for i in range(50):
        run(loop, "parent")
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert minter.node == node
assert run(loop, "parent") == 152
if face == "awaited":
    loop.run_until_complete(conn.close())
else:
    conn.close()
loop.run_until_complete(loop.shutdown_asyncgens())
loop.close()
"""

UVLOOP = "import uvloop, asyncio; asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())\n"


def run_program(server: Server, queue: str, face: str, before: str = "") -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", before + PROGRAM, server.url, queue, face],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    with server.client() as client:
        assert client.execute("GET", key(queue, "parent")) == b"152"
        assert client.execute("MGET", *(key(queue, f"child{i}") for i in range(3))) == [b"50"] * 3
        assert client.execute("KEYS", "{emq}:node:*") == [], "every process gave its node back"


def test_a_fork_beside_a_blocking_connector(server: Server, queue: str) -> None:
    run_program(server, queue, "blocking")


def test_a_fork_beside_an_awaited_connector(server: Server, queue: str) -> None:
    run_program(server, queue, "awaited")


def test_a_fork_beside_an_awaited_connector_on_uvloop(server: Server, queue: str) -> None:
    run_program(server, queue, "awaited", UVLOOP)


HELD = """
import asyncio, os, sys, time
from echomq.wire import AsyncConnector, Options, connect
from support.scripted import count

url, queue, face = sys.argv[1:]
loop = asyncio.new_event_loop()
options = {"name": "parent"}
conn = AsyncConnector(url, Options(**options)) if face == "awaited" else connect(url, **options)
done = loop.run_until_complete if face == "awaited" else lambda value: value
assert done(conn.run(count(queue))) == 1
reads, writes = os.pipe()
if os.fork() == 0:
    os.close(writes)
    os.read(reads, 1)  # until the parent is gone
    os._exit(0)
done(conn.close())
with connect(url, lease_node=False) as eye:
    until = time.monotonic() + 30
    while time.monotonic() < until:
        if b"name=echomq:parent" not in eye.execute("CLIENT", "LIST"):
            sys.exit(0)
        time.sleep(0.01)
sys.exit("the child holds the parent's connection open")
"""


@pytest.mark.parametrize("face", ["blocking", "awaited"])
def test_a_child_that_uses_no_connector_holds_none_open(server: Server, queue: str, face: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", HELD, server.url, queue, face],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
