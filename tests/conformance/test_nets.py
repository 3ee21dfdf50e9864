"""No scenario holds up a run: its waits end, its time ends, and what cannot be taken away is told and counted."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from conformance.breaks import Break, damage
from echomq.conformance import Scenario, Status, choose, every, run
from echomq.conformance.bench import Bench
from echomq.conformance.desk import Desk
from echomq.protocol.errors import ServerError
from support.raw import RawClient, ReplyError
from support.registry import all_keys
from support.servers import Server

StartServer = Callable[..., Server]


def act(do: Callable[[Desk], object], name: str = "odd") -> Scenario:
    return Scenario(name, "A sentence.", lambda desk: do(desk) and None, strays=True)


def ours(client: RawClient) -> set[str]:
    return {key for key in all_keys(client) if key.startswith("emq:")}


@pytest.mark.parametrize("name", ["parked_wakes", "parked_beats"])
def test_a_consumer_whose_claims_are_refused_is_a_failure(
    server: Server, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    damage(monkeypatch, Break("", ("claim",), r"\A(#![^\n]*\n)", "#!lua\nerror('no')\n", set()))
    monkeypatch.setattr("echomq.conformance.scenarios.promises.WAIT_S", 0.5)
    with Bench(server.url, wire=4) as bench:
        (result,) = run(bench, choose([name]))
    assert (result.status, result.seen) == (Status.FAIL, "the consumer parks: not within 0.5 s")


def _calls_for_ever(desk: Desk) -> None:
    while True:
        desk.raw("SET", desk.key("de:k"), "1")


def _loops_for_ever(desk: Desk) -> None:
    desk.bench.loop(asyncio.Event().wait())


@pytest.mark.parametrize("endless", [_calls_for_ever, _loops_for_ever])
def test_a_scenario_whose_time_is_over_is_a_failure_and_ends(
    server: Server, bench: Bench, monkeypatch: pytest.MonkeyPatch, endless: Callable[[Desk], None]
) -> None:
    monkeypatch.setattr("echomq.conformance.suite.SCENARIO_S", 0.3)
    threads = threading.active_count()
    first, second = run(bench, [act(endless), act(lambda desk: desk.raw("PING"), "fine")])
    assert (first.status, first.seen) == (Status.FAIL, "it had not come to its end after 0.3 s")
    assert (second.name, second.status) == ("fine", Status.OK)
    assert threading.active_count() == threads
    with server.client() as client:
        assert ours(client) == set()


def test_a_scenario_that_hears_nothing_is_left_alone(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("echomq.conformance.suite.SCENARIO_S", 0.3)
    monkeypatch.setattr("echomq.conformance.span.GRACE_S", 0.1)
    deaf = threading.Event()
    try:
        first, second = run(bench, [act(lambda _: deaf.wait()), act(lambda desk: desk.raw("PING"), "fine")])
    finally:
        deaf.set()
    assert (first.status, first.seen) == (Status.FAIL, "it had not come to its end after 0.3 s")
    assert second.status is Status.OK


def test_each_scenario_takes_away_every_key_before_the_next_one(server: Server, bench: Bench) -> None:
    with server.client() as client:
        left = {result.name: keys for result in run(bench, every()) if (keys := ours(client))}
    assert left == {}


def user(server: Server, *rights: str) -> str:
    """The URL of a user who has these rights."""
    with server.client() as client:
        client.execute("ACL", "SETUSER", "mail", "on", "nopass", *rights)
    return f"unix://mail:any@{server.socket_path}"


def test_keys_that_cannot_be_taken_away_mask_no_result_and_end_no_run(start_server: StartServer) -> None:
    server = start_server()
    url = user(server, "~*", "&*", "+@all")

    def without_the_right(desk: Desk) -> None:
        desk.raw("SET", desk.key("de:k"), "1")
        user(server, "-unlink")

    with Bench(url) as bench:
        results = list(run(bench, [act(without_the_right), act(lambda desk: desk.expect("it", 1, 2), "wrong")]))
    with server.client() as client:
        for key in ours(client):
            client.execute("DEL", key)
    denied = "its keys could not be taken away: "
    assert [(result.name, result.status) for result in results] == [
        ("odd", Status.FAIL),
        ("wrong", Status.FAIL),
        ("cleaning", Status.FAIL),
    ]
    assert results[0].seen.startswith(denied)
    assert results[1].seen.startswith(f"it: 1 instead of 2; {denied}")
    assert results[2].seen.startswith(denied)
    assert "'unlink'" in results[2].seen


def test_what_the_user_may_not_do_is_skipped_with_the_reason(start_server: StartServer) -> None:
    server = start_server()
    with Bench(user(server, "~*", "&*", "+@all", "-hgetall")) as bench:
        asking = [act(lambda desk: desk.hash(desk.keys.gactive)), act(lambda desk: desk.raw("PING"))]
        results = list(run(bench, asking))
    assert [result.status for result in results] == [Status.SKIP, Status.OK]
    assert "this user may not do it (NOPERM" in results[0].seen


def test_keys_of_several_queues_are_taken_away_queue_by_queue(server: Server, bench: Bench) -> None:
    names = ["emq:{a}:wake", "emq:{b}:wake", "{emq}:node:none"]
    with server.client() as client:
        for name in names:
            client.execute("LPUSH", name, "1")
        client.execute("CONFIG", "RESETSTAT")
        bench.delete(names)
        assert b"cmdstat_unlink:calls=3," in client.execute("INFO", "commandstats")
        assert client.execute("EXISTS", *names) == 0
        with pytest.raises((ReplyError, ServerError)):
            bench.conn.execute("UNLINK")
