"""Every command's help, at every depth of the program: it has examples, and the program takes each of them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import pytest
import typer

from echomq.cli import program

PROGRAM: Any = typer.main.get_command(program.build())
"""The program as its parser has it, whose classes typer keeps to itself."""


def commands(command: Any = PROGRAM, *path: str) -> Iterator[tuple[str, ...]]:
    """The words that lead to each command and group, those of the program itself first."""
    yield path
    for name, each in getattr(command, "commands", {}).items():
        yield from commands(each, *path, name)


PATHS = list(commands())


def helped(*path: str) -> str:
    """What `--help` says."""
    said = StringIO()
    with redirect_stdout(said), pytest.raises(SystemExit) as ended:
        PROGRAM([*path, "--help"], prog_name="echomq")
    assert ended.value.code == 0
    return said.getvalue()


def examples(text: str) -> list[str]:
    """The lines below "Examples:"."""
    block = re.search(r"^ *Examples:\n((?: +\S.*\n)+)", text, re.MULTILINE)
    return [] if block is None else [line.strip() for line in block[1].splitlines()]


def calls(line: str) -> Iterator[list[str]]:
    """The arguments of each `echomq` that a line of a shell runs."""
    for inner in re.findall(r"\$\((.+?)\)", line):
        yield from calls(inner)
    words = shlex.shlex(line, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    call: list[str] = []
    for word in [*words, ";"]:
        if set(word) <= set("|&;<>()"):
            if call[:1] == ["echomq"]:
                yield call[1:]
            call = []
        else:
            call.append(word)


def parse(words: list[str]) -> None:
    """Reads a command line to its end, as the program would, and runs nothing."""
    command, rest = PROGRAM, words
    while True:
        context = command.make_context(command.name, list(rest))
        if not hasattr(command, "commands"):
            return
        name, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert name is not None


def test_the_program_is_walked_to_its_ends() -> None:
    assert [path for path in PATHS if len(path) == 1] == [(name,) for name in program.COMMANDS]
    assert ("module", "path") in PATHS


@pytest.mark.parametrize("path", PATHS, ids=lambda path: " ".join(("echomq", *path)))
def test_each_help_has_examples_that_the_program_takes(path: tuple[str, ...]) -> None:
    lines = examples(helped(*path))
    taken = [call for line in lines for call in calls(line)]
    assert any(tuple(call[: len(path)]) == path for call in taken)
    for call in taken:
        parse(call)
    assert all(any(calls(line)) for line in lines)


@pytest.mark.parametrize(
    "path", [path for path in PATHS if path != ("module",)], ids=lambda path: " ".join(("echomq", *path))
)
def test_each_help_says_its_exit_codes(path: tuple[str, ...]) -> None:
    _, _, codes = helped(*path).partition("Exit codes:")
    for code in ("0", "1", "2")[:: 2 if path == ("module", "path") else 1]:
        assert re.search(rf"\b{code}\s", codes.partition("Examples:")[0])


@pytest.mark.parametrize(
    "line",
    ["echomq jobs mail --stat dead", "echomq jbs mail", "echomq module file", "echomq jobs", "echomq stats --watch x"],
)
def test_an_example_that_the_program_does_not_take_is_seen(line: str) -> None:
    (call,) = calls(f"true | {line} >> file  # or so")
    with pytest.raises(Exception, match=r"No such|Missing|Invalid|whole|seconds|number"):
        parse(call)


def test_the_program_lists_each_command_with_a_whole_sentence() -> None:
    listed = dict(re.findall(r"^  (\w+)  +(.+)$", helped().partition("Commands:")[2], re.MULTILINE))
    assert list(listed) == list(program.COMMANDS)
    assert [name for name, says in listed.items() if not says.endswith(".") or says.endswith("...")] == []
