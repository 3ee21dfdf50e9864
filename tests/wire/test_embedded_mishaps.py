"""The embedded server through mishaps: stale files, strangers, damaged data, a folder that goes, no answer."""

from __future__ import annotations

import fcntl
import logging
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from echomq.protocol.errors import EmbeddedServerError
from echomq.wire.embedded import supervisor
from echomq.wire.embedded.binary import find_binary
from echomq.wire.embedded.folder import locate
from echomq.wire.embedded.source import EmbeddedSource
from support.embedded import (
    alive,
    call,
    info,
    is_gone,
    pid_of,
    server_pid,
    stop,
)
from support.raw import RawClient
from support.servers import wait_until

pytestmark = pytest.mark.usefixtures("short_idle")


def test_a_stale_socket_and_garbage_in_the_pid_files_do_not_matter(home: Path, source: EmbeddedSource) -> None:
    home.mkdir(mode=0o700)
    (home / "server.sock").write_text("not a socket")
    (home / "server.pid").write_text("garbage\0\n")
    (home / "supervisor.pid").write_text("-1\n")
    source.prepare()
    assert pid_of(home, "server.pid") == server_pid(home)


def test_a_pid_file_that_names_a_stranger_harms_nobody(home: Path, source: EmbeddedSource) -> None:
    with subprocess.Popen(["sleep", "60"]) as stranger:
        try:
            home.mkdir(mode=0o700)
            (home / "server.pid").write_text(f"{stranger.pid}\n")
            assert not supervisor.is_our_server(stranger.pid, str(home), locate(home).socket)
            source.prepare()
            assert stranger.poll() is None
        finally:
            stranger.kill()


