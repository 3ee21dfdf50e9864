"""Greeting, password, fence, scripts and warnings, against real servers and by both faces."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable

import pytest

from echomq.identity.errors import InvalidInputError
from echomq.protocol.errors import ConnectError, FenceError
from echomq.protocol.scripts import registered
from echomq.wire import aconnect, connect, preflight
from echomq.wire.options import Options
from support.scripted import COUNT, count
from support.servers import Server, wait_until

StartServer = Callable[..., Server]


def by_both(url: str, error: type[Exception], says: str, **options: float) -> None:
    """Connecting fails alike by either face."""

    async def opened() -> None:
        await aconnect(url, **options)  # type: ignore[arg-type]

    for attempt in (lambda: connect(url, **options), lambda: asyncio.run(opened())):  # type: ignore[arg-type]
        with pytest.raises(error) as refusal:
            attempt()
        assert says in str(refusal.value)
        assert "hunter2" not in str(refusal.value)


def with_user(server: Server, *rules: str) -> str:
    with server.client() as client:
        client.execute("ACL", "SETUSER", "ann", "reset", "on", ">hunter2", *rules)
    return f"unix://ann:hunter2@{server.socket_path}"


@pytest.fixture(autouse=True)
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test sees the warnings of a process that has not connected yet."""
    monkeypatch.setattr(preflight, "_checked", set())


# The greeting


def test_a_connection_shows_its_name_and_speaks_resp3(server: Server) -> None:
    with connect(server.url, name="worker-7") as conn:
        info = conn.execute("CLIENT", "INFO")
        assert isinstance(info, bytes)
        assert b"name=echomq:worker-7" in info
        assert b"resp=3" in info


def test_nobody_listens_there(tmp_path: object) -> None:
    by_both("unix:///tmp/no-such-emq.sock", ConnectError, "/tmp/no-such-emq.sock")
    by_both("valkey://127.0.0.1:1", ConnectError, "127.0.0.1:1")


def test_a_password_is_asked_for_and_checked(start_server: StartServer) -> None:
    server = start_server()
    with server.client() as client:
        client.execute("CONFIG", "SET", "requirepass", "hunter2")
    try:
        by_both(server.url, ConnectError, "asks for a password")
        by_both(f"unix://:wrong@{server.socket_path}", ConnectError, "password for user 'default' is wrong")
        with connect(f"unix://:hunter2@{server.socket_path}") as conn:
            assert conn.execute("PING") == b"PONG"
    finally:
        with server.client() as client:
            client.execute("AUTH", "hunter2")
            client.execute("CONFIG", "SET", "requirepass", "")


def test_a_user_signs_in(start_server: StartServer) -> None:
    url = with_user(start_server(), "~*", "&*", "+@all")
    with connect(url) as conn:
        assert conn.execute("ACL", "WHOAMI") == b"ann"


def test_a_server_without_hello_is_told_what_is_needed(start_server: StartServer) -> None:
    server = start_server(options=["--rename-command", "HELLO", ""])
    by_both(server.url, ConnectError, "needs Valkey 7.2, Redis 7.0 or newer")


def test_a_server_that_is_full_says_so(start_server: StartServer) -> None:
    server = start_server(options=["--maxclients", "1"])
    with server.client() as client:
        by_both(server.url, ConnectError, "maxclients")
        client.execute("CONFIG", "SET", "maxclients", "100")  # for the check after the test


def test_a_database_is_selected(server: Server) -> None:
    with connect(f"{server.url}?db=5") as conn:
        info = conn.execute("CLIENT", "INFO")
        assert isinstance(info, bytes)
        assert b" db=5 " in info
    by_both(f"{server.url}?db=99", ConnectError, "refuses database 99")


# The fence


def test_the_first_connector_claims_the_fence_and_all_others_keep_it(server: Server) -> None:
    for _ in range(2):
        with connect(server.url) as conn:
            assert conn.execute("GET", "{emq}:version") == b"echomq:4.0.0"


def test_another_fence_is_fatal_and_names_both(server: Server) -> None:
    with server.client() as client:
        client.execute("SET", "{emq}:version", "echomq:2.9")
    with pytest.raises(FenceError) as refusal:
        connect(server.url)
    assert (refusal.value.ours, refusal.value.theirs) == ("echomq:4.0.0", "echomq:2.9")
    by_both(server.url, FenceError, "'echomq:2.9'")
    with connect(server.url, fence="echomq:2.9") as conn:
        assert conn.execute("PING") == b"PONG"


@pytest.mark.strays("the fence is of another type on purpose")
def test_a_fence_that_is_no_string_is_refused(start_server: StartServer) -> None:
    server = start_server()
    with server.client() as client:
        client.execute("RPUSH", "{emq}:version", "echomq:4.0.0")
    by_both(server.url, ConnectError, "WRONGTYPE")


def test_nothing_is_written_before_the_fence_has_been_read(server: Server) -> None:
    with server.client() as client:
        client.execute("SET", "{emq}:version", "other")
        with pytest.raises(FenceError):
            connect(server.url)
        assert client.execute("KEYS", "*") == [b"{emq}:version"]
        assert client.execute("INFO", "memory").count(b"number_of_cached_scripts:0") == 1


# Scripts


def test_connecting_loads_every_registered_script(server: Server) -> None:
    with connect(server.url) as conn:
        shas = [script.sha for script in registered()]
        assert len(shas) > 0
        assert conn.execute("SCRIPT", "EXISTS", *shas) == [1] * len(shas)


