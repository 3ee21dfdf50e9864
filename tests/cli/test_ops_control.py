"""`echomq pause | resume | drain | obliterate | set`: what each does is seen by plain commands."""

from __future__ import annotations

from typing import Any

import pytest

from echomq.protocol import admin, lanes, repeat


def test_a_paused_queue_is_served_again_after_resume(ops: Any, shop: Any) -> None:
    shop.put()
    assert ops("pause", shop.queue, "--json").json == {"queue": shop.queue, "outcome": "paused"}
    assert shop.meta() == {"paused": "1"}
    assert ops("resume", shop.queue).out == f"queue {shop.queue} is served\n"
    assert shop.meta() == {}


def test_a_queue_that_does_not_exist_yet_is_paused_only_when_told_that_it_is_new(ops: Any, shop: Any) -> None:
    said = ops("pause", shop.queue)
    assert said.code == 2
    assert "nor any other" in said.err
    assert ops("pause", shop.queue, "--new").code == 0
    assert shop.meta() == {"paused": "1"}


def test_drain_asks_and_deletes_what_waits_flat(ops: Any, shop: Any) -> None:
    held, _ = shop.hold()
    doomed = [shop.put() for _ in range(3)]
    later, tenant = shop.later(), shop.lane("acme")
    said = ops("drain", shop.queue, answer="n\n")
    assert said.code == 1
    assert f"Delete 3 jobs of queue {shop.queue} for good?" in said.err
    assert shop.members(shop.keys.pending) == doomed
    assert ops("drain", shop.queue, answer="").code == 1
    assert ops("drain", shop.queue, answer="y\n").out == f"3 jobs of queue {shop.queue} deleted\n"
    shop.put()
    said = ops("drain", shop.queue, "--json", "--yes")
    assert said.json == {"queue": shop.queue, "outcome": "drained", "jobs": 1}
    assert shop.members(shop.keys.pending) == []
    assert shop.members(shop.keys.active) == [held]
    assert shop.members(shop.keys.schedule) == [later]
    assert ops("drain", shop.queue, "--scheduled", "--yes").code == 0
    assert shop.members(shop.keys.schedule) == []
    assert shop.members(shop.keys.lane(lanes.lane_id("acme"))) == [tenant]


def test_nobody_is_asked_where_nothing_would_be_deleted(ops: Any, shop: Any) -> None:
    shop.later()
    said = ops("drain", shop.queue)
    assert (said.code, said.err) == (0, "")


def test_obliterate_needs_a_paused_and_idle_queue(ops: Any, shop: Any) -> None:
    shop.hold()
    said = ops("obliterate", shop.queue, "--yes")
    assert said.code == 1
    assert f"is not paused: echomq pause {shop.queue}" in said.err
    ops("pause", shop.queue)
    said = ops("obliterate", shop.queue, "--yes")
    assert said.code == 1
    assert "1 job in hand" in said.err
    assert shop.raw.execute("EXISTS", shop.keys.active) == 1
    assert ops("obliterate", shop.queue, "--yes", "--force").code == 0
    assert shop.raw.execute("KEYS", "emq:{*") == []


@pytest.mark.parametrize("answer", ["", "y\n", "yes\n", "Q\n"])
def test_obliterate_goes_on_only_when_the_name_was_typed(answer: str, ops: Any, shop: Any) -> None:
    shop.put()
    shop.run(repeat.register(shop.queue, "r", every_ms=9_000, template=b"{}", first_run_ms=10**13))
    ops("pause", shop.queue)
    said = ops("obliterate", shop.queue, answer=answer)
    assert said.code == 1
    assert "1 job and 1 recurrence will be deleted" in said.err
    assert "nothing was changed" in said.err
    assert shop.raw.execute("ZCARD", shop.keys.pending) == 1
    said = ops("obliterate", shop.queue, answer=f"{shop.queue}\n")
    assert said.code == 0
    assert shop.raw.execute("KEYS", "emq:{*") == []


