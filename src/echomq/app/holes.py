"""Arguments that only the children of a job will know: `previous()` and `results()`, in the calls of a flow.

Such an argument leaves a hole in the envelope, null, and the member `takes` says which holes there are
(docs/additions.md). The worker fills them with what the children have returned, before it converts the arguments.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from echomq.app.errors import EnvelopeError, ResultError
from echomq.app.plain import HOLE, Promised
from echomq.app.returns import Returns
from echomq.app.text import cut
from echomq.protocol import flows
from echomq.protocol.call import Call

if TYPE_CHECKING:
    from echomq.app.codec import Codecs
    from echomq.app.envelope import Envelope


class Takes(Enum):
    """Whose results fill a hole."""

    ONE = "one"
    ALL = "all"


_NAMES: Final = {Takes.ONE: "previous()", Takes.ALL: "results()"}


class Result(Promised):
    """The place of an argument that is not known yet."""

    __slots__ = ("takes",)

    def __init__(self, takes: Takes) -> None:
        self.takes = takes

    def __repr__(self) -> str:
        return _NAMES[self.takes]


def word_of(takes: str) -> str:
    """What a user has written for an argument that is missing."""
    return _NAMES[Takes(takes)]


_PREVIOUS: Final = Result(Takes.ONE)
_RESULTS: Final = Result(Takes.ALL)


def previous() -> Any:
    """In `.s(...)`, the result of the job before it in a chain, or of the only child: `parse.s(previous())`.

    The function gets what that one has returned, converted by its own annotation; None when it was allowed to fail and
    did. It is of any type to a type checker, for nobody knows the other job's yet.
    """
    return _PREVIOUS


def results() -> Any:
    """In `.s(...)`, a list of the results of all children, in the order they were given: `total.s(results())`.

    None stands where a child was allowed to fail and did.
    """
    return _RESULTS


Holes: TypeAlias = list[tuple[int | str, str]]
"""Where an argument is missing, by place or by name, and what fills it."""


def holes(args: tuple[object, ...], kwargs: dict[str, object]) -> tuple[tuple[object, ...], dict[str, object], Holes]:
    """The arguments of a call with a hole for each that the children will know, and a list of these."""
    found: Holes = []
    places: list[object] = []
    for place, value in enumerate(args):
        if isinstance(value, Result):
            found.append((place, value.takes.value))
            value = HOLE
        places.append(value)
    words: dict[str, object] = {}
    for name, value in kwargs.items():
        if isinstance(value, Result):
            found.append((name, value.takes.value))
            value = HOLE
        words[name] = value
    return tuple(places), words, found


@dataclass(frozen=True, slots=True)
class Child:
    """A child of a running job that is done, or whose death counts as done."""

    id: str
    result: Any
    """What it has returned, as JSON has it: annotate an argument to get more than that."""
    error: str | None = None
    """Why it died; None when it did not."""


Results: TypeAlias = dict[str, bytes]


def read(queue: str, job_id: str) -> Generator[Call[Results], Results, tuple[Results, Results]]:
    """What the children of a job have left: their results, and the errors of those that were allowed to fail."""
    done = yield flows.children_values(queue, job_id)
    ignored = yield flows.ignored_failures(queue, job_id)
    return done, ignored


def children(done: Results, ignored: Results, codecs: Codecs) -> tuple[Child, ...]:
    """The children in the order they were given, which is that of their ids; `ResultError` for a result nobody can
    read.
    """
    returns = Returns("child", None, codecs, 0)
    out: list[Child] = []
    for child in sorted(done.keys() | ignored.keys()):
        if child in done:
            try:
                out.append(Child(child, returns.value(done[child])))
            except ResultError as error:
                raise ResultError(f"child {child}: {error}") from error
        else:
            out.append(Child(child, None, ignored[child].decode("utf-8", "replace")))
    return tuple(out)


def filled(envelope: Envelope, family: tuple[Child, ...]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of an envelope with its holes filled; `EnvelopeError` when they cannot be."""
    args, kwargs = list(envelope.args), dict(envelope.kwargs)
    for place, takes in _said(envelope.takes):
        if takes is Takes.ALL:
            value: object = [child.result for child in family]
        elif len(family) == 1:
            value = family[0].result
        else:
            raise EnvelopeError(f"argument {place!r} is the result of one child, and the job has {len(family)}")
        if isinstance(place, str):
            kwargs[place] = value
        elif place < len(args):
            args[place] = value
        else:
            raise EnvelopeError(f"the child's result is argument {place}, and there are {len(args)}")
    return args, kwargs


def _said(takes: object) -> list[tuple[int | str, Takes]]:
    out: list[tuple[int | str, Takes]] = []
    try:
        if not isinstance(takes, list):
            raise ValueError(f"{takes!r} is no list")
        for pair in cast("list[object]", takes):
            if not isinstance(pair, list):
                raise ValueError(f"{pair!r} is no pair")
            place, word = cast("list[object]", pair)
            if isinstance(place, bool) or not isinstance(place, (int, str)) or (isinstance(place, int) and place < 0):
                raise ValueError(f"{place!r} is no place")
            out.append((place, Takes(word)))
    except (TypeError, ValueError) as error:
        raise EnvelopeError(f"what the job takes of its children cannot be read: {cut(str(error))}") from None
    return out
