"""Events and what an observer learns (protocol §10)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec

from echomq.conformance.desk import FAR_MS, WAIT_S, Desk
from echomq.conformance.scenario import BreachError, scenario
from echomq.protocol import admin, jobs
from echomq.protocol.call import Call
from echomq.protocol.replies import State
from echomq.protocol.results import endings, ids_in
from echomq.wire import Subscription


def _event(desk: Desk, events: Subscription) -> dict[str, str]:
    """The next event, held to the shape of all: one JSON object whose values are strings."""
    message = events.get(WAIT_S)
    if message is None:
        raise BreachError(f"no event within {WAIT_S:g} s")
    desk.expect("the channel", message.channel, desk.keys.events)
    try:
        return msgspec.json.decode(message.data, type=dict[str, str])
    except msgspec.DecodeError as error:
        raise BreachError(f"an event is no object of strings: {message.data!r}") from error


@scenario("update_progress", "A job's progress is kept in its row and published; without a row it is neither.")
def _update_progress(desk: Desk) -> None:
    job_id, gone = desk.in_hand().id, desk.mint()
    with desk.bench.conn.subscribe(desk.keys.events) as events:
        desk.expect("without a row", desk.run(admin.update_progress(desk.queue, gone, "1")), False)
        desk.expect("the row of none", desk.row(gone), {})
        desk.expect("with one", desk.run(admin.update_progress(desk.queue, job_id, '40% "done"')), True)
        desk.expect("the row", desk.field(job_id, "progress"), b'40% "done"')
        event = _event(desk, events)
    desk.expect("the event", event, {"event": "progress", "job": job_id, "progress": '40% "done"'})


@scenario(
    "events", "Events are JSON objects of strings on the queue's channel: progress and cancelled by their scripts."
)
def _events(desk: Desk) -> None:
    held, waiting = desk.in_hand().id, desk.job()
    with desk.bench.conn.subscribe(desk.keys.events) as events:
        desk.run(admin.update_progress(desk.queue, held, "1"))
        desk.run(admin.cancel_job(desk.queue, waiting))
        desk.run(admin.cancel_job(desk.queue, held))
        seen = [_event(desk, events) for _ in range(3)]
    pairs = [(event["event"], event["job"]) for event in seen]
    desk.expect("the events", pairs, [("progress", held), ("cancelled", waiting), ("cancelled", held)])


@scenario("results_told", "A completion that keeps a result, and a burial, name the job on the results channel.")
def _results_told(desk: Desk) -> None:
    kept, unkept, dead = desk.in_hand(), desk.in_hand(), desk.in_hand()
    with desk.bench.conn.subscribe(desk.keys.results) as messages:
        done = [jobs.Finished(unkept.id, unkept.token, b"6"), jobs.Finished(kept.id, kept.token, b"7", FAR_MS)]
        desk.run(jobs.complete_many(desk.queue, done))
        desk.run(jobs.retry(desk.queue, dead.id, dead.token, delay_ms=0, max_attempts=0, error="no"))
        heard = [messages.get(WAIT_S) for _ in range(2)]
    desk.expect("the messages", [each and ids_in(each.data) for each in heard], [[kept.id], [dead.id]])
    found = desk.run(endings(desk.queue, (kept.id, unkept.id, dead.id)))
    desk.expect("what became of them", [each.state for each in found], [State.ABSENT, State.ABSENT, State.DEAD])
    desk.expect("what they left", [each.result for each in found], [b"7", None, None])


@scenario("resubscribe", "A subscriber whose socket was killed comes back by itself: the channel answers again.")
def _resubscribe(desk: Desk) -> None:
    connector = desk.connector(name=f"{desk.bench.prefix}-ear")
    job_id = desk.in_hand().id
    with connector.subscribe(desk.keys.events) as events:
        desk.run(admin.update_progress(desk.queue, job_id, "before"))
        desk.expect("before", _event(desk, events)["progress"], "before")
        killed = [desk.raw("CLIENT", "KILL", "ID", client) for client in _listening(desk)]
        desk.expect("sockets killed", killed, [1])
        answered: list[str] = []

        def answers() -> bool:
            desk.run(admin.update_progress(desk.queue, job_id, "after"))
            if message := events.get(0.02):
                answered.append(json.loads(message.data)["progress"])
            return bool(answered)

        desk.until("the channel answers again", answers)
        desk.expect("after", answered, ["after"])
        desk.expect("reconnects that the subscriber knows of", events.restored, 1)


def _listening(desk: Desk) -> list[str]:
    """The ids of this run's connections that listen."""
    clients = [
        dict(word.partition("=")[::2] for word in line.split())
        for line in desk.raw("CLIENT", "LIST", "TYPE", "pubsub").decode().splitlines()
    ]
    return [each["id"] for each in clients if each["name"] == f"echomq:{desk.bench.prefix}-ear"]


@scenario(
    "telemetry", "The reply alone tells an observer each step: added, started, failed, put off, retried, dead, done."
)
def _telemetry(desk: Desk) -> None:
    told: list[tuple[str, object]] = []

    def step(name: str, call: Call[Any], word: Callable[[Any], object]) -> None:
        told.append((name, word(desk.run(call))))

    job_id = desk.mint()
    queue = desk.queue
    step("add", jobs.enqueue(queue, job_id, b"p"), lambda reply: reply.value)
    step("add again", jobs.enqueue(queue, job_id, b"p"), lambda reply: reply.value)
    step("start", jobs.claim(queue), lambda job: (job.id == job_id, job.attempts, job.failures))
    step("put off", jobs.delay(queue, job_id, 1, delay_ms=0), str)
    step("promote", jobs.promote(queue), int)
    step("start", jobs.claim(queue), lambda job: (job.id == job_id, job.attempts, job.failures))
    retry = jobs.retry(queue, job_id, 2, delay_ms=0, max_attempts=3, error="e")
    step("fail", retry, lambda reply: reply.value)
    step("promote", jobs.promote(queue), int)
    step("start", jobs.claim(queue), lambda job: (job.id == job_id, job.attempts, job.failures))
    desk.lapse(job_id)
    step("stall", jobs.sweep(queue, max_stalled=2), lambda swept: (len(swept.recovered), len(swept.dead)))
    step("start", jobs.claim(queue), lambda job: (job.attempts, job.failures, job.stalled))
    last = jobs.retry(queue, job_id, 4, delay_ms=FAR_MS, max_attempts=4, error="e")
    step("fail for good", last, lambda reply: reply.value)
    step("another life", admin.reprocess_job(queue, job_id), bool)
    step("start", jobs.claim(queue), lambda job: (job.attempts, job.failures, job.stalled))
    step("finish", jobs.complete(queue, job_id, 5), lambda reply: reply.value)
    step("finish again", jobs.complete(queue, job_id, 5), lambda reply: reply.value)
    wanted = [
        *(("add", "admitted"), ("add again", "duplicate"), ("start", (True, 1, 0)), ("put off", "None")),
        *(("promote", 1), ("start", (True, 2, 0)), ("fail", "scheduled"), ("promote", 1), ("start", (True, 3, 1))),
        *(("stall", (1, 0)), ("start", (4, 1, 1)), ("fail for good", "dead"), ("another life", True)),
        *(("start", (5, 0, 0)), ("finish", "retired"), ("finish again", "gone")),
    ]
    for seen, want in zip(told, wanted, strict=True):
        desk.expect(f"what {want[0]} told", seen, want)
