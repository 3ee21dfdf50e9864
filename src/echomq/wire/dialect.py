"""Which wire a connection speaks: scripts, or the native commands of a server with the module (protocol §5).

What stays true on every wire: the caller gets the same answer, and a call that the server did not run as a command
runs as the script that is its twin.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import Final, Literal, TypeAlias

from echomq.identity.errors import InvalidInputError
from echomq.protocol.call import Arg, Call, Reply
from echomq.protocol.errors import NativeMissingError, ServerError
from echomq.protocol.scripts import Script, twins

Wire: TypeAlias = Literal[4, 6, "auto"]
"""4 evaluates scripts, 6 sends native commands and takes no server without them, `auto` uses those it finds."""

DEFAULT: Final[Wire] = 4

_WIRES: Final[dict[str, Wire]] = {"4": 4, "6": 6, "auto": "auto"}
_LEFT_TO_SCRIPT: Final = ("EMQSTATE ", " not native")
_UNKNOWN: Final = "ERR unknown command"
_LEAVING: Final = frozenset({"claim", "complete_many", "delay", "promote"})
_OFTEN: Final = frozenset({"claim", "complete_many"})
_SPELL: Final = 64
_MOST_SPELLS: Final = 1_000
_NOT_ALLOWED: Final = "NOPERM"

_log: Final = logging.getLogger("echomq")


def check_wire(value: object, what: str = "wire=") -> Wire:
    """`value` as a `Wire`; `InvalidInputError` names what is allowed. A text, as from a URL, may be the number."""
    wire = _WIRES.get(str(value)) if isinstance(value, (int, str)) else None
    if wire is None:
        shown = value if what.startswith("--") else repr(value)
        raise InvalidInputError(f"{what}{shown}: 4 (scripts), 6 (native commands) or auto is allowed")
    return wire


def question() -> tuple[Arg, ...]:
    """What is asked at every connect of a wire that may be native."""
    return ("COMMAND", "INFO", *(script.native for script in twins()))


def read(address: str, wire: Wire, answer: Reply | ServerError) -> frozenset[Script]:
    """The scripts that go as native commands, by the `answer` to `question`.

    Raises `NativeMissingError` on wire 6 when EMQ.SCHEDULE is not among them.
    """
    known = answer if isinstance(answer, list) else []
    there = frozenset(script for script, info in zip(twins(), known, strict=False) if info)
    if wire == 6 and twins()[0] not in there:
        why = f"COMMAND INFO answers: {answer.reply}" if isinstance(answer, ServerError) else "EMQ.SCHEDULE is unknown"
        raise NativeMissingError(
            f"{address} has no native commands, which wire 6 sends ({why}): load the module into the server "
            "(`echomq module path` names it), or connect with wire=4, which needs none, or with wire='auto'"
        )
    _log.debug("%s: %d of %d native commands are used", address, len(there), len(twins()))
    return there


class Left:
    """The queues whose claims or settlements a connection's commands have lately left to the script.

    The next 64 of them go as the script at once, so that a queue with lanes does not pay a second round trip for each.
    """

    __slots__ = ("_spells",)

    def __init__(self) -> None:
        self._spells: dict[tuple[Script | None, str], int] = {}

    def __bool__(self) -> bool:
        return bool(self._spells)

    def note(self, call: Call[object]) -> None:
        """The server has left this call to the script."""
        if call.script is None or call.script.name not in _OFTEN:
            return
        if len(self._spells) >= _MOST_SPELLS:
            self._spells.clear()
        self._spells[call.script, queue_of(call)] = _SPELL

    def takes(self, call: Call[object]) -> bool:
        """Whether this call, which is about to be sent, had better go as the script."""
        key = call.script, queue_of(call)
        left = self._spells.get(key, 0)
        if left > 1:
            self._spells[key] = left - 1
        else:
            self._spells.pop(key, None)
        return left > 0


@cache
def leaving() -> frozenset[Script]:
    """The scripts whose native commands leave some calls to them (`is_left_to_script`)."""
    return frozenset(script for script in twins() if script.name in _LEAVING)


def queue_of(call: Call[object]) -> str:
    """A text that all calls of a queue share; empty for one without keys."""
    return call.keys[0].partition("}")[0] if call.keys else ""


def is_left_to_script(text: str) -> bool:
    """Whether a native command refused so because only its script does this; nothing was written."""
    begins, ends = _LEFT_TO_SCRIPT
    return text.startswith(begins) and text.endswith(ends)


def without(native: frozenset[Script], script: Script | None, text: str) -> frozenset[Script]:
    """What still goes as a command after a script's own `is_missing`: nothing where the server has lost the module.

    A user who may not run one may run the others; a server that does not know one that it had at the connect has none.
    """
    return frozenset() if text.startswith(_UNKNOWN) else native - {script}


def is_missing(text: str) -> bool:
    """Whether a native command never ran, as its server does not know it any more or not let this user run it."""
    return text.startswith(_UNKNOWN) or (text.startswith(_NOT_ALLOWED) and "'emq." in text.lower())
