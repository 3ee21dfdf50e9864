"""The `cron` registry (protocol §2, §9, ours): what is put there, and the turn that fires a slot once."""

from __future__ import annotations

from dataclasses import replace
from threading import Barrier, Thread
from typing import Any

import pytest

from echomq.identity.branded import encode
from echomq.identity.minter import Minter
from echomq.protocol import admin, cron, flows, jobs, lanes, metrics, repeat
from echomq.protocol.cron import CronFired, Occurrence
from echomq.protocol.errors import KindError
from echomq.protocol.recurring import Definition, Kind
from echomq.protocol.repeat import Firing
from echomq.protocol.replies import State
from support.recurring import HOUR, LINE, again, entry, fire, occurrence, put, waiting
from support.runner import Runner, Scene, with_args


def test_a_record_holds_what_is_said_and_nothing_else(scene: Scene) -> None:
    slot = put(scene)
    assert scene.dump() == {
        scene.keys.cron.encode(): [[b"n", float(slot)]],
        scene.keys.cron.encode() + b":n": [
            *((b"line", b"0 * * * *"), (b"slot_ms", str(slot).encode()), (b"template", b"t"), (b"tz", b"UTC")),
        ],
        scene.keys.wake.encode(): [b"1"],
    }


FULL = Definition(
    *(b"\x00\xff", 5_000), anchor_ms=7, start_ms=1, end_ms=2**53 - 1, jitter_ms=9, catch_up="all", catch_up_limit=12,
    overlap="skip", max_runs=3, expires_in_ms=4, group=encode("LAN", 5), lane="acme", dedup="k", dedup_ms=6,
    dedup_way="replace", owner="shop",
)  # fmt: skip


@pytest.mark.parametrize("definition", [LINE, FULL, replace(LINE, catch_up="skip")])
def test_what_is_put_is_read_back(scene: Scene, definition: Definition) -> None:
    slot = put(scene, definition, late_ms=-HOUR)
    found = entry(scene)
    assert (found.kind, found.definition, found.next_ms) == (Kind.CRON, definition, slot)
    assert found.history == cron.History(slot_ms=slot)


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"template": "t"},
        {"line": "0 * * * *"},
        {"template": "t", "every_ms": "0"},
        {"template": "t", "every_ms": "x"},
    ]
    + [{"template": "t", "every_ms": "5", "line": "0 * * * *"}]
    + [
        {"template": "t", "every_ms": "5", **wrong}
        for wrong in (
            *({"overlap": "maybe"}, {"catch_up": "all"}, {"catch_up": "one:5"}, {"catch_up": "all:0"}),
            *({"catch_up": "all:1001"}, {"jitter_ms": "-1"}, {"max_runs": "0"}, {"anchor_ms": "1.5"}),
            *({"group": "acme"}, {"dedup_way": "x"}, {"end_ms": "99999999999999999"}),
        )
    ],
)
def test_a_record_that_cannot_be_read_leaves_the_timetable_and_stays(scene: Scene, record: dict[str, str]) -> None:
    for name, value in {"other": "x", **record}.items():
        scene.execute("HSET", scene.keys.cron + ":n", name, value)
    scene.execute("ZADD", scene.keys.cron, 1, "n")
    (due,) = scene.run(cron.due(scene.queue, now_ms=5)).cron
    assert due.entry.definition is None
    assert scene.run(cron.park(scene.queue, replace(due.entry, stamp="other"))) is False
    assert scene.run(cron.park(scene.queue, due.entry)) is True
    assert scene.run(cron.due(scene.queue, now_ms=2**53 - 1)).cron == ()
    assert scene.execute("HGET", scene.keys.cron + ":n", "other") == b"x"
    assert scene.run(cron.cancel(scene.queue, "n")) is True


def test_a_record_of_another_type_is_parked_and_can_be_put_anew(scene: Scene) -> None:
    scene.execute("SET", scene.keys.cron + ":n", "x")
    scene.execute("ZADD", scene.keys.cron, 1, "n")
    (due,) = scene.run(cron.due(scene.queue, now_ms=5)).cron
    assert scene.run(cron.park(scene.queue, due.entry)) is True
    put(scene)
    assert entry(scene).definition == LINE


def test_due_gives_both_registries_oldest_first_and_sweeps_strays(scene: Scene) -> None:
    put(scene, late_ms=20)
    scene.run(repeat.register(scene.queue, "m", every_ms=HOUR, template=b"t", first_run_ms=scene.now_ms() - 5))
    for kind in ("repeat", "cron"):
        scene.execute("ZADD", scene.keys.base + kind, 5, "stray")
    dues = scene.run(cron.due(scene.queue, now_ms=scene.now_ms()))
    assert [each.name for each in dues.repeat] == ["m"]
    assert [each.entry.name for each in dues.cron] == ["n"]
    assert [scene.score(kind, "stray") for kind in ("repeat", "cron")] == [None, None]


