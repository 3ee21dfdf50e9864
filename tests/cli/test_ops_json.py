"""Asked for JSON a command answers in JSON, one document on stdout, whatever goes wrong; and it asks nothing back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from echomq.cli import program
from echomq.identity.minter import mint

NOWHERE = "unix:///nowhere/echomq.sock"

ARGUMENTS: dict[str, tuple[str, ...]] = {
    "conformance": (NOWHERE,),
    "job": (mint(), "--url", NOWHERE),
    "demo": (),
    **dict.fromkeys(("queues", "stats", "health"), ("--url", NOWHERE)),
    **dict.fromkeys(("jobs", "dead", "lanes", "repeats", "workers", "audit", "pause"), ("q", "--url", NOWHERE)),
    **dict.fromkeys(("resume", "set"), ("q", "--url", NOWHERE)),
    **dict.fromkeys(("drain", "obliterate"), ("q", "--yes", "--url", NOWHERE)),
}


def error_of(said: Any, code: int) -> dict[str, Any]:
    """The one document on stdout, an error; people who look on are told the same on stderr."""
    assert said.code == code, said
    document: dict[str, Any] = json.loads(said.out)
    assert set(document) == {"error", "kind", "exit_code"}
    assert document["exit_code"] == code
    assert said.err == f"echomq: {document['error']}\n"
    return document


def test_every_command_that_knows_json_is_tried_here(ops: Any) -> None:
    assert {name for name in program.COMMANDS if "--json" in ops(name, "--help").out} == set(ARGUMENTS)


@pytest.mark.parametrize("command", [name for name in ARGUMENTS if name != "demo"])
def test_a_server_out_of_reach_is_told_in_json(command: str, ops: Any) -> None:
    told = error_of(ops(command, *ARGUMENTS[command], "--json"), 1)
    assert told["kind"] == "ConnectError"
    assert "nowhere" in told["error"]


@pytest.mark.parametrize("command", ARGUMENTS)
@pytest.mark.parametrize("wrong", [("--no-such-option",), ("a", "b", "c", "d")])
def test_a_wrong_command_line_is_told_in_json(command: str, wrong: tuple[str, ...], ops: Any) -> None:
    if command == "health" and wrong[0] == "a":
        return  # it takes any number of queues
    error_of(ops(command, *ARGUMENTS[command], *wrong, "--json"), 2)


def test_a_demo_of_nothing_is_told_in_json(ops: Any) -> None:
    assert "/nowhere" in error_of(ops("demo", "/nowhere", "--json"), 2)["error"]


def test_a_missing_argument_is_told_in_json(ops: Any) -> None:
    assert "QUEUE" in error_of(ops("drain", "--json"), 2)["error"]


@pytest.mark.parametrize("command", [name for name in ARGUMENTS if ARGUMENTS[name][:1] == ("q",)])
def test_a_queue_that_does_not_exist_is_told_in_json(command: str, ops: Any, shop: Any) -> None:
    shop.put()
    yes = ("--yes",) if "--yes" in ARGUMENTS[command] else ()
    told = error_of(ops(command, "nosuchqueue", *yes, "--json"), 2)
    assert "no queue 'nosuchqueue'" in told["error"]
    assert told["kind"] == "InvalidInputError"


@pytest.mark.parametrize(
    "words",
    [
        ("drain",),
        ("drain", "--scheduled"),
        ("obliterate", "--force"),
        ("lanes", "acme", "--drain"),
        ("dead", "--purge"),
        ("dead", "--retry"),
    ],
)
def test_a_machine_is_asked_nothing_and_has_to_say_yes(words: tuple[str, ...], ops: Any, shop: Any) -> None:
    shop.put()
    shop.later()
    shop.lane("acme")
    shop.run(jobs_to_the_morgue(shop))
    before = shop.raw.execute("DBSIZE")
    command, *rest = words
    told = error_of(ops(command, shop.queue, *rest, "--json", answer="y\n"), 2)
    assert "add --yes" in told["error"]
    assert shop.raw.execute("DBSIZE") == before
    if command == "obliterate":
        ops("pause", shop.queue)
    assert "error" not in ops(command, shop.queue, *rest, "--json", "--yes").json


def jobs_to_the_morgue(shop: Any) -> Any:
    """A job is cancelled, which buries it."""
    from echomq.protocol import admin

    return admin.cancel_job(shop.queue, shop.put())


def test_help_and_success_are_as_ever(ops: Any, shop: Any) -> None:
    shop.put()
    said = ops("drain", "--json", "--help")
    assert (said.code, "Examples:" in said.out) == (0, True)
    assert ops("drain", shop.queue, "--json", "--yes").json == {"queue": shop.queue, "outcome": "drained", "jobs": 1}
    assert ops("health", shop.queue, "--json").json["queues"]
