"""What the operators' commands share: options, the connection, the queue that is meant, the question before harm."""

from __future__ import annotations

import logging
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from echomq.cli.wires import WireText, wire_of
from echomq.identity.errors import InvalidInputError
from echomq.protocol.errors import EchoMQError

if TYPE_CHECKING:
    from echomq.protocol.survey_lanes import Lane
    from echomq.wire import Connector

__all__ = [
    "DeclinedError",
    "Fence",
    "Json",
    "New",
    "NotNowError",
    "Queue",
    "Url",
    "WireText",
    "Yes",
    "choose",
    "confirm",
    "counted",
    "known_queue",
    "known_queues",
    "lane_meant",
    "must_say_yes",
    "opened",
    "queue_name",
    "told",
    "typed",
]

Url: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--url", metavar="URL", envvar="ECHOMQ_URL", help="The server. Default: the embedded one.", show_default=False
    ),
]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
Fence: TypeAlias = Annotated[
    str | None,
    typer.Option("--fence", metavar="TEXT", help="The version string of a server shared with another client."),
]
Yes: TypeAlias = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]
New: TypeAlias = Annotated[bool, typer.Option("--new", help="The name need not exist yet.")]


def queue_name(given: str | list[str] | None) -> str | list[str] | None:
    """What the command line names as a queue or as several: one that can be none is refused before anything starts."""
    from echomq.protocol.keys import check_queue

    for name in [given] if isinstance(given, str) else given or ():
        check_queue(name)
    return given


Queue: TypeAlias = Annotated[
    str, typer.Argument(metavar="QUEUE", help="The queue.", show_default=False, callback=queue_name)
]


class DeclinedError(EchoMQError):
    """The person who was asked did not say yes; nothing was changed."""


class NotNowError(EchoMQError):
    """The state of what was named stands in the way."""


@contextmanager
def opened(
    url: str | None, fence: str | None = None, wire: str | None = None, *, mints: bool = False
) -> Generator[Connector, None, None]:
    """A connector for one command; only a command that admits a job needs a node for its ids (`mints`)."""
    from echomq.cli.ops_view import prepare
    from echomq.wire import FENCE, connect

    asked = wire_of(wire)
    prepare()
    log = logging.getLogger("echomq")
    level = log.level
    # Advice about the server is for whoever runs it on purpose: `echomq worker` gives it.
    log.setLevel(logging.ERROR)
    try:
        with connect(url or None, fence=fence or FENCE, name="cli", lease_node=mints, wire=asked) as conn:
            yield conn
    finally:
        log.setLevel(level)


def known_queue(conn: Connector, queue: str, *, new: bool = False) -> str:
    """`queue`, which exists unless it may be new; else `InvalidInputError` with the nearest that do."""
    from echomq.app.text import nearest
    from echomq.protocol import discover

    if conn.run(discover.exists(queue)) or new:
        return queue
    names = conn.run(discover.queues())
    if queue in names:
        return queue
    if not names:
        raise InvalidInputError(f"there is no queue {queue!r}, nor any other, on this server")
    raise InvalidInputError(f"there is no queue {queue!r} on this server; nearest: {nearest(queue, names)}")


def known_queues(conn: Connector, queues: Sequence[str]) -> tuple[str, ...]:
    """The queues that are named, each of which exists; all that there are when none is named."""
    from echomq.protocol import discover

    if queues:
        return tuple(dict.fromkeys(known_queue(conn, queue) for queue in queues))
    return conn.run(discover.queues())


def lane_meant(conn: Connector, queue: str, lane: str, *, new: bool = False) -> Lane:
    """The lane that a text or an id names; it is in the queue's books unless it may be `new`."""
    from echomq.app.inspect import lanes_of
    from echomq.app.text import nearest
    from echomq.identity.branded import check
    from echomq.protocol import survey_lanes
    from echomq.protocol.lanes import lane_id

    try:
        group = check(lane)
    except InvalidInputError:
        group = lane_id(lane)
    (found,) = conn.run(survey_lanes.lanes(queue, [group]))
    if new or found.depth or found.in_hand or found.paused or (found.limit, found.weight, found.text) != (None,) * 3:
        return found
    named = [each.text or each.group for each in conn.run(lanes_of(queue))]
    raise InvalidInputError(f"queue {queue!r} has no lane {lane!r}; nearest: {nearest(lane, named)}")


def choose(given: dict[str, object]) -> str:
    """The one action among the options that were given; "" when none was."""
    chosen = [name for name, value in given.items() if value is not None and value is not False]
    if len(chosen) > 1:
        raise InvalidInputError(f"{' and '.join(chosen)} cannot be combined: give one of them")
    return chosen[0] if chosen else ""


def told(outcome: dict[str, object], sentence: str, *, json: bool) -> None:
    """What an action did: a document for a machine, a sentence for a person."""
    from echomq.cli import ops_view

    if json:
        ops_view.document(outcome)
    else:
        ops_view.say(sentence)


def counted(n: int, noun: str) -> str:
    """A number of things."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def _asked(question: str) -> str:
    print(question, end=" ", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if not answer:
        print(file=sys.stderr)
    return answer.strip()


def must_say_yes(*, json: bool, yes: bool) -> None:
    """A machine is asked nothing: what deletes wants --yes beside --json."""
    if json and not yes:
        raise InvalidInputError("with --json nobody is asked, and nothing was changed: add --yes to go on")


def confirm(question: str, *, yes: bool) -> None:
    """Asks before something is done that cannot be undone; anything but a yes is a no."""
    if not yes and _asked(f"{question} [y/N]").lower() not in ("y", "yes"):
        raise DeclinedError("nothing was changed: say yes when asked, or give --yes")


def typed(question: str, expected: str, *, yes: bool) -> None:
    """The same, answered by the name of what will be gone."""
    if not yes and (answer := _asked(f"{question} Type its name to go on:")) != expected:
        raise DeclinedError(f"nothing was changed: {answer!r} is not {expected!r}; type the name, or give --yes")
