"""Deduplicated admission (protocol §7): one living job a key, for as long as it lives or as its window is open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from echomq.protocol import admin, flows, jobs, lanes
from echomq.protocol.admission import Admitted, Dedup, admit
from echomq.protocol.errors import InvalidInputError, KindError
from echomq.protocol.replies import Admission
from support.runner import Scene, with_args
from support.servers import wait_until

HOUR = 3_600_000


def send(scene: Scene, key: str = "k", payload: bytes = b"p", **options: Any) -> Admitted:
    """An admission under a key, with a fresh id."""
    dedup = Dedup(key, **{name: options.pop(name) for name in ("window_ms", "replace") if name in options})
    return scene.run(admit(scene.queue, scene.mint(), payload, dedup=dedup, **options))


def holder(scene: Scene, key: str = "k") -> str | None:
    """The id behind a key."""
    value = scene.execute("GET", f"{scene.keys.base}de:{key}")
    return None if value is None else value.decode()


def test_the_first_admission_takes_the_key(scene: Scene) -> None:
    sent = send(scene)
    assert sent.verdict is Admission.ADMITTED
    assert scene.row(sent.id) == {b"state": b"pending", b"attempts": b"0", b"payload": b"p", b"dedup": b"k"}
    assert (holder(scene), scene.tokens(), scene.places(sent.id)) == (sent.id, 1, ["pending"])
    assert scene.execute("PTTL", f"{scene.keys.base}de:k") == -1


def test_another_admission_gives_the_living_job_and_writes_nothing(scene: Scene) -> None:
    sent = send(scene)
    before = scene.dump()
    for _ in range(3):
        assert send(scene, payload=b"other") == Admitted(Admission.DUPLICATE, sent.id)
    assert scene.dump() == before


def test_another_key_is_another_job(scene: Scene) -> None:
    assert send(scene, "a").id != send(scene, "b").id
    assert scene.run(jobs.pending_size(scene.queue)) == 2


def test_the_same_id_again_is_a_duplicate_of_itself(scene: Scene) -> None:
    job_id = scene.mint()
    for verdict in (Admission.ADMITTED, Admission.DUPLICATE):
        call = admit(scene.queue, job_id, b"p", dedup=Dedup("k"))
        assert scene.run(call) == Admitted(verdict, job_id)


def test_a_key_goes_with_a_lane_and_a_run_at(scene: Scene) -> None:
    group = lanes.lane_id("a")
    sent = send(scene, group=group, delay_ms=HOUR)
    assert sent.verdict is Admission.SCHEDULED
    assert scene.row(sent.id) == {
        b"state": b"scheduled",
        b"attempts": b"0",
        b"payload": b"p",
        b"dedup": b"k",
        b"group": group.encode(),
    }
    assert send(scene) == Admitted(Admission.DUPLICATE, sent.id)


STATES: dict[str, Callable[[Scene, str], Any]] = {
    "pending": lambda scene, job_id: None,
    "scheduled": lambda scene, job_id: (
        scene.run(jobs.claim(scene.queue)),
        scene.run(jobs.delay(scene.queue, job_id, 1, delay_ms=HOUR)),
    ),
    "retrying": lambda scene, job_id: (
        scene.run(jobs.claim(scene.queue)),
        scene.run(jobs.retry(scene.queue, job_id, 1, delay_ms=HOUR, max_attempts=9, error="e")),
    ),
}


@pytest.mark.parametrize("state", STATES)
def test_the_payload_of_a_job_that_waits_is_replaced_when_asked_for(scene: Scene, state: str) -> None:
    sent = send(scene)
    STATES[state](scene, sent.id)
    place = scene.places(sent.id)
    assert send(scene, payload=b"new", replace=True) == Admitted(Admission.DUPLICATE, sent.id)
    assert (scene.row(sent.id)[b"payload"], scene.places(sent.id)) == (b"new", place)


def test_the_payload_of_a_job_in_hand_is_not_replaced(scene: Scene) -> None:
    sent = send(scene)
    scene.run(jobs.claim(scene.queue))
    assert send(scene, payload=b"new", replace=True) == Admitted(Admission.DUPLICATE, sent.id)
    assert scene.row(sent.id)[b"payload"] == b"p"


ENDS: dict[str, Callable[[Scene, str], Any]] = {
    "completion": lambda scene, job_id: scene.run(jobs.complete(scene.queue, job_id, 1)),
    "completion in a batch": lambda scene, job_id: scene.run(jobs.complete_many(scene.queue, [(job_id, 1)])),
    "burial": lambda scene, job_id: scene.run(
        jobs.retry(scene.queue, job_id, 1, delay_ms=0, max_attempts=1, error="e")
    ),
    "lapses": lambda scene, job_id: (scene.lapse(job_id), scene.run(jobs.sweep(scene.queue))),
    "removal": lambda scene, job_id: scene.run(admin.remove_job(scene.queue, job_id)),
    "removal by key": lambda scene, job_id: scene.run(admin.remove_job(scene.queue, job_id, dedup="k")),
    "drain": lambda scene, job_id: (
        scene.run(jobs.release(scene.queue, job_id, 1)),
        scene.finish(admin.drain(scene.queue)),
    ),
    "cancel": lambda scene, job_id: (
        scene.run(jobs.release(scene.queue, job_id, 1)),
        scene.run(admin.cancel_job(scene.queue, job_id)),
    ),
    "cancel in hand": lambda scene, job_id: (
        scene.run(admin.cancel_job(scene.queue, job_id)),
        scene.run(jobs.release(scene.queue, job_id, 1)),
        scene.run(jobs.claim(scene.queue)),
    ),
}


@pytest.mark.parametrize("end", ENDS)
def test_every_end_frees_the_key(scene: Scene, end: str) -> None:
    sent = send(scene)
    scene.run(jobs.claim(scene.queue))
    ENDS[end](scene, sent.id)
    assert holder(scene) is None
    assert send(scene).verdict is Admission.ADMITTED


@pytest.mark.parametrize("end", ENDS)
def test_no_end_frees_a_key_that_names_another_job_by_now(scene: Scene, end: str) -> None:
    sent = send(scene)
    scene.run(jobs.claim(scene.queue))
    other = scene.mint()
    scene.execute("SET", f"{scene.keys.base}de:k", other)
    ENDS[end](scene, sent.id)
    assert holder(scene) == other


def test_a_key_that_was_given_to_the_removal_is_freed_only_when_it_names_the_job(scene: Scene) -> None:
    job_id, orphan = scene.mint(), scene.mint()
    scene.run(jobs.enqueue(scene.queue, job_id, b"p"))
    scene.execute("MSET", f"{scene.keys.base}de:mine", job_id, f"{scene.keys.base}de:orphan", orphan)
    for key in ("orphan", "mine"):
        scene.run(jobs.enqueue(scene.queue, job_id, b"p"))
        assert scene.run(admin.remove_job(scene.queue, job_id, dedup=key)) is True
    assert (holder(scene, "mine"), holder(scene, "orphan")) == (None, orphan)
    assert scene.run(admin.remove_job(scene.queue, job_id, dedup="orphan")) is False
    assert holder(scene, "orphan") == orphan


@pytest.mark.parametrize("how", ["gone", "dead", "no job", "empty"])
def test_a_key_without_a_living_job_is_taken_over(scene: Scene, how: str) -> None:
    dead = scene.mint()
    if how == "dead":
        scene.run(jobs.enqueue(scene.queue, dead, b"p"))
        scene.run(admin.cancel_job(scene.queue, dead))
    scene.execute("SET", f"{scene.keys.base}de:k", {"no job": "what?", "empty": ""}.get(how, dead))
    sent = send(scene)
    assert (sent.verdict, holder(scene)) == (Admission.ADMITTED, sent.id)


def test_a_held_parent_is_a_living_job(scene: Scene) -> None:
    parent = scene.mint()
    scene.finish(flows.add(flows.Node(scene.queue, parent, b"p", (flows.Node(scene.queue, scene.mint(), b"c"),))))
    scene.execute("SET", f"{scene.keys.base}de:k", parent)
    assert send(scene) == Admitted(Admission.DUPLICATE, parent)


def test_a_job_in_another_life_does_not_take_its_key_from_another_job(scene: Scene) -> None:
    first = send(scene)
    scene.run(admin.cancel_job(scene.queue, first.id))
    second = send(scene)
    scene.run(admin.reprocess_job(scene.queue, first.id))
    assert (second.verdict, holder(scene)) == (Admission.ADMITTED, second.id)
    assert b"dedup" not in scene.row(first.id)
    assert scene.run(jobs.claim(scene.queue)) is not None
    scene.run(jobs.complete(scene.queue, first.id, 1))
    assert holder(scene) == second.id


@pytest.mark.parametrize("how", ["free", "dead", "gone"])
def test_a_job_in_another_life_holds_its_key_again_until_its_end(scene: Scene, how: str) -> None:
    first = send(scene, window_ms=HOUR)
    scene.run(admin.cancel_job(scene.queue, first.id))
    other = send(scene, "other").id
    scene.run(admin.cancel_job(scene.queue, other))
    if how != "free":
        named = other if how == "dead" else scene.mint()
        scene.execute("SET", f"{scene.keys.base}de:k", named, "PX", HOUR)
    assert scene.run(admin.reprocess_job(scene.queue, first.id)) is True
    assert (holder(scene), scene.execute("PTTL", f"{scene.keys.base}de:k")) == (first.id, -1)
    assert send(scene) == Admitted(Admission.DUPLICATE, first.id)
    scene.run(jobs.claim(scene.queue))
    scene.run(jobs.complete(scene.queue, first.id, 1))
    assert holder(scene) is None


def test_a_key_that_names_a_dead_job_still_keeps_its_window_in_its_next_life(scene: Scene) -> None:
    first = send(scene)
    scene.run(admin.cancel_job(scene.queue, first.id))
    scene.execute("SET", f"{scene.keys.base}de:k", first.id, "PX", HOUR)
    scene.run(admin.reprocess_job(scene.queue, first.id))
    assert holder(scene) == first.id
    assert 0 < scene.execute("PTTL", f"{scene.keys.base}de:k") <= HOUR


@pytest.mark.strays("the key holds what no client of the protocol writes")
def test_a_dead_job_stays_where_it_is_when_its_key_is_none(scene: Scene) -> None:
    first = send(scene)
    scene.run(admin.cancel_job(scene.queue, first.id))
    scene.execute("RPUSH", f"{scene.keys.base}de:k", "x")
    assert "WRONGTYPE" in str(scene.refusal(admin.reprocess_job(scene.queue, first.id)))
    assert scene.places(first.id) == ["dead"]


def test_a_window_ends_while_the_job_lives(scene: Scene) -> None:
    first = send(scene, window_ms=30)
    assert 0 < scene.execute("PTTL", f"{scene.keys.base}de:k") <= 30
    wait_until(lambda: holder(scene) is None)
    second = send(scene, window_ms=HOUR)
    assert (second.verdict, holder(scene)) == (Admission.ADMITTED, second.id)
    scene.run(jobs.claim(scene.queue))
    scene.run(jobs.complete(scene.queue, first.id, 1))
    assert holder(scene) == second.id
    assert 0 < scene.execute("PTTL", f"{scene.keys.base}de:k") <= HOUR


def test_a_duplicate_does_not_prolong_the_window(scene: Scene) -> None:
    send(scene, window_ms=HOUR)
    send(scene, window_ms=10 * HOUR, replace=True)
    assert scene.execute("PTTL", f"{scene.keys.base}de:k") <= HOUR


def test_a_refused_admission_leaves_the_key_alone(scene: Scene) -> None:
    call = admit(scene.queue, scene.mint(), b"p", delay_ms=5, dedup=Dedup("k"))
    assert isinstance(scene.refusal(with_args(call, {0: "ORD0NgWEfAEJfs"})), KindError)
    for changes in ({2: "on"}, {3: "-1"}, {3: "x"}):
        assert "must be" in str(scene.refusal(with_args(call, changes)))


@pytest.mark.parametrize("key", ["", "a\nb", None, 5, b"k", "\ud800"])
def test_a_key_that_is_no_name(key: Any) -> None:
    with pytest.raises(InvalidInputError, match="deduplication key"):
        admit("q", "JOB0NgWEfAEJfs", b"p", dedup=Dedup(key))
    if key != "":
        with pytest.raises(InvalidInputError, match="deduplication key"):
            admin.remove_job("q", "JOB0NgWEfAEJfs", dedup=key)


@pytest.mark.parametrize("window", [0, -1, 1.5, "5", True, 2**53])
def test_a_window_that_is_none(window: Any) -> None:
    with pytest.raises(InvalidInputError, match="window_ms"):
        admit("q", "JOB0NgWEfAEJfs", b"p", dedup=Dedup("k", window_ms=window))
