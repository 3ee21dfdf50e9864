"""What still works while a key holds what no client of the protocol writes: the other lanes, the settings, obliterate.

And what a user without rights on channels can do: all of it but tell.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from echomq.protocol import admin, admission, jobs, lanes, metrics, repeat
from echomq.protocol.errors import StateError
from echomq.protocol.replies import State
from support.placing import A, dead, enqueue, full, in_hand, in_lane
from support.runner import Runner, Scene
from support.servers import Server

BAD = lanes.lane_id("bad")
strays = pytest.mark.strays("a key of the queue holds what no client of the protocol writes")


def broken_lane(scene: Scene) -> None:
    """A lane that can be served, by the ring, and is none."""
    in_lane(scene, BAD)
    scene.execute("SET", scene.keys.lane(BAD), "x")


# Lanes


@strays
@pytest.mark.parametrize("n", [1, 9])
def test_a_lane_that_is_none_bars_no_other_and_no_flat_work(scene: Scene, n: int) -> None:
    broken_lane(scene)
    mine = {*enqueue(scene, 3), in_lane(scene), in_lane(scene)}
    taken: list[str] = []
    while found := scene.outcome(jobs.claim_many(scene.queue, n)):
        if not hasattr(found, "jobs"):
            break
        taken += [job.id for job in found.jobs]
    assert sorted(taken) == sorted(mine)
    assert "WRONGTYPE" in str(scene.refusal(jobs.claim_many(scene.queue, n)))


@strays
@pytest.mark.parametrize("claim", [lanes.claim, lanes.claim_weighted])
def test_a_lane_claim_passes_a_lane_that_is_none_and_leaves_the_ring_in_order(
    scene: Scene, claim: Callable[[str], object]
) -> None:
    broken_lane(scene)
    mine = in_lane(scene)
    scene.run(claim(scene.queue))  # type: ignore[arg-type]
    assert scene.score("active", mine) is not None
    assert scene.execute("LRANGE", scene.keys.ring, 0, -1) == [BAD.encode()]
    assert "WRONGTYPE" in str(scene.refusal(claim(scene.queue)))  # type: ignore[arg-type]


@strays
def test_a_weight_or_a_turn_that_cannot_be_read_is_none(scene: Scene) -> None:
    waiting = {in_lane(scene), *enqueue(scene)}
    scene.execute("SET", scene.keys.gweight, "x")
    scene.execute("RPUSH", f"{scene.keys.base}turn", "x")
    claims = scene.run(lanes.claim_weighted(scene.queue)).jobs + scene.run(jobs.claim_many(scene.queue, 9)).jobs
    assert {job.id for job in claims} == waiting


# Promotion in slices


def scheduled(scene: Scene, count: int) -> list[str]:
    ids = scene.minter.mint_many(count)
    for n, job_id in enumerate(ids):
        fields = ("state", "scheduled", "attempts", 0, "payload", "p")
        scene.execute("HSET", scene.keys.job(job_id), *fields)
        scene.execute("ZADD", scene.keys.schedule, 1_000 + n, job_id)
    return ids


@strays
@pytest.mark.parametrize("place", [0, 700, 1_400, 1_499])
def test_a_due_job_whose_lane_is_none_hides_none_behind_it(scene: Scene, place: int) -> None:
    ids = scheduled(scene, 1_500)
    scene.execute("HSET", scene.keys.job(ids[place]), "group", BAD)
    scene.execute("SET", scene.keys.lane(BAD), "x")
    assert scene.run(jobs.promote(scene.queue, 2_000)) == 1_499
    assert scene.tokens() == 64
    assert scene.score("schedule", ids[place]) == 1_000 + place
    assert scene.run(jobs.pending_size(scene.queue)) == 1_499
    assert "WRONGTYPE" in str(scene.refusal(jobs.promote(scene.queue, 2_000)))
    scene.execute("DEL", scene.keys.lane(BAD))
    assert scene.run(jobs.promote(scene.queue, 2_000)) == 1


@strays
def test_a_batch_is_filled_from_behind_those_that_have_to_stay(scene: Scene) -> None:
    ids = scheduled(scene, 12)
    for job_id in ids[:3]:
        scene.execute("HSET", scene.keys.job(job_id), "group", BAD)
    scene.execute("SET", scene.keys.lane(BAD), "x")
    assert scene.run(jobs.promote(scene.queue, 5)) == 5
    assert scene.run(jobs.browse(scene.queue, newest_first=False)) == tuple(ids[3:8])


# Settings


@strays
def test_a_queue_with_a_lane_that_is_none_is_paused_and_resumed_and_wakes(scene: Scene) -> None:
    broken_lane(scene)
    enqueue(scene, 3)
    scene.run(admin.pause_queue(scene.queue))
    scene.drop_tokens()
    scene.run(admin.resume_queue(scene.queue))
    assert scene.tokens() >= 3
    assert not scene.run(admin.is_paused(scene.queue))


@strays
@pytest.mark.parametrize("key", ["active", "limiter", "pending", "ring"])
def test_a_setting_that_was_written_is_no_error(scene: Scene, key: str) -> None:
    scene.execute("SADD", scene.keys.base + key, "x")
    for call in (
        *(admin.set_ceiling(scene.queue, 3), admin.set_rate(scene.queue, 4, period_ms=60_000)),
        *(admin.pause_queue(scene.queue), admin.resume_queue(scene.queue), admin.set_ceiling(scene.queue, None)),
    ):
        scene.run(call)
    assert scene.execute("HGETALL", scene.keys.meta) == {b"max": b"4", b"period_ms": b"60000"}


@pytest.mark.parametrize("period", ["0.5", "1e30", "-1", "x"])
def test_a_period_that_another_client_has_left_fails_no_setting(scene: Scene, period: str) -> None:
    scene.execute("HSET", scene.keys.meta, "max", "5", "period_ms", period)
    scene.execute("SET", scene.keys.limiter, "1", "PX", "60000")
    scene.run(admin.set_ceiling(scene.queue, 3))
    assert scene.execute("PTTL", scene.keys.limiter) > 50_000


# Obliterate

REGISTERED = (
    *("active", "pending", "schedule", "dead", "repeat", "cron", "glimit", "gactive", "gweight", "lanes", "ring"),
    *("paused", "wake", "limiter", "turn", "workers", "workers:info", "flow:outbox", "flow:rejected", "owed", "meta"),
    *("metrics:completed", "metrics:failed", f"g:{A}:pending", "repeat:r", "de:k"),
)


@strays
@pytest.mark.parametrize("kind", [("RPUSH", "x"), ("SET", "x"), ("ZADD", "1", "x"), ("HSET", "x", "1")])
@pytest.mark.parametrize("key", REGISTERED)
def test_obliterate_deletes_whatever_lies_at_a_key(scene: Scene, key: str, kind: tuple[str, ...]) -> None:
    full(scene)
    scene.run(admin.pause_queue(scene.queue))
    scene.execute("DEL", scene.keys.base + key)
    scene.execute(kind[0], scene.keys.base + key, *kind[1:])
    if (key, kind[0]) == ("meta", "HSET"):
        scene.execute("HSET", scene.keys.meta, "paused", "1")
    scene.finish(admin.obliterate(scene.queue, force=True, budget=7))
    assert scene.dump() == {}


@strays
@pytest.mark.parametrize("key", ["active", "pending", "ring", "meta", "dead"])
def test_obliterate_needs_no_force_for_what_is_no_set(scene: Scene, key: str) -> None:
    dead(scene)
    enqueue(scene, 3)
    in_lane(scene)
    scene.run(admin.pause_queue(scene.queue))
    scene.execute("DEL", scene.keys.base + key)
    scene.execute("SET", scene.keys.base + key, "x")
    scene.finish(admin.obliterate(scene.queue))
    assert scene.dump() == {}


def test_a_queue_without_settings_is_not_paused(scene: Scene) -> None:
    enqueue(scene)
    with pytest.raises(StateError, match="not paused"):
        scene.finish(admin.obliterate(scene.queue))


# A recurrence that could not be registered


@strays
def test_a_recurrence_is_registered_when_its_registry_is_one_again(scene: Scene) -> None:
    call = repeat.register(scene.queue, "n", every_ms=1_000, template=b"t", first_run_ms=5)
    scene.execute("SET", scene.keys.repeat, "x")
    scene.refusal(call)
    scene.execute("DEL", scene.keys.repeat)
    assert scene.run(call) is True
    assert scene.score("repeat", "n") == 5


# Events


def test_a_user_without_channels_does_all_but_tell(start_server: Callable[..., Server]) -> None:
    server = start_server()
    with server.client() as root, server.client() as client:
        root.execute("ACL", "SETUSER", "mute", "on", ">secret", "+@all", "~*", "resetchannels")
        client.execute("AUTH", "mute", "secret")
        scene = Scene(Runner(client), "mute")
        job_id = in_hand(scene)
        assert scene.run(admin.update_progress(scene.queue, job_id, "5")) is True
        assert scene.row(job_id)[b"progress"] == b"5"
        assert scene.run(admin.cancel_job(scene.queue, job_id)) is admin.Cancellation.REQUESTED
        scene.run(jobs.release(scene.queue, job_id, 1))
        assert scene.run(admin.cancel_job(scene.queue, job_id)) is admin.Cancellation.DEAD
        assert scene.run(metrics.state(scene.queue, job_id)) is State.DEAD
        sent = scene.run(admission.admit(scene.queue, scene.mint(), b"p"))
        scene.run(jobs.claim(scene.queue))
        scene.run(jobs.complete(scene.queue, sent.id, 1, result=b"r", result_ttl_ms=60_000))
        assert scene.run(metrics.state(scene.queue, sent.id)) is State.ABSENT
