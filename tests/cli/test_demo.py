"""The demo as a user runs it: real files with odd names, two at once, killed, interrupted, and nothing left behind."""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.embedded import IDLE, alive, call, folder
from support.servers import wait_until

pytestmark = pytest.mark.chaos

ECHOMQ = [sys.executable, "-m", "echomq.cli"]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setenv("ECHOMQ_IDLE_SECONDS", IDLE)
    monkeypatch.setenv("ECHOMQ_HOME", str(home))
    monkeypatch.delenv("FORCE_COLOR", raising=False)


@pytest.fixture
def home() -> Iterator[Path]:
    with folder("h") as path:
        yield path


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with 60 files, some of whose names make trouble."""
    root = tmp_path / "files"
    root.mkdir()
    for number in range(52):
        (root / f"plain-{number:02}.txt").write_bytes(b"x" * number * 1000)
    deep = root / "a" / "b" / "c"
    deep.mkdir(parents=True)
    for name in (
        b"two\nlines",
        b"not\xffutf8\xfe",
        "gr\u00fc\u00df \u2603".encode(),
        b"'quoted\"",
        b"[red]rich[red]",
        b" ",
        b"\\",
        b"-x",
    ):
        (deep / os.fsdecode(name)).write_bytes(name)
    (root / "empty folder").mkdir()
    return root


def demo(*words: str, **settings: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*ECHOMQ, "demo", *words], capture_output=True, text=True, timeout=40, check=False, **settings
    )


def totals(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    (line,) = done.stdout.splitlines()
    read: dict[str, Any] = json.loads(line)
    return read


def left_on(home: Path) -> list[bytes]:
    """The keys of queues on the folder's server, which has to be running."""
    keys: list[bytes] = call(home, "KEYS", "emq:*")
    return keys


def processes_of(queue: bytes) -> list[int]:
    """The workers that serve a queue, by their command lines."""
    found: list[int] = []
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if queue in line.read_bytes() and alive(int(line.parent.name)):
                found.append(int(line.parent.name))
        except OSError:
            continue
    return found


def queue_of(home: Path) -> bytes:
    """The name of the one queue on the folder's server, waited for."""
    wait_until(lambda: (home / "server.sock").exists() and left_on(home), what="a queue on the server")
    return left_on(home)[0].partition(b"{")[2].partition(b"}")[0].removesuffix(b"-clock")


@pytest.fixture
def keeper(home: Path) -> Iterator[None]:
    """Somebody else who uses the server, so that it is there to be looked at when the demo has gone."""
    from echomq.wire.embedded.source import EmbeddedSource

    source = EmbeddedSource(home)
    source.prepare()
    yield
    source.release()


@pytest.mark.usefixtures("keeper")
def test_every_file_is_hashed_once_whatever_its_name(files: Path, home: Path) -> None:
    (files / "link").symlink_to(files / "plain-01.txt")
    (files / "dangling").symlink_to(files / "nowhere")
    (files / "round").symlink_to(files)
    os.mkfifo(files / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(files / "socket"))
        done = demo(str(files), "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    answer = totals(done)
    assert answer["ok"] is True
    assert answer["problems"] == []
    assert answer["folder"] == str(files)
    assert (answer["files"], answer["hashed"], answer["hashed_once"], answer["compared"]) == (60, 60, 60, 60)
    assert answer["bytes"] == sum(
        path.lstat().st_size for path in files.rglob("*") if path.is_file() and not path.is_symlink()
    )
    assert (answer["links"], answer["special"]) == (3, 2)
    for heading in ("missing", "repeated", "differing", "changed", "vanished", "unreadable", "left_out"):
        assert answer[heading] == []
    jobs = answer["jobs"]
    assert jobs["failures"] == 4  # two of the one that succeeds, two of the one that never does
    assert (jobs["dead"], jobs["snoozes"]) == (1, 1)
    assert jobs["occurrences"] >= 3
    assert jobs["done"] == 60 + jobs["occurrences"]
    (buried,) = answer["morgue"]
    assert buried["failures"] == 2
    assert "always fails" in buried["error"]
    late = answer["lateness_ms"]
    assert late["jobs"] == 20 + jobs["occurrences"]
    assert 0 <= late["earliest"] <= late["median"] <= late["worst"]
    assert left_on(home) == []


def test_without_a_terminal_it_prints_plain_lines(files: Path) -> None:
    done = demo(str(files), env=os.environ | {"FORCE_COLOR": "1", "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\x1b" not in done.stdout
    assert "\r" not in done.stdout
    lines = done.stdout.splitlines()
    assert lines[0].startswith("60 files below ")
    assert any("pending" in line and "jobs/s" in line for line in lines)
    assert lines[-1].startswith("ok: every file was hashed exactly once")


def test_on_a_terminal_it_shows_a_table(files: Path) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*ECHOMQ, "demo", str(files)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "120"},
    ) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                shown += os.read(ours, 65536)
            except OSError:  # how Linux says that the other side has gone
                break
        process.wait(40)
    os.close(ours)
    assert process.returncode == 0, shown.decode(errors="replace")
    assert b"\x1b[" in shown
    for heading in (b"pending", b"scheduled", b"active", b"done", b"dead", b"jobs/s", b"late"):
        assert heading in shown
    assert b"ok: every file was hashed exactly once" in shown


def test_an_empty_folder_has_no_files_and_that_is_fine(tmp_path: Path) -> None:
    done = demo(str(tmp_path), "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    answer = totals(done)
    assert (answer["ok"], answer["files"], answer["hashed"]) == (True, 0, 0)
    # The jobs that show something run all the same, without a file.
    assert (answer["jobs"]["failures"], answer["jobs"]["snoozes"], answer["jobs"]["dead"]) == (4, 1, 1)


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("missing", "there is no folder"),
        ("file", "is not a folder"),
        ("file/below", "is not a folder"),
        ("", "names no folder"),
    ],
)
def test_what_is_no_folder_is_refused_before_anything_starts(tmp_path: Path, home: Path, named: str, said: str) -> None:
    (tmp_path / "file").write_text("")
    done = demo(str(tmp_path / named) if named else "")
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert not home.exists()


