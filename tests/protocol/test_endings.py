"""What has become of jobs is read in one look, and whoever waits is told of their ends."""

from __future__ import annotations

import pytest

from echomq.errors import IdError, InvalidInputError
from echomq.identity.minter import minter
from echomq.protocol import admin, jobs
from echomq.protocol.jobs import Finished
from echomq.protocol.keys import keys
from echomq.protocol.replies import State
from echomq.protocol.results import MOST, Ending, endings, ids_in
from support.raw import RawClient
from support.runner import Scene
from support.servers import Server

HOUR_MS = 3_600_000


def mint(count: int) -> list[str]:
    return minter.mint_many(count)


def heard(client: RawClient, what: str) -> list[list[str]]:
    """The messages that have come before `what`, which the test publishes when all is done."""
    messages = list[list[str]]()
    while (data := client.receive()[2]) != what.encode():
        messages.append(ids_in(data))
    return messages


def listener(server: Server, queue: str) -> RawClient:
    client = server.client()
    client.execute("SUBSCRIBE", keys(queue).results)
    return client


def test_a_look_tells_every_state(scene: Scene, queue: str) -> None:
    done, silent, unkept, active, pending, later, dead, _ = ids = mint(8)
    for each in (done, silent, unkept, active, dead):
        scene.run(jobs.enqueue(queue, each, b"{}"))
    claimed = {job.id: job for job in scene.run(jobs.claim_many(queue, 5)).jobs}
    scene.run(jobs.enqueue(queue, pending, b"{}"))
    scene.run(jobs.enqueue_in(queue, later, b"{}", delay_ms=60_000))
    scene.run(jobs.complete(queue, done, 1, result=b"5", result_ttl_ms=HOUR_MS))
    scene.run(jobs.complete(queue, silent, 1, result_ttl_ms=HOUR_MS))
    scene.run(jobs.complete(queue, unkept, 1, result=b"6"))
    scene.run(jobs.retry(queue, dead, 1, delay_ms=0, max_attempts=1, error="no\nway"))
    assert claimed[active].attempts == 1
    assert scene.run(endings(queue, ids)) == (
        Ending(State.ABSENT, b"5"),
        Ending(State.ABSENT, b""),
        Ending(State.ABSENT),
        Ending(State.ACTIVE),
        Ending(State.PENDING),
        Ending(State.SCHEDULED),
        Ending(State.DEAD, error="no\nway", failures=1),
        Ending(State.ABSENT),
    )


@pytest.mark.strays("a row of a stranger's")
def test_a_look_bears_rows_of_strangers(scene: Scene, queue: str, server: Server) -> None:
    first, second, third = mint(3)
    with server.client() as client:
        client.execute("SET", keys(queue).job(first), "no row")
        client.execute("HSET", keys(queue).job(second), "state", "of mind")
        client.execute("HSET", keys(queue).job(third), "state", "dead", "failures", "-x", "last_error", b"\xff")
    assert scene.run(endings(queue, (first, second, third))) == (
        Ending(State.ABSENT),
        Ending(State.UNKNOWN),
        Ending(State.DEAD, error="\ufffd"),
    )


def test_a_look_at_a_thousand_and_no_more(scene: Scene, queue: str) -> None:
    ids = mint(MOST)
    scene.run(jobs.enqueue_many(queue, [(each, b"{}") for each in ids[:10]]))
    found = scene.run(endings(queue, ids))
    assert [each.state for each in found[:11]] == [State.PENDING] * 10 + [State.ABSENT]
    for wrong in ((), mint(MOST + 1)):
        with pytest.raises(InvalidInputError, match="number of jobs must be from 1 to 1000"):
            endings(queue, wrong)
    with pytest.raises(IdError):
        endings(queue, ["JOB"])


def test_what_is_kept_is_told_in_one_message_a_call(scene: Scene, queue: str, server: Server) -> None:
    ids = mint(6)
    scene.run(jobs.enqueue_many(queue, [(each, b"{}") for each in ids]))
    scene.run(jobs.claim_many(queue, 6))
    with listener(server, queue) as client, server.client() as other:
        scene.run(jobs.complete_many(queue, [(each, 1) for each in ids[:2]]))  # nothing kept: nobody is told
        scene.run(jobs.complete_many(queue, [Finished(each, 1, b"1", HOUR_MS) for each in ids[:5]]))
        scene.run(jobs.complete_many(queue, [Finished(ids[5], 2, b"1", HOUR_MS)]))  # refused
        scene.run(jobs.complete(queue, ids[5], 1, result_ttl_ms=HOUR_MS))
        other.execute("PUBLISH", keys(queue).results, "over")
        assert heard(client, "over") == [ids[2:5], [ids[5]]]


def test_every_burial_is_told(scene: Scene, queue: str, server: Server) -> None:
    failed, cancelled, lapsed = ids = mint(3)
    scene.run(jobs.enqueue_many(queue, [(each, b"{}") for each in ids]))
    with listener(server, queue) as client, server.client() as other:
        scene.run(jobs.claim(queue, lease_ms=60_000))
        scene.run(jobs.retry(queue, failed, 1, delay_ms=60_000, max_attempts=2, error="again"))
        scene.run(admin.cancel_job(queue, failed))
        scene.run(admin.cancel_job(queue, cancelled))
        scene.run(jobs.claim(queue, lease_ms=1))
        while not scene.run(jobs.sweep(queue)).dead:
            pass
        other.execute("PUBLISH", keys(queue).results, "over")
        assert heard(client, "over") == [[failed], [cancelled], [lapsed]]


def test_many_that_say_nothing_else_leave_what_the_call_says(scene: Scene, queue: str) -> None:
    ids = mint(3)
    scene.run(jobs.enqueue_many(queue, [(each, b"{}") for each in ids]))
    scene.run(jobs.claim_many(queue, 3))
    done = [(ids[0], 1), (ids[1], "1"), Finished(ids[2], 1, b"own", HOUR_MS)]
    scene.run(jobs.complete_many(queue, done, result=b"shared", result_ttl_ms=HOUR_MS))
    assert [each.result for each in scene.run(endings(queue, ids))] == [b"shared", b"shared", b"own"]
    with pytest.raises(InvalidInputError, match="result_ttl_ms"):
        jobs.complete_many(queue, done, result_ttl_ms=-1)
