"""A verb as a value: `Call[T]` is one round trip, `Plan[T]` several; neither does any I/O.

A connector runs them, blocking or awaited, alone or many in one flight; it alone chooses between a
script and its native command.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from echomq.protocol.scripts import Script
from echomq.protocol.slots import slot_of

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Arg: TypeAlias = str | bytes | int
Reply: TypeAlias = "int | float | bool | bytes | list[Reply] | dict[Reply, Reply] | None"


@dataclass(frozen=True, slots=True)
class Call(Generic[T_co]):
    """One atomic transition or read, ready to be sent.

    `script` is None for a plain command, whose name is then `command`. `subject` and `token` only
    serve error messages.
    """

    verb: str
    keys: tuple[str, ...]
    args: tuple[Arg, ...]
    decode: Callable[[Reply], T_co]
    script: Script | None = None
    command: str = ""
    subject: str = ""
    token: str = ""
    home: str = ""

    @property
    def slot(self) -> int:
        """The cluster slot of its keys (all of a queue's keys share one), or of `home` for a call without any."""
        return slot_of(self.keys[0] if self.keys else self.home)

    def words(self) -> tuple[Arg, ...]:
        """The command as sent on wire 4: `EVALSHA sha numkeys keys args`, or the plain command."""
        if self.script is None:
            return (self.command, *self.keys, *self.args)
        return ("EVALSHA", self.script.sha, len(self.keys), *self.keys, *self.args)

    def native_words(self) -> tuple[Arg, ...]:
        """The command as sent on wire 6: the same tail, the SHA replaced by the native name, if it has one."""
        if self.script is None or not self.script.native:
            return self.words()
        return (self.script.native, len(self.keys), *self.keys, *self.args)


Plan: TypeAlias = Generator[Call[Any], Any, T]
"""Several calls that give one result: a generator that yields calls and is sent their results."""
