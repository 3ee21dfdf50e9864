"""The harness itself: it fails what hangs and what leaves the server unsound."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent

CASES = """
import asyncio, threading, time
import pytest

async def test_a_coroutine_runs(queue):
    await asyncio.sleep(0)
    assert queue

@pytest.mark.deadline(0.2)
async def test_a_coroutine_that_hangs():
    await asyncio.Event().wait()

@pytest.mark.deadline(-1.5)
def test_a_function_that_hangs():
    try:
        time.sleep(100)
    except Exception:
        pass

def test_a_sound_server(server):
    with server.client() as client:
        assert client.execute("DBSIZE") == 0
        client.execute("SET", "{emq}:version", "echomq:4.0.0")

def test_a_stray_key(server):
    with server.client() as client:
        client.execute("SET", "emq:{q}:unheard-of", 1)

def test_a_stray_key_in_another_database(server):
    with server.client() as client:
        client.execute("SELECT", 3)
        client.execute("SET", "foo", 1)

def test_a_member_without_a_row(server, queue):
    with server.client() as client:
        client.execute("ZADD", "emq:{%s}:pending" % queue, 0, "JOB00000000001")

@pytest.mark.strays("on purpose")
def test_a_stray_that_is_meant(server):
    with server.client() as client:
        client.execute("SET", "foo", 1)

def test_a_server_left_dead_is_there_again_for_the_next(server):
    server.kill9()

def test_a_stray_on_a_server_of_its_own(start_server):
    with start_server().client() as client:
        client.execute("SET", "foo", 1)

def test_the_server_is_empty_again(server):
    with server.client() as client:
        assert client.execute("DBSIZE") == 0
"""

VERDICTS = {
    "test_a_coroutine_runs": "PASSED",
    "test_a_coroutine_that_hangs": "FAILED",
    "test_a_function_that_hangs": "FAILED",
    "test_a_sound_server": "PASSED",
    "test_a_stray_key": "PASSED, ERROR",  # the test itself passes, the check after it does not
    "test_a_stray_key_in_another_database": "PASSED, ERROR",
    "test_a_member_without_a_row": "PASSED, ERROR",
    "test_a_stray_that_is_meant": "PASSED",
    "test_a_server_left_dead_is_there_again_for_the_next": "PASSED",
    "test_a_stray_on_a_server_of_its_own": "PASSED, ERROR",
    "test_the_server_is_empty_again": "PASSED",
}

PYTEST = ["-m", "pytest", "-c", "pyproject.toml", "-p", "conftest", "-q", "-rpEf"]
ALONE = ["-p", "no:cacheprovider", "-p", "no:xdist"]


def test_the_harness_fails_what_it_must(tmp_path: Path) -> None:
    cases = tmp_path / "test_cases.py"
    cases.write_text(CASES)
    done = subprocess.run(
        [sys.executable, *PYTEST, *ALONE, str(cases)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'tests'}:{os.environ.get('PYTHONPATH', '')}"},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    found: dict[str, list[str]] = {}
    for verdict, name in re.findall(r"^(PASSED|FAILED|ERROR) ::(\w+)", done.stdout, re.MULTILINE):
        found.setdefault(name, []).append(verdict)
    assert {name: ", ".join(verdicts) for name, verdicts in found.items()} == VERDICTS, done.stdout + done.stderr
    assert "unheard-of (string) is not in the registry" in done.stdout
    assert "test_a_function_that_hangs is not done after" in done.stdout