def test_a_turn_admits_moves_and_notes_in_one_step(scene: Scene) -> None:
    slot = put(scene)
    scene.drop_tokens()
    one = occurrence(scene, slot, b'{"slot_ms":1}', due=slot + 4)
    following = scene.now_ms() + HOUR
    read = entry(scene)
    before = scene.now_ms()
    fired = scene.run(cron.fire(scene.queue, read, (one,), next_slot_ms=following, next_due_ms=following + 7))
    assert fired == CronFired(Firing.FIRED, following + 7, (one.job_id,))
    assert scene.row(one.job_id) == {b"state": b"pending", b"attempts": b"0", b"payload": b'{"slot_ms":1}'}
    history = entry(scene).history
    assert history.last_run_ms is not None
    assert before <= history.last_run_ms <= scene.now_ms()
    assert history == cron.History(
        slot_ms=following, last_slot_ms=slot, last_run_ms=history.last_run_ms,
        last_late_ms=history.last_run_ms - slot - 4, last_id=one.job_id, runs=1,
    )  # fmt: skip
    assert (entry(scene).next_ms, scene.tokens()) == (following + 7, 1)


def test_a_turn_can_admit_several_or_none(scene: Scene) -> None:
    slot = put(scene, late_ms=HOUR)
    assert fire(scene, slot, slot + 1, slot + 2).admitted == 3
    assert waiting(scene) == 3
    again(scene)
    assert fire(scene) == CronFired(Firing.FIRED, entry(scene).next_ms, ())
    assert (waiting(scene), entry(scene).history.runs) == (3, 3)


def test_the_second_to_fire_has_lost(scene: Scene) -> None:
    slot = put(scene)
    read = entry(scene)
    assert fire(scene, slot).verdict is Firing.FIRED
    before = scene.dump()
    assert fire(scene, slot, read=read).verdict is Firing.LOST
    assert scene.dump() == before


@pytest.mark.parametrize("change", ["template", "other", "score", "gone", "record"])
def test_whatever_has_changed_since_it_was_read_fires_nothing(scene: Scene, change: str) -> None:
    slot = put(scene)
    read = entry(scene)
    if change == "score":
        scene.execute("ZADD", scene.keys.cron, slot + 1, "n")
    elif change == "gone":
        scene.run(cron.cancel(scene.queue, "n"))
    elif change == "record":
        scene.execute("DEL", scene.keys.cron + ":n")
    else:
        scene.execute("HSET", scene.keys.cron + ":n", change, "new")
    assert fire(scene, slot, read=read).verdict is Firing.LOST
    assert waiting(scene) == 0
    scene.run(cron.cancel(scene.queue, "n"))


def test_a_fast_host_fires_nothing_early(scene: Scene) -> None:
    put(scene, late_ms=-60_000)
    before = scene.dump()
    assert fire(scene, scene.now_ms()).verdict is Firing.EARLY
    assert scene.dump() == before


def test_no_occurrence_of_a_turn_is_admitted_before_it_is_due(scene: Scene) -> None:
    slot = put(scene)
    assert fire(scene, slot, scene.now_ms() + 60_000).verdict is Firing.EARLY
    assert waiting(scene) == 0


def test_a_slot_that_lies_behind_the_last_one_is_not_admitted_again(scene: Scene) -> None:
    slot = put(scene)
    fire(scene, slot)
    again(scene)
    assert fire(scene, slot - 1, slot, slot + 1).admitted == 1
    assert entry(scene).history.last_slot_ms == slot + 1


def test_an_id_that_is_taken_fires_nothing(scene: Scene) -> None:
    slot = put(scene)
    taken, finished = scene.minter.mint_many(2)
    scene.run(jobs.enqueue(scene.queue, taken, b"other"))
    scene.execute("SET", scene.keys.job(finished) + ":result", "r", "PX", 60_000)
    before = scene.dump()
    for job_id in (taken, finished):
        both = (occurrence(scene, slot), Occurrence(job_id, slot + 1, slot, b"p"))
        call = cron.fire(scene.queue, entry(scene), both, next_slot_ms=None, next_due_ms=None)
        assert scene.run(call).verdict is Firing.DUPLICATE
    assert scene.dump() == before
    scene.execute("DEL", scene.keys.job(finished) + ":result")


def test_an_occurrence_of_another_kind_is_refused(scene: Scene) -> None:
    slot = put(scene)
    call = cron.fire(scene.queue, entry(scene), (occurrence(scene, slot),), next_slot_ms=None, next_due_ms=None)
    assert isinstance(scene.refusal(with_args(call, {4: scene.minter.mint("ORD")})), KindError)


@pytest.mark.parametrize("place", ["pending", "lane", "scheduled", "retrying", "active", "held"])
def test_overlap_is_skipped_while_the_last_one_has_not_ended(scene: Scene, place: str) -> None:
    group = encode("LAN", 1)
    definition = replace(LINE, overlap="skip", group=group if place == "lane" else "")
    slot = put(scene, definition)
    fire(scene, slot)
    last = entry(scene).history.last_id
    if place in ("active", "scheduled", "retrying"):
        scene.run(jobs.claim(scene.queue))
    if place == "scheduled":
        scene.run(jobs.delay(scene.queue, last, 1, delay_ms=HOUR))
    if place == "retrying":
        scene.run(jobs.retry(scene.queue, last, 1, delay_ms=HOUR, max_attempts=3, error="e"))
    if place == "held":
        parent, child = scene.minter.mint_many(2)
        tree = flows.Node(scene.queue, parent, b"p", children=(flows.Node(scene.queue, child, b"c"),))
        scene.finish(flows.add(tree))
        scene.execute("HSET", scene.keys.cron + ":n", "last_id", parent)
        last = parent
    slot = again(scene)
    fired = fire(scene, slot)
    assert (fired.verdict, fired.admitted) == (Firing.FIRED, 0)
    history = entry(scene).history
    assert (history.skipped, history.runs, history.last_id) == (1, 1, last)
    assert entry(scene).next_ms is not None


