"""Jobs that follow others (docs/additions.md): admitted with the verdict or not at all, and once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from echomq.protocol import admin, admission, flows, follow, jobs, lanes
from echomq.protocol.errors import InvalidInputError, KindError, ServerError, StaleTokenError
from echomq.protocol.flows import Node
from echomq.protocol.follow import Follow, Owed
from echomq.protocol.replies import Completion, Retried
from support.runner import PAST, Scene, with_args

A = lanes.lane_id("a")
ASKS = b'{"v":1,"job":"send","args":["\\"on_dead\\":"],"on_dead":"alert"}'
TELLS = b'{"v":1,"job":"send","args":["\\"on_dead\\": no"]}'


def in_hand(scene: Scene, payload: bytes = b"p", group: str | None = None) -> str:
    job_id = scene.mint()
    scene.run(admission.admit(scene.queue, job_id, payload, group=group))
    job = scene.run(jobs.claim(scene.queue))
    assert job is not None
    assert job.id == job_id
    return job_id


def next_one(scene: Scene) -> Follow:
    return Follow(scene.mint(), b"next")


def pending(scene: Scene) -> list[str]:
    return [each.decode() for each in scene.execute("ZRANGE", scene.keys.pending, 0, -1)]


def notes(scene: Scene) -> list[Owed]:
    return [Owed.of(entry) for entry in scene.run(follow.owed(scene.queue))]


@pytest.mark.parametrize("group", [None, A], ids=["flat", "lane"])
def test_a_completion_admits_what_follows(scene: Scene, group: str | None) -> None:
    job_id, then = in_hand(scene, group=group), next_one(scene)
    scene.execute("DEL", scene.keys.wake)
    assert scene.run(jobs.complete(scene.queue, job_id, 1, then=then)) is Completion.RETIRED
    assert pending(scene) == [then.id]
    assert scene.execute("HGETALL", scene.keys.job(then.id)) == {
        b"state": b"pending",
        b"attempts": b"0",
        b"payload": b"next",
    }
    assert scene.execute("LLEN", scene.keys.wake) == 1


def test_a_completion_that_is_sent_again_admits_nothing_more(scene: Scene) -> None:
    job_id, then = in_hand(scene), next_one(scene)
    settle = jobs.complete(scene.queue, job_id, 1, then=then)
    assert scene.run(settle) is Completion.RETIRED
    follower = scene.run(jobs.claim(scene.queue))
    assert follower is not None
    scene.run(jobs.complete(scene.queue, follower.id, 1))
    assert scene.run(settle) is Completion.GONE
    assert pending(scene) == []


def test_a_refused_completion_admits_nothing(scene: Scene) -> None:
    job_id = in_hand(scene)
    scene.execute("ZADD", scene.keys.active, PAST, job_id)
    scene.run(jobs.reap(scene.queue))
    scene.run(jobs.claim(scene.queue))
    with pytest.raises(StaleTokenError):
        scene.run(jobs.complete(scene.queue, job_id, 1, then=next_one(scene)))
    assert pending(scene) == []


def test_a_child_whose_parent_is_elsewhere_says_that_a_signal_lies_in_the_outbox(scene: Scene, other: Scene) -> None:
    child = Node(other.queue, other.mint(), b"c")
    scene.finish(flows.add(Node(scene.queue, scene.mint(), b"p", (child,))))
    scene.run(jobs.claim(other.queue))
    then = next_one(scene)
    assert scene.run(jobs.complete(other.queue, child.id, 1, then=then)) is Completion.SIGNALLED
    assert pending(other) == [then.id]


def test_a_failure_is_followed_at_every_attempt_and_the_death_by_both(scene: Scene) -> None:
    job_id, failed, dead = in_hand(scene), next_one(scene), next_one(scene)
    more = jobs.retry(scene.queue, job_id, 1, delay_ms=0, max_attempts=2, error="e", then=failed, at_death=dead)
    assert scene.run(more) is Retried.SCHEDULED
    assert pending(scene) == [failed.id]
    scene.run(jobs.claim(scene.queue))
    scene.run(jobs.promote(scene.queue))
    assert scene.run(jobs.claim(scene.queue)) is not None
    last, at_death = next_one(scene), next_one(scene)
    end = jobs.retry(scene.queue, job_id, 2, delay_ms=0, max_attempts=2, error="e", then=last, at_death=at_death)
    assert scene.run(end) is Retried.DEAD
    assert sorted(pending(scene)) == sorted([last.id, at_death.id])
    with pytest.raises(ServerError):
        scene.run(end)
    assert len(pending(scene)) == 2


def test_a_failure_without_a_follower_leaves_room_for_that_of_the_death(scene: Scene) -> None:
    job_id, dead = in_hand(scene, ASKS), next_one(scene)
    end = jobs.retry(scene.queue, job_id, 1, delay_ms=0, max_attempts=1, error="e", at_death=dead)
    assert scene.run(end) is Retried.DEAD
    assert pending(scene) == [dead.id]
    assert notes(scene) == []  # what the holder admits is not owed as well


def test_what_follows_must_be_a_job_and_is_refused_before_anything_is_written(scene: Scene) -> None:
    job_id, then = in_hand(scene), next_one(scene)
    before = scene.snapshot()
    complete = jobs.complete(scene.queue, job_id, 1, then=then)
    retry = jobs.retry(scene.queue, job_id, 1, delay_ms=0, max_attempts=1, error="e", then=then, at_death=then)
    for call in (with_args(complete, {5: "USR00000000001"}), with_args(retry, {6: "x"}), with_args(retry, {8: "x"})):
        with pytest.raises(KindError):
            scene.run(call)
    assert scene.snapshot() == before
    with pytest.raises(InvalidInputError):
        jobs.complete(scene.queue, job_id, 1, then=Follow("USR00000000001", b""))


# Deaths in nobody's hands


def lapse(scene: Scene, job_id: str) -> None:
    scene.execute("ZADD", scene.keys.active, PAST, job_id)
    assert scene.run(jobs.sweep(scene.queue, max_stalled=1)).dead == (job_id,)


def cancel(scene: Scene, job_id: str) -> None:
    scene.run(jobs.release(scene.queue, job_id, 1))
    scene.run(admin.cancel_job(scene.queue, job_id, reason="stalled"))


def bury(scene: Scene, job_id: str) -> None:
    scene.run(jobs.retry(scene.queue, job_id, 1, delay_ms=0, max_attempts=1, error="stalled"))


DEATHS: dict[str, Callable[[Scene, str], None]] = {"sweep": lapse, "cancel": cancel, "retry": bury}


@pytest.mark.parametrize("group", [None, A], ids=["flat", "lane"])
@pytest.mark.parametrize("death", DEATHS)
def test_a_death_is_noted_when_the_envelope_asks_for_it(scene: Scene, death: str, group: str | None) -> None:
    job_id = in_hand(scene, ASKS, group)
    DEATHS[death](scene, job_id)
    (note,) = notes(scene)
    error = "cancelled: stalled" if death == "cancel" else "stalled"
    assert (note.id, note.attempts, note.error, note.payload) == (job_id, 1, error, ASKS)
    assert note.died_ms == int(scene.execute("HGET", scene.keys.job(job_id), "died_ms"))
    assert (note.failures, note.stalled) == {"sweep": (0, 1), "cancel": (0, 0), "retry": (1, 0)}[death]


@pytest.mark.parametrize("death", DEATHS)
def test_a_death_that_nobody_asks_about_is_not_noted(scene: Scene, death: str) -> None:
    DEATHS[death](scene, in_hand(scene, TELLS))
    assert notes(scene) == []


def test_a_parent_that_dies_of_its_child_is_noted(scene: Scene) -> None:
    child = Node(scene.queue, scene.mint(), b"c")
    root = Node(scene.queue, scene.mint(), ASKS, (child,))
    scene.finish(flows.add(root))
    scene.run(jobs.claim(scene.queue))
    bury(scene, child.id)
    (note,) = notes(scene)
    assert note.id == root.id
    assert note.error == f"child {child.id} failed: stalled"


def test_a_note_is_paid_once(scene: Scene) -> None:
    lapse(scene, in_hand(scene, ASKS))
    (entry,) = scene.run(follow.owed(scene.queue))
    then = next_one(scene)
    assert scene.run(follow.pay(scene.queue, entry, then))
    assert not scene.run(follow.pay(scene.queue, entry, then))
    assert not scene.run(follow.pay(scene.queue, entry, next_one(scene)))
    assert pending(scene) == [then.id]
    assert scene.execute("EXISTS", scene.keys.owed) == 0


def test_a_note_that_nothing_follows_is_taken_away(scene: Scene) -> None:
    lapse(scene, in_hand(scene, ASKS))
    (entry,) = scene.run(follow.owed(scene.queue))
    assert scene.run(follow.pay(scene.queue, entry, None))
    assert pending(scene) == []
    assert notes(scene) == []


def test_a_note_holds_any_bytes(scene: Scene) -> None:
    payload = ASKS + bytes(range(256))
    job_id = in_hand(scene, payload)
    error = "nul \0 and \N{SNOWMAN}\n"
    scene.run(jobs.retry(scene.queue, job_id, 1, delay_ms=0, max_attempts=1, error=error))
    (note,) = notes(scene)
    assert (note.error, note.payload) == (error, payload)


@pytest.mark.parametrize(
    "entry", [b"", b"x", b"JOB00000000001\0" + b"a\0" * 6, b"JOB00000000001" + b"\0001" * 4 + b"\00099\0e"]
)
def test_a_malformed_note_is_told_from_others(entry: bytes) -> None:
    with pytest.raises(InvalidInputError):
        Owed.of(entry)


def test_a_full_server_keeps_what_it_owes(scene: Scene) -> None:
    lapse(scene, in_hand(scene, ASKS))
    (entry,) = scene.run(follow.owed(scene.queue))
    scene.execute("CONFIG", "SET", "maxmemory", "1")
    try:
        with pytest.raises(ServerError, match="OOM"):
            scene.run(follow.pay(scene.queue, entry, next_one(scene)))
    finally:
        scene.execute("CONFIG", "SET", "maxmemory", "0")
    assert len(notes(scene)) == 1
    assert pending(scene) == []


def test_obliterate_takes_the_notes_along(scene: Scene) -> None:
    lapse(scene, in_hand(scene, ASKS))
    scene.run(admin.pause_queue(scene.queue))
    scene.finish(admin.obliterate(scene.queue))
    assert scene.execute("EXISTS", scene.keys.owed) == 0


@pytest.mark.strays("keys of the queue hold what no client of the protocol writes")
def test_a_list_of_notes_that_is_none_keeps_no_job_from_its_morgue(scene: Scene) -> None:
    job_id = in_hand(scene, ASKS)
    scene.execute("SET", scene.keys.owed, "abc")
    lapse(scene, job_id)
    assert scene.execute("ZSCORE", scene.keys.dead, job_id) is not None


@pytest.mark.strays("keys of the queue hold what no client of the protocol writes")
def test_where_nothing_can_be_admitted_nothing_is_settled(scene: Scene) -> None:
    job_id, then = in_hand(scene), next_one(scene)
    scene.execute("SET", scene.keys.pending, "abc")
    for call in (
        jobs.complete(scene.queue, job_id, 1, then=then),
        jobs.retry(scene.queue, job_id, 1, delay_ms=0, max_attempts=2, error="e", then=then),
    ):
        with pytest.raises(ServerError):
            scene.run(call)
    assert scene.execute("ZSCORE", scene.keys.active, job_id) is not None
    assert scene.execute("HGET", scene.keys.job(job_id), "failures") is None
