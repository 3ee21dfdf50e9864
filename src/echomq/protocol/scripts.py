"""The transitions' Lua sources: read once, their shared pieces included, named by their SHA-1.

A line `-- @include NAME` stands for the text of `lua/lib/NAME.lua`, taken once however often it is named. The word
`SELF` in a text stands for the name by which the verb's refusals call it.
"""

from __future__ import annotations

import re
from functools import cached_property
from hashlib import sha1
from importlib.resources import files
from typing import Final

NATIVE: Final = frozenset(
    {"schedule", "reschedule", "promote", "delay", "enqueue", "enqueue_many", "claim", "complete_many"}
)
"""The scripts with a native twin (protocol §5): what the module answers as a command, `EMQ.SCHEDULE` and so on."""

_INCLUDE = re.compile(r"-- @include (\w+)")


def _lines(path: str, seen: set[str]) -> list[str]:
    """The code of a Lua file and of what it includes, without comments: what a server has to keep."""
    out: list[str] = []
    for line in (files("echomq.protocol") / "lua" / path).read_text("utf-8").splitlines():
        if include := _INCLUDE.fullmatch(line):
            if include[1] not in seen:
                seen.add(include[1])
                out += _lines(f"lib/{include[1]}.lua", seen)
        elif line.strip() and not line.lstrip().startswith("--"):
            out.append(line)
    return out


class Script:
    """One transition: its file's name, its text and hash, and its twin's name on wire 6 ("" when it has none)."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.native = "EMQ." + name.replace("_", "").upper() if name in NATIVE else ""

    def __repr__(self) -> str:
        return f"Script({self.name!r})"

    @cached_property
    def source(self) -> str:
        """The whole text that a server is given."""
        text = "\n".join(_lines(f"{self.name}.lua", set())) + "\n"
        return text.replace("SELF", self.native or self.name)

    @cached_property
    def sha(self) -> str:
        """The SHA-1 by which a server knows it."""
        return sha1(self.source.encode(), usedforsecurity=False).hexdigest()


_registry: dict[str, Script] = {}


def script(name: str) -> Script:
    """The one `Script` of that name."""
    return _registry.setdefault(name, Script(name))


def twins() -> tuple[Script, ...]:
    """The scripts that have a native twin, `schedule` first."""
    return tuple(script(name) for name in sorted(NATIVE, key=lambda name: (name != "schedule", name)))


def registered() -> tuple[Script, ...]:
    """Every script that a loaded verb family has named."""
    return tuple(_registry.values())
