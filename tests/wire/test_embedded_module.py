"""The embedded server has the native module, wherever it was built and the server takes it (protocol §5)."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from echomq import EchoMQ
from echomq.identity.minter import mint
from echomq.protocol import jobs
from echomq.protocol.errors import NativeMissingError
from echomq.wire import connect
from echomq.wire.embedded import launch
from echomq.wire.embedded.foreground import status
from echomq.wire.embedded.source import EmbeddedSource
from support.embedded import call, is_gone, starts, stop
from support.servers import Kind, available, find_binary, wait_until

REFUSALS = {
    "as a server without modules": "echo \"Bad directive: 'loadmodule'\" >&2; exit 1",
    "without a word": "exit 1",
    "by a crash": "kill -SEGV $$",
}


pytestmark = pytest.mark.usefixtures("short_idle")


@pytest.fixture(autouse=True)
def server_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ECHOMQ_SERVER_BIN", raising=False)


def picky(path: Path, refusal: str) -> Path:
    """A server program that ends so when it is to load a module, and else is the real one."""
    real = find_binary(Kind.VALKEY)
    path.write_text(f'#!/bin/sh\ncase "$*" in *--loadmodule*) {refusal};; esac\nexec "{real}" "$@"\n')
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("kind", available())
def test_the_embedded_server_has_the_module_and_the_app_uses_it(
    home: Path, kind: Kind, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("ECHOMQ_SERVER_BIN", str(find_binary(kind)))
    mq = EchoMQ(home=home)
    assert mq.connection().wire == 6
    with connect(EmbeddedSource(home)) as conn:
        assert conn.wire == 4
    mq.close()
    assert starts(home) == 1
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []


def test_without_a_built_module_it_starts_without_and_says_so_once_to_who_debugs(
    home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(launch, "find_module", lambda: None)
    caplog.set_level(logging.DEBUG, "echomq")
    with connect(EmbeddedSource(home), wire="auto") as conn:
        assert conn.wire == 4
    with pytest.raises(NativeMissingError, match=r"server\.sock has no native commands"):
        connect(EmbeddedSource(home), wire=6)
    said = [each for each in caplog.records if "module was not built" in each.message]
    assert {each.levelno for each in said} == {logging.DEBUG}
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=list(REFUSALS))
def test_a_server_that_does_not_take_the_module_serves_without_it(
    home: Path, tmp_path: Path, refusal: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("ECHOMQ_SERVER_BIN", str(picky(tmp_path / "valkey-server", refusal)))
    with connect(EmbeddedSource(home), wire="auto") as conn:
        assert conn.wire == 4
        assert conn.execute("PING") == b"PONG"
    [warning] = [each.message for each in caplog.records if each.levelno >= logging.WARNING]
    assert "does not take the native module" in warning
    assert "runs without it, by scripts" in warning
    assert starts(home) == 2


@pytest.mark.parametrize("kind", available())
def test_a_file_that_is_no_module_keeps_no_server_from_starting(
    home: Path, tmp_path: Path, kind: Kind, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "echomq.so").write_text("no module")
    monkeypatch.setenv("ECHOMQ_SERVER_BIN", str(find_binary(kind)))
    monkeypatch.setattr(launch, "find_module", lambda: tmp_path / "echomq.so")
    with connect(EmbeddedSource(home), wire="auto") as conn:
        assert conn.wire == 4
    [warning] = [each.message for each in caplog.records if each.levelno >= logging.WARNING]
    assert str(tmp_path / "echomq.so") in warning


def test_what_native_commands_wrote_is_read_by_a_server_without_them(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    due, later = mint(), mint()
    with connect(EmbeddedSource(home), wire=6) as conn:
        conn.run(jobs.enqueue_at("q", due, b"p", at_ms=1))
        conn.run(jobs.enqueue_at("q", later, b"p", at_ms=2**52))
        assert conn.run(jobs.promote("q")) == 1
        claimed = conn.run(jobs.claim("q"))
        assert claimed is not None
        conn.run(jobs.delay("q", due, claimed.token, at_ms=3))
        conn.run(jobs.reschedule("q", later, at_ms=5))
        stats = str(conn.execute("INFO", "commandstats"))
        assert all(f"cmdstat_emq.{name}:" in stats for name in ("schedule", "promote", "claim", "delay", "reschedule"))
        assert "evalsha:calls=1," in stats  # the preflight's
    stop(home)
    monkeypatch.setattr(launch, "find_module", lambda: None)
    with connect(EmbeddedSource(home), wire="auto") as conn:
        assert conn.wire == 4
        assert conn.execute("ZRANGE", "emq:{q}:schedule", 0, -1, "WITHSCORES") == [
            [due.encode(), 3.0],
            [later.encode(), 5.0],
        ]
        assert conn.execute("HGET", f"emq:{{q}}:job:{due}", "state") == b"scheduled"
        assert call(home, "COMMAND", "INFO", "EMQ.SCHEDULE") == [None]


SERVE = """
import pathlib, sys
from echomq.wire.embedded import foreground
foreground.find_module = lambda: pathlib.Path(sys.argv[2])
foreground.serve(sys.argv[1], say=lambda words: print(words, flush=True))
"""


def test_the_foreground_server_goes_on_without_a_module_that_it_does_not_take(home: Path, tmp_path: Path) -> None:
    (tmp_path / "echomq.so").write_text("no module")
    words = [sys.executable, "-c", SERVE, str(home), str(tmp_path / "echomq.so")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        wait_until(lambda: status(home).running, what="the server")
        process.terminate()
        out, err = process.communicate(timeout=40)
    assert process.returncode == 0, err
    assert "does not take the native module" in out
    assert out.splitlines()[-1] == "server stopped"
    assert is_gone(home)
