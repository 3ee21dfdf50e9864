"""`echomq dead`: the morgue of a queue; its jobs given another life, or deleted, in bulk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import typer

from echomq.cli.numbers import whole
from echomq.cli.ops_common import (
    Fence,
    Json,
    Queue,
    Url,
    WireText,
    Yes,
    choose,
    confirm,
    counted,
    known_queue,
    must_say_yes,
    opened,
    told,
)

if TYPE_CHECKING:
    from echomq.protocol.survey import Jobs, SeenJob
    from echomq.wire import Connector

_PAGE: Final = 200

HEADINGS: Final = ("id", "name", "died", ">age", ">attempts", ">failures", ">stalled", "lane", "last error")


def register(app: typer.Typer) -> None:
    """Adds the command to the program."""
    app.command("dead")(dead)


def dead(
    queue: Queue,
    retry: Annotated[bool, typer.Option("--retry", help="Give the jobs another life, after a question.")] = False,
    purge: Annotated[bool, typer.Option("--purge", help="Delete the jobs for good, after a question.")] = False,
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="Only jobs of this name.")] = None,
    error: Annotated[
        str | None, typer.Option("--error", metavar="TEXT", help="Only jobs whose last error has this text in it.")
    ] = None,
    older_than: Annotated[
        str | None, typer.Option("--older-than", metavar="SPAN", help="Only jobs that died longer ago, as in 2h.")
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option("--limit", "-n", metavar="N", parser=whole(1), help="At most so many; 50 where they are listed."),
    ] = None,
    yes: Yes = False,
    payload: Annotated[bool, typer.Option("--payload", help="Show the payloads, which may hold private data.")] = False,
    url: Url = None,
    fence: Fence = None,
    wire: WireText = None,
    json: Json = False,
) -> None:
    """List dead jobs, retry or delete them in bulk.

    They are listed by their mint, the oldest first. The filters say which are meant, for the actions too. Large
    errors are searched in their first 4,096 bytes. A job that lives again before its turn comes is left alone.

    Exit codes: 0 done; 1 nobody said yes, or the server cannot be reached; 2 something is written wrongly, or there is
    no such queue.

    \b
    Examples:
      echomq dead mail
      echomq dead mail --error timeout --older-than 2h
      echomq dead mail --retry --name send
      echomq dead mail --purge --older-than 7d --yes
    """
    from echomq.cli.ops_text import span_ms

    action = choose({"--retry": retry, "--purge": purge})
    if action:
        must_say_yes(json=json, yes=yes)
    which = Which(name, error, None if older_than is None else span_ms("--older-than", older_than))
    with opened(url, fence, wire) as conn:
        known_queue(conn, queue)
        if not action:
            _list(conn, queue, which, limit or 50, payload=payload, json=json)
            return
        ids = _matching_ids(conn, queue, which, limit)
        doing = "Give another life to" if retry else "Delete for good"
        if ids:
            confirm(f"{doing} {counted(len(ids), 'dead job')} of queue {queue}{which}?", yes=yes)
        done = _retry(conn, queue, ids) if retry else _purge(conn, queue, ids)
    outcome = "retried" if retry else "purged"
    left = f"; {len(ids) - done:,} no longer dead" if len(ids) > done else ""
    verb = "given another life" if retry else "deleted"
    told(
        {"queue": queue, "outcome": outcome, "matched": len(ids), "jobs": done},
        f"{counted(done, 'dead job')} of queue {queue}{which} {verb}{left}",
        json=json,
    )


@dataclass(frozen=True, slots=True)
class Which:
    """The dead jobs that are meant."""

    name: str | None = None
    error: str | None = None
    older_than_ms: int | None = None

    @property
    def all(self) -> bool:
        """Whether every dead job is one of them."""
        return self.name is None and self.error is None and self.older_than_ms is None

    def __str__(self) -> str:
        from echomq.cli.ops_text import shown_span

        said = f" named {self.name!r}" if self.name is not None else ""
        said += f" with {self.error!r} in the error" if self.error is not None else ""
        return said + (
            f" that died over {shown_span(self.older_than_ms)} ago" if self.older_than_ms is not None else ""
        )

    def fits(self, job: SeenJob, now_ms: int) -> bool:
        """Whether a dead job is one of them. One without a time of death counts from its mint."""
        from echomq.app.inspect import job_name
        from echomq.protocol import survey

        if self.error is not None and self.error not in (job.last_error or ""):
            return False
        if self.older_than_ms is not None:
            died_ms = job.died_ms if job.died_ms is not None else survey.minted_ms(job.id)
            if died_ms is None or died_ms > now_ms - self.older_than_ms:
                return False
        return self.name is None or job_name(job) == self.name


def _pages(conn: Connector, queue: str, size: int) -> Iterator[Jobs]:
    """The morgue in mint order, a page a call."""
    from echomq.protocol import survey

    after = ""
    while True:
        page = conn.run(survey.dead_after(queue, after, count=size))
        yield page
        if len(page.jobs) < size:
            return
        after = page.jobs[-1].id


def _list(conn: Connector, queue: str, which: Which, limit: int, *, payload: bool, json: bool) -> None:
    from echomq.cli import ops_rows, ops_view

    found: list[SeenJob] = []
    looked_at = total = now_ms = 0
    for page in _pages(conn, queue, min(limit, _PAGE) if which.all else _PAGE):
        now_ms, total = page.now_ms, page.total
        looked_at += len(page.jobs)
        found += [job for job in page.jobs if which.fits(job, now_ms)]
        if len(found) >= limit:
            break
    found = found[:limit]
    lanes = ops_rows.lane_texts(conn, queue, found)
    if json:
        shown = [ops_rows.as_json(job, queue, now_ms, lanes, payload=payload) for job in found]
        ops_view.document({"queue": queue, "now_ms": now_ms, "total": total, "looked_at": looked_at, "jobs": shown})
        return
    if found:
        headings = [*HEADINGS, "payload"] if payload else HEADINGS
        ops_view.table(headings, [_row(job, now_ms, lanes, payload=payload) for job in found])
    ops_view.say(f"{len(found):,} listed, of {counted(total, 'dead job')} in queue {queue}; {looked_at:,} looked at")


def _row(job: SeenJob, now_ms: int, lanes: dict[str, str], *, payload: bool) -> list[str]:
    from echomq.cli import ops_rows
    from echomq.cli.ops_text import instant

    # As in any listing, but for the two columns that say nothing here: all are dead, and none has a run-at.
    job_id, name, _, age, _, *rest = ops_rows.row(job, now_ms, lanes, payload=payload)
    return [job_id, name, instant(job.died_ms), age, *rest]


def _matching_ids(conn: Connector, queue: str, which: Which, limit: int | None) -> list[str]:
    """The ids of all that match; only ids are kept, and rows are read where a filter needs them."""
    from echomq.protocol import survey

    ids: list[str] = []
    for page in _pages(conn, queue, _PAGE):
        for job in page.jobs:
            if survey.minted_ms(job.id) is not None and which.fits(job, page.now_ms):
                ids.append(job.id)
                if limit is not None and len(ids) >= limit:
                    return ids
    return ids


def _retry(conn: Connector, queue: str, ids: list[str]) -> int:
    from echomq.protocol import admin
    from echomq.protocol.errors import StateError

    done = 0
    for start in range(0, len(ids), _PAGE):
        for outcome in conn.run_many([admin.reprocess_job(queue, each) for each in ids[start : start + _PAGE]]):
            if isinstance(outcome, StateError):
                continue
            if isinstance(outcome, Exception):
                raise outcome
            done += outcome
    return done


def _purge(conn: Connector, queue: str, ids: list[str]) -> int:
    from echomq.protocol import morgue

    return sum(conn.run(morgue.purge(queue, ids[start : start + _PAGE])) for start in range(0, len(ids), _PAGE))
