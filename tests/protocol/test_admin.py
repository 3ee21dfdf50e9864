"""The operator's verbs (protocol §7): payload, progress, logs, another life, looking, and what they refuse."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from echomq.identity.errors import IdError
from echomq.protocol import admin, flows, jobs, lanes, metrics, workers
from echomq.protocol.call import Call
from echomq.protocol.errors import InvalidInputError, StateError
from echomq.protocol.replies import Counts, State
from support.placing import PLACES, A, dead, enqueue, full, in_hand, in_lane, later
from support.runner import Scene
from support.servers import Server

JOB_ID = "JOB0NgWEfAEJfs"

# Payload, progress, logs


@pytest.mark.parametrize("place", PLACES)
def test_a_payload_is_replaced_wherever_the_job_lies(scene: Scene, place: str) -> None:
    job_id = PLACES[place](scene)
    row, where = scene.row(job_id), scene.places(job_id)
    assert scene.run(admin.update_data(scene.queue, job_id, b"new\0\xff")) is True
    assert scene.row(job_id) == {**row, b"payload": b"new\0\xff"}
    assert scene.places(job_id) == where


@pytest.mark.parametrize(
    "build",
    [
        lambda q: admin.update_data(q, JOB_ID, b"p"),
        lambda q: admin.update_progress(q, JOB_ID, "5"),
        lambda q: admin.add_log(q, JOB_ID, "line"),
        lambda q: admin.remove_job(q, JOB_ID),
        lambda q: admin.reprocess_job(q, JOB_ID),
        lambda q: admin.cancel_job(q, JOB_ID),
    ],
)
def test_nothing_is_made_for_a_job_that_is_gone(scene: Scene, build: Callable[[str], Call[Any]]) -> None:
    assert scene.run(build(scene.queue)) in (False, None, admin.Cancellation.GONE)
    assert scene.dump() == {}


def test_a_progress_is_kept_and_published(server: Server, scene: Scene) -> None:
    job_id = in_hand(scene)
    with server.client() as listener:
        listener.execute("SUBSCRIBE", scene.keys.events)
        for value in ("5", 'half "way" \\ ü\n'):
            assert scene.run(admin.update_progress(scene.queue, job_id, value)) is True
            assert scene.row(job_id)[b"progress"] == value.encode()
            kind, channel, text = listener.receive()
            assert (kind, channel) == (b"message", scene.keys.events.encode())
            assert json.loads(text) == {"event": "progress", "job": job_id, "progress": value}
        assert scene.run(admin.update_progress(scene.queue, JOB_ID, "9")) is False
        assert scene.run(admin.cancel_job(scene.queue, job_id)) is admin.Cancellation.REQUESTED
        assert json.loads(listener.receive()[2])["event"] == "cancelled"


def test_logs_keep_the_last_lines(scene: Scene) -> None:
    (job_id,) = enqueue(scene)
    assert scene.run(admin.logs(scene.queue, job_id)) == ()
    assert [scene.run(admin.add_log(scene.queue, job_id, f"{n}")) for n in range(4)] == [1, 2, 3, 4]
    assert scene.run(admin.add_log(scene.queue, job_id, "ü\0\n", keep=3)) == 3
    assert scene.run(admin.logs(scene.queue, job_id)) == ("2", "3", "ü\0\n")
    assert scene.run(admin.add_log(scene.queue, job_id, "", keep=1)) == 1
    assert scene.run(admin.add_log(scene.queue, job_id, "all")) == 2


def test_logs_live_as_long_as_the_job(scene: Scene) -> None:
    job_id = in_hand(scene)
    scene.run(admin.add_log(scene.queue, job_id, "line"))
    scene.run(jobs.retry(scene.queue, job_id, 1, delay_ms=0, max_attempts=1, error="e"))
    assert scene.run(admin.logs(scene.queue, job_id)) == ("line",)
    scene.run(admin.reprocess_job(scene.queue, job_id))
    scene.run(jobs.claim(scene.queue))
    scene.run(jobs.complete(scene.queue, job_id, 2))
    assert scene.run(admin.logs(scene.queue, job_id)) == ()


@pytest.mark.parametrize("value", [None, 5, b"line", ["line"], "\ud800"])
def test_a_line_or_progress_that_is_no_text(value: Any) -> None:
    with pytest.raises(InvalidInputError, match="log line"):
        admin.add_log("q", JOB_ID, value)
    with pytest.raises(InvalidInputError, match="progress"):
        admin.update_progress("q", JOB_ID, value)


@pytest.mark.parametrize("keep", [0, -1, 1.5, "5", True])
def test_a_number_of_lines_that_is_none(keep: Any) -> None:
    with pytest.raises(InvalidInputError, match="keep"):
        admin.add_log("q", JOB_ID, "line", keep=keep)


# Another life


def test_a_dead_job_gets_another_life_with_its_token(scene: Scene) -> None:
    job_id = in_hand(scene)
    scene.execute("HSET", scene.keys.job(job_id), "stalled", 2, "progress", 5, "theirs", "x")
    scene.run(jobs.retry(scene.queue, job_id, 1, delay_ms=0, max_attempts=1, error="boom"))
    scene.drop_tokens()
    assert scene.run(admin.reprocess_job(scene.queue, job_id)) is True
    assert scene.row(job_id) == {
        b"state": b"pending",
        b"attempts": b"1",
        b"payload": b"p",
        b"progress": b"5",
        b"theirs": b"x",
    }
    assert (scene.places(job_id), scene.tokens()) == (["pending"], 1)
    job = scene.run(jobs.claim(scene.queue))
    assert job is not None
    assert (job.attempts, job.failures, job.stalled) == (2, 0, 0)
    assert scene.run(metrics.counts(scene.queue)).failed == 1


@pytest.mark.parametrize("closed", [False, True])
def test_a_grouped_job_lives_again_in_its_lane(scene: Scene, closed: bool) -> None:
    job_id = in_lane(scene)
    scene.run(jobs.claim(scene.queue))
    scene.run(jobs.retry(scene.queue, job_id, 1, delay_ms=0, max_attempts=1, error="e"))
    if closed:
        scene.run(lanes.pause(scene.queue, A))
    scene.drop_tokens()
    scene.run(admin.reprocess_job(scene.queue, job_id))
    assert (scene.places(job_id), scene.tokens()) == ([f"g:{A}:pending"], 0 if closed else 1)


@pytest.mark.parametrize("place", [place for place in PLACES if place != "dead"])
def test_only_a_dead_job_gets_another_life(scene: Scene, place: str) -> None:
    refusal = scene.refusal(admin.reprocess_job(scene.queue, PLACES[place](scene)))
    assert isinstance(refusal, StateError)
    assert refusal.reply == "EMQSTATE not dead"


# Looking


def test_the_counts_are_of_one_instant(scene: Scene) -> None:
    for place in PLACES.values():
        place(scene)
    in_lane(scene, lanes.lane_id("b"))
    # The flow's child is pending or was claimed on the way; the lane is not counted.
    counts = scene.run(metrics.counts(scene.queue))
    shot = scene.snapshot().places
    assert counts == Counts(len(shot["pending"]), len(shot["active"]), 1, 1, 0, 1)
    for name in ("pending", "active", "schedule", "dead", "completed", "failed"):
        assert scene.run(metrics.count(scene.queue, name)) == getattr(counts, name)


@pytest.mark.parametrize("name", ["", "sleeping", "Pending", "wake", "lanes", None, 5])
def test_another_name_is_an_error(name: Any) -> None:
    with pytest.raises(InvalidInputError, match="there is no count of"):
        metrics.count("q", name)


def test_the_state_is_the_place(scene: Scene) -> None:
    states = {place: scene.run(metrics.state(scene.queue, make(scene))) for place, make in PLACES.items()}
    assert states == {
        "pending": State.PENDING,
        "lane": State.PENDING,
        "active": State.ACTIVE,
        "schedule": State.SCHEDULED,
        "dead": State.DEAD,
        "held": State.AWAITING_CHILDREN,
    }
    assert scene.run(metrics.state(scene.queue, JOB_ID)) is State.ABSENT


@pytest.mark.strays("a row in no set")
def test_a_row_in_no_set_is_unknown(scene: Scene) -> None:
    (job_id,) = enqueue(scene)
    scene.execute("ZREM", scene.keys.pending, job_id)
    assert scene.run(metrics.state(scene.queue, job_id)) is State.UNKNOWN


def test_a_member_without_a_row_is_absent(scene: Scene) -> None:
    ghost = scene.ghost("pending")
    assert scene.run(metrics.state(scene.queue, ghost)) is State.ABSENT
    scene.run(jobs.claim(scene.queue))


# Bad input

BUILDERS: dict[str, Callable[[str, str], Any]] = {
    "update_data": lambda q, i: admin.update_data(q, i, b"p"),
    "update_progress": lambda q, i: admin.update_progress(q, i, "5"),
    "add_log": lambda q, i: admin.add_log(q, i, "line"),
    "logs": admin.logs,
    "remove_job": admin.remove_job,
    "reprocess_job": admin.reprocess_job,
    "cancel_job": admin.cancel_job,
    "state": metrics.state,
    "row": metrics.row,
}
OF_A_QUEUE: list[Callable[[str], Any]] = [
    *(admin.pause_queue, admin.resume_queue, admin.is_paused, admin.gate, admin.rate_ttl, admin.retain),
    *(admin.drain, admin.obliterate, metrics.counts, workers.seen, flows.outbox, flows.rejected),
]


@pytest.mark.parametrize("name", BUILDERS)
@pytest.mark.parametrize("job_id", ["", "ORD0NgWEfAEJfs", "JOB", None, 5])
def test_an_id_that_is_none_of_a_job(name: str, job_id: Any) -> None:
    with pytest.raises(IdError):
        BUILDERS[name]("q", job_id)


@pytest.mark.parametrize("queue", ["", "a b", "{q}", None, 5])
def test_a_queue_that_is_none(queue: Any) -> None:
    for build in BUILDERS.values():
        with pytest.raises(InvalidInputError):
            build(queue, JOB_ID)
    for build in OF_A_QUEUE:
        with pytest.raises(InvalidInputError):
            build(queue)


# Its own keys


def test_no_verb_touches_a_key_outside_its_queue(confined: Scene) -> None:
    scene, q = confined, confined.queue
    full(scene)
    job_id, waiting = in_hand(scene), in_lane(scene)
    for call in (
        *(admin.update_data(q, job_id, b"n"), admin.update_progress(q, job_id, "5"), admin.add_log(q, job_id, "l")),
        *(admin.logs(q, job_id), admin.cancel_job(q, job_id), admin.gate(q), admin.rate_ttl(q), metrics.counts(q)),
        *(workers.keep(q, [(job_id, 1)], field=True), workers.seen(q), workers.farewell(q, "w")),
        *(lanes.reassign(q, waiting, lanes.lane_id("z")), lanes.reap(q, A), lanes.claim(q), lanes.claim_weighted(q)),
        *(admin.set_retention(q, dead_max=1, dead_age_ms=5), admin.retain(q), admin.reprocess_job(q, dead(scene))),
        *(admin.pause_queue(q), admin.resume_queue(q), admin.remove_job(q, later(scene), dedup="x")),
        *(flows.outstanding(q, job_id), flows.children_values(q, job_id), flows.outbox(q), flows.rejected(q)),
    ):
        scene.run(call)
    scene.finish(admin.drain(q, scheduled=True))
    scene.finish(lanes.drain(q, A))
    scene.run(admin.pause_queue(q))
    scene.finish(admin.obliterate(q, force=True))
    assert scene.dump() == {}
