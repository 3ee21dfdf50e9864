"""The operator's verbs (protocol §7): payload, progress, logs, removal, another life, drain, obliterate, looking."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from echomq.identity.errors import IdError
from echomq.protocol import admin, admission, flows, jobs, lanes, metrics, repeat, workers
from echomq.protocol.call import Call
from echomq.protocol.errors import InvalidInputError, LockedError, StateError
from echomq.protocol.flows import Node
from echomq.protocol.replies import Counts, State
from support.runner import Runner, Scene
from support.servers import Server, wait_until

JOB_ID = "JOB0NgWEfAEJfs"
HOUR = 3_600_000
A = lanes.lane_id("a")


def enqueue(scene: Scene, count: int = 1) -> list[str]:
    ids = scene.minter.mint_many(count)
    scene.run(jobs.enqueue_many(scene.queue, [(i, b"p") for i in ids]))
    return ids


def in_hand(scene: Scene) -> str:
    (job_id,) = enqueue(scene)
    while (job := scene.run(jobs.claim(scene.queue))) is None or job.id != job_id:
        assert job is not None
    return job_id


def dead(scene: Scene, error: str = "boom") -> str:
    job_id = in_hand(scene)
    scene.run(jobs.retry(scene.queue, job_id, 1, delay_ms=0, max_attempts=1, error=error))
    return job_id


def later(scene: Scene) -> str:
    job_id = scene.mint()
    scene.run(jobs.enqueue_in(scene.queue, job_id, b"p", delay_ms=HOUR))
    return job_id


def in_lane(scene: Scene, group: str = A) -> str:
    job_id = scene.mint()
    scene.run(lanes.enqueue(scene.queue, job_id, b"p", group))
    return job_id


def held(scene: Scene) -> str:
    root = Node(scene.queue, scene.mint(), b"p", (Node(scene.queue, scene.mint(), b"c"),))
    scene.finish(flows.add(root))
    return root.id


PLACES: dict[str, Callable[[Scene], str]] = {
    "pending": lambda scene: enqueue(scene)[0],
    "lane": in_lane,
    "active": in_hand,
    "schedule": later,
    "dead": dead,
    "held": held,
}


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


# Removal


@pytest.mark.parametrize("place", PLACES)
def test_a_job_is_removed_wherever_it_lies_with_all_that_is_its(scene: Scene, place: str) -> None:
    job_id = PLACES[place](scene)
    scene.run(admin.add_log(scene.queue, job_id, "line"))
    assert scene.run(admin.remove_job(scene.queue, job_id)) is True
    assert not [key for key in scene.dump() if job_id.encode() in key]
    assert scene.places(job_id) == []
    assert scene.run(admin.remove_job(scene.queue, job_id)) is False


def test_a_holder_finds_a_removed_job_gone(scene: Scene) -> None:
    job_id = in_hand(scene)
    scene.run(admin.remove_job(scene.queue, job_id))
    assert scene.run(jobs.complete(scene.queue, job_id, 1)).value == "gone"
    assert scene.run(metrics.counts(scene.queue)) == Counts(0, 0, 0, 0, 0, 0)


@pytest.mark.parametrize("place", ["pending", "active", "schedule", "dead"])
def test_a_ghost_is_dropped_by_its_removal(scene: Scene, place: str) -> None:
    ghost = scene.ghost(place, 5 if place in ("active", "schedule") else 0)
    assert scene.run(admin.remove_job(scene.queue, ghost)) is False
    assert scene.places(ghost) == []


def knows_field_ttl(scene: Scene) -> bool:
    names = scene.execute("COMMAND", "INFO", "HPEXPIRE")
    return bool(names) and names[0] is not None


@pytest.mark.parametrize("field", [False, True])
def test_a_job_that_its_worker_keeps_is_not_removed_until_the_marker_ends(scene: Scene, field: bool) -> None:
    job_id = in_hand(scene)
    scene.run(workers.keep(scene.queue, [(job_id, 1)], lease_ms=HOUR, field=field))
    refusal = scene.refusal(admin.remove_job(scene.queue, job_id))
    assert isinstance(refusal, LockedError)
    assert refusal.reply == "EMQLOCK job is locked"
    scene.run(workers.keep(scene.queue, [(job_id, 1)], lease_ms=20, field=field))
    wait_until(lambda: scene.outcome(admin.remove_job(scene.queue, job_id)) is True)


def test_the_lock_field_counts_where_the_server_can_end_it(scene: Scene) -> None:
    job_id = in_hand(scene)
    scene.run(workers.keep(scene.queue, [(job_id, 1)], lease_ms=HOUR, field=True))
    if knows_field_ttl(scene):
        (ttl,) = scene.execute("HPTTL", scene.keys.job(job_id), "FIELDS", 1, "lock")
        assert 2 * HOUR - 10_000 < ttl <= 2 * HOUR
        assert scene.row(job_id)[b"lock"] == b"1"
        scene.execute("DEL", scene.keys.job(job_id) + ":lock")
        assert isinstance(scene.refusal(admin.remove_job(scene.queue, job_id)), LockedError)
    else:
        assert b"lock" not in scene.row(job_id)
        scene.execute("DEL", scene.keys.job(job_id) + ":lock")
        scene.execute("HSET", scene.keys.job(job_id), "lock", "1")
        assert scene.run(admin.remove_job(scene.queue, job_id)) is True


ENDS_OF_HOLD: dict[str, Callable[[Scene, str], Any]] = {
    "release": lambda scene, job_id: scene.run(jobs.release(scene.queue, job_id, 1)),
    "delay": lambda scene, job_id: scene.run(jobs.delay(scene.queue, job_id, 1, delay_ms=HOUR)),
    "retry": lambda scene, job_id: scene.run(
        jobs.retry(scene.queue, job_id, 1, delay_ms=HOUR, max_attempts=9, error="e")
    ),
    "bury": lambda scene, job_id: scene.run(jobs.retry(scene.queue, job_id, 1, delay_ms=0, max_attempts=1, error="e")),
    "sweep": lambda scene, job_id: (scene.lapse(job_id), scene.run(jobs.sweep(scene.queue, max_stalled=5))),
    "reap": lambda scene, job_id: (scene.lapse(job_id), scene.run(jobs.reap(scene.queue))),
}


@pytest.mark.parametrize("end", ENDS_OF_HOLD)
def test_the_lock_ends_with_the_hold(scene: Scene, end: str) -> None:
    job_id = in_hand(scene)
    scene.run(workers.keep(scene.queue, [(job_id, 1)], lease_ms=HOUR, field=True))
    ENDS_OF_HOLD[end](scene, job_id)
    assert b"lock" not in scene.row(job_id)
    assert scene.run(admin.remove_job(scene.queue, job_id)) is True


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


# Drain


def test_a_drain_takes_flat_waiting_jobs_and_nothing_else(scene: Scene) -> None:
    kept = [in_hand(scene), dead(scene), in_lane(scene), later(scene), held(scene)]
    gone = enqueue(scene, 3)
    scene.run(admin.add_log(scene.queue, gone[0], "line"))
    scene.run(repeat.register(scene.queue, "r", every_ms=5, template=b"t", first_run_ms=HOUR))
    child = scene.snapshot().places["pending"].keys() - set(gone)
    assert len(child) == 1
    scene.run(admin.remove_job(scene.queue, *child))
    assert scene.finish(admin.drain(scene.queue)) == 3
    assert {scene.run(metrics.state(scene.queue, i)) for i in gone} == {State.ABSENT}
    assert State.ABSENT not in {scene.run(metrics.state(scene.queue, i)) for i in kept}
    assert not [key for key in scene.dump() if gone[0].encode() in key]
    assert scene.run(repeat.count(scene.queue)) == 1


def test_a_drain_takes_scheduled_jobs_when_asked(scene: Scene) -> None:
    waiting, (now,) = [later(scene) for _ in range(3)], enqueue(scene)
    assert scene.finish(admin.drain(scene.queue, scheduled=True)) == 4
    assert {scene.run(metrics.state(scene.queue, i)) for i in (*waiting, now)} == {State.ABSENT}


@pytest.mark.parametrize("count", [6, 7, 8])
def test_a_drain_goes_in_steps(scene: Scene, count: int) -> None:
    enqueue(scene, count - 2)
    later(scene)
    later(scene)
    step = next(admin.drain(scene.queue, scheduled=True, budget=3))
    assert scene.run(step) == 3
    assert scene.finish(admin.drain(scene.queue, scheduled=True, budget=3)) == count - 3


def test_a_parent_that_a_drained_child_releases_is_drained_with_it(scene: Scene) -> None:
    children = tuple(Node(scene.queue, scene.mint(), b"c", on_death=flows.OnDeath.IGNORE) for _ in range(3))
    scene.finish(flows.add(Node(scene.queue, scene.mint(), b"p", children)))
    assert scene.finish(admin.drain(scene.queue, budget=3)) == 4
    assert [key for key in scene.dump() if b":job:" in key] == []


def test_a_parent_that_a_child_on_the_schedule_releases_is_drained_with_it(scene: Scene) -> None:
    child = Node(scene.queue, scene.mint(), b"c", on_death=flows.OnDeath.IGNORE)
    scene.finish(flows.add(Node(scene.queue, scene.mint(), b"p", (child,))))
    scene.run(jobs.claim(scene.queue))
    scene.run(jobs.delay(scene.queue, child.id, 1, delay_ms=HOUR))
    assert scene.finish(admin.drain(scene.queue, scheduled=True)) == 2
    assert [key for key in scene.dump() if b":job:" in key] == []


# Obliterate


def full(scene: Scene) -> None:
    """Everything that a queue can hold, in every place."""
    q = scene.queue
    for place in PLACES.values():
        place(scene)
    for n in range(4):
        group = lanes.lane_id(f"lane {n}")
        scene.run(admission.admit(q, scene.mint(), b"p", group=group, lane_text=f"lane {n}"))
        scene.run(
            (lanes.pause(q, group), lanes.limit(q, group, 1), lanes.weight(q, group, 2), lanes.depth(q, group))[n]
        )
    done = in_hand(scene)
    scene.run(jobs.complete(q, done, 1, result=b"r", result_ttl_ms=HOUR))
    sent = scene.run(admission.admit(q, scene.mint(), b"p", dedup=admission.Dedup("k")))
    scene.execute("SET", f"{scene.keys.base}de:orphan", scene.mint())
    scene.run(admin.add_log(q, sent.id, "line"))
    away = Node(q, scene.mint(), b"p", (Node("elsewhere", scene.mint(), b"c"),))
    scene.finish(flows.add(away))
    scene.execute("DEL", *(key for key in scene.execute("KEYS", "emq:{elsewhere}:*")))
    near = Node(q, scene.mint(), b"p", (Node(q, scene.mint(), b"c", (Node(q, scene.mint(), b"c"),)),))
    scene.finish(flows.add(near))
    finished = Node(q, scene.mint(), b"p", (Node(q, scene.mint(), b"c"),))
    scene.finish(flows.add(finished))
    scene.run(repeat.register(q, "r", every_ms=5, template=b"t", first_run_ms=HOUR))
    scene.execute("RPUSH", scene.keys.outbox, "x", "y")
    scene.run(flows.reject(q, b"x"))
    scene.run(workers.beat(q, "w", b"{}"))
    claims = scene.run(jobs.claim_many(q, 99)).jobs
    for job in claims:
        if job.id == finished.children[0].id:
            scene.run(jobs.complete(q, job.id, job.token))
    parent = scene.run(jobs.claim(q))
    assert parent is not None
    scene.run(jobs.complete(q, parent.id, 1))
    scene.run(admin.set_rate(q, 5, period_ms=HOUR))
    enqueue(scene, 2)
    scene.run(jobs.claim(q))


def test_obliterate_leaves_no_key(scene: Scene) -> None:
    full(scene)
    scene.execute("XADD", f"{scene.keys.base}stream:theirs", "*", "a", "b")
    (bystander,) = enqueue(Scene(scene.runner, scene.queue + "2"))
    scene.run(admin.pause_queue(scene.queue))
    for budget in (3, 1_000):
        scene.finish(admin.obliterate(scene.queue, force=True, budget=budget))
        names = sorted(scene.execute("KEYS", f"{scene.keys.base}*"))
        assert names == [f"{scene.keys.base}stream:theirs".encode()]
        full(scene)
        scene.run(admin.pause_queue(scene.queue))
    scene.finish(admin.obliterate(scene.queue, force=True))
    assert scene.run(metrics.state(scene.queue + "2", bystander)) is State.PENDING


def test_what_can_be_reached_goes_without_a_walk_of_the_servers_keys(scene: Scene) -> None:
    full(scene)
    scene.run(admin.pause_queue(scene.queue))
    scene.finish(admin.obliterate(scene.queue, force=True, unreachable=False))
    left = [key.removeprefix(scene.keys.base.encode()).decode() for key in scene.dump()]
    held_elsewhere = [name for name in left if name.endswith(":dependencies")]
    assert all(
        name.endswith((":result", ":processed", ":dependencies", "de:orphan")) or len(name) == 18 for name in left
    )
    assert len(held_elsewhere) == 2
    scene.run(admin.pause_queue(scene.queue))
    scene.finish(admin.obliterate(scene.queue))
    assert scene.dump() == {}


def test_obliterate_is_refused_on_a_live_queue(scene: Scene) -> None:
    job_id = in_hand(scene)
    refusal = scene.refusal(next(admin.obliterate(scene.queue, force=True)))
    assert (type(refusal), refusal.reply) == (StateError, "EMQSTATE not paused")
    scene.run(admin.pause_queue(scene.queue))
    refusal = scene.refusal(next(admin.obliterate(scene.queue)))
    assert (type(refusal), refusal.reply) == (StateError, "EMQSTATE active jobs present")
    with pytest.raises(StateError, match="active jobs present"):
        scene.finish(admin.obliterate(scene.queue, unreachable=False))
    scene.run(jobs.complete(scene.queue, job_id, 1))
    scene.finish(admin.obliterate(scene.queue))
    assert scene.dump() == {}


def test_a_queue_that_is_resumed_half_way_is_left_alone(scene: Scene) -> None:
    enqueue(scene, 20)
    scene.run(admin.pause_queue(scene.queue))
    plan = admin.obliterate(scene.queue, budget=5)
    call = next(plan)
    assert scene.run(call) == 1
    scene.run(admin.resume_queue(scene.queue))
    with pytest.raises(StateError, match="not paused"):
        scene.finish(plan)
    assert scene.run(jobs.pending_size(scene.queue)) == 15


def test_one_call_of_obliterate_is_bounded(scene: Scene) -> None:
    enqueue(scene, 30)
    scene.run(admin.pause_queue(scene.queue))
    step = next(admin.obliterate(scene.queue, budget=7))
    left = []
    while scene.run(step):
        left.append(scene.run(jobs.pending_size(scene.queue)))
    assert left == [23, 16, 9, 2]
    assert scene.run(admin.is_paused(scene.queue)) is True
    scene.run(admin.resume_queue(scene.queue))


@pytest.mark.parametrize("budget", [0, -1, 100_001, 1.5, "5", True])
def test_a_budget_that_is_none(budget: Any) -> None:
    for build in (admin.drain, admin.obliterate, admin.retain):
        with pytest.raises(InvalidInputError, match="budget"):
            build("q", budget=budget)  # type: ignore[operator]


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


@pytest.fixture
def confined(start_server: Callable[..., Server]) -> Any:
    """A client that may touch the keys and channels of its own queue and nothing else."""
    server = start_server()
    with server.client() as root, server.client() as client:
        root.execute(
            *("ACL", "SETUSER", "confined", "on", ">secret", "+@all"),
            *("resetkeys", "%RW~emq:{confined}:*", "%RW~emq:{elsewhere}:*", "resetchannels", "&emq:{confined}:*"),
        )
        client.execute("AUTH", "confined", "secret")
        yield Scene(Runner(client), "confined")


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
