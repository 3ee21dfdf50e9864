"""The embedded server's life: started on first use, shared, gone after the last user, back from every death."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from echomq.protocol.errors import EmbeddedServerError
from echomq.wire.embedded import locks
from echomq.wire.embedded.folder import locate
from echomq.wire.embedded.source import EmbeddedSource
from support.embedded import (
    IDLE,
    User,
    alive,
    call,
    folder,
    is_gone,
    pid_of,
    server_pid,
    starts,
)
from support.raw import RawClient
from support.servers import wait_until

pytestmark = pytest.mark.usefixtures("short_idle")


def test_the_first_use_starts_a_private_server_that_keeps_everything(home: Path, source: EmbeddedSource) -> None:
    target = source.prepare()
    assert target.path == str(home / "server.sock")
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert stat.S_IMODE(Path(target.path).stat().st_mode) == 0o700
    promised = {
        b"port": b"0",
        b"appendonly": b"yes",
        b"appendfsync": b"everysec",
        b"maxmemory-policy": b"noeviction",
        b"save": b"",
        b"hash-max-listpack-value": b"1024",
        b"aof-load-truncated": b"yes",
        b"enable-debug-command": b"no",
    }
    for name, value in promised.items():
        assert call(home, "CONFIG", "GET", name) == [name, value]


def test_a_second_use_finds_the_same_server(home: Path, source: EmbeddedSource) -> None:
    source.prepare()
    before = server_pid(home)
    source.prepare()
    other = EmbeddedSource(home)
    other.prepare()
    other.release()
    assert server_pid(home) == before


def test_eight_processes_at_the_same_instant_get_one_server(home: Path) -> None:
    users = [User(home) for _ in range(8)]
    try:
        assert {user.hear() for user in users} == {str(home / "server.sock")}
        assert starts(home) == 1
    finally:
        for user in users:
            user.kill()
    wait_until(lambda: is_gone(home), what="the server's end")


def test_threads_share_one_hold_until_the_last_releases(home: Path) -> None:
    sources = [EmbeddedSource(home) for _ in range(8)]
    threads = [threading.Thread(target=each.prepare) for each in sources]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pid = server_pid(home)
    for each in sources[:-1]:
        each.release()
    with pytest.raises(TimeoutError):
        wait_until(lambda: is_gone(home), seconds=4 * float(IDLE))
    assert server_pid(home) == pid
    sources[-1].release()
    wait_until(lambda: is_gone(home), what="the server's end")


def test_a_user_killed_with_9_does_not_take_the_server_along_nor_keep_it(home: Path) -> None:
    starter, other = User(home), User(home)
    starter.hear()
    other.hear()
    pid = server_pid(home)
    starter.kill()
    assert server_pid(home) == pid
    other.kill()
    wait_until(lambda: is_gone(home), what="the server's end")
    assert not alive(pid)


def test_nothing_acknowledged_is_lost_when_the_server_is_killed(home: Path, source: EmbeddedSource) -> None:
    source.prepare()
    for _ in range(3):
        with RawClient(locate(home).socket) as client:
            last = client.execute("INCR", "n")
            for number in range(500):
                last = client.execute("INCR", "n")
                client.execute("SET", f"k{last}", number)
            # everysec lets a write wait while an fsync is under way: the promise is for a disk that keeps up.
            wait_until(lambda: b"aof_buffer_length:0\r\n" in client.execute("INFO", "persistence"))
            os.kill(server_pid(home), signal.SIGKILL)
        source.prepare()
        assert call(home, "GET", "n") == str(last).encode()
        assert call(home, "EXISTS", f"k{last}") == 1
    assert starts(home) == 4


def test_the_server_dies_with_its_supervisor_and_comes_back_with_its_data(home: Path, source: EmbeddedSource) -> None:
    source.prepare()
    call(home, "SET", "kept", "yes")
    server = server_pid(home)
    owner = pid_of(home, "supervisor.pid")
    os.kill(owner, signal.SIGKILL)
    wait_until(lambda: not alive(owner))
    source.prepare()
    assert server_pid(home) != server
    assert not alive(server)
    assert call(home, "GET", "kept") == b"yes"


def test_the_server_is_gone_soon_after_its_last_user_and_keeps_its_data(home: Path) -> None:
    source = EmbeddedSource(home)
    source.prepare()
    call(home, "SET", "kept", "yes")
    source.release()
    wait_until(lambda: is_gone(home), what="the server's end")
    assert not (home / "server.pid").exists()
    source.prepare()
    assert call(home, "GET", "kept") == b"yes"
    source.release()


def test_by_default_the_server_is_gone_within_30_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    from echomq.wire.embedded.launch import idle_s

    monkeypatch.delenv("ECHOMQ_IDLE_SECONDS")
    assert 5 <= idle_s() <= 20  # and a poll of at most one second
    monkeypatch.setenv("ECHOMQ_IDLE_SECONDS", "soon")
    with pytest.raises(EmbeddedServerError, match="'soon'"):
        idle_s()


def test_who_arrives_while_the_server_leaves_gets_one_that_stays(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ECHOMQ_IDLE_SECONDS", "0.05")
    for turn in range(12):
        source = EmbeddedSource(home)
        source.prepare()
        with RawClient(locate(home).socket) as client:
            for number in range(50):
                assert client.execute("INCR", f"turn{turn}") == number + 1
        source.release()
        # Arrive at another point of the old server's end each time.
        wait_until(lambda t=turn: is_gone(home) or time.monotonic() > t, seconds=1)
        pause = threading.Event()
        pause.wait(0.04 + turn * 0.01)
    source.prepare()
    assert int(call(home, "DBSIZE")) == 12
    source.release()


def test_nobody_can_arrive_at_a_server_that_is_leaving(home: Path) -> None:
    source = EmbeddedSource(home)
    source.prepare()
    old = server_pid(home)
    os.kill(old, signal.SIGSTOP)  # its end now takes as long as we like
    source.release()
    wait_until(lambda: "stopping server" in (home / "supervisor.log").read_text(), what="the stop")
    assert locks.is_held(locate(home), home / "users.lock", shared=True)
    arriving = threading.Thread(target=source.prepare)
    arriving.start()
    os.kill(old, signal.SIGCONT)
    arriving.join()
    assert server_pid(home) != old
    source.release()


def test_a_forked_child_neither_keeps_the_server_nor_frees_its_parents_hold(home: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    user = User(home, str(tmp_path / "fifo"))
    user.hear()
    user.tell("fork-idle")
    child = int(user.hear())
    user.tell("fork-user")
    assert user.hear() == str(home / "server.sock")
    pid = server_pid(home)
    user.kill()
    with pytest.raises(TimeoutError):  # the child that took a hold of its own keeps the server
        wait_until(lambda: is_gone(home), seconds=4 * float(IDLE))
    assert server_pid(home) == pid
    assert alive(child)
    hold_open = os.open(tmp_path / "fifo", os.O_RDWR)
    os.write(hold_open, b"x")  # one of the two goes
    os.write(hold_open, b"x")
    wait_until(lambda: is_gone(home), what="the server's end")
    os.close(hold_open)


def test_a_forked_child_that_does_not_use_the_server_does_not_keep_it(home: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    user = User(home, str(tmp_path / "fifo"))
    user.hear()
    user.tell("fork-idle")
    child = int(user.hear())
    user.kill()
    try:
        wait_until(lambda: is_gone(home), what="the server's end")
        assert alive(child)
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_program_started_by_a_user_does_not_keep_the_server(home: Path) -> None:
    user = User(home)
    user.hear()
    user.tell("spawn")
    program = int(user.hear())
    user.kill()
    try:
        wait_until(lambda: is_gone(home), what="the server's end")
        assert alive(program)
    finally:
        os.kill(program, signal.SIGKILL)


def test_signals_blocked_where_the_server_was_started_do_not_keep_it(home: Path) -> None:
    source = EmbeddedSource(home)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD, signal.SIGINT})
    try:
        source.prepare()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    source.release()
    wait_until(lambda: is_gone(home), what="the server's end")


STARTS = """
import sys
from pathlib import Path
from echomq.wire.embedded.source import EmbeddedSource

source = EmbeddedSource(sys.argv[1])
try:
    source.prepare()
    said = "up"
except BaseException as error:
    said = repr(error)
Path(sys.argv[2]).write_text(said)
source.release()
"""


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&-", "<&- 2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_a_program_that_has_closed_its_standard_files_starts_a_server(home: Path, tmp_path: Path, closed: str) -> None:
    said = tmp_path / "said"
    words = ["/bin/sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-c", STARTS, str(home), str(said)]
    assert subprocess.run(words, timeout=30, check=False).returncode == 0
    assert said.read_text() == "up"


@pytest.mark.parametrize("name", ["plain", "sp ace", "ü-日本", "q\"uo'te", "back\\slash", "#hash %n $HOME", "-dash"])
def test_any_folder_name_serves(name: str) -> None:
    with folder(name) as home:
        source = EmbeddedSource(home)
        source.prepare()
        assert call(home, "CONFIG", "GET", "dir")[1].decode() == str(home / "data")
        source.release()
