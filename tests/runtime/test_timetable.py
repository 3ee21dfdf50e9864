"""What a due recurrence does next: which missed slots still run, and how far each is put off."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echomq.protocol.recurring import Definition
from echomq.runtime.timetable import Timetable, Turn, spread_ms, timetable, turn

HOUR = 3_600_000
NOON = 1_780_000_000_000 // HOUR * HOUR
HOURLY = Definition(b"t", every_ms=HOUR)
LINE = Definition(b"t", line="0 * * * *", tz="Europe/Berlin")


def catching_up(definition: Definition, policy: str, limit: int | None = None) -> Definition:
    return replace(definition, catch_up=policy, catch_up_limit=limit)


def step(definition: Definition, slot: int, now: int, *, due: int | None = None, runs: int = 0) -> Turn:
    return turn(timetable("n", definition, slot), definition, slot, slot if due is None else due, now, runs)


@pytest.mark.parametrize("definition", [HOURLY, LINE])
@pytest.mark.parametrize(
    ("policy", "limit", "expected"),
    [("skip", None, []), ("one", None, [4]), ("all", 3, [2, 3, 4]), ("all", 9, [0, 1, 2, 3, 4]), ("all", 1, [4])],
)
def test_five_missed_slots_give_none_one_or_the_newest_by_policy(
    definition: Definition, policy: str, limit: int | None, expected: list[int]
) -> None:
    now = NOON + 4 * HOUR + HOUR // 2
    done = step(catching_up(definition, policy, limit), NOON, now)
    assert done == Turn(tuple(NOON + n * HOUR for n in expected), NOON + 5 * HOUR)


@pytest.mark.parametrize("late_ms", [0, 1, 2_000, 60_000])
def test_a_slot_that_is_hardly_late_is_not_missed(late_ms: int) -> None:
    assert step(catching_up(HOURLY, "skip"), NOON, NOON + late_ms) == Turn((NOON,), NOON + HOUR)


def test_skip_leaves_out_what_is_later_than_a_tenth_of_the_period_or_a_minute() -> None:
    assert step(catching_up(HOURLY, "skip"), NOON, NOON + 60_001).slots == ()
    minutely = catching_up(replace(HOURLY, every_ms=60_000), "skip")
    assert step(minutely, NOON, NOON + 6_000).slots == (NOON,)
    assert step(minutely, NOON, NOON + 6_001).slots == ()


def test_skip_still_runs_the_slot_that_has_just_come_after_missed_ones() -> None:
    assert step(catching_up(HOURLY, "skip"), NOON, NOON + 3 * HOUR + 500).slots == (NOON + 3 * HOUR,)


def test_skip_does_not_starve_a_short_period_under_a_slow_beat() -> None:
    quick = catching_up(replace(HOURLY, every_ms=100), "skip")
    assert step(quick, NOON, NOON + 1_050) == Turn((NOON + 1_000,), NOON + 1_100)


def test_max_runs_leaves_no_more_than_are_left() -> None:
    three = replace(catching_up(HOURLY, "all", 9), max_runs=3)
    now = NOON + 4 * HOUR
    assert step(three, NOON, now, runs=1).slots == (NOON, NOON + HOUR)
    assert step(three, NOON, now, runs=3).slots == ()


def test_nothing_lies_before_start_or_after_end() -> None:
    table = timetable("n", replace(HOURLY, anchor_ms=5, start_ms=NOON, end_ms=NOON + 2 * HOUR), 0)
    assert table.following(0) == NOON + 5
    assert table.following(NOON + HOUR + 5) is None
    ended = catching_up(replace(HOURLY, end_ms=NOON + 2 * HOUR), "all", 9)
    assert step(ended, NOON, NOON + 9 * HOUR) == Turn((NOON, NOON + HOUR, NOON + 2 * HOUR), None)


def test_a_slot_is_due_whose_score_was_moved_before_it() -> None:
    assert step(HOURLY, NOON, NOON - 2 * HOUR, due=NOON - 3 * HOUR) == Turn((NOON,), NOON + HOUR)
    assert step(catching_up(LINE, "skip"), NOON, NOON - HOUR, due=NOON - HOUR) == Turn((NOON,), NOON + HOUR)


def test_a_long_absence_of_a_quick_line_costs_few_steps() -> None:
    minutely = replace(LINE, line="* * * * *")
    year = 365 * 24 * HOUR
    assert step(catching_up(minutely, "all", 3), NOON, NOON + year) == Turn(
        (NOON + year - 120_000, NOON + year - 60_000, NOON + year), NOON + year + 60_000
    )


@settings(max_examples=80, deadline=None)
@given(
    name=st.text(max_size=9),
    slot=st.integers(0, 2**53 - 1),
    jitter=st.integers(0, 10**9),
)
def test_jitter_is_the_same_for_a_name_and_a_slot_and_within_its_bound(name: str, slot: int, jitter: int) -> None:
    assert 0 <= spread_ms(name, slot, jitter) <= jitter
    assert spread_ms(name, slot, jitter) == spread_ms(name, slot, jitter)


def test_jitter_spreads_names_and_slots_and_is_written_down() -> None:
    assert len({spread_ms("n", NOON + n * HOUR, 10**6) for n in range(100)}) > 95
    assert len({spread_ms(f"n{n}", NOON, 10**6) for n in range(100)}) > 95
    # SHA-256 of "n", NUL, "0": docs/additions.md; another client computes the same.
    assert spread_ms("n", 0, 999) == 0x1DD553719A9105A9 % 1_000


@pytest.mark.parametrize("definition", [HOURLY, LINE])
def test_no_occurrence_is_put_off_beyond_the_next_slot(definition: Definition) -> None:
    table = timetable("n", replace(definition, jitter_ms=HOUR), NOON)
    for n in range(50):
        slot = NOON + n * HOUR
        assert slot <= table.due_ms(slot) <= slot + HOUR


def test_a_slot_whose_jitter_has_not_passed_waits() -> None:
    definition = catching_up(replace(HOURLY, jitter_ms=HOUR), "all", 9)
    table = timetable("n", definition, NOON)
    for n in range(20):
        now = NOON + 5 * HOUR + n * HOUR // 20
        done = step(definition, NOON, now, due=table.due_ms(NOON))
        assert all(table.due_ms(slot) <= now for slot in done.slots)
        assert done.next_ms is not None
        assert table.due_ms(done.next_ms) > now
        assert done.next_ms == done.slots[-1] + HOUR


@settings(max_examples=40, deadline=None)
@given(
    definition=st.sampled_from([HOURLY, replace(HOURLY, every_ms=60_001), LINE, replace(LINE, line="*/20 2,3 * * *")]),
    jitter=st.sampled_from([0, 1, 500, 7_000]),
    seed=st.integers(0, 10**6),
)
def test_every_slot_runs_once_in_order_however_late_the_sweeps_are(
    definition: Definition, jitter: int, seed: int
) -> None:
    definition = catching_up(replace(definition, jitter_ms=jitter), "all", 1_000)
    random, table = Random(seed), Timetable("n", timetable("n", definition, NOON).slots, jitter_ms=jitter)
    slot: int | None = NOON if definition.every_ms else table.following(NOON)
    expected, seen, now = slot, [], NOON
    for _ in range(12):
        now += random.randrange(6 * HOUR)
        assert slot is not None
        if table.due_ms(slot) > now:
            continue
        done = step(definition, slot, now, due=table.due_ms(slot))
        seen += done.slots
        slot = done.next_ms
    for each in seen:
        assert each == expected
        expected = table.following(each)


def test_two_hundred_slots_of_half_a_second_stay_exact() -> None:
    definition, random = catching_up(replace(HOURLY, every_ms=500), "all", 1_000), Random(7)
    slot, now, seen = NOON, NOON, []
    while len(seen) < 200:
        now = max(now, slot) + random.randrange(1, 1_700)
        done = step(definition, slot, now)
        seen += done.slots
        assert done.next_ms is not None
        slot = done.next_ms
    assert seen == [NOON + n * 500 for n in range(len(seen))]
