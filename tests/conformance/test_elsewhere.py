"""`echomq conformance` where a server is not as one likes it: in a cluster, for a limited user, full, and dying."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from echomq.conformance import every
from echomq.wire.preflight import rights_advice
from echomq.wire.url import parse_url
from support.program import cli
from support.raw import RawClient
from support.registry import all_keys
from support.servers import Kind, Server, chosen, free_port, wait_until

StartServer = Callable[..., Server]


def statuses(done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """How each scenario ended, by the lines of a run."""
    *lines, _ = done.stdout.splitlines()
    return {line.split()[1]: line.split()[0] for line in lines}


def failures(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in done.stdout.splitlines() if line.startswith("FAIL")]


def clustered(start_server: StartServer, **options: Any) -> Server:
    """A server in cluster mode that serves every slot."""
    # The bus of a cluster has a port of its own; the usual one, 10,000 higher, may be none.
    words = ["--cluster-enabled", "yes", "--cluster-port", str(free_port())]
    server = start_server(tcp=True, options=words, **options)
    with server.client() as client:
        client.execute("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        wait_until(lambda: b"cluster_state:ok" in client.execute("CLUSTER", "INFO"), what="the cluster is whole")
    return server


def left(client: RawClient) -> set[str]:
    return set(all_keys(client))


@pytest.mark.parametrize("wire", ["4", "6"])
def test_a_server_of_a_cluster_keeps_the_contract_and_nothing_is_left(start_server: StartServer, wire: str) -> None:
    server = clustered(start_server, module=True)
    done = cli("conformance", server.tcp_url, "--wire", wire)
    assert (done.returncode, failures(done)) == (0, []), done.stderr
    assert list(statuses(done)) == [each.name for each in every()]
    assert statuses(done)["own_keys"] == "ok"
    with server.client() as client:
        assert left(client) == {"{emq}:version"}


def limited(server: Server, *words: str) -> str:
    with server.client() as client:
        client.execute("ACL", "SETUSER", "mail", *words, "on", "nopass")
    return f"unix://mail:any@{server.socket_path}"


@pytest.mark.parametrize("wire", ["4", "auto"])
def test_the_rights_that_a_connect_advises_are_enough_for_a_run(start_server: StartServer, wire: str) -> None:
    server = start_server(module=True)
    advised = rights_advice(parse_url("valkey://mail@h")).removeprefix(": ").split()
    done = cli("conformance", limited(server, *advised[3:]), "--wire", wire)
    assert (done.returncode, failures(done)) == (0, []), done.stderr
    lacks = {"native_lock_field", "native_lock_refuses"} if chosen() is not Kind.VALKEY else set[str]()
    skipped = {name for name, status in statuses(done).items() if status == "skip"}
    assert skipped == lacks | ({"wires_agree"} if chosen() is Kind.REDIS else set())
    with server.client() as client:
        assert left(client) == {"{emq}:version"}


@pytest.mark.parametrize(
    ("rights", "named"),
    [
        (("~emq:{mail}:*", "~{emq}:*", "&*", "+@all"), "NOPERM"),
        (("~*", "&*", "+@all", "-time"), "script"),
        (("~*", "&*", "+@all", "-unlink"), "'unlink'"),
    ],
)
def test_a_user_who_lacks_what_a_run_does_is_told_the_right_before_it(
    start_server: StartServer, rights: tuple[str, ...], named: str
) -> None:
    server = start_server()
    done = cli("conformance", limited(server, *rights))
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    said = done.stderr.splitlines()[-1]
    assert said.startswith("echomq: this user may not do what a run does: ")
    assert "ACL SETUSER mail ~emq:* ~{emq}:* &emq:* +@read +@write" in said
    assert named in said
    with server.client() as client:
        assert left(client) == {"{emq}:version"}


@pytest.mark.parametrize("as_json", [False, True])
def test_a_full_server_is_not_tried(start_server: StartServer, as_json: bool) -> None:
    server = start_server()
    with server.client() as client:
        client.execute("SET", "{emq}:version", "echomq:4.0.0")
        client.execute("CONFIG", "SET", "maxmemory", "1")
    done = cli("conformance", server.url, *(["--json"] if as_json else []))
    assert done.returncode == 1
    said = done.stderr.splitlines()[-1]
    assert said.startswith("echomq: this server is full and admits no job, so nothing can be tried on it: free memory")
    if as_json:
        assert said == f"echomq: {json.loads(done.stdout)['error']}"
    else:
        assert done.stdout == ""
    with server.client() as client:
        assert left(client) == {"{emq}:version"}


def midway(client: RawClient) -> bool:
    """Whether a run has ten scenarios behind it: a queue is named for the run and for the scenario."""
    later = tuple(f"-{each.name}}}" for each in every()[10:])
    return any(name in key for key in left(client) for name in later)


@pytest.mark.parametrize("as_json", [False, True])
def test_what_there_is_of_a_run_whose_server_dies_is_told(start_server: StartServer, as_json: bool) -> None:
    server = start_server()
    words = [sys.executable, "-m", "echomq.cli", "conformance", server.url, *(["--json"] if as_json else [])]
    pipe = subprocess.PIPE
    with server.client() as client, subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True) as running:
        wait_until(lambda: midway(client), what="a run on its way")
        server.kill9()
        out, err = running.communicate(timeout=40)
    assert running.returncode == 1
    said = err.splitlines()[-1]
    assert said.startswith("echomq: ")
    assert server.socket_path in said
    if as_json:
        read = json.loads(out)
        assert said == f"echomq: {read['error']}"
        names = [each["name"] for each in read["scenarios"]]
        assert read["total"] == read["ok"] + read["fail"] + read["skip"] == len(names)
    else:
        *lines, total = out.splitlines()
        names = [line.split()[1] for line in lines]
        assert total.startswith(f"{len(names)} scenarios on ")
    assert len(names) >= 10
    assert names == [each.name for each in every()][: len(names)]
    assert len(names) < len(every())


def test_a_frozen_server_ends_a_run_too(start_server: StartServer) -> None:
    server = start_server()
    words = [sys.executable, "-m", "echomq.cli", "conformance", server.url, "--json"]
    with server.client() as client, subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as running:
        wait_until(lambda: midway(client), what="a run on its way")
        server.freeze()
        try:
            out, _ = running.communicate(timeout=45)
        finally:
            server.thaw()
            if running.poll() is None:
                running.send_signal(signal.SIGKILL)
    assert running.returncode == 1
    assert json.loads(out)["error"]
    with server.client() as client:
        for key in left(client):
            client.execute("DEL", key)