def test_a_script_nobody_loaded_is_loaded_by_its_first_call(server: Server, queue: str) -> None:
    with connect(server.url) as conn:
        assert conn.execute("SCRIPT", "EXISTS", COUNT.sha) == [0]
        assert conn.run(count(queue)) == 1
        assert conn.execute("SCRIPT", "EXISTS", COUNT.sha) == [1]


# Warnings


def warnings(server: Server, caplog: pytest.LogCaptureFixture, url: str = "") -> list[str]:
    caplog.clear()
    with caplog.at_level(logging.WARNING, "echomq"), connect(url or server.url, lease_node=False):
        return [record.message for record in caplog.records]


def test_a_server_that_keeps_nothing_is_named_once(start_server: StartServer, caplog: pytest.LogCaptureFixture) -> None:
    server = start_server()
    [warning] = warnings(server, caplog)
    assert "CONFIG SET appendonly yes" in warning
    assert server.socket_path in warning
    assert warnings(server, caplog) == []


def test_a_sound_server_is_not_warned_about(start_server: StartServer, caplog: pytest.LogCaptureFixture) -> None:
    assert warnings(start_server(aof=True), caplog) == []
    assert warnings(start_server(options=["--save", "900 1"]), caplog) == []


def test_eviction_is_warned_about(start_server: StartServer, caplog: pytest.LogCaptureFixture) -> None:
    server = start_server(aof=True, options=["--maxmemory-policy", "allkeys-lru"])
    [warning] = warnings(server, caplog)
    assert "CONFIG SET maxmemory-policy noeviction" in warning


def test_a_replica_is_warned_about_and_does_not_take_the_fence(
    start_server: StartServer, caplog: pytest.LogCaptureFixture
) -> None:
    primary = start_server(tcp=True, options=["--repl-diskless-sync-delay", "0"])
    replica = start_server(aof=True, options=["--replicaof", "127.0.0.1", str(primary.port)])
    with replica.client() as client:
        wait_until(lambda: b"master_link_status:up" in client.execute("INFO", "replication"), what="a link")
    by_both(replica.url, ConnectError, "connect to its primary")
    with connect(primary.url), replica.client() as client:
        wait_until(lambda: client.execute("GET", "{emq}:version"), what="the fence on the replica")
    preflight._checked.clear()
    [warning] = warnings(replica, caplog)
    assert "connect to its primary" in warning


def test_a_managed_server_that_denies_config_is_believed(
    start_server: StartServer, caplog: pytest.LogCaptureFixture
) -> None:
    server = start_server(options=["--maxmemory-policy", "allkeys-lru"])
    url = with_user(server, "~*", "&*", "+@all", "-config")
    [warning] = warnings(server, caplog, url)
    assert "noeviction" in warning


def test_missing_rights_come_with_the_line_that_gives_them(
    start_server: StartServer, caplog: pytest.LogCaptureFixture
) -> None:
    server = start_server(aof=True)
    url = with_user(server, "~{emq}:*", "+@all")
    [warning] = warnings(server, caplog, url)
    rules = warning.partition("ACL SETUSER ann ")[2].split()
    with server.client() as client:
        client.execute("ACL", "SETUSER", "ann", "reset", "on", ">hunter2", *rules)
    preflight._checked.clear()
    assert warnings(server, caplog, url) == []
    with connect(url) as conn, conn.subscribe("emq:{q}:events"):
        assert conn.run(count("q")) == 1
        assert conn.execute("BLPOP", "emq:{q}:wake", (0.01).__repr__(), timeout=None) is None
        # Every registered script may run what it runs.
        assert conn.execute("SCRIPT", "FLUSH") == b"OK"
        assert conn.run(count("q")) == 2


def test_a_user_without_the_fence_s_key_is_told_the_line(start_server: StartServer) -> None:
    url = with_user(start_server(), "~emq:*", "+@all")
    by_both(url, ConnectError, "ACL SETUSER ann ~emq:* ~{emq}:*")


# A server that is not ready


def test_a_loading_server_is_waited_for(start_server: StartServer) -> None:
    server = start_server(options=["--key-load-delay", "4000", "--loading-process-events-interval-bytes", "1024"])
    with server.client() as client:
        client.execute_all(("SET", f"emq:{{q}}:de:{i}", "x" * 100) for i in range(600))
        client.execute("SAVE")
    server.kill9()
    starting = threading.Thread(target=server.start)
    starting.start()
    try:
        wait_until(lambda: loading(server), what="the server loads")
        by_both(server.url, ConnectError, "LOADING", timeout=0.5)
        with connect(server.url, timeout=20) as conn:
            assert conn.execute("DBSIZE") == 602, "the keys, the fence and the node"
    finally:
        starting.join()


def loading(server: Server) -> bool:
    try:
        with server.client() as client:
            return b"loading:1" in client.execute("INFO", "persistence")
    except OSError:
        return False


def test_a_frozen_server_does_not_hold_a_connect_for_ever(start_server: StartServer) -> None:
    server = start_server()
    server.freeze()
    by_both(server.url, ConnectError, "not within 0.1 s (no answer)", timeout=0.1)


# Options


@pytest.mark.parametrize(
    "options",
    [
        {"fence": ""},
        {"max_pending": 0},
        {"max_pending": True},
        {"timeout": 0},
        {"timeout": None},
        {"call_timeout": -1},
        {"call_timeout": float("inf")},
        {"name": "two words"},
        {"name": ""},
        {"name": "é"},
    ],
)
def test_options_are_checked(options: dict[str, object]) -> None:
    with pytest.raises(InvalidInputError, match=f"{next(iter(options))}="):
        Options(**options)  # type: ignore[arg-type]
