"""`echomq jobs`: the jobs of a queue, a page at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Final

import typer

from echomq.cli.numbers import whole
from echomq.cli.ops_common import Fence, Json, Queue, Url, WireText, counted, known_queue, lane_meant, opened
from echomq.identity.errors import InvalidInputError

if TYPE_CHECKING:
    from echomq.app.inspect import Overview
    from echomq.protocol.replies import State
    from echomq.protocol.survey import SeenJob
    from echomq.wire import Connector

STATES: Final = ("active", "pending", "lane", "scheduled", "dead", "awaiting_children")
"""What `--state` takes, in the order in which they are listed. `pending` waits, flat or in a lane; `lane` is the
part of it in lanes."""

_USUAL: Final = STATES[:-1]
_PAGE: Final = 200


def register(app: typer.Typer) -> None:
    """Adds the command to the program."""
    app.command("jobs")(jobs)


def jobs(
    queue: Queue,
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            "-s",
            metavar="STATE",
            help="active, pending, lane, scheduled, dead or awaiting_children; may be repeated.",
        ),
    ] = None,
    lane: Annotated[str | None, typer.Option("--lane", metavar="LANE", help="The jobs that wait in this lane.")] = None,
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="Only jobs of this name.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", metavar="N", parser=whole(1), help="How many to list.")] = 50,
    reverse: Annotated[bool, typer.Option("--reverse", "-r", help="The last of each state first.")] = False,
    scan: Annotated[
        int, typer.Option("--scan", metavar="N", parser=whole(1), help="With --name: how many jobs to look at at most.")
    ] = 10_000,
    payload: Annotated[bool, typer.Option("--payload", help="Show the payloads, which may hold private data.")] = False,
    url: Url = None,
    fence: Fence = None,
    wire: WireText = None,
    json: Json = False,
) -> None:
    """List the jobs of a queue.

    What is in hand, what waits, what comes later and what died, in this order. Waiting jobs are listed oldest first,
    jobs for later by their run-at, jobs in hand by the end of their lease. Flow parents that wait for children are
    listed only when asked for, because they are found by walking the server's keys.

    Exit codes: 0 done, 1 the server cannot be reached, 2 something is written wrongly, or there is no such queue.

    \b
    Examples:
      echomq jobs mail
      echomq jobs mail --state scheduled --limit 10
      echomq jobs mail --state dead --name send --reverse
      echomq jobs mail --lane acme --payload --json
    """
    from echomq.app.inspect import overview
    from echomq.cli import ops_rows, ops_view

    states = _states(state, lane)
    with opened(url, fence, wire) as conn:
        each = conn.run(overview(known_queue(conn, queue)))
        group = None if lane is None else lane_meant(conn, queue, lane).group
        listing = _Listing(conn, queue, group, reverse=reverse, page=_PAGE if name is not None else min(limit, _PAGE))
        found = listing.take(states, limit, name, scan)
        lanes = ops_rows.lane_texts(conn, queue, found)
    now_ms = each.seen.now_ms
    if json:
        shown = [ops_rows.as_json(job, queue, now_ms, lanes, payload=payload) for job in found]
        ops_view.document(
            {"queue": queue, "now_ms": now_ms, "total": _totals(each), "looked_at": listing.looked_at, "jobs": shown}
        )
        return
    headings = [*ops_rows.HEADINGS, "payload"] if payload else ops_rows.HEADINGS
    if found:
        ops_view.table(headings, [ops_rows.row(job, now_ms, lanes, payload=payload) for job in found])
    in_lanes = f" ({each.in_lanes.jobs:,} in {counted(each.in_lanes.lanes, 'lane')})" if each.in_lanes.jobs else ""
    said = {what: f"{n:,} {what}" for what, n in _totals(each).items() if "_" not in what}
    totals = ", ".join((said | {"pending": said["pending"] + in_lanes}).values())
    looked = f" that match, of {listing.looked_at:,} looked at" if name is not None else ""
    ops_view.say(f"{len(found):,} listed{looked}; in the queue are {totals}")


def _states(given: list[str] | None, lane: str | None) -> tuple[str, ...]:
    from echomq.app.text import nearest

    for state in given or ():
        if state not in STATES:
            raise InvalidInputError(f"there is no state {state!r}; nearest: {nearest(state, STATES)}")
    if lane is not None:
        if given and set(given) != {"lane"}:
            raise InvalidInputError("--lane lists the jobs that wait in a lane; leave out --state")
        return ("lane",)
    if not given:
        return _USUAL
    return tuple(state for state in STATES if state in given or (state == "lane" and "pending" in given))


def _totals(each: Overview) -> dict[str, int]:
    seen = each.seen
    return {
        "active": seen.active,
        "pending": each.pending,
        "pending_flat": seen.pending,
        "pending_in_lanes": each.in_lanes.jobs,
        "scheduled": seen.scheduled,
        "dead": seen.dead,
    }


class _Listing:
    """Walks the places of a queue, a page a call, no further than it has to."""

    def __init__(self, conn: Connector, queue: str, group: str | None, *, reverse: bool, page: int) -> None:
        self._conn = conn
        self._queue = queue
        self._group = group
        self._reverse = reverse
        self._page = page
        self.looked_at = 0

    def take(self, states: tuple[str, ...], limit: int, name: str | None, scan: int) -> list[SeenJob]:
        """The first `limit` jobs of the states, of one name if given, among at most `scan` then."""
        from echomq.app.inspect import job_name

        # Jobs move while they are looked at: what was listed once is not listed again.
        found: dict[str, SeenJob] = {}
        for state in states:
            for job in self._walk(state):
                self.looked_at += 1
                if name is None or job_name(job) == name:
                    found.setdefault(job.id, job)
                if len(found) >= limit or (name is not None and self.looked_at >= scan):
                    return list(found.values())
        return list(found.values())

    def _walk(self, state: str) -> Iterator[SeenJob]:
        from echomq.app.inspect import lanes_of
        from echomq.protocol.replies import State

        if state == "awaiting_children":
            yield from self._held()
        elif state == "lane":
            full = (lane.group for lane in self._conn.run(lanes_of(self._queue, waiting=True)) if lane.depth)
            for group in [self._group] if self._group else full:
                yield from self._pages(State.PENDING, group)
        else:
            yield from self._pages(State(state), None)

    def _pages(self, state: State, group: str | None) -> Iterator[SeenJob]:
        from echomq.protocol import survey

        first = 0
        while True:
            call = survey.page(self._queue, state, group=group, first=first, count=self._page, reverse=self._reverse)
            jobs = self._conn.run(call).jobs
            yield from jobs
            if len(jobs) < self._page:
                return
            first += self._page

    def _held(self) -> Iterator[SeenJob]:
        from echomq.protocol import discover, survey
        from echomq.protocol.replies import State

        ids = self._conn.run(discover.held(self._queue, limit=100_000))
        for start in range(0, len(ids), self._page):
            part = self._conn.run(survey.jobs(self._queue, ids[start : start + self._page])).jobs
            yield from (job for job in part if job.state is State.AWAITING_CHILDREN)
