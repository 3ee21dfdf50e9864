"""`echomq job`: everything about one job, and what can be done with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from echomq.cli.numbers import whole
from echomq.cli.ops_common import (
    Fence,
    Json,
    NotNowError,
    Url,
    WireText,
    choose,
    counted,
    known_queue,
    opened,
    queue_name,
    told,
)
from echomq.identity.errors import InvalidInputError

if TYPE_CHECKING:
    from echomq.wire import Connector


def register(app: typer.Typer) -> None:
    """Adds the command to the program."""
    app.command("job")(job)


def job(
    job_id: Annotated[str, typer.Argument(metavar="ID", help="The job's id.", show_default=False)],
    queue: Annotated[
        str | None,
        typer.Option("--queue", "-q", metavar="QUEUE", help="Its queue. Default: all are asked.", callback=queue_name),
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Give a dead job another life.")] = False,
    promote: Annotated[bool, typer.Option("--promote", help="Let a job for later run now.")] = False,
    remove: Annotated[
        bool,
        typer.Option(
            "--remove", help="Delete the job; refused while a worker has it in hand, from 0.35 s after it took it."
        ),
    ] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Bury a job, or ask its worker to stop.")] = False,
    reason: Annotated[str | None, typer.Option("--reason", metavar="TEXT", help="With --cancel: why.")] = None,
    payload: Annotated[bool, typer.Option("--payload", help="Show payload and results, maybe private data.")] = False,
    logs: Annotated[int, typer.Option("--logs", metavar="N", parser=whole(1, 10_000), help="How many log lines.")] = 20,
    url: Url = None,
    fence: Fence = None,
    wire: WireText = None,
    json: Json = False,
) -> None:
    """Show everything about a job, or act on it.

    Its row, its place, its times, its log and its flow; or, with one of the actions, do that. --cancel buries a job
    that waits; one in hand is told, and ends when its code asks (job context, cancelled).

    Exit codes: 0 done; 1 the job is not in a state for it, or the server cannot be reached; 2 something is written
    wrongly, or there is no such job.

    \b
    Examples:
      echomq job JOB0NgWEfAEJfs
      echomq job JOB0NgWEfAEJfs --queue mail --payload --json
      echomq job JOB0NgWEfAEJfs --retry
      echomq job JOB0NgWEfAEJfs --promote
      echomq job JOB0NgWEfAEJfs --cancel --reason "wrong address"
      echomq job JOB0NgWEfAEJfs --remove
    """
    from echomq.cli import ops_details, ops_view, ops_workers
    from echomq.identity.branded import check_job
    from echomq.protocol.details import details
    from echomq.protocol.replies import State

    action = choose({"--retry": retry, "--promote": promote, "--remove": remove, "--cancel": cancel})
    if reason is not None and action != "--cancel":
        raise InvalidInputError("--reason says why a job is cancelled: give --cancel, too")
    check_job(job_id)
    with opened(url, fence, wire) as conn:
        where = _find(conn, job_id) if queue is None else known_queue(conn, queue)
        if action:
            outcome, sentence = _ACTIONS[action](conn, where, job_id, reason)
            told({"id": job_id, "queue": where, "action": action[2:], "outcome": outcome}, sentence, json=json)
            return
        seen = conn.run(details(where, job_id, logs=logs, whole=payload))
        if not ops_details.is_there(seen):
            raise _gone(where, job_id)
        lane = ops_details.lane_text(conn, where, seen)
        by = ops_workers.holder(conn, where, job_id) if seen.state is State.ACTIVE else None
        if json:
            ops_view.document(ops_details.as_json(job_id, where, seen, lane, holder=by, payload=payload))
        else:
            ops_details.show(job_id, where, seen, lane, holder=by, payload=payload)


def _find(conn: Connector, job_id: str) -> str:
    """The queue that has the job: all are asked in one flight."""
    from echomq.protocol import discover

    queues = conn.run(discover.queues())
    answers = conn.run_many([discover.holds(queue, job_id) for queue in queues])
    found = [queue for queue, answer in zip(queues, answers, strict=True) if answer is True]
    if not found:
        asked = counted(len(queues), "queue")
        raise InvalidInputError(f"job {job_id} is in none of {asked} here: it is done, was removed, or never came")
    if len(found) > 1:
        raise InvalidInputError(f"job {job_id} is in the queues {', '.join(found)}: say which one by --queue")
    return found[0]


def _retry(conn: Connector, queue: str, job_id: str, _: str | None) -> tuple[str, str]:
    from echomq.protocol import admin
    from echomq.protocol.details import details
    from echomq.protocol.errors import StateError
    from echomq.protocol.replies import State

    try:
        there = conn.run(admin.reprocess_job(queue, job_id))
    except StateError:
        raise NotNowError(_not_so(conn, queue, job_id, "only a dead job can be given another life")) from None
    if not there:
        raise _gone(queue, job_id)
    seen = conn.run(details(queue, job_id, logs=1, children=1))
    if seen.state is State.AWAITING_CHILDREN:
        left = "its child is" if seen.outstanding == 1 else f"its {seen.outstanding or 0:,} children are"
        return "held", f"job {job_id} of queue {queue} is held again until {left} done, its failures forgotten"
    return "retried", f"job {job_id} waits in queue {queue} again, its failures forgotten"


def _promote(conn: Connector, queue: str, job_id: str, _: str | None) -> tuple[str, str]:
    from echomq.protocol import jobs
    from echomq.protocol.errors import StateError
    from echomq.protocol.replies import Rescheduling

    try:
        moved = conn.run(jobs.reschedule(queue, job_id, delay_ms=0))
    except StateError:
        raise NotNowError(_not_so(conn, queue, job_id, "only a job for later can be made to run now")) from None
    if moved is Rescheduling.GONE:
        raise _gone(queue, job_id)
    return "promoted", f"job {job_id} of queue {queue} is due now: the next free worker takes it"


def _remove(conn: Connector, queue: str, job_id: str, _: str | None) -> tuple[str, str]:
    from echomq.protocol import admin
    from echomq.protocol.errors import LockedError

    try:
        there = conn.run(admin.remove_job(queue, job_id))
    except LockedError:
        raise NotNowError(
            f"job {job_id} of queue {queue} is held by a worker: --cancel asks it to stop, then it can be removed"
        ) from None
    if not there:
        raise _gone(queue, job_id)
    return "removed", f"job {job_id} is removed from queue {queue}"


def _cancel(conn: Connector, queue: str, job_id: str, reason: str | None) -> tuple[str, str]:
    from echomq.protocol import admin
    from echomq.protocol.admin import Cancellation

    outcome = conn.run(admin.cancel_job(queue, job_id, reason=reason or "cancelled"))
    if outcome is Cancellation.GONE:
        raise _gone(queue, job_id)
    if outcome is Cancellation.REQUESTED:
        return "requested", f"job {job_id} of queue {queue} is in hand: its worker is told to stop"
    return "dead", f"job {job_id} of queue {queue} is in the morgue"


_ACTIONS = {"--retry": _retry, "--promote": _promote, "--remove": _remove, "--cancel": _cancel}


def _not_so(conn: Connector, queue: str, job_id: str, rule: str) -> str:
    from echomq.protocol import metrics

    return f"job {job_id} of queue {queue} is {conn.run(metrics.state(queue, job_id)).value}: {rule}"


def _gone(queue: str, job_id: str) -> InvalidInputError:
    return InvalidInputError(f"job {job_id} is not in queue {queue}: it is done, was removed, or never came")
