"""A call of every verb that writes, where each of its ways has something to do, and a look at all keys of its queue.

Whatever a test holds to all verbs, it holds to these. The setup of a call uses verbs that are sound by then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from echomq.protocol import admin, admission, cron, flows, follow, jobs, lanes, morgue, repeat, trials, workers
from echomq.protocol.call import Call
from echomq.protocol.flows import Node, OnDeath
from support.placing import A, dead, enqueue, in_hand, in_lane, later
from support.recurring import LINE, entry, look, occurrence, put
from support.runner import Scene

HOUR = 3_600_000
B = lanes.lane_id("b")
Verb = Callable[[Scene], Call[Any]]


def _hand(scene: Scene, count: int = 2) -> list[str]:
    """So many jobs in hand, and one more that waits."""
    ids = enqueue(scene, count + 1)[:count]
    scene.run(jobs.claim_many(scene.queue, count))
    return ids


def _lapsed(scene: Scene) -> list[str]:
    ids = _hand(scene)
    scene.lapse(*ids)
    return ids


def _cancelled(scene: Scene, job_id: str) -> str:
    scene.execute("HSET", scene.keys.job(job_id), "cancel", "cancelled")
    return job_id


def _lane_hand(scene: Scene) -> str:
    """The one job that a lane may have in hand; another waits there."""
    job_id = in_lane(scene)
    in_lane(scene)
    scene.run(lanes.limit(scene.queue, A, 1))
    scene.run(lanes.claim(scene.queue))
    return job_id


def _lapsed_in_lane(scene: Scene) -> str:
    job_id = _lane_hand(scene)
    scene.lapse(job_id)
    return job_id


def _limited(scene: Scene) -> str:
    job_id = in_lane(scene)
    scene.run(lanes.limit(scene.queue, A, 4))
    return job_id


def _two_lanes(scene: Scene) -> str:
    in_lane(scene, B)
    scene.run(lanes.weight(scene.queue, A, 5))
    return _limited(scene)


def _paused(scene: Scene) -> str:
    job_id = _limited(scene)
    scene.run(lanes.pause(scene.queue, A))
    return job_id


def _due(scene: Scene, group: str | None = None) -> str:
    job_id = scene.mint()
    scene.run(admission.admit(scene.queue, job_id, b"p", at_ms=5, group=group))
    return job_id


def _registered(scene: Scene) -> str:
    scene.run(repeat.register(scene.queue, "n", every_ms=1_000, template=b"t", first_run_ms=5))
    return "n"


def _busy(scene: Scene) -> str:
    """A queue that is drained, razed or opened: jobs flat, in a lane and scheduled, and one that has died."""
    dead(scene)
    later(scene)
    in_lane(scene)
    enqueue(scene, 2)
    return scene.queue


def _flow(scene: Scene, on_death: OnDeath = OnDeath.FAIL_PARENT) -> tuple[str, str]:
    """Parent and child, which is in hand."""
    root = Node(scene.queue, scene.mint(), b"p", (Node(scene.queue, scene.mint(), b"c", on_death=on_death),))
    scene.finish(flows.add(root))
    scene.run(jobs.claim(scene.queue))
    return root.id, root.children[0].id


def _fire(scene: Scene) -> Call[Any]:
    (due,) = scene.run(repeat.due(scene.queue, now_ms=9, limit=1)) if _registered(scene) else ()
    return repeat.fire(scene.queue, "n", score=due.score, job_id=scene.mint())


def _cron_fire(scene: Scene, **more: Any) -> Call[Any]:
    slot = put(scene, LINE, late_ms=50)
    turns = (occurrence(scene, slot), occurrence(scene, slot + 10))
    following = scene.now_ms() + HOUR
    for field, value in more.items():
        scene.execute("HSET", f"{scene.keys.cron}:n", field, value)
    return cron.fire(scene.queue, entry(scene), turns, next_slot_ms=following, next_due_ms=following)


def _cron_put(scene: Scene, plain: bool) -> Call[Any]:
    if plain:
        put(scene)
    else:
        _registered(scene)
    definition = cron.Definition(b"t", every_ms=5) if plain else LINE
    return cron.put(scene.queue, "n", definition, look(scene), slot_ms=5, due_ms=5)


def _cron_run(scene: Scene, options: bool) -> Call[Any]:
    if options:
        put(scene)
        scene.execute("HSET", f"{scene.keys.cron}:n", "group", A, "dedup", "k", "lane", "a")
    else:
        _registered(scene)
    return cron.run(scene.queue, entry(scene), scene.mint(), b"p")


def _rest(scene: Scene) -> Call[Any]:
    """The call of obliterate that deletes what its walk of the server's keys has found."""
    orphan = scene.keys.base + "de:k"
    scene.execute("SET", orphan, "x")
    plan = admin.obliterate(scene.queue)
    next(plan)
    plan.send(0)
    return plan.send((b"0", [orphan.encode()]))


