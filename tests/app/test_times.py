"""Datetimes and spans become milliseconds that are never early; what is no time is refused by name."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from echomq import EchoMQ, InvalidInputError, Snooze
from echomq.app.times import instant_ms, span_ms

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

mq = EchoMQ("valkey://localhost:1")


@mq.job
def work() -> None: ...


@given(st.datetimes(min_value=datetime(1970, 1, 1), timezones=st.timezones()))  # noqa: DTZ001
def test_an_instant_is_never_early_and_less_than_a_millisecond_late(when: datetime) -> None:
    ms = instant_ms("at", when)
    late = timedelta(milliseconds=ms) - (when - EPOCH)
    assert timedelta(0) <= late < timedelta(milliseconds=1) or ms == 0


@given(st.timedeltas(min_value=timedelta(microseconds=1), max_value=timedelta(days=100_000_000)))
def test_a_span_is_never_short(span: timedelta) -> None:
    assert timedelta(0) <= timedelta(milliseconds=span_ms("after", span)) - span < timedelta(milliseconds=1)


def test_the_zone_counts() -> None:
    berlin = datetime(2026, 7, 1, 12, tzinfo=ZoneInfo("Europe/Berlin"))
    assert instant_ms("at", berlin) == instant_ms("at", datetime(2026, 7, 1, 10, tzinfo=UTC))


def test_an_instant_before_1970_is_the_beginning() -> None:
    assert instant_ms("at", datetime(1969, 1, 1, tzinfo=UTC)) == 0
    assert instant_ms("at", datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))) == 0


def test_a_naive_datetime_is_refused_with_its_value_and_the_remedy() -> None:
    with pytest.raises(InvalidInputError, match=r"datetime\.datetime\(2026, 1, 1, 0, 0\) is naive.*ZoneInfo"):
        work.at(datetime(2026, 1, 1))  # noqa: DTZ001


@pytest.mark.parametrize("wrong", ["tomorrow", 5, timedelta(hours=1), None])
def test_at_takes_a_datetime_and_nothing_else(wrong) -> None:
    with pytest.raises(InvalidInputError, match="at takes an aware datetime, not"):
        work.at(wrong)


@pytest.mark.parametrize("make", [work.after, lambda *a, **k: work.every(*a, name="n", **k), Snooze])
class TestSpans:
    @pytest.mark.parametrize(
        ("words", "said"),
        [
            ({}, "above zero"),
            ({"minutes": 0}, "above zero, not 0 s"),
            ({"milliseconds": 0}, "above zero, not 0 s"),
            ({"seconds": True}, r"\(seconds=True\) is not a span of time: give it numbers"),
            ({"seconds": -1}, "above zero, not -1 s"),
            ({"minutes": 1, "seconds": -60}, "above zero, not 0 s"),
            ({"days": 10**10}, "is not a span"),
            ({"hours": float("nan")}, "hours=nan"),
            ({"hours": float("inf")}, "hours=inf"),
            ({"minutes": "5"}, "minutes='5'"),
            ({"seconds": 1e-9}, "above zero, not 0 s"),
            ({"seconds": -0.25}, r"above zero, not -0\.25 s"),
            ({"days": 10**9 - 1}, r"is 86399999913600 s; at most 9002801208229887 ms are allowed"),
        ],
    )
    def test_a_span_that_is_none_is_refused(self, make, words, said) -> None:
        with pytest.raises(InvalidInputError, match=said):
            make(**words)

    @pytest.mark.parametrize("wrong", [timedelta(0), timedelta(seconds=-1), 5, "5 minutes"])
    def test_a_timedelta_above_zero_is_asked_for(self, make, wrong) -> None:
        with pytest.raises(InvalidInputError):
            make(wrong)

    def test_a_word_that_is_none_is_pythons_own_type_error(self, make) -> None:
        said = r"unexpected keyword argument 'minuets'; did you mean minutes"
        with pytest.raises(TypeError, match=said):
            make(minuets=5)

    def test_a_span_beyond_what_a_score_can_say_is_refused_for_its_size(self, make) -> None:
        with pytest.raises(InvalidInputError, match=r"is 86399999999999\.999999 s; at most 9002801208229887 ms"):
            make(timedelta.max)

    def test_both_ways_at_once_are_refused(self, make) -> None:
        with pytest.raises(InvalidInputError, match="not both"):
            make(timedelta(seconds=1), minutes=1)


def test_a_period_is_a_whole_number_of_milliseconds() -> None:
    with pytest.raises(InvalidInputError, match="whole number of milliseconds"):
        work.every(seconds=1 / 3, name="n")
    with pytest.raises(InvalidInputError, match=r"not 86400\.000001 s$"):
        work.every(timedelta(days=1, microseconds=1), name="n")
    assert repr(work.every(milliseconds=1, name="n")).endswith("every 1 ms>")


@pytest.mark.parametrize("wrong", [timedelta(seconds=-1), 5])
def test_first_in_is_zero_or_more(wrong) -> None:
    with pytest.raises(InvalidInputError, match="first_in"):
        work.every(hours=1, name="n", first_in=wrong)


@pytest.mark.parametrize("wrong", ["", "a\0b", 5, None, "a\nb"])
def test_a_recurrence_has_a_printable_name(wrong) -> None:
    with pytest.raises(InvalidInputError, match="name of a recurrence"):
        work.every(hours=1, name=wrong)
