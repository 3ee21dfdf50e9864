"""`echomq repeats`: when each recurrence runs next, and its end or its run at once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from echomq.protocol import cron, repeat
from echomq.protocol.recurring import Definition, Standing

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
    payload = json.loads(shop.row(told["job"])["payload"])
    assert payload.pop("slot_ms") <= shop.raw.now_ms()
    assert payload == json.loads(TEMPLATE)
    assert int(shop.raw.execute("ZSCORE", shop.keys.repeat, "digest")) == digest


def test_a_cancelled_recurrence_is_gone(ops: Any, shop: Any, digest: int) -> None:
    assert ops("repeats", shop.queue, "digest", "--cancel").code == 0
    assert shop.raw.execute("EXISTS", shop.keys.repeat, shop.keys.repeat_record("digest")) == 0
    shop.put()
    assert ops("repeats", shop.queue).lines == [f"0 listed, of 0 recurrences in queue {shop.queue}"]


def test_an_unknown_name_is_told_the_nearest(ops: Any, shop: Any, digest: int) -> None:
    for words in ((), ("--now",), ("--pause",), ("--resume",), ("--cancel",)):
        said = ops("repeats", shop.queue, "digests", *words)
        assert said.code == 2
        assert said.err == f"echomq: queue '{shop.queue}' has no recurrence 'digests'; nearest: 'digest'\n"
    assert ops("repeats", shop.queue, "--cancel").code == 2
    assert ops("repeats", shop.queue, "digest", "--cancel", "--now").code == 2
    assert shop.raw.execute("ZCARD", shop.keys.repeat) == 1


def test_a_record_that_only_another_client_can_read_is_listed_run_and_cancelled(ops: Any, shop: Any) -> None:
    at_ms = shop.raw.now_ms() + HOUR_MS
    shop.raw.execute(
        "HSET", shop.keys.cron + ":nightly", "spec", "30 2 * * *", "tz", "Europe/Berlin", "template", TEMPLATE
    )
    shop.raw.execute("ZADD", shop.keys.cron, at_ms, "nightly")
    (told,) = ops("repeats", shop.queue, "--json").json["repeats"]
    assert (told["name"], told["kind"], told["every_ms"], told["job"]) == ("nightly", "cron", None, "digest")
    assert told["record"] == {"spec": "30 2 * * *", "tz": "Europe/Berlin"}
    assert "spec=30 2 * * *, tz=Europe/Berlin" in ops("repeats", shop.queue).out
    assert ops("repeats", shop.queue, "nightly", "--now").code == 0
    assert shop.raw.execute("ZCARD", shop.keys.pending) == 1
    assert ops("repeats", shop.queue, "nightly", "--pause").code == 0
    said = ops("repeats", shop.queue, "nightly", "--resume")
    assert (said.code, "has a record that cannot be read: register it anew" in said.err) == (2, True)
    assert ops("repeats", shop.queue, "nightly", "--cancel").code == 0
    assert shop.raw.execute("ZCARD", shop.keys.cron) == 0


NIGHTLY = Definition(TEMPLATE.encode(), line="30 2 * * *", tz="Europe/Berlin", overlap="skip", owner="shop")


def nightly(shop: Any) -> int:
    """A recurrence by a cron line; when it runs next."""
    at_ms: int = shop.raw.now_ms() + 2 * HOUR_MS
    call = cron.put(shop.queue, "nightly", NIGHTLY, Standing(0, None, None), slot_ms=at_ms - 5, due_ms=at_ms)
    assert shop.run(call)
    return at_ms


def test_an_entry_of_ours_that_says_more_is_told_in_full(ops: Any, shop: Any, digest: int) -> None:
    at_ms = nightly(shop)
    job_id = ops("repeats", shop.queue, "nightly", "--now", "--json").json["job"]
    hourly, told = ops("repeats", shop.queue, "--json").json["repeats"]
    assert (hourly["line"], hourly["last_run_ms"], hourly["runs"], hourly["next_slot_ms"]) == (None, None, None, digest)
    assert (told["kind"], told["line"], told["tz"]) == ("cron", "30 2 * * *", "Europe/Berlin")
    assert (told["next_run_ms"], told["next_slot_ms"], told["late_ms"]) == (at_ms, at_ms - 5, 0)
    assert (told["paused"], told["over"], told["runs"], told["skipped"]) == (False, False, 0, 0)
    assert (told["last_job"], told["declared_by"], told["last_late_ms"]) == (job_id, "shop", None)
    assert told["last_run_ms"] is not None
    row = next(line for line in ops("repeats", shop.queue).lines if line.startswith("nightly"))
    assert "30 2 * * * Europe/Berlin" in row
    assert " ago" in row


@pytest.mark.parametrize("name", ["digest", "nightly"])
def test_a_pause_holds_until_it_is_resumed(ops: Any, shop: Any, digest: int, name: str) -> None:
    at_ms = {"digest": digest, "nightly": nightly(shop)}[name]
    assert ops("repeats", shop.queue, name, "--pause").lines == [f"recurrence {name} of queue {shop.queue} is paused"]
    (told,) = ops("repeats", shop.queue, name, "--json").json["repeats"]
    assert (told["paused"], told["next_run_ms"]) == (True, None)
    assert "paused" in ops("repeats", shop.queue, name).out
    assert ops("repeats", shop.queue, name, "--resume").code == 0
    (told,) = ops("repeats", shop.queue, name, "--json").json["repeats"]
    assert (told["paused"], told["kind"]) == (False, "repeat" if name == "digest" else "cron")
    assert abs(told["next_run_ms"] - at_ms) <= 5


def test_a_key_that_is_held_keeps_another_from_running_now(ops: Any, shop: Any) -> None:
    once = Definition(TEMPLATE.encode(), every_ms=HOUR_MS, dedup="k")
    assert shop.run(cron.put(shop.queue, "once", once, Standing(0, None, None), slot_ms=2**52, due_ms=2**52))
    assert ops("repeats", shop.queue, "once", "--now").code == 0
    said = ops("repeats", shop.queue, "once", "--now")
    assert (said.code, "has a job under its key that lives: JOB" in said.err) == (1, True)
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
