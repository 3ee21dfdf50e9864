"""Recurrence (protocol §9): the registry verbs as the original knows them, and the atomic fire."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from echomq.identity.branded import parse
from echomq.identity.minter import Minter
from echomq.protocol import cron, jobs, metrics, repeat
from echomq.protocol.errors import InvalidInputError, KindError
from echomq.protocol.repeat import Due, Fired, Firing, Registration
from echomq.protocol.replies import Admission, State
from support.runner import Scene, with_args

HOUR = 3_600_000


def register(scene: Scene, name: str = "n", *, every_ms: int = HOUR, late_ms: int = 0) -> int:
    """A recurrence whose first run was due `late_ms` ago; gives that instant."""
    first = scene.now_ms() - late_ms
    assert scene.run(repeat.register(scene.queue, name, every_ms=every_ms, template=b"t", first_run_ms=first))
    return first


def fire(scene: Scene, name: str, score: int, job_id: str | None = None) -> Fired:
    return scene.run(repeat.fire(scene.queue, name, score=str(score), job_id=job_id or scene.mint()))


def test_registering_writes_the_period_and_the_template_and_nothing_else(scene: Scene) -> None:
    first = register(scene)
    assert scene.dump() == {
        scene.keys.repeat.encode(): [[b"n", float(first)]],
        scene.keys.repeat_record("n").encode(): [(b"every_ms", b"3600000"), (b"template", b"t")],
        scene.keys.wake.encode(): [b"1"],
    }
    assert scene.run(repeat.count(scene.queue)) == 1


def test_a_name_that_lives_is_not_registered_again(scene: Scene) -> None:
    register(scene)
    before = scene.dump()
    call = repeat.register(scene.queue, "n", every_ms=5, template=b"u", first_run_ms=5)
    assert scene.run(call) is False
    assert scene.dump() == before


@pytest.mark.parametrize("name", ["n", "a b", "grüße", "x:y", "*", "{n}", "n" * 500])
def test_any_printable_text_is_a_name(scene: Scene, name: str) -> None:
    first = register(scene, name, late_ms=5)
    (due,) = scene.run(repeat.due(scene.queue, now_ms=scene.now_ms()))
    assert due == Due(name, str(first), HOUR, b"t")
    assert fire(scene, name, first).verdict is Firing.FIRED
    assert scene.run(repeat.cancel(scene.queue, name)) is True


def test_cancelling_ends_it_and_leaves_its_occurrences(scene: Scene) -> None:
    first = register(scene)
    job_id = scene.mint()
    fire(scene, "n", first, job_id)
    assert scene.run(repeat.cancel(scene.queue, "n")) is True
    assert scene.run(repeat.cancel(scene.queue, "n")) is False
    assert scene.run(repeat.count(scene.queue)) == 0
    assert scene.row(job_id) == {b"state": b"pending", b"attempts": b"0", b"payload": b"t"}
    assert fire(scene, "n", first + HOUR) == Fired(Firing.LOST, None)


def test_due_gives_the_oldest_first_up_to_a_limit(scene: Scene) -> None:
    now = scene.now_ms()
    for name, late in (("b", 10), ("a", 30), ("c", 20), ("later", -HOUR)):
        register(scene, name, late_ms=late)
    assert [d.name for d in scene.run(repeat.due(scene.queue, now_ms=now + 1))] == ["a", "c", "b"]
    assert [d.name for d in scene.run(repeat.due(scene.queue, now_ms=now, limit=2))] == ["a", "c"]
    assert scene.run(repeat.due(scene.queue, now_ms=0)) == ()


def test_due_sweeps_a_name_without_a_record(scene: Scene) -> None:
    scene.execute("ZADD", scene.keys.repeat, 5, "stray")
    assert scene.run(repeat.due(scene.queue, now_ms=9)) == ()
    assert scene.dump() == {}


def test_advance_sets_the_next_run_or_sweeps_the_stray(scene: Scene) -> None:
    register(scene)
    assert scene.run(repeat.advance(scene.queue, "n", next_run_ms=77)) is True
    assert scene.score("repeat", "n") == 77
    scene.execute("DEL", scene.keys.repeat_record("n"))
    assert scene.run(repeat.advance(scene.queue, "n", next_run_ms=78)) is False
    assert scene.execute("EXISTS", scene.keys.repeat) == 0


def test_an_upsert_can_count_its_first_run_from_the_server_s_now(scene: Scene) -> None:
    before = scene.now_ms()
    scene.run(repeat.upsert(scene.queue, "n", every_ms=50, template=b"t", first_in_ms=HOUR))
    assert before + HOUR <= (scene.score("repeat", "n") or 0) <= scene.now_ms() + HOUR


@pytest.mark.parametrize(
    "first", [{}, {"first_run_ms": 1, "first_in_ms": 1}, {"first_in_ms": -1}, {"first_in_ms": "5"}]
)
def test_an_upsert_says_once_when_it_runs_first(first: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match="first_"):
        repeat.upsert("q", "n", every_ms=50, template=b"t", **first)


def test_upsert_registers_updates_or_leaves_alone(scene: Scene) -> None:
    def upsert(every_ms: int, template: bytes, first: int) -> Registration:
        return scene.run(repeat.upsert(scene.queue, "n", every_ms=every_ms, template=template, first_run_ms=first))

    assert upsert(10, b"t", 500) is Registration.REGISTERED
    assert upsert(10, b"t", 900) is Registration.UNCHANGED
    assert scene.score("repeat", "n") == 500
    assert upsert(10, b"u", 900) is Registration.UPDATED
    assert scene.score("repeat", "n") == 500
    assert upsert(20, b"u", 900) is Registration.UPDATED
    assert scene.score("repeat", "n") == 900
    scene.execute("ZREM", scene.keys.repeat, "n")
    assert upsert(20, b"u", 950) is Registration.UPDATED
    assert scene.score("repeat", "n") == 950


def test_a_fire_admits_the_occurrence_and_moves_the_score_in_one_step(scene: Scene) -> None:
    first = register(scene, every_ms=HOUR, late_ms=5)
    scene.drop_tokens()
    job_id = scene.mint()
    assert fire(scene, "n", first, job_id) == Fired(Firing.FIRED, first + HOUR)
    assert scene.row(job_id) == {b"state": b"pending", b"attempts": b"0", b"payload": b"t"}
    assert scene.places(job_id) == ["pending"]
    assert scene.score("repeat", "n") == first + HOUR
    assert scene.tokens() == 1


def test_a_slot_fires_once_whoever_is_second(scene: Scene) -> None:
    first = register(scene)
    assert fire(scene, "n", first).verdict is Firing.FIRED
    before = scene.dump()
    assert fire(scene, "n", first) == Fired(Firing.LOST, first + HOUR)
    assert scene.dump() == before


@pytest.mark.parametrize(("every_ms", "late_ms"), [(1_000, 10_500), (1_000, 999), (7, 10**9), (1, 86_400_000)])
def test_a_late_tick_leaves_no_backlog_and_keeps_the_grid(scene: Scene, every_ms: int, late_ms: int) -> None:
    first = register(scene, every_ms=every_ms, late_ms=late_ms)
    before = scene.now_ms()
    fired = fire(scene, "n", first)
    after = scene.now_ms()
    assert fired.verdict is Firing.FIRED
    assert fired.next_ms is not None
    assert (fired.next_ms - first) % every_ms == 0
    assert before < fired.next_ms <= after + every_ms
    assert scene.score("repeat", "n") == fired.next_ms
    assert scene.run(jobs.pending_size(scene.queue)) == 1


def test_a_fast_host_fires_nothing_early(scene: Scene) -> None:
    at = register(scene, late_ms=-60_000)
    host_now = scene.now_ms() + HOUR
    before = scene.dump()
    (due,) = scene.run(repeat.due(scene.queue, now_ms=host_now))
    fast = Minter(clock_ms=lambda: host_now)
    fired = scene.run(repeat.fire(scene.queue, due.name, score=due.score, job_id=fast.mint()))
    assert fired == Fired(Firing.EARLY, at)
    assert scene.dump() == before


def test_a_slow_host_sees_it_late_and_fires_the_slot_all_the_same(scene: Scene) -> None:
    first = register(scene, every_ms=60_000, late_ms=30_000)
    assert scene.run(repeat.due(scene.queue, now_ms=scene.now_ms() - HOUR)) == ()
    assert fire(scene, "n", first) == Fired(Firing.FIRED, first + 60_000)


def test_an_id_that_is_taken_fires_nothing(scene: Scene) -> None:
    first = register(scene)
    taken, finished = scene.minter.mint_many(2)
    scene.run(jobs.enqueue(scene.queue, taken, b"other"))
    scene.execute("SET", scene.keys.job(finished) + ":result", "r", "PX", 60_000)
    before = scene.dump()
    for job_id in (taken, finished):
        assert fire(scene, "n", first, job_id) == Fired(Firing.DUPLICATE, first)
    assert scene.dump() == before
    assert fire(scene, "n", first).verdict is Firing.FIRED
    scene.execute("DEL", scene.keys.job(finished) + ":result")


def test_an_occurrence_of_another_kind_is_refused(scene: Scene) -> None:
    first = register(scene)
    call = repeat.fire(scene.queue, "n", score=str(first), job_id=scene.mint())
    refusal = scene.refusal(with_args(call, {2: scene.minter.mint("ORD")}))
    assert isinstance(refusal, KindError)


@pytest.mark.parametrize("end", ["completed", "failed", "dead", "removed"])
def test_the_recurrence_goes_on_whatever_becomes_of_an_occurrence(scene: Scene, end: str) -> None:
    score = register(scene, every_ms=1_000, late_ms=5_500)
    seen: list[str] = []
    for _ in range(3):
        occurrence = scene.mint()
        fired = fire(scene, "n", score, occurrence)
        assert fired.verdict is Firing.FIRED
        claimed = scene.run(jobs.claim(scene.queue))
        assert claimed is not None
        assert claimed.id == occurrence
        seen.append(claimed.id)
        if end == "completed":
            scene.run(jobs.complete(scene.queue, occurrence, 1))
        elif end == "removed":
            scene.execute("DEL", scene.keys.job(occurrence))
            scene.execute("ZREM", scene.keys.active, occurrence)
        else:
            cap = 9 if end == "failed" else 1
            retry = jobs.retry(scene.queue, occurrence, 1, delay_ms=HOUR, max_attempts=cap, error="e")
            scene.run(retry)
        score = scene.now_ms() - 100
        scene.execute("ZADD", scene.keys.repeat, "XX", score, "n")
    assert seen == sorted(set(seen))
    assert len(seen) == 3


def test_each_occurrence_has_a_fresh_id_in_mint_order(scene: Scene) -> None:
    first = register(scene, every_ms=1_000, late_ms=3_500)
    one, two = scene.minter.mint_many(2)
    fire(scene, "n", first, one)
    scene.execute("ZADD", scene.keys.repeat, first + 1_000, "n")
    fire(scene, "n", first + 1_000, two)
    assert parse(one).snowflake < parse(two).snowflake
    assert scene.run(jobs.browse(scene.queue)) == (two, one)


def test_what_the_original_has_registered_is_fired_too(scene: Scene) -> None:
    first = scene.now_ms() - 10
    scene.execute("HSET", scene.keys.repeat_record("theirs"), "every_ms", "500", "template", b"\x83m\0\xff")
    scene.execute("ZADD", scene.keys.repeat, first, "theirs")
    (due,) = scene.run(repeat.due(scene.queue, now_ms=scene.now_ms()))
    job_id = scene.mint()
    assert scene.run(repeat.fire(scene.queue, due.name, score=due.score, job_id=job_id)) == Fired(
        Firing.FIRED, first + 500
    )
    assert scene.row(job_id)[b"payload"] == b"\x83m\0\xff"


@pytest.mark.parametrize(
    "record",
    [{"every_ms": "5"}, {"template": "t"}, {"every_ms": "0", "template": "t"}]
    + [{"every_ms": text, "template": "t"} for text in ("x", "1.5", "-5", "", "1e3", "inf")]
    + [{"other": "x"}],
)
def test_a_record_that_cannot_be_read_is_dropped_and_hides_nobody(scene: Scene, record: dict[str, str]) -> None:
    for name, value in record.items():
        scene.execute("HSET", scene.keys.repeat_record("bad"), name, value)
    scene.execute("ZADD", scene.keys.repeat, 1, "bad")
    good = register(scene, "good")
    due = scene.run(repeat.due(scene.queue, now_ms=scene.now_ms() + 1))
    assert due == (Due("bad", "1", 0, b""), Due("good", str(good), HOUR, b"t"))
    assert fire(scene, "bad", 1) == Fired(Firing.UNREADABLE, None)
    assert scene.score("repeat", "bad") is None
    assert scene.execute("EXISTS", scene.keys.repeat_record("bad")) == 1
    assert scene.run(jobs.pending_size(scene.queue)) == 0


def test_a_name_that_is_no_text_hides_nobody(scene: Scene) -> None:
    scene.execute("HSET", scene.keys.repeat.encode() + b":\xff", "every_ms", 5, "template", "t")
    scene.execute("ZADD", scene.keys.repeat, 1, b"\xff")
    good = register(scene, "good")
    due = scene.run(repeat.due(scene.queue, now_ms=scene.now_ms() + 1))
    assert due == (Due("good", str(good), HOUR, b"t"),)


STRANGE = [
    b"\xff",
    b"a\x80",
    b"\xc0\x80",
    b"\xe0\x9f\xbf",
    b"\xed\xa0\x80",
    b"\xf0\x8f\xbf\xbf",
    b"\xf4\x90\x80\x80",
    b"\xf5\x80\x80\x80",
]
STRANGE += [b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\xc3(", b"\xe2\x82(", *(b"%d\xfe" % n for n in range(250))]
"""Names that no host reads as text."""
TEXTS = ["ü", "\u07ff", "\u0800", "\ud7ff", "\ue000", "\uffff", "\U00010000", "😀", "\U0010ffff", "\x7f", "a b"]


def test_names_that_are_no_text_hide_nobody_however_many_there_are(scene: Scene) -> None:
    for kind, keep in (("repeat", {"every_ms": 5, "template": "t"}), ("cron", {"every_ms": 5})):
        key = scene.keys.base.encode() + kind.encode()
        for n, name in enumerate([*STRANGE, *(text.encode() for text in TEXTS)]):
            scene.execute("HSET", key + b":" + name, *(word for pair in keep.items() for word in pair))
            scene.execute("ZADD", key, n + 1, name)
    found = scene.run(cron.due(scene.queue, now_ms=scene.now_ms(), limit=7))
    assert [due.name for due in found.repeat] == TEXTS[:7]
    assert [due.entry.name for due in found.cron] == TEXTS[:7]
    assert [due.name for due in scene.run(repeat.due(scene.queue, now_ms=scene.now_ms()))] == TEXTS
    assert scene.execute("ZCARD", scene.keys.repeat) == len(STRANGE) + len(TEXTS)


def test_a_record_of_another_type_is_dropped(scene: Scene) -> None:
    scene.execute("SET", scene.keys.repeat_record("bad"), "x")
    scene.execute("ZADD", scene.keys.repeat, 1, "bad")
    assert scene.run(repeat.due(scene.queue, now_ms=9)) == (Due("bad", "1", 0, b""),)
    assert fire(scene, "bad", 1) == Fired(Firing.UNREADABLE, None)
    scene.execute("DEL", scene.keys.repeat_record("bad"))


@pytest.mark.parametrize("score", ["-inf", "-5", "0.5"])
def test_a_score_that_is_no_instant_of_ours_fires_once_and_becomes_one(scene: Scene, score: str) -> None:
    register(scene, every_ms=1_000)
    scene.execute("ZADD", scene.keys.repeat, score, "n")
    (due,) = scene.run(repeat.due(scene.queue, now_ms=scene.now_ms()))
    fired = scene.run(repeat.fire(scene.queue, "n", score=due.score, job_id=scene.mint()))
    assert fired.verdict is Firing.FIRED
    assert fired.next_ms is not None
    now = scene.now_ms()
    assert now - 1_000 <= fired.next_ms <= now + 1_001


def test_the_longest_period_keeps_its_score_an_integer(scene: Scene) -> None:
    first = register(scene, every_ms=2**53 - 1)
    assert fire(scene, "n", first) == Fired(Firing.FIRED, 2**53 - 1)


def test_a_paused_queue_still_recurs(scene: Scene) -> None:
    first = register(scene)
    scene.execute("HSET", scene.keys.meta, "paused", 1)
    job_id = scene.mint()
    assert fire(scene, "n", first, job_id).verdict is Firing.FIRED
    assert scene.run(metrics.state(scene.queue, job_id)) is State.PENDING


def test_registering_the_earliest_run_wakes_one(scene: Scene) -> None:
    register(scene, "a", late_ms=-HOUR)
    scene.drop_tokens()
    register(scene, "b", late_ms=-2 * HOUR)
    assert scene.tokens() == 0
    register(scene, "c")
    assert scene.tokens() == 1


def test_the_originals_pump_of_enqueue_and_advance_still_works(scene: Scene) -> None:
    register(scene, every_ms=1_000, late_ms=100)
    host_now = scene.now_ms()
    (due,) = scene.run(repeat.due(scene.queue, now_ms=host_now))
    assert scene.run(jobs.enqueue(scene.queue, scene.mint(), due.template)) is Admission.ADMITTED
    assert scene.run(repeat.advance(scene.queue, due.name, next_run_ms=host_now + due.every_ms))
    assert scene.score("repeat", "n") == host_now + 1_000


def test_the_scripts_take_no_other_shape_of_score(scene: Scene) -> None:
    first = register(scene)
    call = repeat.fire(scene.queue, "n", score=str(first), job_id=scene.mint())
    for wrong in ("", "x", "nan", str(first + 1)):
        assert scene.run(replace(call, args=("n", wrong, call.args[2]))) == Fired(Firing.LOST, first)