def _then(step: Any, build: Callable[[], Call[Any]]) -> Call[Any]:
    """The call that is built when a step has been made."""
    del step
    return build()


FLAT: dict[str, Verb] = {
    "enqueue": lambda s: jobs.enqueue(s.queue, s.mint(), b"p"),
    "enqueue many": lambda s: jobs.enqueue_many(s.queue, [(s.mint(), b"p"), (s.mint(), b"p")]),
    "schedule": lambda s: jobs.enqueue_at(s.queue, s.mint(), b"p", at_ms=5),
    "reschedule": lambda s: jobs.reschedule(s.queue, later(s), at_ms=9),
    "admit": lambda s: admission.admit(
        s.queue, s.mint(), b"p", at_ms=5, group=A, lane_text="a", dedup=admission.Dedup("k")
    ),
    "admit now": lambda s: admission.admit(s.queue, s.mint(), b"p", dedup=admission.Dedup("k", window_ms=HOUR)),
    "claim": lambda s: _then(enqueue(s, 3), lambda: jobs.claim_many(s.queue, 2)),
    "claim both": lambda s: _then((enqueue(s, 2), _two_lanes(s)), lambda: jobs.claim_many(s.queue, 3)),
    "claim from lanes": lambda s: _then(_two_lanes(s), lambda: jobs.claim(s.queue)),
    "claim within limits": lambda s: _then(
        (enqueue(s, 3), s.run(admin.set_rate(s.queue, 5, period_ms=HOUR)), s.run(admin.set_ceiling(s.queue, 9))),
        lambda: jobs.claim_many(s.queue, 2),
    ),
    "complete": lambda s: jobs.complete(s.queue, _hand(s)[0], 1, result=b"r", result_ttl_ms=HOUR),
    "complete of a lane": lambda s: jobs.complete(s.queue, _lane_hand(s), 1),
    "complete many": lambda s: jobs.complete_many(s.queue, [(i, 1) for i in _hand(s)], result=b"r", result_ttl_ms=HOUR),
    "complete and follow": lambda s: jobs.complete(s.queue, _hand(s)[0], 1, then=follow.Follow(s.mint(), b"p")),
    "retry": lambda s: jobs.retry(s.queue, _hand(s)[0], 1, delay_ms=5, max_attempts=9, error="e"),
    "bury": lambda s: jobs.retry(s.queue, _hand(s)[0], 1, delay_ms=5, max_attempts=1, error="e"),
    "bury of a lane": lambda s: jobs.retry(s.queue, _lane_hand(s), 1, delay_ms=5, max_attempts=1, error="e"),
    "delay": lambda s: jobs.delay(s.queue, _hand(s)[0], 1, at_ms=5),
    "retry of a cancelled one": lambda s: jobs.retry(
        s.queue, _cancelled(s, _lane_hand(s)), 1, delay_ms=5, max_attempts=9, error="e"
    ),
    "delay of a cancelled one": lambda s: jobs.delay(s.queue, _cancelled(s, _hand(s)[0]), 1, at_ms=5),
    "release of a cancelled one": lambda s: jobs.release(s.queue, _cancelled(s, _lane_hand(s)), 1),
    "delay of a lane": lambda s: jobs.delay(s.queue, _lane_hand(s), 1, at_ms=5),
    "release": lambda s: jobs.release(s.queue, _hand(s)[0], 1),
    "release to a lane": lambda s: jobs.release(s.queue, _lane_hand(s), 1),
    "promote": lambda s: _then((_due(s), _due(s)), lambda: jobs.promote(s.queue)),
    "promote to a lane": lambda s: _then(_due(s, A), lambda: jobs.promote(s.queue)),
    "reap": lambda s: _then(_lapsed(s), lambda: jobs.reap(s.queue)),
    "sweep": lambda s: _then(_lapsed(s), lambda: jobs.sweep(s.queue, max_stalled=2)),
    "sweep to the morgue": lambda s: _then(_lapsed(s), lambda: jobs.sweep(s.queue)),
    "sweep to a lane": lambda s: _then(_lapsed_in_lane(s), lambda: jobs.sweep(s.queue, max_stalled=2)),
    "extend": lambda s: jobs.extend(s.queue, _hand(s)[0], 1),
    "extend many": lambda s: jobs.extend_many(s.queue, [(i, 1) for i in _hand(s)]),
    "keep": lambda s: workers.keep(s.queue, [(i, 1) for i in _hand(s)], field=True),
}

