"""Keys of another type, and a full server: the native commands refuse and go on where their scripts do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from echomq.protocol import jobs
from echomq.protocol.call import Call
from echomq.protocol.errors import ServerFullError
from echomq.protocol.replies import Rescheduling
from support.native import NativeRunner, Pair
from support.runner import Scene
from support.servers import Kind, Server

FAR = 2**52
WRONG_TYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"

VERBS: dict[str, Callable[[Scene, str], Call[Any]]] = {
    "schedule": lambda s, _: jobs.enqueue_at(s.queue, s.mint(), b"p", at_ms=5),
    "reschedule": lambda s, job_id: jobs.reschedule(s.queue, job_id, at_ms=5),
    "promote": lambda s, _: jobs.promote(s.queue),
    "delay": lambda s, job_id: jobs.delay(s.queue, job_id, 1, at_ms=5),
}


def wrong(scene: Scene, name: str, kind: str) -> None:
    key = scene.keys.base + name
    scene.execute("DEL", key)
    scene.execute(*{"string": ("SET", key, "x"), "list": ("RPUSH", key, "x"), "hash": ("HSET", key, "x", "y")}[kind])


@pytest.mark.strays("keys of another type")
@pytest.mark.parametrize("kind_of_key", ["string", "list", "hash"])
@pytest.mark.parametrize(
    ("verb", "name"),
    [
        *(("schedule", "schedule"), ("reschedule", "schedule"), ("promote", "schedule"), ("promote", "pending")),
        *(("delay", "active"), ("delay", "schedule")),
    ],
)
def test_a_place_of_another_type_is_refused_before_anything_is_written(
    pair: Pair, verb: str, name: str, kind_of_key: str
) -> None:
    job_id, due = pair.mint_many(2)
    pair.arrange(lambda s: s.run(jobs.enqueue(s.queue, job_id, b"p")))
    pair.arrange(lambda s: s.run(jobs.claim(s.queue)))
    pair.arrange(lambda s: s.run(jobs.enqueue_at(s.queue, due, b"p", at_ms=1)))
    pair.arrange(lambda s: wrong(s, name, kind_of_key))
    pair.script.mint = lambda: pair.native.minter.mint()
    assert pair.refused(lambda s: VERBS[verb](s, job_id)) == WRONG_TYPE


@pytest.mark.strays("keys of another type")
@pytest.mark.parametrize("verb", sorted(VERBS))
@pytest.mark.parametrize("name", ["wake", "meta", "pending", "ring", "paused"])
def test_what_only_tokens_need_is_no_reason_to_refuse(pair: Pair, verb: str, name: str) -> None:
    job_id, due, other = pair.mint_many(3)
    pair.arrange(lambda s: s.run(jobs.enqueue(s.queue, job_id, b"p")))
    pair.arrange(lambda s: s.run(jobs.claim(s.queue)))
    pair.arrange(lambda s: s.run(jobs.enqueue_at(s.queue, due, b"p", at_ms=1)))
    pair.arrange(lambda s: s.execute("HSET", s.keys.base + "meta", "concurrency", 2))
    pair.arrange(lambda s: s.into_lane("LAN00000000001", other))
    pair.arrange(lambda s: wrong(s, name, "string"))
    target = due if verb == "reschedule" else job_id
    new = pair.mint()
    for scene in (pair.native, pair.script):
        scene.mint = lambda: new
    answer = pair.both(lambda s: VERBS[verb](s, target))
    if (verb, name) == ("promote", "pending"):
        assert str(answer) == WRONG_TYPE
    else:
        assert answer == 1


@pytest.mark.strays("a row of another type")
def test_a_row_of_another_type_is_no_row_of_a_job_in_hand(pair: Pair) -> None:
    job_id = pair.mint()
    pair.arrange(lambda s: s.execute("ZADD", s.keys.active, FAR, job_id))
    pair.arrange(lambda s: wrong(s, f"job:{job_id}", "list"))
    assert str(pair.both(lambda s: jobs.delay(s.queue, job_id, 1, at_ms=5))) == "EMQSTALE job gone"
    assert pair.both(lambda s: jobs.enqueue_at(s.queue, job_id, b"p", at_ms=5)) == 0
    pair.arrange(lambda s: s.execute("ZADD", s.keys.schedule, FAR, job_id))
    assert pair.both(lambda s: jobs.reschedule(s.queue, job_id, at_ms=5)) == 1


def test_a_full_server_refuses_admission_alone(kind: Kind, start_server: Callable[..., Server]) -> None:
    server = start_server(kind, module=True, options=("--maxmemory-policy", "noeviction"))
    with server.client() as client:
        scene = Scene(NativeRunner(client), "full")
        held, waiting, due = scene.minter.mint_many(3)
        scene.run(jobs.enqueue(scene.queue, held, b"p"))
        scene.run(jobs.claim(scene.queue))
        for job_id in (waiting, due):
            scene.run(jobs.enqueue_at(scene.queue, job_id, b"p", at_ms=FAR))
        client.execute("CONFIG", "SET", "maxmemory", 1)
        assert isinstance(scene.refusal(jobs.enqueue_at(scene.queue, scene.mint(), b"p", at_ms=5)), ServerFullError)
        assert scene.run(jobs.reschedule(scene.queue, due, at_ms=1)) is Rescheduling.MOVED
        assert scene.run(jobs.promote(scene.queue)) == 1
        scene.run(jobs.delay(scene.queue, held, 1, at_ms=FAR))
        assert scene.places(held) == ["schedule"]
        client.execute("CONFIG", "SET", "maxmemory", 0)