@pytest.mark.parametrize("end", ["completed", "dead", "removed", "unheard of"])
def test_overlap_is_not_skipped_once_the_last_one_has_ended(scene: Scene, end: str) -> None:
    slot = put(scene, replace(LINE, overlap="skip"))
    fire(scene, slot)
    last = entry(scene).history.last_id
    if end == "removed":
        scene.run(admin.remove_job(scene.queue, last))
    elif end == "unheard of":
        scene.execute("HSET", scene.keys.cron + ":n", "last_id", "garbage")
    else:
        scene.run(jobs.claim(scene.queue))
        if end == "completed":
            scene.run(jobs.complete(scene.queue, last, 1))
        else:
            scene.run(jobs.retry(scene.queue, last, 1, delay_ms=0, max_attempts=1, error="e"))
            assert scene.run(metrics.state(scene.queue, last)) is State.DEAD
    assert fire(scene, again(scene)).admitted == 1


def test_overlap_is_allowed_unless_it_is_to_be_skipped(scene: Scene) -> None:
    fire(scene, put(scene))
    assert fire(scene, again(scene)).admitted == 1
    assert waiting(scene) == 2


def test_it_is_over_after_its_last_run(scene: Scene) -> None:
    slot = put(scene, replace(LINE, max_runs=2), late_ms=HOUR)
    fired = fire(scene, slot, slot + 1, slot + 2)
    assert (fired.verdict, fired.next_ms, fired.admitted) == (Firing.FIRED, None, 2)
    assert (entry(scene).next_ms, entry(scene).history.slot_ms, waiting(scene)) == (None, None, 2)
    assert scene.run(cron.due(scene.queue, now_ms=2**53 - 1)).cron == ()


def test_it_is_over_when_there_is_no_next_slot(scene: Scene) -> None:
    slot = put(scene)
    one = occurrence(scene, slot)
    call = cron.fire(scene.queue, entry(scene), (one,), next_slot_ms=None, next_due_ms=None)
    assert scene.run(call) == CronFired(Firing.FIRED, None, (one.job_id,))
    assert scene.run(jobs.claim_many(scene.queue, 9)).next_at_ms is None


def test_occurrences_go_to_their_lane_under_their_key(scene: Scene) -> None:
    lane = lanes.lane_id("acme")
    slot = put(scene, replace(LINE, group=lane, lane="acme", dedup="k"), late_ms=HOUR)
    assert fire(scene, slot, slot + 1).admitted == 1
    last = entry(scene).history.last_id
    assert scene.places(last) == [f"g:{lane}:pending"]
    assert scene.execute("GET", scene.keys.base + "de:k") == last.encode()
    assert scene.execute("HGET", scene.keys.lanes, lane) == b"acme"
    assert entry(scene).history.skipped == 1
    claimed = scene.run(jobs.claim(scene.queue))
    assert claimed is not None
    assert claimed.group == lane
    scene.run(jobs.complete(scene.queue, claimed.id, 1))
    assert fire(scene, again(scene)).admitted == 1


def test_a_key_can_let_go_after_a_while_or_take_the_newer_payload(scene: Scene) -> None:
    put(scene, replace(LINE, dedup="k", dedup_ms=60_000, dedup_way="replace"))
    fire(scene, again(scene))
    last = entry(scene).history.last_id
    assert 0 < scene.execute("PTTL", scene.keys.base + "de:k") <= 60_000
    newer = occurrence(scene, again(scene), b"newer")
    scene.run(cron.fire(scene.queue, entry(scene), (newer,), next_slot_ms=None, next_due_ms=None))
    assert scene.row(last)[b"payload"] == b"newer"


def test_many_pumps_fire_a_slot_once(scene: Scene, server: Any) -> None:
    slot = put(scene)
    read, start, verdicts = entry(scene), Barrier(6), []

    def race(number: int) -> None:
        with server.client() as client:
            runner, minter = Runner(client), Minter(node=number)
            one = Occurrence(minter.mint(), slot, slot, b"p")
            call = cron.fire(scene.queue, read, (one,), next_slot_ms=slot + HOUR, next_due_ms=slot + HOUR)
            start.wait(10)
            verdicts.append(runner.run(call).verdict)

    racers = [Thread(target=race, args=(n,)) for n in range(6)]
    for each in racers:
        each.start()
    for each in racers:
        each.join()
    assert sorted(each.value for each in verdicts) == ["fired", *["lost"] * 5]
    assert waiting(scene) == 1