LANES: dict[str, Verb] = {
    "enqueue to lane": lambda s: lanes.enqueue(s.queue, s.mint(), b"p", A),
    "lane claim": lambda s: _then(_two_lanes(s), lambda: lanes.claim(s.queue)),
    "weighted claim": lambda s: _then(_two_lanes(s), lambda: lanes.claim_weighted(s.queue)),
    "lane reap": lambda s: _then(_lapsed_in_lane(s), lambda: lanes.reap(s.queue, A)),
    "lane pause": lambda s: _then(_limited(s), lambda: lanes.pause(s.queue, A)),
    "lane resume": lambda s: _then(_paused(s), lambda: lanes.resume(s.queue, A)),
    "lane limit": lambda s: _then(_limited(s), lambda: lanes.limit(s.queue, A, 3)),
    "first lane limit": lambda s: _then(in_lane(s), lambda: lanes.limit(s.queue, A, 3)),
    "limit of an empty lane": lambda s: lanes.limit(s.queue, A, 3),
    "lane limit lifted": lambda s: _then(_limited(s), lambda: lanes.limit(s.queue, A, None)),
    "lane weight": lambda s: lanes.weight(s.queue, A, 3),
    "lane reassign": lambda s: lanes.reassign(s.queue, _two_lanes(s), B),
    "lane drain": lambda s: _then(_two_lanes(s), lambda: next(lanes.drain(s.queue, A))),
}

QUEUES: dict[str, Verb] = {
    "pause queue": lambda s: _then(_busy(s), lambda: admin.pause_queue(s.queue)),
    "resume queue": lambda s: _then((_busy(s), s.run(admin.pause_queue(s.queue))), lambda: admin.resume_queue(s.queue)),
    "set ceiling": lambda s: _then(_busy(s), lambda: admin.set_ceiling(s.queue, 3)),
    "set rate": lambda s: _then(_busy(s), lambda: admin.set_rate(s.queue, 3, period_ms=HOUR)),
    "set retention": lambda s: admin.set_retention(s.queue, dead_max=3, dead_age_ms=HOUR),
    "drain": lambda s: _then(_busy(s), lambda: next(admin.drain(s.queue, scheduled=True))),
    "update data": lambda s: admin.update_data(s.queue, later(s), b"n"),
    "update progress": lambda s: admin.update_progress(s.queue, later(s), "n"),
    "add log": lambda s: admin.add_log(s.queue, later(s), "n", keep=1),
    "remove": lambda s: admin.remove_job(s.queue, enqueue(s)[0], dedup="k"),
    "remove of a lane": lambda s: admin.remove_job(s.queue, _limited(s)),
    "remove in hand": lambda s: admin.remove_job(s.queue, _hand(s)[0]),
    "reprocess": lambda s: admin.reprocess_job(s.queue, dead(s)),
    "cancel job": lambda s: admin.cancel_job(s.queue, enqueue(s)[0]),
    "cancel job of a lane": lambda s: admin.cancel_job(s.queue, _limited(s)),
    "cancel in hand": lambda s: admin.cancel_job(s.queue, _hand(s)[0]),
    "purge": lambda s: morgue.purge(s.queue, [dead(s), dead(s)]),
    "retain": lambda s: _then(
        (dead(s), s.run(admin.set_retention(s.queue, dead_max=0, dead_age_ms=HOUR))), lambda: admin.retain(s.queue)
    ),
    "obliterate": lambda s: _then(
        (_busy(s), s.run(admin.pause_queue(s.queue))), lambda: next(admin.obliterate(s.queue, unreachable=False))
    ),
    "obliterate the rest": lambda s: _then((_busy(s), s.run(admin.pause_queue(s.queue))), lambda: _rest(s)),
    "beat": lambda s: workers.beat(s.queue, "w", b"{}"),
    "farewell": lambda s: _then(s.run(workers.beat(s.queue, "w", b"{}")), lambda: workers.farewell(s.queue, "w")),
    "pay": lambda s: _then(
        s.execute("RPUSH", s.keys.owed, "x"), lambda: follow.pay(s.queue, b"x", follow.Follow(s.mint(), b"p"))
    ),
    "reject": lambda s: _then(s.execute("RPUSH", s.keys.outbox, "x"), lambda: flows.reject(s.queue, b"x")),
}

