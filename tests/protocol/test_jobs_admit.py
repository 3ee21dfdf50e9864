"""Admission (protocol §5): what a new row holds, what a duplicate changes, and in which order refusals come."""

from __future__ import annotations

import pytest

from echomq.protocol import jobs, metrics
from echomq.protocol.errors import KindError
from echomq.protocol.replies import Admission, Completion, State
from support.runner import Scene, with_args


def test_a_flat_admission_writes_exactly_three_fields(scene: Scene) -> None:
    job_id = scene.mint()
    assert scene.run(jobs.enqueue(scene.queue, job_id, b"p")) is Admission.ADMITTED
    assert scene.row(job_id) == {b"state": b"pending", b"attempts": b"0", b"payload": b"p"}
    assert scene.places(job_id) == ["pending"]
    assert scene.tokens() == 1
    assert sorted(scene.dump()) == sorted(
        key.encode() for key in (scene.keys.job(job_id), scene.keys.pending, scene.keys.wake)
    )


def test_a_scheduled_admission_writes_exactly_three_fields(scene: Scene) -> None:
    job_id = scene.mint()
    at_ms = scene.now_ms() + 60_000
    assert scene.run(jobs.enqueue_at(scene.queue, job_id, b"p", at_ms=at_ms)) is Admission.SCHEDULED
    assert scene.row(job_id) == {b"state": b"scheduled", b"attempts": b"0", b"payload": b"p"}
    assert scene.places(job_id) == ["schedule"]
    assert scene.score("schedule", job_id) == at_ms


@pytest.mark.parametrize("payload", [b"", b"\0", bytes(range(256)), b"x" * 100_000])
def test_any_bytes_are_a_payload(scene: Scene, payload: bytes) -> None:
    job_id = scene.mint()
    scene.run(jobs.enqueue(scene.queue, job_id, payload))
    claimed = scene.run(jobs.claim(scene.queue))
    assert claimed is not None
    assert claimed.payload == payload


def test_a_text_payload_is_its_utf8(scene: Scene) -> None:
    job_id = scene.mint()
    scene.run(jobs.enqueue(scene.queue, job_id, "grüße"))
    assert scene.row(job_id)[b"payload"] == "grüße".encode()


@pytest.mark.parametrize("place", ["pending", "active", "schedule", "dead", "held"])
def test_a_duplicate_changes_nothing_wherever_the_job_is(scene: Scene, place: str) -> None:
    job_id = scene.mint()
    scene.run(jobs.enqueue(scene.queue, job_id, b"first"))
    if place in ("active", "schedule", "dead"):
        scene.run(jobs.claim(scene.queue))
    if place == "schedule":
        scene.run(jobs.delay(scene.queue, job_id, 1, delay_ms=60_000))
    if place == "dead":
        scene.run(jobs.retry(scene.queue, job_id, 1, delay_ms=0, max_attempts=1, error="e"))
    if place == "held":
        scene.execute("ZREM", scene.keys.pending, job_id)
        scene.execute("HSET", scene.keys.job(job_id), "state", "awaiting_children")
    before = scene.dump()
    for call in (
        jobs.enqueue(scene.queue, job_id, b"second"),
        jobs.enqueue_at(scene.queue, job_id, b"second", at_ms=1),
        jobs.enqueue_in(scene.queue, job_id, b"second", delay_ms=1),
    ):
        assert scene.run(call) is Admission.DUPLICATE
    assert scene.run(jobs.enqueue_many(scene.queue, [(job_id, b"second")])) == (Admission.DUPLICATE,)
    assert scene.dump() == before


def test_a_finished_job_with_a_kept_result_is_a_duplicate(scene: Scene) -> None:
    job_id = scene.mint()
    scene.execute("SET", scene.keys.job(job_id) + ":result", "r", "PX", 60_000)
    before = scene.dump()
    assert scene.run(jobs.enqueue(scene.queue, job_id, b"p")) is Admission.DUPLICATE
    assert scene.run(jobs.enqueue_in(scene.queue, job_id, b"p", delay_ms=0)) is Admission.DUPLICATE
    assert scene.run(jobs.enqueue_many(scene.queue, [(job_id, b"p")])) == (Admission.DUPLICATE,)
    assert scene.dump() == before
    scene.execute("DEL", scene.keys.job(job_id) + ":result")


def test_an_id_is_admitted_again_once_its_row_is_gone(scene: Scene) -> None:
    job_id = scene.mint()
    scene.run(jobs.enqueue(scene.queue, job_id, b"p"))
    scene.run(jobs.claim(scene.queue))
    scene.run(jobs.complete(scene.queue, job_id, 1))
    assert scene.run(jobs.enqueue(scene.queue, job_id, b"p")) is Admission.ADMITTED


