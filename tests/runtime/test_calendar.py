"""Cron lines on the wall clock: both days of 2026 on which clocks change, in three zones, worked out by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import example, given, settings
from hypothesis import strategies as st

from echomq.identity.errors import InvalidInputError
from echomq.runtime.calendar import Cron, Grid, cron_line, instant, new_line, zone

BERLIN, NEW_YORK, LORD_HOWE = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"

# Zone, line, the day before, and every firing of three days, as that zone's wall clock and offset say them.
# Berlin: 29 March 02:00+01 -> 03:00+02, 25 October 03:00+02 -> 02:00+01.
# New York: 8 March 02:00-05 -> 03:00-04, 1 November 02:00-04 -> 01:00-05.
# Lord Howe: 5 April 02:00+11 -> 01:30+10:30, 4 October 02:00+10:30 -> 02:30+11.
TABLE = [
    (BERLIN, "30 2 * * *", "2026-03-28", ["28T02:30+01:00", "29T03:00+02:00", "30T02:30+02:00"]),
    (BERLIN, "0,30 2 * * *", "2026-03-29", ["29T03:00+02:00", "30T02:00+02:00", "30T02:30+02:00"]),
    (BERLIN, "30 2,3 * * *", "2026-03-29", ["29T03:00+02:00", "29T03:30+02:00", "30T02:30+02:00"]),
    (BERLIN, "0 3 * * *", "2026-03-28", ["28T03:00+01:00", "29T03:00+02:00", "30T03:00+02:00"]),
    (BERLIN, "30 1 * * *", "2026-03-28", ["28T01:30+01:00", "29T01:30+01:00", "30T01:30+02:00"]),
    (BERLIN, "0 * * * *", "2026-03-29", ["29T00:00+01:00", "29T01:00+01:00", "29T03:00+02:00", "29T04:00+02:00"]),
    (BERLIN, "30 */2 * * *", "2026-03-29", ["29T00:30+01:00", "29T04:30+02:00", "29T06:30+02:00"]),
    (BERLIN, "*/30 2 * * *", "2026-03-29", ["30T02:00+02:00", "30T02:30+02:00"]),
    (BERLIN, "30 2 * * *", "2026-10-24", ["24T02:30+02:00", "25T02:30+02:00", "26T02:30+01:00"]),
    (BERLIN, "0 2,3 * * *", "2026-10-25", ["25T02:00+02:00", "25T03:00+01:00", "26T02:00+01:00"]),
    (BERLIN, "0 3 * * *", "2026-10-24", ["24T03:00+02:00", "25T03:00+01:00", "26T03:00+01:00"]),
    (BERLIN, "0 * * * *", "2026-10-25", [
        *("25T00:00+02:00", "25T01:00+02:00", "25T02:00+02:00", "25T02:00+01:00", "25T03:00+01:00"),
    ]),
    (BERLIN, "*/30 2 * * *", "2026-10-25", [
        *("25T02:00+02:00", "25T02:30+02:00", "25T02:00+01:00", "25T02:30+01:00", "26T02:00+01:00"),
    ]),
    (NEW_YORK, "30 2 * * *", "2026-03-07", ["07T02:30-05:00", "08T03:00-04:00", "09T02:30-04:00"]),
    (NEW_YORK, "15,45 2 * * *", "2026-03-08", ["08T03:00-04:00", "09T02:15-04:00", "09T02:45-04:00"]),
    (NEW_YORK, "0 * * * *", "2026-03-08", ["08T00:00-05:00", "08T01:00-05:00", "08T03:00-04:00", "08T04:00-04:00"]),
    (NEW_YORK, "30 1 * * *", "2026-10-31", ["31T01:30-04:00", "01T01:30-04:00", "02T01:30-05:00"]),
    (NEW_YORK, "0 1,2 * * *", "2026-11-01", ["01T01:00-04:00", "01T02:00-05:00", "02T01:00-05:00"]),
    (NEW_YORK, "0 * * * *", "2026-11-01", [
        *("01T00:00-04:00", "01T01:00-04:00", "01T01:00-05:00", "01T02:00-05:00"),
    ]),
    (NEW_YORK, "@daily", "2026-10-31", ["31T00:00-04:00", "01T00:00-04:00", "02T00:00-05:00"]),
    (LORD_HOWE, "45 1 * * *", "2026-04-04", ["04T01:45+11:00", "05T01:45+11:00", "06T01:45+10:30"]),
    (LORD_HOWE, "0 2 * * *", "2026-04-04", ["04T02:00+11:00", "05T02:00+10:30", "06T02:00+10:30"]),
    (LORD_HOWE, "0 * * * *", "2026-04-05", ["05T00:00+11:00", "05T01:00+11:00", "05T02:00+10:30", "05T03:00+10:30"]),
    (LORD_HOWE, "*/15 1 * * *", "2026-04-05", [
        *("05T01:00+11:00", "05T01:15+11:00", "05T01:30+11:00", "05T01:45+11:00", "05T01:30+10:30", "05T01:45+10:30"),
    ]),
    (LORD_HOWE, "*/20 3 * * *", "2026-04-05", ["05T03:00+10:30", "05T03:20+10:30", "05T03:40+10:30"]),
    (LORD_HOWE, "15 2 * * *", "2026-10-03", ["03T02:15+10:30", "04T02:30+11:00", "05T02:15+11:00"]),
    (LORD_HOWE, "45 2 * * *", "2026-10-03", ["03T02:45+10:30", "04T02:45+11:00", "05T02:45+11:00"]),
    (LORD_HOWE, "0 * * * *", "2026-10-04", ["04T00:00+10:30", "04T01:00+10:30", "04T03:00+11:00", "04T04:00+11:00"]),
    (LORD_HOWE, "*/15 2 * * *", "2026-10-04", ["04T02:30+11:00", "04T02:45+11:00", "05T02:00+11:00"]),
    (LORD_HOWE, "*/20 3 * * *", "2026-10-04", ["04T03:00+11:00", "04T03:20+11:00", "04T03:40+11:00"]),
]  # fmt: skip


def ms(at: datetime) -> int:
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def following(line: str, tz: str, after_ms: int, count: int) -> list[int]:
    cron, out = Cron(cron_line(line), zone(tz)), []
    for _ in range(count):
        slot = cron.after(out[-1] if out else after_ms)
        assert slot is not None
        out.append(slot)
    return out


@pytest.mark.parametrize(("tz", "line", "day", "expected"), TABLE)
def test_the_days_on_which_clocks_change(tz: str, line: str, day: str, expected: list[str]) -> None:
    midnight = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(tz))
    slots = following(line, tz, ms(midnight) - 1, len(expected))
    assert [instant(slot).astimezone(ZoneInfo(tz)).isoformat(timespec="minutes")[8:] for slot in slots] == expected


@pytest.mark.parametrize("minutes", [0, 20, 59])
def test_a_fixed_time_that_has_run_in_the_first_pass_does_not_run_in_the_second(minutes: int) -> None:
    second_pass = datetime(2026, 10, 25, 1, minutes, tzinfo=UTC)  # 02:00 to 02:59 again
    (slot,) = following("30 2 * * *", BERLIN, ms(second_pass), 1)
    assert instant(slot) == datetime(2026, 10, 26, 1, 30, tzinfo=UTC)


ZONES = [BERLIN, NEW_YORK, LORD_HOWE, "America/Havana", "Africa/Cairo", "Asia/Kathmandu", "Pacific/Apia", "UTC"]
CHANGES = [
    datetime(2026, month, day, hour, tzinfo=UTC)
    for month, day, hour in [(3, 29, 1), (10, 25, 1), (3, 8, 7), (11, 1, 6), (4, 4, 15), (10, 3, 15), (4, 23, 22)]
]
MINUTES = ["*", "*/7", "*/20", "0", "30", "0,45", "5-10"]
HOURS = ["*", "*/2", "*/5", "0", "2", "1,2", "1-3"]
DAYS = ["* * *", "* * SUN", "29 * *", "* * 1-5", "L * *"]


def real_minutes(line: str, tz: str, first: datetime, minutes: int) -> list[datetime]:
    """What a line with `*` means, minute by minute: it runs whenever the wall clock reads so."""
    found = []
    for n in range(1, minutes):
        at = first + timedelta(minutes=n)
        local = at.astimezone(ZoneInfo(tz)).replace(tzinfo=None)
        if next(CronSim(line, local - timedelta(minutes=1))) == local:
            found.append(at)
    return found


@settings(max_examples=25, deadline=None)
@given(
    tz=st.sampled_from(ZONES),
    change=st.sampled_from(CHANGES),
    minute=st.sampled_from(MINUTES[:3]),
    hour=st.sampled_from(HOURS),
    days=st.sampled_from(DAYS),
    ahead=st.integers(0, 240),
)
@example(tz=LORD_HOWE, change=CHANGES[4], minute="*/7", hour="2", days="* * *", ahead=200)
@example(tz="America/Havana", change=CHANGES[2], minute="*/20", hour="1-3", days="* * SUN", ahead=180)
def test_a_wildcard_line_runs_at_every_real_minute_that_it_names(
    tz: str, change: datetime, minute: str, hour: str, days: str, ahead: int
) -> None:
    line, first = f"{minute} {hour} {days}", change - timedelta(minutes=ahead)
    expected = real_minutes(line, tz, first, 480)
    assert [instant(each) for each in following(line, tz, ms(first), len(expected))] == expected


@settings(max_examples=60, deadline=None)
@given(
    tz=st.sampled_from(ZONES),
    line=st.builds(lambda *parts: " ".join(parts), *map(st.sampled_from, (MINUTES, HOURS, DAYS))),
    after=st.integers(1_700_000_000_000, 1_900_000_000_000),
)
def test_slots_rise_lie_after_and_do_not_depend_on_where_one_looks_from(tz: str, line: str, after: int) -> None:
    slots = following(line, tz, after, 6)
    assert all(one < other for one, other in pairwise([after, *slots]))
    cron = Cron(line, zone(tz))
    for one, other in pairwise([after, *slots]):
        assert cron.after((one + other) // 2) == other
        assert cron.after(other - 1) == other


@settings(max_examples=60, deadline=None)
@given(every=st.integers(1, 10**10), base=st.integers(0, 10**13), after=st.integers(0, 10**13))
def test_a_grid_does_not_drift(every: int, base: int, after: int) -> None:
    slot = Grid(every, base).after(after)
    assert after < slot <= after + every
    assert (slot - base) % every == 0


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("61 * * * *", "'61' as its minute: 0 to 59"),
        ("* 24 * * *", "'24' as its hour"),
        ("0 0 0 * *", "'0' as its day of the month"),
        ("0 0 1 13 *", "'13' as its month"),
        ("0 0 * * fri-mon", "'fri-mon' as its weekday"),
        ("*/0 * * * *", "as its minute"),
        ("٣ * * * *", "as its minute"),
        ("* * * *", "has 4 fields; it takes five"),
        ("* * * * * *", r"has 6 fields; it takes five .*every\(seconds"),
        ("", "has 0 fields"),
        ("@reboot", "none of @hourly"),
        ("0 0 30 2 *", "never comes"),
        ("0 0 31 4,6,9,11 *", "never comes"),
    ],
)
def test_a_wrong_line_is_refused_with_what_is_right(line: str, says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        cron_line(line)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("*/61 * * * *", r"'\*/61 \* \* \* \*' has '\*/61' as its minute: .* 1 to 60, .* every\(minutes=61\)"),
        ("5/100 * * * *", r"'5/100' as its minute: .* every\(minutes=100\)"),
        ("0-59/70 * * * *", "'0-59/70' as its minute"),
        ("1,0-30/61 * * * *", "'1,0-30/61' as its minute"),
        ("0 */25 * * *", r"its hour: a step is from 1 to 24, .* every\(hours=25\)"),
        ("0 0 */40 * *", r"its day of the month: a step is from 1 to 31, .* every\(days=40\)"),
        ("0 0 1 */13 *", "its month: a step is from 1 to 12"),
        ("0 0 * * */8", "its weekday: a step is from 1 to 7"),
    ],
)
def test_a_step_beyond_its_field_is_not_written_and_what_is_registered_goes_on(line: str, says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        new_line(line)
    assert cron_line(line) == line


def test_the_longest_steps_are_written() -> None:
    assert new_line("*/60 */24 */31 */12 */7") == "*/60 */24 */31 */12 */7"
    assert new_line("@Daily") == "0 0 * * *"


@pytest.mark.parametrize(
    ("line", "means"),
    [(" 0  9 * *  mon-fri ", "0 9 * * MON-FRI"), ("@Daily", "0 0 * * *"), ("0 0 29 2 *", "0 0 29 2 *")],
)
def test_a_line_is_kept_in_one_form(line: str, means: str) -> None:
    assert cron_line(line) == means


@pytest.mark.parametrize(
    ("line", "means"),
    [("5-5/3 * * * *", "5 * * * *"), ("1,15-15/9,20-30/5 0 1 JAN-JAN/2 5-5/1", "1,15,20-30/5 0 1 JAN 5")],
)
def test_a_range_of_one_is_one_whatever_its_step(line: str, means: str) -> None:
    assert cron_line(line) == means


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        *(("Europe/Berln", "Europe/Berlin"), ("berlin", "Europe/Berlin"), ("New York", "America/New_York")),
        *(("europe/berlin", "Europe/Berlin"), ("right/UTC", "UTC"), ("../../etc/passwd", "UTC"), ("", "UTC")),
    ],
)
def test_an_unknown_zone_is_refused_with_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(InvalidInputError, match=f"no IANA time zone; nearest: .*{nearest}"):
        zone(name)


def test_what_never_comes_again_has_no_slot() -> None:
    assert Cron("0 0 29 2 *", UTC).after(2**53 - 1) is None
    assert Cron("*/5 * * * *", zone(BERLIN)).after(2**53 - 1) is None