RECURRENCES: dict[str, Verb] = {
    "register": lambda s: repeat.register(s.queue, "n", every_ms=1_000, template=b"t", first_run_ms=5),
    "upsert": lambda s: repeat.upsert(s.queue, "n", every_ms=1_000, template=b"t", first_in_ms=5),
    "upsert again": lambda s: repeat.upsert(s.queue, _registered(s), every_ms=1_001, template=b"t", first_in_ms=5),
    "cancel": lambda s: repeat.cancel(s.queue, _registered(s)),
    "advance": lambda s: repeat.advance(s.queue, _registered(s), next_run_ms=77),
    "due": lambda s: _then(_registered(s), lambda: repeat.due(s.queue, now_ms=77)),
    "fire": _fire,
    "cron due": lambda s: _then((_registered(s), put(s)), lambda: cron.due(s.queue, now_ms=s.now_ms())),
    "cron put": lambda s: _cron_put(s, plain=False),
    "cron put back": lambda s: _cron_put(s, plain=True),
    "cron pause": lambda s: _then(put(s), lambda: cron.pause(s.queue, "n")),
    "cron pause of a plain one": lambda s: cron.pause(s.queue, _registered(s)),
    "cron park": lambda s: _then(put(s), lambda: cron.park(s.queue, entry(s))),
    "cron rename": lambda s: _then(put(s), lambda: cron.rename(s.queue, entry(s), "m")),
    "cron cancel": lambda s: _then(put(s), lambda: cron.cancel(s.queue, "n")),
    "cron cancel of a plain one": lambda s: cron.cancel(s.queue, _registered(s)),
    "cron fire": _cron_fire,
    "cron fire with options": lambda s: _cron_fire(s, group=A, dedup="k", lane="a", skipped="many"),
    "cron fire that skips": lambda s: _cron_fire(s, overlap="skip", skipped="many"),
    "cron run": lambda s: _cron_run(s, options=True),
    "cron run of a plain one": lambda s: _cron_run(s, options=False),
    "hasten": lambda s: _then((later(s), _registered(s), put(s)), lambda: trials.hasten(s.queue, 50)),
}

ALONE: dict[str, Verb] = {**FLAT, **LANES, **QUEUES, **RECURRENCES}
"""Calls whose jobs have no parent."""

FLOWS: dict[str, Verb] = {
    "flow add": lambda s: next(flows.add(Node(s.queue, s.mint(), b"p", (Node(s.queue, s.mint(), b"c"),)))),
    "flow deliver": lambda s: flows.deliver(b"\0".join((s.queue.encode(), *(i.encode() for i in _flow(s)), b"r"))),
    "complete of a child": lambda s: jobs.complete(s.queue, _flow(s)[1], 1, result=b"r"),
    "bury of a child": lambda s: jobs.retry(s.queue, _flow(s)[1], 1, delay_ms=5, max_attempts=1, error="e"),
    "delay of a cancelled child": lambda s: jobs.delay(s.queue, _cancelled(s, _flow(s)[1]), 1, at_ms=5),
    "cancel of a child": lambda s: admin.cancel_job(s.queue, enqueue(s)[0] if in_hand(s) else ""),
}


def kept(scene: Scene) -> dict[bytes, tuple[bytes, bool]]:
    """Every key of the queue as the server keeps it, and whether it has a TTL."""
    text = """local out = {}
        for i, key in ipairs(redis.call('KEYS', ARGV[1])) do
          out[i] = { key, redis.call('DUMP', key), redis.call('PTTL', key) }
        end
        return out"""
    found = scene.execute("EVAL", text, 0, f"emq:{{{scene.queue}}}:*")
    return {key: (value, ttl > 0) for key, value, ttl in found}


def put_back(scene: Scene, keys: dict[bytes, tuple[bytes, bool]]) -> None:
    """The queue holds exactly these keys again."""
    text = """for _, key in ipairs(redis.call('KEYS', ARGV[1])) do redis.call('DEL', key) end
        for i = 2, #ARGV, 3 do redis.call('RESTORE', ARGV[i], ARGV[i + 2], ARGV[i + 1]) end"""
    words = [word for key, (value, ttl) in keys.items() for word in (key, value, HOUR if ttl else 0)]
    scene.execute("EVAL", text, 0, f"emq:{{{scene.queue}}}:*", *words)


def every_key(scene: Scene, call: Call[Any]) -> Iterator[str]:
    """The names, without base, of all keys that a call could write: those of the queue, and those of its jobs."""
    yield from ("pending", "active", "schedule", "dead", "ring", "paused", "glimit", "gactive", "gweight", "lanes")
    yield from ("wake", "meta", "limiter", "turn", "metrics:completed", "metrics:failed", "de:k", "owed")
    yield from (f"g:{A}:pending", f"g:{B}:pending", "flow:outbox", "flow:rejected", "workers", "workers:info")
    yield from ("repeat", "repeat:n", "cron", "cron:n")
    rows = {key.decode() for key in scene.execute("KEYS", scene.keys.job("JOB*"))}
    words = [*call.keys, *(scene.keys.job(arg) for arg in call.args if isinstance(arg, str) and len(arg) == 14)]
    for row in sorted(rows | {word for word in words if word.startswith(scene.keys.job("JOB"))}):
        if row.count(":") == scene.keys.base.count(":") + 1:
            for subkey in ("", ":logs", ":lock", ":dependencies", ":processed", ":failed", ":unsuccessful", ":result"):
                yield row[len(scene.keys.base) :] + subkey
