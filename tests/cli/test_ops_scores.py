"""A score that is no time, left in a set by another client: every reader goes on, and shows what it can."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from echomq.identity.minter import mint
from echomq.protocol import audit, cron, details, discover, jobs, metrics, recurring, repeat, survey, survey_repeats
from echomq.protocol import workers as registry
from echomq.protocol.recurring import Definition
from echomq.protocol.repeat import Firing
from echomq.protocol.replies import State

SCORES = ("inf", "-inf", "1.7e308", "-1.7e308", "9007199254740993", "253402300799999", "-62135596800000", "0.5")


@pytest.mark.strays("the scores")
@pytest.mark.parametrize("score", SCORES)
def test_a_score_that_is_no_time_stops_no_reader(ops: Any, shop: Any, score: str) -> None:
    queue, k = shop.queue, shop.keys
    dead, (held, token), later = shop.dead(), shop.hold(), shop.later()
    shop.run(repeat.register(queue, "plain", every_ms=1_000, template=b"t", first_run_ms=1))
    stamp = Definition(b"t", line="* * * * *", tz="UTC")
    raw = shop.raw.execute
    fields = [word for pair in stamp.fields().items() for word in pair]
    raw("HSET", f"{k.cron}:lined", *fields)
    shop.run(registry.beat(queue, "w-1", b"{}"))
    pending = shop.put("waits")
    places = ((k.dead, dead), (k.active, held), (k.schedule, later), (k.repeat, "plain"), (k.cron, "lined"))
    for key, member in (*places, (k.workers, "stray"), (k.pending, pending)):
        raw("ZADD", key, score, member)

    assert shop.run(survey.queue(queue)).workers_known == 2
    for state in (State.PENDING, State.ACTIVE, State.SCHEDULED, State.DEAD):
        assert len(shop.run(survey.page(queue, state)).jobs) == 1
    ids = (dead, held, later, pending)
    assert [each.id for each in shop.run(survey.jobs(queue, ids)).jobs] == list(ids)
    for job_id in ids:
        shop.run(details.details(queue, job_id))
        shop.run(metrics.state(queue, job_id))
        assert ops("job", job_id).code == 0
    assert shop.run(survey_repeats.recurrences(queue)).total == 1
    assert shop.run(survey_repeats.recurrences(queue, cron=True)).total == 1
    for name in ("plain", "lined"):
        entry = shop.run(cron.look(queue, name)).entry
        assert isinstance(entry, recurring.Entry)
        assert entry.next_ms is None or entry.next_ms >= 0
    shop.conn.run(audit.audit(queue))
    assert queue in shop.conn.run(discover.queues())
    assert shop.run(metrics.counts(queue)).dead == 1
    for words in (
        ("workers",),
        ("queues",),
        ("jobs", queue, "--state", "scheduled"),
        ("jobs", queue, "--state", "active"),
    ):
        assert ops(*words).code == 0, words
        assert ops(*words, "--json").code == 0, words
    assert ops("repeats", queue).code == 0
    assert ops("repeats", queue, "--json").code == 0
    assert ops("stats", queue).code == 0
    assert ops("audit", queue).code in (0, 1)
    assert ops("health", queue).code in (0, 4), "unhealthy, where something is due for ever"

    now = shop.raw.now_ms()
    for due in shop.run(repeat.due(queue, now_ms=now)):
        fired = shop.run(repeat.fire(queue, due.name, score=due.score, job_id=mint()))
        assert fired.verdict is Firing.FIRED
    shop.run(cron.due(queue, now_ms=now))
    assert shop.run(registry.keep(queue, [(held, token)])).lost == ()
    raw("ZADD", k.active, score, held)
    shop.run(jobs.sweep(queue, max_stalled=9))
    shop.run(jobs.promote(queue))
    shop.run(jobs.claim_many(queue, 9))


@pytest.mark.parametrize("score", ["inf", "-inf", "1e300", "-1e300", "9e15"])
def test_a_stray_in_the_registry_is_no_worker(
    ops: Any, open_shop: Callable[[str], Any], queue: str, score: str
) -> None:
    shop = open_shop(queue)
    shop.put()
    shop.raw.execute("ZADD", shop.keys.workers, score, "stray")
    assert ops("workers", "--json").json["workers"] == []
    assert shop.run(survey.queue(queue)).workers_alive == 0
    assert ops("health", queue).code != 0
    assert shop.run(registry.seen(queue)) == ()
    assert shop.run(registry.beat(queue, "w-1", b"{}")) == 1
    assert [each.name for each in shop.run(registry.seen(queue))] == ["w-1"]
    assert shop.members(shop.keys.workers) == ["w-1"], "a beat forgets it"
    assert len(ops("workers", "--json").json["workers"]) == 1
