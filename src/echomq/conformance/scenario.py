"""A scenario: a name, the contract in a sentence, and a function that looks whether a server keeps it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING, Final

from echomq.identity.errors import InvalidInputError

if TYPE_CHECKING:
    from echomq.conformance.desk import Desk

__all__ = ["BreachError", "LackError", "Scenario", "choose", "every", "scenario"]

FAMILIES: Final = (
    "identity",
    "admission",
    "claims",
    "settling",
    "holder",
    "refusals",
    "locks",
    "time",
    "native",
    "stalled",
    "lanes",
    "lane_books",
    "flows",
    "flow_deaths",
    "flow_slots",
    "operator",
    "removal",
    "limits",
    "dedup",
    "recurrence",
    "timetable",
    "events",
    "wake",
    "promises",
    "trips",
    "audit",
)
"""The modules of `echomq.conformance.scenarios`, in the order in which they run."""


class BreachError(Exception):
    """The contract is not kept; the text is what was seen instead."""


class LackError(Exception):
    """The server lacks what the scenario needs; the text is the reason to skip it."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One sentence of the contract and how to see whether it is kept.

    `strays`: it leaves on purpose what breaks an invariant (protocol §12.1), so nobody looks for that afterwards.
    """

    name: str
    contract: str
    act: Callable[[Desk], None]
    strays: bool = False


_known: dict[str, Scenario] = {}


def scenario(
    name: str, contract: str, *, strays: bool = False
) -> Callable[[Callable[[Desk], None]], Callable[[Desk], None]]:
    """Makes a scenario of a function that raises `BreachError`, or anything else, when the contract is broken."""

    def keep(act: Callable[[Desk], None]) -> Callable[[Desk], None]:
        if name in _known:
            raise InvalidInputError(f"there are two scenarios named {name!r}")
        _known[name] = Scenario(name, contract, act, strays)
        return act

    return keep


def every() -> tuple[Scenario, ...]:
    """All scenarios, family by family."""
    for family in FAMILIES:
        import_module(f"echomq.conformance.scenarios.{family}")
    return tuple(_known.values())


def choose(names: Sequence[str]) -> tuple[Scenario, ...]:
    """The scenarios of these names, in the suite's order; all of them when none is named."""
    known = {each.name: each for each in every()}
    for name in names:
        if name not in known:
            close = get_close_matches(name, known, n=3, cutoff=0.4)
            hint = f"the nearest: {', '.join(close)}" if close else f"there are {len(known)}, such as claim"
            raise InvalidInputError(f"no scenario is named {name!r}; {hint}")
    return tuple(each for each in known.values() if not names or each.name in names)
