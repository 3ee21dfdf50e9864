"""`echomq server`: the embedded server in the foreground, and its state from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from echomq.protocol.errors import EmbeddedServerError
from echomq.wire.embedded.foreground import serve, status
from echomq.wire.embedded.probe import Reach
from echomq.wire.embedded.source import EmbeddedSource
from echomq.wire.url import parse_url
from support.embedded import IDLE, alive, call, is_gone, pid_of, server_pid
from support.servers import wait_until

SERVE = """
import sys
from echomq.wire.embedded.foreground import serve
serve(sys.argv[1], say=lambda words: print(words, flush=True))
"""


pytestmark = pytest.mark.usefixtures("short_idle")


@pytest.fixture
def foreground(home: Path) -> Iterator[subprocess.Popen[str]]:
    words = [sys.executable, "-c", SERVE, str(home)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_until(lambda: status(home).running, what="the server")
            yield process
        finally:
            process.kill()


def test_the_foreground_server_serves_users_and_ends_on_a_signal(home: Path, foreground: subprocess.Popen[str]) -> None:
    source = EmbeddedSource(home)
    source.prepare()
    assert pid_of(home, "supervisor.pid") == foreground.pid
    call(home, "SET", "kept", "yes")
    server = server_pid(home)
    source.release()
    with pytest.raises(TimeoutError):  # it does not go for want of users
        wait_until(lambda: not alive(server), seconds=4 * float(IDLE))
    foreground.send_signal(signal.SIGINT)
    out, err = foreground.communicate(timeout=40)
    assert foreground.returncode == 0, err
    assert out.splitlines()[0] == f"server in {home}"
    assert out.splitlines()[-1] == "server stopped"
    assert is_gone(home)
    source.prepare()
    assert call(home, "GET", "kept") == b"yes"
    source.release()


def test_the_foreground_server_runs_with_its_standard_files_closed(home: Path) -> None:
    words = ["/bin/sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", sys.executable, "-c", SERVE, str(home)]
    with subprocess.Popen(words) as process:
        try:
            wait_until(lambda: status(home).running, what="the server")
            server = server_pid(home)
            if sys.platform == "linux":
                files = [str(Path(f"/proc/{server}/fd/{number}").readlink()) for number in range(3)]
                assert files == [os.devnull] * 3
            process.send_signal(signal.SIGINT)
            assert process.wait(40) == 0
        finally:
            process.kill()
    for name in ("start.lock", "users.lock", "server.lock"):
        assert (home / name).read_bytes() == b""


def test_the_url_it_prints_leads_to_it(home: Path, foreground: subprocess.Popen[str]) -> None:
    foreground.terminate()
    out, _ = foreground.communicate(timeout=40)
    url = next(word.rstrip(",") for word in out.split() if word.startswith("unix://"))
    assert parse_url(url).path == str(home / "server.sock") == status(home).socket
    assert status(home).url == url


@pytest.mark.usefixtures("foreground")
def test_a_second_one_is_refused_and_names_the_first(home: Path) -> None:
    with pytest.raises(EmbeddedServerError, match=rf"supervisor pid {pid_of(home, 'supervisor.pid')}"):
        serve(home)


def test_a_server_killed_under_it_ends_it_with_the_reason(home: Path, foreground: subprocess.Popen[str]) -> None:
    server = server_pid(home)
    subprocess.run(["kill", "-9", str(server)], check=True)
    _, err = foreground.communicate(timeout=40)
    assert foreground.returncode != 0
    assert "killed by signal 9" in err


def test_status_tells_what_is_there_and_starts_nothing(home: Path) -> None:
    before = status(home)
    assert (before.running, before.supervised, before.in_use, before.reach) == (False, False, False, Reach.ABSENT)
    assert not home.exists()
    source = EmbeddedSource(home)
    source.prepare()
    during = status(home)
    assert (during.running, during.supervised, during.in_use) == (True, True, True)
    assert during.server_pid == server_pid(home)
    source.release()
    wait_until(lambda: is_gone(home), what="the server's end")
    after = status(home)
    assert (after.running, after.supervised, after.in_use, after.server_pid) == (False, False, False, None)
