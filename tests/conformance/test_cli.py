"""`echomq conformance` as a person and a machine use it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import typer

from conformance.breaks import BREAKS, damage
from echomq.cli.conformance import conformance
from echomq.conformance import every
from support.embedded import IDLE, folder
from support.program import cli
from support.registry import all_keys
from support.servers import Server, wire_6

WIRE = 6 if wire_6() else 4


def echomq(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return cli("conformance", *words, **environment)


def test_a_line_a_scenario_and_a_total(server: Server) -> None:
    done = echomq(server.url)
    assert done.returncode == 0, done.stderr
    *lines, total = done.stdout.splitlines()
    assert [line.split()[1] for line in lines] == [each.name for each in every()]
    assert {line.split()[0] for line in lines} <= {"ok", "skip"}
    assert all(each.contract in line for each, line in zip(every(), lines, strict=True))
    found = re.fullmatch(
        rf"(\d+) scenarios on (valkey|redis) [\d.]+, wire {WIRE}: (\d+) ok, 0 failed, (\d+) skipped, in [\d.]+ s",
        total,
    )
    assert found
    assert int(found[1]) == len(lines) == int(found[3]) + int(found[4])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_ended_takes_away_what_it_wrote(server: Server, number: signal.Signals) -> None:
    words = [sys.executable, "-m", "echomq.cli", "conformance", server.url]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as running:
        assert running.stdout is not None
        for _ in range(len(every()) // 4):
            running.stdout.readline()
        running.send_signal(number)
        running.stdout.read()
        assert running.wait(20) == 128 + number
    with server.client() as client:
        assert set(all_keys(client)) == {"{emq}:version"}


def test_json_is_one_object_and_only_names_the_scenarios(server: Server) -> None:
    done = echomq("--json", "--only", "stale", "--only", "claim", ECHOMQ_URL=server.url)
    assert done.returncode == 0, done.stderr
    read: dict[str, Any] = json.loads(done.stdout)
    assert {name: read[name] for name in ("wire", "total", "ok", "fail", "skip")} == {
        "wire": WIRE,
        "total": 2,
        "ok": 2,
        "fail": 0,
        "skip": 0,
    }
    assert read["server"].split()[0] in ("valkey", "redis")
    assert read["seconds"] > 0
    assert [scenario["name"] for scenario in read["scenarios"]] == ["claim", "stale"]
    for scenario in read["scenarios"]:
        assert set(scenario) == {"name", "status", "contract", "seen", "ms"}
        assert (scenario["status"], scenario["seen"]) == ("ok", "")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--only", "clam"), 2, "echomq: no scenario is named 'clam'; the nearest: claim"),
        (("--wire", "5"), 2, "echomq: --wire 5: 4 (scripts), 6 (native commands) or auto is allowed"),
        (("unix:///nowhere/s?wire=5",), 2, "echomq: 'unix:///nowhere/s': wire='5': 4 (scripts), 6 (native"),
        (("ftp://nowhere",), 2, "echomq: "),
        (("unix:///nowhere/s",), 1, "echomq: "),
    ],
)
def test_what_cannot_be_is_one_sentence_and_an_exit_code(words: tuple[str, ...], code: int, said: str) -> None:
    done = echomq(*words)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith(said)
    assert "Traceback" not in done.stderr


def test_wire_6_needs_the_module_and_auto_does_not(start_server: Callable[..., Server]) -> None:
    bare = start_server(module=False)
    done = echomq(bare.url, "--wire", "6")
    assert (done.returncode, done.stdout) == (1, "")
    assert "no native commands, which wire 6 sends" in done.stderr
    assert "wire=4" in done.stderr
    done = echomq(bare.url, "--wire", "auto", "--only", "claim")
    assert done.returncode == 0, done.stderr
    assert ", wire 4: 1 ok" in done.stdout


def test_a_failure_is_a_line_with_what_was_seen_and_exit_code_1(
    server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(monkeypatch, BREAKS[0])
    for as_json in (False, True):
        with pytest.raises(typer.Exit) as ended:
            conformance(server.url, only=["claim", "metrics"], json=as_json)
        assert ended.value.exit_code == 1
    text, _, rest = capsys.readouterr().out.partition("{")
    first, second, total = text.splitlines()
    assert first.startswith("ok   claim ")
    assert second.startswith("FAIL metrics ")
    assert " Seen instead: " in second
    assert ": 1 ok, 1 failed, 0 skipped" in total
    read = json.loads("{" + rest)
    assert [scenario["status"] for scenario in read["scenarios"]] == ["ok", "fail"]
    assert re.sub(r"JOB\w{11}", "", read["scenarios"][1]["seen"]) in re.sub(r"JOB\w{11}", "", second)


def test_another_fence_is_an_option(server: Server) -> None:
    with server.client() as client:
        client.execute("SET", "{emq}:version", "theirs:1.0.0")
    done = echomq(server.url, "--only", "fence")
    assert done.returncode == 1
    assert "theirs:1.0.0" in done.stderr
    assert echomq(server.url, "--only", "fence", "--fence", "theirs:1.0.0").returncode == 0


def test_without_a_server_it_is_the_embedded_one() -> None:
    with folder("c") as home:
        environment = {"ECHOMQ_HOME": str(home), "ECHOMQ_IDLE_SECONDS": IDLE, "ECHOMQ_URL": ""}
        done = echomq("--only", "claim", "--only", "resubscribe", **environment)
        assert done.returncode == 0, done.stderr
        assert "2 scenarios on valkey" in done.stdout