def test_a_server_that_cannot_start_is_an_error_of_one_line(files: Path) -> None:
    done = demo(str(files), env=os.environ | {"ECHOMQ_SERVER_BIN": "/nowhere/valkey-server"})
    assert done.returncode == 1
    assert "/nowhere/valkey-server" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_servers_own_folder_is_not_hashed(files: Path) -> None:
    own = files / ".echomq"
    try:
        done = demo(str(files), "--json", env=os.environ | {"ECHOMQ_HOME": str(own)})
        again = demo(str(files), "--json", env=os.environ | {"ECHOMQ_HOME": str(own)})
    finally:
        from support.embedded import stop

        stop(own)
    assert done.returncode == again.returncode == 0
    assert totals(again)["files"] == 60
    assert totals(again)["left_out"] == [str(own)]


@pytest.mark.usefixtures("keeper")
def test_two_demos_at_once_do_not_mix(files: Path, home: Path) -> None:
    both = [
        subprocess.Popen(
            [*ECHOMQ, "demo", str(files), "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    answers: list[dict[str, Any]] = []
    for process in both:
        out, err = process.communicate(timeout=40)
        assert process.returncode == 0, out + err
        answers.append(json.loads(out))
    assert answers[0]["queue"] != answers[1]["queue"]
    assert [answer["hashed_once"] for answer in answers] == [60, 60]
    assert left_on(home) == []


@pytest.mark.usefixtures("keeper")
def test_control_c_ends_it_and_leaves_nothing(files: Path, home: Path) -> None:
    process = subprocess.Popen([*ECHOMQ, "demo", str(files)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    queue = queue_of(home)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=40)
    assert process.returncode == 130, out + err
    assert "interrupted" in err
    assert "Traceback" not in err
    assert left_on(home) == []
    assert processes_of(queue) == []


def connections_to(home: Path) -> int:
    """How many have connected to the folder's server, those that it has not looked at yet among them."""
    return Path("/proc/net/unix").read_text().count(str(home / "server.sock"))


@pytest.mark.usefixtures("keeper")
def test_a_worker_whose_demo_died_while_it_connected_takes_the_queue_along(home: Path, tmp_path: Path) -> None:
    call(home, "SET", "emq:{demo-1}:pending", "what the demo has left")
    words = [sys.executable, "-m", "echomq.cli.demo_worker", "demo-1", str(home), str(tmp_path), "1"]
    server = int(call(home, "INFO", "server").partition(b"process_id:")[2].split()[0])
    before = connections_to(home)
    os.kill(server, signal.SIGSTOP)
    try:
        worker = subprocess.Popen(words, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        wait_until(lambda: connections_to(home) > before, what="the worker at the server's door")
        assert worker.stdin is not None
        assert worker.stderr is not None
        threads = list(Path(f"/proc/{worker.pid}/task").iterdir())
        worker.stdin.close()
        wait_until(lambda: not all(each.exists() for each in threads), what="the worker's hearing of it")
    finally:
        os.kill(server, signal.SIGCONT)
    with worker.stderr as said:
        assert worker.wait(40) == 0, said.read()
    assert (left_on(home), tmp_path.exists()) == ([], False)


@pytest.mark.usefixtures("keeper")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_demo_takes_its_worker_and_its_queue_along(files: Path, home: Path, number: int) -> None:
    process = subprocess.Popen([*ECHOMQ, "demo", str(files)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    queue = queue_of(home)
    wait_until(lambda: len(processes_of(queue)) == 1, what="the worker's start")
    process.send_signal(number)
    process.wait(40)
    wait_until(lambda: not processes_of(queue), what="the worker's end")
    assert left_on(home) == []


@pytest.mark.usefixtures("keeper")
def test_a_worker_that_dies_is_said_and_counts_as_a_failure(files: Path, home: Path) -> None:
    process = subprocess.Popen(
        [*ECHOMQ, "demo", str(files), "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    queue = queue_of(home)
    wait_until(lambda: len(processes_of(queue)) == 1, what="the worker's start")
    os.kill(processes_of(queue)[0], signal.SIGKILL)
    out, err = process.communicate(timeout=40)
    assert process.returncode == 1, out + err
    answer = json.loads(out)
    assert answer["ok"] is False
    assert "the worker ended by itself: killed by signal 9" in answer["problems"][0]
    assert left_on(home) == []
