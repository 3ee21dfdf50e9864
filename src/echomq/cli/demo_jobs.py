"""The demo's jobs, as anybody would write them: one app, a few functions."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from echomq import EchoMQ, Fixed, Snooze, current_job
from echomq.app.job import PlainJob
from echomq.app.times import instant_ms
from echomq.cli.demo_records import Kind, Record, RecordWriter, hash_once
from echomq.identity.minter import wall_clock_ms

__all__ = ["BURIED_FAILURES", "FLAKY_FAILURES", "SNOOZE_MS", "DemoJobs", "demo_jobs"]

FLAKY_FAILURES = 2
BURIED_FAILURES = 2
SNOOZE_MS = 1_000
RETRY_MS = 300


@dataclass(frozen=True, slots=True)
class DemoJobs:
    """The app, and what it can do. The recurrence has a queue of its own, where no backlog holds it up."""

    mq: EchoMQ
    hash_file: PlainJob[[str, int], None]
    hash_flaky: PlainJob[[str], None]
    hash_snoozed: PlainJob[[str], None]
    never_works: PlainJob[[], None]
    tick: PlainJob[[], None]


def demo_jobs(queue: str, home: Path, records: Path) -> DemoJobs:
    """The jobs of one run of the demo. Producer and worker each build their own, with the same names."""
    mq = EchoMQ(home=home)
    writer = RecordWriter(records)
    tries: Counter[str] = Counter()

    def note(kind: Kind, target: str, due_ms: int = 0) -> None:
        writer.write(Record(kind, target, wall_clock_ms(), due_ms))

    def hash_or_run(target: str, due_ms: int = 0) -> None:
        start_ms = wall_clock_ms()
        has_file = target.startswith("/")
        writer.write(hash_once(target, start_ms, due_ms) if has_file else Record(Kind.RAN, target, start_ms, due_ms))

    @mq.job(name="demo.hash_file", queue=queue)
    def hash_file(target: str, due_ms: int) -> None:
        hash_or_run(target, due_ms)

    @mq.job(name="demo.hash_flaky", queue=queue, backoff=Fixed(RETRY_MS))
    def hash_flaky(target: str) -> None:
        tries[target] += 1
        if tries[target] <= FLAKY_FAILURES:
            note(Kind.FAILED, target)
            raise RuntimeError(f"failure {tries[target]} of {FLAKY_FAILURES}; the next try succeeds")
        hash_or_run(target)

    @mq.job(name="demo.hash_snoozed", queue=queue)
    def hash_snoozed(target: str) -> None:
        tries[target] += 1
        if tries[target] == 1:
            note(Kind.SNOOZED, target)
            raise Snooze(milliseconds=SNOOZE_MS)
        hash_or_run(target)

    @mq.job(name="demo.never_works", queue=queue, max_attempts=BURIED_FAILURES, backoff=Fixed(RETRY_MS))
    def never_works() -> None:
        note(Kind.FAILED, "buried")
        raise RuntimeError("this job always fails, to show the morgue")

    @mq.job(name="demo.tick", queue=f"{queue}-clock")
    def tick() -> None:
        slot = current_job().slot
        note(Kind.TICK, "tick", instant_ms("a slot", slot) if slot else 0)

    return DemoJobs(mq, hash_file, hash_flaky, hash_snoozed, never_works, tick)
