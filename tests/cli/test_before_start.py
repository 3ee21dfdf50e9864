"""What is written wrongly is refused before a server is started, reached or asked anything."""

from __future__ import annotations

from typing import Any

import pytest

from echomq import wire

ONE = ("jobs", "dead", "lanes", "repeats", "audit", "pause", "resume", "drain", "obliterate", "set")
ANY = ("queues", "stats", "workers", "health")
JOB = "JOB0NgWEfAEJfs"


@pytest.fixture
def alone(ops: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The program where nothing may be connected to, and so nothing started."""

    def connect(*_: object, **__: object) -> None:
        pytest.fail("it connects")

    monkeypatch.delenv("ECHOMQ_URL")
    monkeypatch.setattr(wire, "connect", connect)
    return ops


@pytest.mark.parametrize("command", [*((name, "mail") for name in ONE), *((name,) for name in ANY), ("job", JOB)])
def test_a_wire_that_there_is_not(command: tuple[str, ...], alone: Any) -> None:
    said = alone(*command, "--wire", "7")
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("echomq: --wire 7: 4 (scripts), 6 (native commands) or auto is allowed")


@pytest.mark.parametrize(
    "command", [*((name,) for name in ONE), ("stats",), ("workers",), ("health", "mail"), ("job", JOB, "--queue")]
)
@pytest.mark.parametrize("name", ["two words", "", "br{aces}"])
def test_a_name_that_no_queue_can_have(command: tuple[str, ...], name: str, alone: Any) -> None:
    said = alone(*command, name)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("echomq: queue name ")


@pytest.mark.parametrize(
    "words",
    [
        ("jobs", "mail", "--state", "no"),
        ("jobs", "mail", "--limit", "0"),
        ("job", "JOB123"),
        ("job", JOB, "--retry", "--cancel"),
        ("job", JOB, "--reason", "x"),
        ("dead", "mail", "--older-than", "7"),
        ("dead", "mail", "--purge", "--retry"),
        ("dead", "mail", "--purge", "--json"),
        ("drain", "mail", "--json"),
        ("lanes", "mail", "--pause"),
        ("lanes", "mail", "acme", "--limit", "x"),
        ("set", "mail", "--rate", "10/x"),
        ("set", "mail", "--keep-dead-for", "7"),
        ("stats", "--times", "2"),
        ("stats", "--watch", "0"),
        ("health", "--late", "nan"),
        ("repeats", "mail", "--pause"),
    ],
    ids=" ".join,
)
def test_an_option_that_is_wrong(words: tuple[str, ...], alone: Any) -> None:
    said = alone(*words)
    assert said.code == 2
    assert len(said.err.splitlines()) == 1
