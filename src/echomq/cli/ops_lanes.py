"""`echomq lanes`: the lanes of a queue with their books, and what can be done with one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from echomq.cli.numbers import whole
from echomq.cli.ops_common import (
    Fence,
    Json,
    New,
    Queue,
    Url,
    WireText,
    Yes,
    choose,
    confirm,
    counted,
    known_queue,
    lane_meant,
    must_say_yes,
    opened,
    told,
)
from echomq.identity.errors import InvalidInputError

if TYPE_CHECKING:
    from echomq.protocol.survey_lanes import Lane
    from echomq.wire import Connector

HEADINGS: Final = ("lane", "id", ">depth", ">oldest", ">in hand", ">limit", ">weight", "paused")


def register(app: typer.Typer) -> None:
    """Adds the command to the program."""
    app.command("lanes")(lanes)


def lanes(
    queue: Queue,
    lane: Annotated[
        str | None, typer.Argument(metavar="LANE", help="One lane, by its text or its id.", show_default=False)
    ] = None,
    pause: Annotated[bool, typer.Option("--pause", help="Keep the lane's jobs where they are.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Serve it again.")] = False,
    limit: Annotated[
        str | None, typer.Option("--limit", metavar="N", help="At most so many of its jobs in hand; none lifts it.")
    ] = None,
    weight: Annotated[
        int | None, typer.Option("--weight", metavar="W", parser=whole(1), help="Its share of a weighted turn.")
    ] = None,
    drain: Annotated[bool, typer.Option("--drain", help="Delete its waiting jobs, after a question.")] = False,
    most: Annotated[
        int, typer.Option("--most", "-n", metavar="N", parser=whole(1), help="How many lanes to list.")
    ] = 50,
    yes: Yes = False,
    new: New = False,
    url: Url = None,
    fence: Fence = None,
    wire: WireText = None,
    json: Json = False,
) -> None:
    """List the lanes of a queue, or act on one.

    The deepest lane comes first. A lane of which nothing is left, no job, limit, weight or pause, is listed as long
    as its text is known.

    Exit codes: 0 done; 1 nobody said yes, or the server cannot be reached; 2 something is written wrongly, or there is
    no such queue or lane.

    \b
    Examples:
      echomq lanes mail
      echomq lanes mail acme --pause
      echomq lanes mail acme --limit 5
      echomq lanes mail acme --limit none
      echomq lanes mail acme --weight 3 --new
      echomq lanes mail LAN0KHTOWnGLuC --drain
    """
    from echomq.app.inspect import lanes_of
    from echomq.cli import ops_text
    from echomq.protocol import discover

    action = choose({"--pause": pause, "--resume": resume, "--limit": limit, "--weight": weight, "--drain": drain})
    if action and lane is None:
        raise InvalidInputError(f"{action} acts on one lane: echomq lanes {queue} LANE {action}")
    if drain:
        must_say_yes(json=json, yes=yes)
    ceiling = None if limit is None else ops_text.number_or_none("--limit", limit, least=1)
    with opened(url, fence, wire) as conn:
        known_queue(conn, queue)
        if lane is None:
            _list(queue, conn.run(lanes_of(queue)), conn.run(discover.clock()), most, json=json)
            return
        one = lane_meant(conn, queue, lane, new=new)
        if not action:
            _list(queue, (one,), conn.run(discover.clock()), most, json=json)
            return
        outcome, sentence, more = _act(conn, queue, one, action, ceiling, weight or 1, yes=yes)
        if new and one.text is None and one.group != lane:
            _note_text(conn, queue, one.group, lane)
        about: dict[str, object] = {"queue": queue, "lane": one.group, "action": action[2:], "outcome": outcome}
        told(about | more, f"lane {lane} of queue {queue} {sentence}", json=json)


def _list(queue: str, found: tuple[Lane, ...], now_ms: int, most: int, *, json: bool) -> None:
    from echomq.cli import ops_view

    shown = sorted(found, key=lambda each: (-each.depth, -each.in_hand, each.text or each.group))[:most]
    if json:
        ops_view.document(
            {
                "queue": queue,
                "now_ms": now_ms,
                "total": len(found),
                "depth": sum(each.depth for each in found),
                "lanes": [_as_json(each, now_ms) for each in shown],
            }
        )
        return
    if shown:
        ops_view.table(HEADINGS, [_row(each, now_ms) for each in shown])
    depth = counted(sum(each.depth for each in found), "job")
    ops_view.say(f"{len(shown):,} listed, of {counted(len(found), 'lane')} in queue {queue} with {depth} waiting")


def _row(each: Lane, now_ms: int) -> list[str]:
    from echomq.cli.ops_rows import age_ms
    from echomq.cli.ops_text import shown_span

    return [
        each.text or "-",
        each.group,
        f"{each.depth:,}",
        shown_span(age_ms(each.oldest, now_ms)) if each.oldest else "-",
        f"{each.in_hand:,}",
        "-" if each.limit is None else f"{each.limit:,}",
        "-" if each.weight is None else f"{each.weight:,}",
        "paused" if each.paused else "",
    ]


def _as_json(each: Lane, now_ms: int) -> dict[str, object]:
    from echomq.cli.ops_rows import age_ms

    return {
        "lane": each.group,
        "text": each.text,
        "depth": each.depth,
        "claimable": each.servable,
        "oldest": each.oldest,
        "oldest_age_ms": age_ms(each.oldest, now_ms) if each.oldest else None,
        "in_hand": each.in_hand,
        "limit": each.limit,
        "weight": each.weight,
        "paused": each.paused,
    }


def _act(
    conn: Connector, queue: str, lane: Lane, action: str, ceiling: int | None, weight: int, *, yes: bool
) -> tuple[str, str, dict[str, object]]:
    """Does it; gives the outcome in a word and as the end of a sentence, and what more a machine is told."""
    from echomq.protocol import lanes as verbs

    group = lane.group
    if action == "--pause":
        conn.run(verbs.pause(queue, group))
        return "paused", "is paused", {}
    if action == "--resume":
        conn.run(verbs.resume(queue, group))
        return "resumed", "is served", {}
    if action == "--limit":
        conn.run(verbs.limit(queue, group, ceiling))
        lifted = "has no limit" if ceiling is None else f"has at most {counted(ceiling, 'job')} in hand"
        return "limited", lifted, {"limit": ceiling}
    if action == "--weight":
        conn.run(verbs.weight(queue, group, weight))
        return "weighted", f"has the weight {weight:,}", {"weight": weight}
    if lane.depth:
        confirm(f"Delete {counted(lane.depth, 'job')} of lane {lane.text or group} for good?", yes=yes)
    drained = 0
    while step := conn.run(verbs.drain(queue, group, budget=1_000)):
        drained += step
    return "drained", f"has lost {counted(drained, 'job')}", {"jobs": drained}


def _note_text(conn: Connector, queue: str, group: str, text: str) -> None:
    """Keeps the text of a lane that had none, as its first job would."""
    from echomq.protocol.keys import keys

    conn.execute("HSETNX", keys(queue).lanes, group, text)
