"""`echomq repeats`: when each recurrence runs next, and its end or its run at once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from echomq.protocol import repeat

HOUR_MS = 3_600_000
TEMPLATE = json.dumps({"v": 1, "job": "digest", "args": ["secret@example.org"], "kwargs": {}})


@pytest.fixture
def digest(shop: Any) -> int:
    """An hourly recurrence; when it runs next."""
    at_ms: int = shop.raw.now_ms() + 90_000
    shop.run(repeat.register(shop.queue, "digest", every_ms=HOUR_MS, template=TEMPLATE, first_run_ms=at_ms))
    return at_ms


def test_the_next_run_of_each_the_next_first(ops: Any, shop: Any, digest: int) -> None:
    late_ms = shop.raw.now_ms() - 7_000
    shop.run(repeat.register(shop.queue, "läte *?[", every_ms=1_500, template=b"x", first_run_ms=late_ms))
    told = ops("repeats", shop.queue, "--json").json
    assert told["total"] == 2
    late, hourly = told["repeats"]
    assert (late["name"], late["next_run_ms"], late["job"]) == ("läte *?[", late_ms, None)
    assert 7_000 <= late["late_ms"] < 60_000
    assert (hourly["name"], hourly["every_ms"], hourly["next_run_ms"]) == ("digest", HOUR_MS, digest)
    assert (hourly["late_ms"], hourly["job"]) == (0, "digest")
    heading, first, second, _ = ops("repeats", shop.queue).lines
    assert heading.split()[:2] == ["NAME", "EVERY"]
    assert first.startswith("läte *?[  1.5s")
    assert " UTC" in second
    assert "1m 2" in second
    assert [each["name"] for each in ops("repeats", shop.queue, "digest", "--json").json["repeats"]] == ["digest"]
    assert len(ops("repeats", shop.queue, "--limit", "1", "--json").json["repeats"]) == 1


def test_templates_are_shown_only_when_asked_for(ops: Any, shop: Any, digest: int) -> None:
    assert "secret@" not in ops("repeats", shop.queue).out + ops("repeats", shop.queue, "--json").out
    assert "secret@" in ops("repeats", shop.queue, "--payload").out
    assert ops("repeats", shop.queue, "--payload", "--json").json["repeats"][0]["payload"] == TEMPLATE


def test_a_run_at_once_is_one_more_job_and_leaves_the_next_run(ops: Any, shop: Any, digest: int) -> None:
    told = ops("repeats", shop.queue, "digest", "--now", "--json").json
    assert shop.members(shop.keys.pending) == [told["job"]]
    assert shop.row(told["job"]) == {"state": "pending", "attempts": "0", "payload": TEMPLATE}
    assert int(shop.raw.execute("ZSCORE", shop.keys.repeat, "digest")) == digest


def test_a_cancelled_recurrence_is_gone(ops: Any, shop: Any, digest: int) -> None:
    assert ops("repeats", shop.queue, "digest", "--cancel").code == 0
    assert shop.raw.execute("EXISTS", shop.keys.repeat, shop.keys.repeat_record("digest")) == 0
    shop.put()
    assert ops("repeats", shop.queue).lines == [f"0 listed, of 0 recurrences in queue {shop.queue}"]


def test_an_unknown_name_is_told_the_nearest(ops: Any, shop: Any, digest: int) -> None:
    for words in ((), ("--now",), ("--cancel",)):
        said = ops("repeats", shop.queue, "digests", *words)
        assert said.code == 2
        assert said.err == f"echomq: queue '{shop.queue}' has no recurrence 'digests'; nearest: 'digest'\n"
    assert ops("repeats", shop.queue, "--cancel").code == 2
    assert ops("repeats", shop.queue, "digest", "--cancel", "--now").code == 2
    assert shop.raw.execute("ZCARD", shop.keys.repeat) == 1


def test_an_entry_that_says_more_than_a_period_is_listed_and_left_to_its_program(ops: Any, shop: Any) -> None:
    at_ms = shop.raw.now_ms() + HOUR_MS
    shop.raw.execute(
        "HSET", shop.keys.cron + ":nightly", "spec", "30 2 * * *", "tz", "Europe/Berlin", "template", TEMPLATE
    )
    shop.raw.execute("ZADD", shop.keys.cron, at_ms, "nightly")
    (told,) = ops("repeats", shop.queue, "--json").json["repeats"]
    assert (told["name"], told["kind"], told["every_ms"], told["job"]) == ("nightly", "cron", None, "digest")
    assert told["record"] == {"spec": "30 2 * * *", "tz": "Europe/Berlin"}
    assert "spec=30 2 * * *, tz=Europe/Berlin" in ops("repeats", shop.queue).out
    assert ops("repeats", shop.queue, "nightly", "--cancel").code == 1
    assert shop.raw.execute("ZCARD", shop.keys.cron) == 1
    assert ops("repeats", shop.queue, "nightly", "--now").code == 0
    assert shop.raw.execute("ZCARD", shop.keys.pending) == 1


@pytest.mark.strays("a record that is none")
def test_a_record_of_anybodys_making_is_listed(ops: Any, shop: Any) -> None:
    shop.raw.execute("ZADD", shop.keys.repeat, "inf", "endless", 1.5, b"\xff", 5, "string")
    shop.raw.execute("SET", shop.keys.repeat_record("string"), "x")
    told = ops("repeats", shop.queue, "--json").json["repeats"]
    assert [each["next_run_ms"] for each in told] == [2, 5, None]
    assert ops("repeats", shop.queue).code == 0
    said = ops("repeats", shop.queue, "string", "--now")
    assert said.code == 1
