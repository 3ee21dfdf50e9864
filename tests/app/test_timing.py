"""What `every`, `cron` and their options refuse: each in one sentence with what would be right."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from echomq import CatchUp, Cron, EchoMQ, Every, InvalidInputError
from echomq.app.timing import cron_timing, every_timing
from echomq.errors import JobDefinitionError

HOUR = timedelta(hours=1)
NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
NAIVE = NOW.replace(tzinfo=None)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({}, "every needs a span of time above zero"),
        ({"hours": 0}, "every needs a period above zero"),
        ({"seconds": 0.0001}, "every needs a whole number of milliseconds"),
        ({"hours": 1, "tz": "Europe/Berlin"}, r"every\(...\) takes no tz: .*use cron\('0 9 \* \* \*', tz=...\)"),
        ({"hours": 1, "anchor": NAIVE}, "anchor takes an aware datetime, .* is naive"),
        ({"hours": 1, "start": NAIVE}, "start takes an aware datetime, .* is naive"),
        ({"hours": 1, "end": NAIVE}, "end takes an aware datetime, .* is naive"),
        ({"hours": 1, "anchor": "2026-01-01"}, "anchor takes an aware datetime, not str"),
        ({"hours": 1, "first_in": 5}, "first_in must be a timedelta"),
        ({"hours": 1, "first_in": HOUR, "anchor": NOW}, "takes first_in, .* or anchor, an instant, but not both"),
        ({"hours": 1, "first_in": HOUR, "start": NOW}, "takes first_in, .* or start, an instant, but not both"),
        ({"hours": 1, "jitter": 3_601}, "jitter of 3601 s is longer than the shortest period of its slots, 3600 s"),
        ({"hours": 1, "jitter": timedelta(days=1)}, "jitter of 86400 s is longer"),
        ({"hours": 1, "jitter": -1}, "jitter must be zero or more"),
        ({"hours": 1, "jitter": float("nan")}, "jitter must be a span of time in seconds, not nan"),
        ({"hours": 1, "jitter": "30"}, "jitter must be seconds or a timedelta, not str"),
        ({"hours": 1, "jitter": True}, "jitter must be seconds or a timedelta, not bool"),
        ({"hours": 1, "catch_up": "all"}, r"catch_up must be 'skip', 'one' or CatchUp.all\(limit\)"),
        ({"hours": 1, "catch_up": "on"}, "catch_up must be 'skip', 'one' or"),
        ({"hours": 1, "catch_up": 3}, "catch_up must be 'skip', 'one' or"),
        ({"hours": 1, "catch_up": ("all", 0)}, "the limit of catch_up must be from 1 to 1000, not 0"),
        ({"hours": 1, "catch_up": ("all", 1_001)}, "the limit of catch_up must be from 1 to 1000"),
        ({"hours": 1, "catch_up": ("skip", 5)}, "'skip' and 'one' take none"),
        ({"hours": 1, "overlap": "queue"}, "overlap must be 'allow' or 'skip', not 'queue'"),
        ({"hours": 1, "overlap": "skip", "catch_up": ("all", 5)}, r"catch_up=all\(5\) admits several .*allow overlap"),
        ({"hours": 1, "start": NOW, "end": NOW - HOUR}, "start .* lies after end .*: exchange them"),
        ({"hours": 1, "max_runs": 0}, "max_runs must be from 1 to"),
        ({"hours": 1, "max_runs": 1.5}, "max_runs must be an integer"),
        ({"hours": 1, "paused": "yes"}, "paused must be True or False"),
        (
            {"hours": 5, "anchor": NOW, "start": NOW + HOUR, "end": NOW + 2 * HOUR},
            r"no slot lies from start to end: the first one after start is 2026-06-01T17:00:00\+00:00",
        ),
    ],
)
def test_a_period_that_contradicts_itself_is_refused(words: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        every_timing(None, words)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("line", "words", "says"),
    [
        ("0 0 30 2 *", {}, "never comes"),
        ("61 * * * *", {}, "'61' as its minute"),
        ("*/61 * * * *", {}, "'[*]/61' as its minute: a step is from 1 to 60"),
        (5, {}, "a cron line must be text"),
        ("@daily", {"tz": "Europe/Berln"}, "nearest: Europe/Berlin"),
        ("@daily", {"tz": UTC}, "tz must be the IANA name of a zone"),
        ("@daily", {"anchor": NOW}, r"cron\(...\) takes no anchor: its line says when"),
        (
            "@daily",
            {"first_in": HOUR},
            r"cron\(...\) takes no first_in: .*start=... gives a cron line its first instant",
        ),
        ("0 9,10 * * *", {"jitter": 3_601}, "shortest period of its slots, 3600 s"),
        ("*/5 * * * *", {"jitter": HOUR}, "shortest period of its slots, 300 s"),
        ("@daily", {"start": NOW, "end": NOW + HOUR}, "the first one after start is 2026-06-02T00:00:00"),
        ("0 0 29 2 *", {"start": NOW, "end": NOW + 365 * 24 * HOUR}, "the first one after start is 2028-02-29"),
    ],
)
def test_a_line_that_contradicts_itself_is_refused(line: Any, words: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        cron_timing(line, words)  # type: ignore[arg-type]


def test_a_word_that_is_none_is_named_with_the_nearest() -> None:
    with pytest.raises(TypeError, match=r"every\(\) got an unexpected keyword argument 'jiter'; did you mean jitter\?"):
        every_timing(HOUR, {"jiter": 5})  # type: ignore[typeddict-unknown-key]
    with pytest.raises(TypeError, match=r"cron\(\) got an unexpected keyword argument 'zzz'; it takes tz, jitter"):
        cron_timing("@daily", {"zzz": 5})  # type: ignore[typeddict-unknown-key]


def test_what_can_expire_before_its_jitter_has_passed_is_refused_where_it_is_written() -> None:
    mq = EchoMQ("valkey://localhost:1", default_queue="a")
    said = "expires of 30 s counts from the slot, and its jitter can put an occurrence off by 30 s"

    @mq.job
    def send() -> None: ...

    short = send.options(expires=timedelta(seconds=30))
    with pytest.raises(InvalidInputError, match=said):
        short.every(hours=1, name="n", jitter=30)
    with pytest.raises(InvalidInputError, match=said):
        short.cron("@daily", name="n", jitter=30)
    with pytest.raises(InvalidInputError, match=said):
        mq.job(name="other", expires=timedelta(seconds=30), schedule=Every(hours=1, jitter=30))(lambda: None)
    short.every(hours=1, name="n", jitter=29.999)


@pytest.mark.parametrize("jitter", [0, 3_600, timedelta(minutes=60), 0.5])
def test_jitter_may_be_as_long_as_the_period(jitter: Any) -> None:
    jitter_ms = every_timing(HOUR, {"jitter": jitter}).definition.jitter_ms
    assert jitter_ms == (jitter if isinstance(jitter, timedelta) else timedelta(seconds=jitter)) // timedelta(
        milliseconds=1
    )


def test_times_are_taken_in_any_zone() -> None:
    berlin = every_timing(HOUR, {"anchor": datetime(2026, 6, 1, 14, tzinfo=ZoneInfo("Europe/Berlin"))})
    assert berlin == every_timing(HOUR, {"anchor": NOW})


def test_what_says_nothing_more_than_a_period_says_nothing_more() -> None:
    said = every_timing(HOUR, {"catch_up": "one", "overlap": "allow", "jitter": 0, "anchor": None, "paused": None})
    assert said.definition.is_plain
    assert every_timing(HOUR, {"catch_up": CatchUp.all(5)}) == every_timing(HOUR, {"catch_up": ("all", 5)})


def one_argument(whom: str) -> None: ...


WRONG: list[tuple[Callable[[EchoMQ], object], str]] = [
    (lambda mq: mq.job(schedule=5), r"schedule must be Every\(hours=1\), Cron\(.*\) or a list of these, not 5"),
    (lambda mq: mq.job(schedule=["@daily"]), "or a list of these, not '@daily'"),
    (lambda mq: mq.job(schedule=[Every(HOUR), Cron("@daily")]), "two schedules of a job have one name, the job's own"),
    (lambda mq: mq.job(schedule=[Every(HOUR, name="a"), Every(HOUR, name="a")]), "have the name 'a'"),
    (
        lambda mq: mq.job(schedule=Every(HOUR))(one_argument),
        r"missing a required argument: 'whom'; .*Every\(..., args=",
    ),
    (lambda mq: mq.job(schedule=Cron("@daily", args=(1, 2)))(one_argument), "too many positional arguments"),
    (lambda mq: mq.job(schedule=Cron("@daily", kwargs={"who": 1}))(one_argument), "argument"),
]


@pytest.mark.parametrize(("build", "says"), WRONG)
def test_a_declaration_that_cannot_be_kept_is_refused_where_it_stands(
    build: Callable[[EchoMQ], object], says: str
) -> None:
    mq = EchoMQ("valkey://nowhere")
    with pytest.raises(JobDefinitionError, match=says):
        build(mq)
    assert not mq.jobs


def test_a_name_that_cannot_be_printed_is_refused(mq: EchoMQ) -> None:
    @mq.job
    def send() -> None: ...

    for build in (lambda: send.every(hours=1, name="a\nb"), lambda: Every(hours=1, name="")):
        with pytest.raises(InvalidInputError, match="must be printable text"):
            build()
