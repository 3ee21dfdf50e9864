"""One run of the demo: enqueue, watch, hold against what was promised, and leave nothing behind."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import astuple
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, TypeVar

from echomq.cli.demo_cleanup import remove_queues
from echomq.cli.demo_jobs import DemoJobs, demo_jobs
from echomq.cli.demo_listing import Listing
from echomq.cli.demo_records import Kind, RecordReader
from echomq.cli.demo_tally import Tally
from echomq.cli.demo_totals import Buried, Ended, Totals, sum_up
from echomq.cli.demo_view import Speed, View, ViewState
from echomq.cli.demo_worker import RECORDS, WorkerProcess
from echomq.identity.minter import mint, wall_clock_ms
from echomq.protocol import jobs, metrics
from echomq.protocol.call import Call
from echomq.protocol.errors import DisconnectedError
from echomq.protocol.replies import Counts

__all__ = ["run_demo"]

T = TypeVar("T")

BATCH: Final = 500
AHEAD_MS: Final = 2_000
PERIOD: Final = timedelta(seconds=1)
"""Between two slots of the recurrence."""
OCCURRENCES: Final = 3
"""How many slots of the recurrence are waited for."""
POLL_S: Final = 0.1
STALL_S: Final = 15.0
"""How long nothing may move while nobody works, before the demo gives up and says what is missing."""
FEW_DEAD: Final = 1_000


class _Trouble(Exception):  # noqa: N818  (the demo's own way out of its waiting)
    """The demo cannot go on; what came so far is still summed up."""


def run_demo(listing: Listing, home: Path, view: View) -> Totals:
    """Hash what was listed, on the embedded server in `home`, under queue names of its own.

    `EmbeddedServerError` and whatever else the wire raises reach the caller; the queues are removed in any case.
    """
    queue = f"demo-{mint()}"
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="echomq-demo-")))
        records = scratch / RECORDS
        demo = demo_jobs(queue, home, records)
        stack.callback(demo.mq.close)
        demo.mq.connection()  # the server starts here, before anything else does
        stack.callback(remove_queues, demo.mq)
        worker = stack.enter_context(WorkerProcess(queue, home, scratch))
        reader = RecordReader(records)
        stack.callback(reader.close)
        run = _Run(demo, queue, Tally.of(listing.files), reader, worker, view)
        ended = run.to_its_end()
    return sum_up(listing, run.tally, ended)


class _Run:
    """The producer's side, with its eye on the queue."""

    def __init__(
        self, demo: DemoJobs, queue: str, tally: Tally, reader: RecordReader, worker: WorkerProcess, view: View
    ) -> None:
        self.tally = tally
        self._demo = demo
        self._queue = queue
        self._reader = reader
        self._worker = worker
        self._view = view
        self._began_s = time.monotonic()
        self._looked_s = 0.0
        self._moved_s = self._began_s
        self._mark: int = 0
        self._idle = False
        self._speed = Speed()
        # Not at once: the worker is still starting, and its start is not lateness.
        self._recurrence = demo.tick.every(PERIOD, name="tick", first_in=PERIOD)

    def to_its_end(self) -> Ended:
        """Enqueue everything, wait for it, end the recurrence, and wait until the queue is empty."""
        trouble: list[str] = []
        try:
            self._begin()
            self._enqueue(self.tally.casting.plain)
            self._await(self._everything_came)
        except _Trouble as error:
            trouble.append(str(error))
        self._recurrence.cancel()
        if not trouble:
            try:
                self._await(lambda counts: not _left(counts))
            except _Trouble as error:
                trouble.append(str(error))
        counts = self._look()
        return Ended(
            queue=self._queue,
            seconds=time.monotonic() - self._began_s,
            done=counts.completed,
            dead=counts.dead,
            left=_left(counts),
            morgue=tuple(self._morgue()),
            trouble=tuple(trouble),
        )

    def _begin(self) -> None:
        """The jobs that show something, and the recurrence."""
        demo, casting = self._demo, self.tally.casting
        demo.never_works.enqueue()
        demo.hash_flaky.enqueue(casting.flaky)
        demo.hash_snoozed.enqueue(casting.snoozed)
        self._recurrence.register()
        for target in casting.timed:
            due_ms = wall_clock_ms() + AHEAD_MS
            demo.hash_file.at(datetime.fromtimestamp(due_ms / 1_000, UTC)).enqueue(target, due_ms)

    def _enqueue(self, targets: Sequence[str]) -> None:
        """One job a target, many in a call."""
        payload = self._demo.hash_file.payload
        for start in range(0, len(targets), BATCH):
            batch = [(mint(), payload((target, 0), {})) for target in targets[start : start + BATCH]]
            self._demo.mq.run(jobs.enqueue_many(self._queue, batch))
            if time.monotonic() - self._looked_s >= POLL_S:
                self._look()

    def _everything_came(self, counts: Counts) -> bool:
        return not self.tally.waiting and counts.dead > 0 and self.tally.runs[Kind.TICK] >= OCCURRENCES

    def _await(self, reached: Callable[[Counts], bool]) -> None:
        """Look until `reached`; `_Trouble` when the worker has gone, or nothing moves and nobody works."""
        self._moved_s = time.monotonic()
        while True:
            counts = self._look()
            if reached(counts):
                return
            if (said := self._worker.ended()) is not None:
                raise _Trouble(f"the worker ended by itself: {said}")
            if self._idle and time.monotonic() - self._moved_s > STALL_S:
                raise _Trouble(f"nothing has moved for {STALL_S:.0f} seconds")
            time.sleep(POLL_S)

    def _look(self) -> Counts:
        """Read the counts and the new records, and show them."""
        counts = self._counts()
        for record in self._reader.new():
            self.tally.add(record)
        now_s = self._looked_s = time.monotonic()
        mark = self.tally.moved
        if mark != self._mark:
            self._mark, self._moved_s, self._idle = mark, now_s, False
        self._idle = self._idle or not counts.active
        state = ViewState(
            elapsed_s=now_s - self._began_s,
            pending=counts.pending,
            scheduled=counts.schedule,
            active=counts.active,
            done=counts.completed,
            dead=counts.dead,
            per_second=self._speed.at(now_s, counts.completed),
            lateness=self.tally.lateness,
        )
        self._view(state)
        return counts

    def _counts(self) -> Counts:
        """Of all the demo's queues together."""
        each = [astuple(self._run(metrics.counts(queue))) for queue in self._demo.mq.queues]
        return Counts(*map(sum, zip(*each, strict=True)))

    def _morgue(self) -> list[Buried]:
        buried: list[Buried] = []
        for job_id in self._run(jobs.browse_dead(self._queue, limit=FEW_DEAD, newest_first=False)):
            row = self._run(metrics.row(self._queue, job_id))
            error = row.get("last_error", b"").decode("utf-8", "replace").partition("\n")[0]
            buried.append(Buried(job_id, int(row.get("failures", b"0")), error))
        return buried

    def _run(self, call: Call[T]) -> T:
        """A call that only looks: repeated once when the server came back meanwhile."""
        try:
            return self._demo.mq.run(call)
        except DisconnectedError:
            return self._demo.mq.run(call)


def _left(counts: Counts) -> int:
    return counts.pending + counts.schedule + counts.active
