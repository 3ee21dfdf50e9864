"""What the parser of the command line refuses, as one sentence with the nearest valid thing.

The classes of its errors are typer's own affair: they are told apart by what they carry.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from echomq.app.text import nearest

__all__ = ["sentence"]

_CHOICES: Final = re.compile(r"(['\"].*['\"]) is not one of ('[^']*'(?:, '[^']*')*)\.?", re.DOTALL)
_NO_COMMAND: Final = re.compile(r"No such command '(.*?)'\.", re.DOTALL)
_EXTRA: Final = re.compile(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)", re.DOTALL)


def sentence(error: Any) -> str:
    """What is wrong with a command line, in one line."""
    return " ".join(_told(error, str(error.format_message())).split())


def _told(error: Any, message: str) -> str:
    context = getattr(error, "ctx", None)
    param = getattr(error, "param", None)
    option = getattr(error, "option_name", None)
    if option is not None and not hasattr(error, "possibilities"):
        return f"{option} needs a value, as in --help" if "requires" in message else f"{option} takes no value"
    if context is None:
        return message.rstrip(".")
    words = _words(context)
    if found := _NO_COMMAND.match(message):
        return f"{words} has no command {found[1]!r}; nearest: {nearest(found[1], context.command.commands)}"
    if found := _EXTRA.match(message):
        return f"{found[1]!r} is too much: {words} takes {_arguments(context) or 'no argument'}, see {words} --help"
    if option is not None:
        names = [name for each in context.command.params for name in each.opts if name.startswith("-")]
        near = ", ".join(map(repr, error.possibilities or ())) or nearest(option, [*names, "--help"])
        return f"{words} has no option {option!r}; nearest: {near}"
    if param is None:
        return message.rstrip(".")
    name = _name(param)
    if message.startswith("Missing"):
        return f"{name} is missing: {words} {_arguments(context)}, see {words} --help"
    said = str(error.message).removeprefix("Value error, ").rstrip(".")
    if found := _CHOICES.fullmatch(said):
        near = nearest(found[1][1:-1], re.findall("'([^']*)'", found[2]))
        return f"{name} is {found[1]}; nearest: {near}"
    return f"{name} is {said}" if said.startswith(("'", '"')) else f"{name}: {said}"


def _words(context: Any) -> str:
    """The command as it is typed, whatever started the program."""
    names: list[str] = []
    while context.parent is not None:
        names.insert(0, context.info_name)
        context = context.parent
    return " ".join(["echomq", *names])


def _arguments(context: Any) -> str:
    pieces: Sequence[str] = context.command.collect_usage_pieces(context)
    return " ".join(piece.strip("{}") for piece in pieces if piece != "[OPTIONS]")


def _name(param: Any) -> str:
    """An option by its long name, an argument by what its help calls it."""
    long = [name for name in param.opts if name.startswith("--")]
    return str(long[0] if long else param.metavar or param.opts[0])