def test_settings_are_shown_changed_and_lifted(ops: Any, shop: Any) -> None:
    shop.put()
    none = {"ceiling": None, "rate": None, "rate_period_ms": None, "keep_dead": None, "keep_dead_for_ms": None}
    assert ops("set", shop.queue, "--json").json == {"queue": shop.queue, "settings": none}
    said = ops("set", shop.queue, "--ceiling", "5", "--rate", "10/s", "--keep-dead", "100", "--keep-dead-for", "7d")
    assert "ceiling:         5 in hand at once" in said.lines
    assert "rate:            10 in 1s" in said.lines
    week = {"dead_max": "100", "dead_age_ms": "604800000"}
    assert shop.meta() == {"concurrency": "5", "max": "10", "period_ms": "1000", **week}
    ops("set", shop.queue, "--keep-dead", "7")
    assert shop.meta() == {"concurrency": "5", "max": "10", "period_ms": "1000", **week, "dead_max": "7"}
    ops("set", shop.queue, "--rate", "none", "--keep-dead-for", "none")
    assert shop.meta() == {"concurrency": "5", "dead_max": "7"}
    ops("set", shop.queue, "--ceiling", "none", "--keep-dead", "none")
    assert shop.meta() == {}


@pytest.mark.parametrize(
    ("option", "value", "hint"),
    [
        ("--ceiling", "0", "1 or more"),
        ("--ceiling", "-3", "1 or more"),
        ("--ceiling", "many", "1 or more"),
        ("--rate", "10", "10/s"),
        ("--rate", "0/s", "10/s"),
        ("--rate", "5/fortnight", "500ms"),
        ("--rate", "5/0s", "at least 1ms"),
        ("--rate", "10/x", "--rate '10/x': 'x' is not a span of time"),
        ("--rate", "5/70368744177665ms", "at most 70368744177664ms"),
        ("--keep-dead", "1.5", "0 or more"),
        ("--keep-dead-for", "7", "7d"),
        ("--keep-dead-for", "99999999999w", "longer than time"),
    ],
)
def test_a_wrong_setting_changes_none(option: str, value: str, hint: str, ops: Any, shop: Any) -> None:
    shop.put()
    said = ops("set", shop.queue, "--keep-dead-for", "1d", option, value)
    assert said.code == 2
    (line,) = said.err.splitlines()
    assert hint in line
    assert shop.meta() == {}


@pytest.mark.parametrize(
    ("limits", "doomed"),
    [
        (("--keep-dead", "0"), 3),
        (("--keep-dead", "2"), 1),
        (("--keep-dead-for", "0s"), 3),
        (("--keep-dead-for", "1h"), 1),
        (("--keep-dead", "2", "--keep-dead-for", "1h"), 2),
    ],
)
def test_a_setting_that_deletes_dead_jobs_asks_before_and_says_how_many(
    limits: tuple[str, ...], doomed: int, ops: Any, shop: Any
) -> None:
    ids = [shop.dead() for _ in range(3)]
    shop.raw.execute("HSET", shop.keys.job(ids[1]), "died_ms", shop.raw.now_ms() - 7_200_000)
    said = ops("set", shop.queue, "--ceiling", "5", *limits, answer="n\n")
    assert said.code == 1
    assert f"Let the workers delete {doomed} of 3 dead jobs of queue {shop.queue} for good? [y/N]" in said.err
    assert ops("set", shop.queue, "--json", *limits).code == 2
    assert shop.meta() == {}
    assert ops("set", shop.queue, *limits, answer="y\n").code == 0
    assert set(shop.meta()) & {"dead_max", "dead_age_ms"}
    assert ops("set", shop.queue, *limits).code == 0, "what holds already is not asked again"
    assert ops("set", shop.queue, *limits, "--ceiling", "none").code == 0
    assert ops("set", shop.queue, "--keep-dead", "none", "--keep-dead-for", "none").code == 0
    assert ops("set", shop.queue, *limits, "--yes", "--json").code == 0
    for _ in range(2):
        shop.run(admin.retain(shop.queue))
    assert len(shop.members(shop.keys.dead)) == 3 - doomed


def test_a_setting_that_deletes_nothing_asks_nothing(ops: Any, shop: Any) -> None:
    shop.dead()
    assert ops("set", shop.queue, "--keep-dead", "1", "--keep-dead-for", "1h").err == ""