def test_a_server_that_outlived_its_supervisor_is_stopped_and_followed(home: Path, source: EmbeddedSource) -> None:
    """As on systems where a process is not told of its parent's death."""
    (home / "data").mkdir(mode=0o700, parents=True)
    lock = os.open(home / "server.lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    words = supervisor.server_arguments(str(home), locate(home).socket, durable=False)
    with subprocess.Popen([find_binary(), *words], cwd=home / "data", pass_fds=[lock]) as old:
        os.close(lock)
        (home / "server.pid").write_text(f"{old.pid}\n")
        wait_until(lambda: (home / "server.sock").exists())
        wait_until(lambda: call(home, "SET", "kept", "yes"))
        source.prepare()
        assert old.poll() is not None or not alive(old.pid)
    assert call(home, "GET", "kept") == b"yes"
    assert "outlived" in (home / "supervisor.log").read_text()


def test_the_server_stops_when_its_folder_is_removed_and_a_new_one_follows(home: Path, source: EmbeddedSource) -> None:
    source.prepare()
    old = server_pid(home)
    both = (pid_of(home, "supervisor.pid"), old)
    for pid in both:
        os.kill(pid, signal.SIGSTOP)  # nobody puts a file into a folder that is being emptied
    shutil.rmtree(home)
    for pid in both:
        os.kill(pid, signal.SIGCONT)
    wait_until(lambda: not alive(old), what="the end of the server without a folder")
    source.prepare()
    assert server_pid(home) != old
    source.release()
    wait_until(lambda: is_gone(home), what="the server's end")


def test_a_removed_socket_comes_back(home: Path, source: EmbeddedSource) -> None:
    source.prepare()
    (home / "server.sock").unlink()
    source.prepare()
    assert call(home, "PING") == b"PONG"


def test_durable_means_an_fsync_on_every_write_also_when_others_came_first(home: Path, source: EmbeddedSource) -> None:
    source.prepare()
    assert call(home, "CONFIG", "GET", "appendfsync")[1] == b"everysec"
    careful = EmbeddedSource(home, durable=True)
    careful.prepare()
    assert call(home, "CONFIG", "GET", "appendfsync")[1] == b"always"
    os.kill(server_pid(home), signal.SIGKILL)
    careful.prepare()
    assert call(home, "CONFIG", "GET", "appendfsync")[1] == b"always"
    careful.release()


def test_a_server_that_still_reads_its_file_is_waited_for(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = EmbeddedSource(home)
    source.prepare()
    with RawClient(locate(home).socket) as client:
        fill = "for i = 1, 1000 do redis.call('SET', 'k' .. i + 1000 * ARGV[1], 'x') end"
        client.execute_all(("EVAL", fill, 0, n) for n in range(40))
    source.release()
    wait_until(lambda: is_gone(home), what="the server's end")
    slow = tmp_path / "valkey-server"
    slow.write_text(f'#!/bin/sh\nexec {find_binary()} "$@" --key-load-delay 200\n')
    slow.chmod(0o755)
    monkeypatch.setenv("ECHOMQ_SERVER_BIN", str(slow))
    hasty = EmbeddedSource(home, start_s=0.3)
    said: list[str] = []

    def meets_the_reading() -> bool:
        with pytest.raises(EmbeddedServerError) as late:
            hasty.prepare()
        said.append(str(late.value))
        return "still reading the files in" in said[-1]

    # A supervisor on a busy machine may need longer than that to get to the reading.
    wait_until(meets_the_reading, what="a server that reads")
    assert re.search(r": \d+ %.*try again", said[-1])
    assert not any("another machine" in text for text in said)
    call(home, "CONFIG", "SET", "key-load-delay", 0)
    source.prepare()
    assert int(call(home, "DBSIZE")) == 40_000
    hasty.release()
    source.release()


def test_a_slow_machine_is_not_taken_for_a_shared_disk(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = tmp_path / "gate"
    slow = tmp_path / "valkey-server"
    slow.write_text(f"""#!/bin/sh
case "$*" in *--unixsocket*) while [ ! -e "{gate}" ]; do sleep 0.01; done ;; esac
exec {find_binary()} "$@"
""")
    slow.chmod(0o755)
    monkeypatch.setenv("ECHOMQ_SERVER_BIN", str(slow))
    starter, other = EmbeddedSource(home, start_s=0.2), EmbeddedSource(home, start_s=0.2)
    with pytest.raises(EmbeddedServerError, match=r"this machine may be very busy; it goes on, try again"):
        starter.prepare()
    pid_of(home, supervisor.SUPERVISOR_PID)
    with pytest.raises(EmbeddedServerError, match=r"supervisor \d+ is here .* try again"):
        other.prepare()
    gate.touch()
    patient = EmbeddedSource(home)
    patient.prepare()
    for source in (starter, other, patient):
        source.release()


def test_a_server_that_does_not_answer_is_named(home: Path, source: EmbeddedSource) -> None:
    source.prepare()
    pid = server_pid(home)
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(EmbeddedServerError, match="takes connections and does not answer"):
            EmbeddedSource(home, start_s=0.2).prepare()
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_truncated_file_is_mended_by_the_server_and_logged(home: Path) -> None:
    file = _filled(home)
    size = file.stat().st_size
    os.truncate(file, size - 5)
    source = EmbeddedSource(home)
    source.prepare()
    assert int(call(home, "DBSIZE")) == 99
    assert "runcat" in (home / "server.log").read_text()
    source.release()


@pytest.mark.deadline(60)
def test_a_damaged_file_is_named_with_the_line_that_mends_it(home: Path) -> None:
    file = _filled(home)
    whole = file.read_bytes()
    place = whole.index(b"k50")
    file.write_bytes(whole[: place - 5] + b"!!!!!" + whole[place:])
    before = {path: path.read_bytes() for path in file.parent.iterdir()}
    source = EmbeddedSource(home)
    with pytest.raises(EmbeddedServerError) as caught:
        source.prepare()
    text = str(caught.value)
    assert "its log says:\nBad file format" in text
    assert f"The file {file} is damaged" in text
    assert {path: path.read_bytes() for path in file.parent.iterdir()} == before
    wait_until(lambda: is_gone(home))
    copy, mend = (line.strip() for line in text.splitlines() if line.startswith("  "))
    subprocess.run(copy, shell=True, check=True)
    subprocess.run(mend, shell=True, check=True, input=b"y\n", stdout=subprocess.DEVNULL)
    source.prepare()
    assert int(call(home, "DBSIZE")) == 50
    source.release()


def test_a_damaged_base_file_is_explained(home: Path) -> None:
    file = _filled(home, rewrite=True)
    base = next(file.parent.glob("*.base.rdb"))
    base.write_bytes(b"garbage" + base.read_bytes()[7:])
    with pytest.raises(EmbeddedServerError, match=r"(?s)its log says.*move .*data aside to begin anew"):
        EmbeddedSource(home).prepare()


def test_the_folder_is_logged_once(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "echomq")
    for _ in range(3):
        source = EmbeddedSource(home)
        source.prepare()
        source.release()
    assert [record.getMessage() for record in caplog.records].count(f"embedded server: using the folder {home}") == 1


def test_a_folder_held_by_nobody_who_answers_is_explained(home: Path) -> None:
    """As with a folder on a network share whose server runs on another machine."""
    (home / "data").mkdir(mode=0o700, parents=True)
    with (home / "start.lock").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        source = EmbeddedSource(home, start_s=0.2)
        with pytest.raises(EmbeddedServerError, match="another machine or container"):
            source.prepare()
        (home / "supervisor.pid").write_text("123\nelsewhere\n")
        with pytest.raises(EmbeddedServerError, match=r"supervisor 123 runs on 'elsewhere' and this is"):
            source.prepare()
        source.release()


def _filled(home: Path, *, rewrite: bool = False) -> Path:
    """A folder at rest with a hundred keys; the answer is the file they are in."""
    source = EmbeddedSource(home)
    source.prepare()
    for number in range(100):
        call(home, "SET", f"k{number}", "value")
    if rewrite:
        call(home, "BGREWRITEAOF")
        wait_until(lambda: info(home, "persistence")["aof_rewrite_in_progress"] == "0")
    source.release()
    stop(home)
    return max((home / "data" / "appendonlydir").glob("*.incr.aof"))