def test_many_admissions_answer_one_by_one_in_order(scene: Scene) -> None:
    first, second, third = scene.minter.mint_many(3)
    scene.run(jobs.enqueue(scene.queue, second, b"there"))
    scene.drop_tokens()
    answers = scene.run(jobs.enqueue_many(scene.queue, [(first, b"1"), (second, b"2"), (third, b"3"), (first, b"4")]))
    assert answers == (
        Admission.ADMITTED,
        Admission.DUPLICATE,
        Admission.ADMITTED,
        Admission.DUPLICATE,
    )
    assert [scene.row(i)[b"payload"] for i in (first, second, third)] == [b"1", b"there", b"3"]
    assert scene.tokens() == 2


def test_many_admissions_refuse_all_for_one_id_of_another_kind(scene: Scene) -> None:
    call = jobs.enqueue_many(scene.queue, [(scene.mint(), b"1"), (scene.mint(), b"2")])
    refusal = scene.refusal(with_args(call, {2: scene.minter.mint("ORD")}))
    assert refusal.reply == "EMQKIND job id must be JOB-namespaced"


@pytest.mark.parametrize("verb", ["enqueue", "enqueue_in"])
def test_the_kind_is_refused_before_existence_is_looked_at(scene: Scene, verb: str) -> None:
    order_id = scene.minter.mint("ORD")
    calls = {
        "enqueue": jobs.enqueue(scene.queue, scene.mint(), b"p"),
        "enqueue_in": jobs.enqueue_in(scene.queue, scene.mint(), b"p", delay_ms=0),
    }
    scene.execute("HSET", scene.keys.job(order_id), "state", "pending")
    refusal = scene.refusal(with_args(calls[verb], {0: order_id}))
    assert isinstance(refusal, KindError)
    assert refusal.reply == "EMQKIND job id must be JOB-namespaced"
    scene.execute("DEL", scene.keys.job(order_id))


def test_ids_come_out_in_mint_order_whatever_order_they_went_in(scene: Scene) -> None:
    ids = scene.minter.mint_many(20)
    for job_id in reversed(ids):
        scene.run(jobs.enqueue(scene.queue, job_id, b"p"))
    assert scene.run(jobs.browse(scene.queue)) == tuple(reversed(ids))
    assert scene.run(jobs.browse(scene.queue, newest_first=False, limit=3)) == tuple(ids[:3])
    assert scene.run(jobs.pending_size(scene.queue)) == 20
    assert [job.id for job in scene.run(jobs.claim_many(scene.queue, 20)).jobs] == ids


def test_five_thousand_jobs_go_in_and_out_in_one_call_each(scene: Scene) -> None:
    ids = scene.minter.mint_many(5_000)
    answers = scene.run(jobs.enqueue_many(scene.queue, [(i, i) for i in ids]))
    assert set(answers) == {Admission.ADMITTED}
    assert len(answers) == 5_000
    assert scene.tokens() == 64
    claims = scene.run(jobs.claim_many(scene.queue, 5_000))
    assert [(job.id, job.payload) for job in claims.jobs] == [(i, i.encode()) for i in ids]
    held = [(job.id, job.token) for job in claims.jobs]
    assert scene.run(jobs.extend_many(scene.queue, held)) == ()
    assert scene.run(jobs.complete_many(scene.queue, held)).count(Completion.RETIRED) == 5_000
    counts = scene.run(metrics.counts(scene.queue))
    assert (counts.pending, counts.active, counts.completed) == (0, 0, 5_000)


def test_state_names_the_place(scene: Scene) -> None:
    job_id = scene.mint()

    def state() -> State:
        return scene.run(metrics.state(scene.queue, job_id))

    assert state() is State.ABSENT
    scene.run(jobs.enqueue_in(scene.queue, job_id, b"p", delay_ms=0))
    assert state() is State.SCHEDULED
    scene.run(jobs.promote(scene.queue))
    assert state() is State.PENDING
    scene.run(jobs.claim(scene.queue))
    assert state() is State.ACTIVE
    scene.execute("ZREM", scene.keys.active, job_id)
    assert state() is State.UNKNOWN
    scene.execute("HSET", scene.keys.job(job_id), "state", "awaiting_children")
    assert state() is State.AWAITING_CHILDREN
    scene.execute("ZADD", scene.keys.dead, 0, job_id)
    scene.execute("HSET", scene.keys.job(job_id), "state", "dead")
    assert state() is State.DEAD


def test_a_row_is_read_whole(scene: Scene) -> None:
    job_id = scene.mint()
    assert scene.run(metrics.row(scene.queue, job_id)) == {}
    scene.run(jobs.enqueue(scene.queue, job_id, b"\xff\0"))
    assert scene.run(metrics.row(scene.queue, job_id)) == {
        "state": b"pending",
        "attempts": b"0",
        "payload": b"\xff\0",
    }
