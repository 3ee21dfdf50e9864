"""Every operators' command explains itself by examples whose options exist, and reads times as people write them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import echomq
from echomq.cli import ops_text
from echomq.identity.errors import InvalidInputError
from support.program import python
from support.servers import Server

COMMANDS = ["queues", "stats", "jobs", "job", "dead", "lanes", "repeats", "workers", "health", "audit"]
COMMANDS += ["pause", "resume", "drain", "obliterate", "set"]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_has_examples_of_options_that_exist(command: str, ops: Any) -> None:
    said = ops(command, "--help")
    assert said.code == 0
    _, _, rest = said.out.partition("Examples:")
    examples, _, options = rest.partition("Options:")
    own = re.findall(rf"echomq {command}\b([^\n|&#]*)", examples)
    assert own
    for option in re.findall(r"--[\w-]+", " ".join(own)):
        assert option in options, option
    for option in ("--url", "--wire", "--json", "ECHOMQ_URL"):
        assert option in options


def test_each_takes_the_wire(ops: Any, start_server: Callable[..., Server]) -> None:
    native, bare = start_server(module=True), start_server(module=False)
    for server, wire, code in (
        (native, "6", 0),
        (native, "auto", 0),
        (bare, "4", 0),
        (bare, "auto", 0),
        (bare, "6", 1),
    ):
        said = ops("queues", "--url", f"unix://{server.socket_path}", "--wire", wire)
        assert said.code == code, said.err
    assert said.err.startswith(f"echomq: {bare.socket_path} has no native commands")
    assert ops("queues", "--wire", "five").err == (
        "echomq: --wire five: 4 (scripts), 6 (native commands) or auto is allowed\n"
    )


def test_the_program_lists_them_with_a_whole_sentence(ops: Any) -> None:
    listed = dict(re.findall(r"^  (\w+)  +(.+)$", ops("--help").out.partition("Commands:")[2], re.MULTILINE))
    assert set(COMMANDS) <= set(listed)
    assert [name for name in COMMANDS if listed[name].endswith("...")] == []


@pytest.mark.parametrize(
    ("text", "ms"),
    [("500ms", 500), ("90s", 90_000), ("15m", 900_000), ("2h", 7_200_000), ("1.5h", 5_400_000), ("1d12h", 129_600_000)],
)
def test_spans_are_read_as_people_write_them(text: str, ms: int) -> None:
    assert ops_text.span_ms("--x", text) == ms


@pytest.mark.parametrize("text", ["", "5", "h", "1h 5m", "-1s", "٣s", "1e3s", "nan"])
def test_what_is_no_span_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="15m, 2h"):
        ops_text.span_ms("--x", text)


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        *((None, "-"), (0, "0ms"), (999, "999ms"), (1_000, "1s"), (1_950, "1.9s"), (59_999, "59s"), (60_000, "1m")),
        *((3_661_000, "1h 1m"), (3_605_000, "1h"), (90_000_000, "1d 1h"), (-1_500, "-1.5s")),
    ],
)
def test_spans_are_shown_by_their_two_largest_units(ms: int | None, text: str) -> None:
    assert ops_text.shown_span(ms) == text


def test_instants_beyond_the_calendar_are_shown_as_they_are() -> None:
    assert ops_text.local_and_utc(2**53) == f"{2**53} ms"
    assert ops_text.local_and_utc(None) == "-"
    assert ops_text.local_and_utc(1_704_067_200_000).endswith("2024-01-01 00:00:00.000 UTC") or (
        "(2024-01-01 00:00:00.000 UTC)" in ops_text.local_and_utc(1_704_067_200_000)
    )


def test_text_of_a_stranger_gives_a_terminal_nothing_to_obey() -> None:
    assert ops_text.clean("a\x1b[2J\r\u202eb\n") == r"a\x1b[2J\r\u202eb\n"
    assert ops_text.first_line("\n  \n first \x07\nsecond") == r"first \x07"
    assert ops_text.first_line(None) == ""


@pytest.mark.parametrize("module", ["echomq", "echomq.cli"])
def test_the_program_is_a_module_too(module: str) -> None:
    done = python("-m", module, "--version")
    assert done.stdout == f"echomq {echomq.__version__}\n"
