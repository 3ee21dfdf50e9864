"""The suite is green on a sound server, leaves nothing behind whatever happens, and touches nothing but its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from echomq.conformance import Result, Scenario, Status, choose, every, run
from echomq.conformance.bench import Bench
from echomq.conformance.desk import Desk
from echomq.conformance.scenario import BreachError, scenario
from echomq.identity.errors import InvalidInputError
from echomq.protocol import jobs
from echomq.protocol.call import Plan
from echomq.protocol.errors import NativeMissingError, WireError
from echomq.protocol.scripts import twins
from echomq.wire import Wire
from support.raw import RawClient
from support.registry import all_keys
from support.servers import Server

VERSION = "{emq}:version"

_NAMED = """
fence mint duplicate kind order claim stale complete retry dead reap rotate pause limit schedule repeat backoff
resubscribe counts state metrics dedup rate lane_depth queue_pause drain obliterate update_data update_progress job_logs
remove_job reprocess_job lock_extend stalled events telemetry cancel unknown_state rate_consult dedup_release
extend_locks_batch stalled_group obliterate_grouped reassign lane_drain reap_group flow_add flow_fanin
flow_children_values flow_cross_queue flow_fail_parent flow_ignore_dep flow_add_bulk flow_grandchild
flow_grandchild_fail pool_enqueue pool_order native_lock_field native_lock_refuses reschedule delay promote_ghost
promote_bounded release holder_after_lapse fire_once fire_server_clock wake_swept outbox_by_value flow_readd
receipt_after_completion audit
"""


def failed(results: list[Result]) -> dict[str, str]:
    return {result.name: result.seen for result in results if result.status is Status.FAIL}


def act(do: Callable[[Desk], None], name: str = "odd", *, strays: bool = False) -> Scenario:
    return Scenario(name, "A sentence.", do, strays)


def test_every_scenario_is_kept_by_this_server(bench: Bench) -> None:
    results = list(run(bench, every()))
    assert failed(results) == {}
    skipped = {result.name for result in results if result.status is Status.SKIP}
    lacks = set() if bench.knows("HPEXPIRE") else {"native_lock_field", "native_lock_refuses"}
    assert skipped == lacks | (set() if bench.knows("EMQ.SCHEDULE") else {"wires_agree"})
    assert sum(result.seconds for result in results) < 30


@pytest.mark.parametrize("wire", [6, "auto"])
def test_every_scenario_is_kept_on_wire_6(start_server: Callable[..., Server], wire: Wire) -> None:
    server = start_server(module=True)
    with Bench(server.url, wire=wire) as bench:
        assert bench.wire == 6
        results = list(run(bench, every()))
        stats = str(bench.conn.execute("INFO", "commandstats"))
    assert failed(results) == {}
    assert all(f"cmdstat_{script.native.lower()}:" in stats for script in twins())


def test_the_named_scenarios_are_there() -> None:
    names = [each.name for each in every()]
    assert set(_NAMED.split()) - set(names) == set()
    assert len(names) == len(set(names))


def test_a_contract_is_a_sentence_of_one_line() -> None:
    contracts = {each.name: each.contract for each in every()}
    assert {n: c for n, c in contracts.items() if not c.endswith(".") or "\n" in c or len(c) > 120} == {}


def test_nothing_is_left_and_nothing_else_is_touched(server: Server) -> None:
    with server.client() as client:
        theirs = {"emq:{other}:meta": "hash", "mine": "string"}
        client.execute("HSET", "emq:{other}:meta", "concurrency", "3")
        client.execute("SET", "mine", "untouched")
        before = [client.execute("DUMP", key) for key in theirs]
        client.execute("CONFIG", "RESETSTAT")
        with Bench(server.url) as bench:
            list(run(bench, every()))
        assert [client.execute("DUMP", key) for key in theirs] == before
        assert set(all_keys(client)) == {VERSION, *theirs}
        stats = client.execute("INFO", "commandstats").decode()
        assert "cmdstat_flush" not in stats
        assert "cmdstat_keys:" not in stats
        assert "cmdstat_config|set" not in stats
        client.execute("DEL", "mine")


def test_two_runs_at_once_do_not_meet(server: Server) -> None:
    ends: list[dict[str, str]] = []

    def go() -> None:
        with Bench(server.url) as bench:
            ends.append(failed(list(run(bench, every()))))

    runs = [threading.Thread(target=go) for _ in range(2)]
    for each in runs:
        each.start()
    for each in runs:
        each.join()
    assert ends == [{}, {}]


def test_three_runs_in_a_row(bench: Bench) -> None:
    for _ in range(3):
        assert failed(list(run(bench, choose(["claim", "stale", "fire_once", "resubscribe", "backoff"])))) == {}


def left(client: RawClient) -> set[str]:
    return {key for key in all_keys(client) if not key.startswith("{emq}:")}


@pytest.mark.parametrize(
    ("error", "seen"),
    [
        (BreachError("it was blue"), "it was blue"),
        (InvalidInputError("no"), "InvalidInputError: no"),
        (KeyError("state"), "the reply cannot be read: KeyError: 'state'"),
    ],
)
def test_whatever_a_scenario_raises_is_its_end_and_its_keys_go(
    server: Server, bench: Bench, error: Exception, seen: str
) -> None:
    def break_down(desk: Desk) -> None:
        desk.jobs(3)
        desk.neighbour().in_hand()
        desk.raw("SET", desk.keys.base + "nobody:knows", "1")
        raise error

    (result,) = run(bench, [act(break_down)])
    assert (result.status, result.seen) == (Status.FAIL, seen)
    with server.client() as client:
        assert left(client) == set()


def test_an_interrupted_run_leaves_nothing(server: Server, bench: Bench) -> None:
    def interrupted(desk: Desk) -> None:
        desk.jobs(3)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(run(bench, [act(interrupted)]))
    with server.client() as client:
        assert left(client) == set()


def test_a_run_that_nobody_reads_to_its_end_leaves_nothing(server: Server, bench: Bench) -> None:
    def stray(desk: Desk) -> None:
        desk.raw("SET", desk.keys.base + "nobody:knows", "1")

    running = run(bench, [act(stray, strays=True), *every()])
    next(running)
    running.close()
    with server.client() as client:
        assert left(client) == set()


def test_a_server_that_dies_ends_the_run_with_one_error(start_server: Callable[..., Server]) -> None:
    server = start_server()
    with Bench(server.url, timeout=0.5) as bench:

        def die(desk: Desk) -> None:
            server.kill9()
            desk.job()

        with pytest.raises(WireError):
            list(run(bench, [act(die), *every()]))


def test_a_plan_that_never_ends_is_a_failure(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(desk: Desk) -> Plan[None]:
        while True:
            yield jobs.pending_size(desk.queue)

    monkeypatch.setattr("echomq.conformance.desk.PLAN_S", 0.1)
    (result,) = run(bench, [act(lambda desk: desk.run(endless(desk)))])
    assert (result.status, result.seen) == (Status.FAIL, "pending_size was not done after 0.1 s of calls")


def test_an_invariant_that_a_scenario_leaves_broken_is_its_failure(bench: Bench) -> None:
    def breaking(change: Callable[[Desk], Any]) -> Result:
        (result,) = run(bench, [act(lambda desk: change(desk))])
        return result

    def ghost(desk: Desk) -> None:
        desk.raw("ZADD", desk.keys.dead, 0, desk.mint())

    def twice(desk: Desk) -> None:
        desk.raw("ZADD", desk.keys.dead, 0, desk.job())

    def wrong_state(desk: Desk) -> None:
        desk.raw("HSET", desk.row_key(desk.job()), "state", "active")

    def stray(desk: Desk) -> None:
        desk.raw("DEL", desk.keys.pending) if desk.job() else None

    def slot(desk: Desk) -> None:
        desk.raw("HSET", desk.keys.gactive, desk.lane("a"), "1")

    def ring(desk: Desk) -> None:
        desk.raw("RPUSH", desk.keys.ring, desk.in_hand(group=desk.lane("a")).group or "")

    def off_ring(desk: Desk) -> None:
        desk.jobs(2, group=desk.lane("a"))
        desk.raw("DEL", desk.keys.ring)

    def flat(desk: Desk) -> None:
        desk.raw("HSET", desk.row_key(desk.job()), "group", desk.lane("a"))

    def tokens(desk: Desk) -> None:
        desk.raw("LPUSH", desk.keys.wake, *(["1"] * 65))

    wanted = {
        ghost: "without a row",
        twice: "in 2 places",
        wrong_state: "is b'active' in its row",
        stray: "lies nowhere",
        slot: "gactive",
        ring: "on the ring 1 times",
        off_ring: "on the ring 0 times",
        flat: "lies in pending",
        tokens: "65 tokens",
    }
    for change, words in wanted.items():
        result = breaking(change)
        assert result.status is Status.FAIL
        assert words in result.seen, change.__name__


def test_a_refusal_that_wrote_is_a_failure(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused_and_wrote(desk: Desk) -> None:
        job = desk.in_hand()
        outcome = desk.outcome

        def writing(call: Any) -> Any:
            desk.raw("HSET", desk.row_key(job.id), "colour", "blue")
            return outcome(call)

        monkeypatch.setattr(desk, "outcome", writing)
        desk.refused(jobs.complete(desk.queue, job.id, 2), "EMQSTALE complete token mismatch")

    (result,) = run(bench, [act(refused_and_wrote)])
    assert "it wrote job:JOB" in result.seen


def test_what_a_server_lacks_is_skipped_with_the_reason(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Bench, "knows", lambda *_: False)
    results = list(run(bench, choose(["native_lock_field", "claim", "native_lock_refuses"])))
    reason = "this server has no hash-field TTL (HPEXPIRE)"
    assert [(result.status, result.seen) for result in results] == [
        (Status.OK, ""),
        (Status.SKIP, reason),
        (Status.SKIP, reason),
    ]


def test_an_unknown_name_is_told_the_nearest() -> None:
    with pytest.raises(InvalidInputError, match=r"no scenario is named 'flow_fan_in'; the nearest: flow_fanin"):
        choose(["claim", "flow_fan_in"])
    with pytest.raises(InvalidInputError, match=r"no scenario is named 'xyzzy'; there are \d+, such as claim"):
        choose(["xyzzy"])


def test_a_name_can_be_taken_once() -> None:
    every()
    with pytest.raises(InvalidInputError, match="two scenarios named 'claim'"):
        scenario("claim", "Again.")(lambda _desk: None)


def test_wire_6_is_refused_where_the_server_has_no_module(start_server: Callable[..., Server]) -> None:
    with pytest.raises(NativeMissingError, match=r"no native commands.*echomq module path.*wire=4"):
        Bench(start_server(module=False).url, wire=6)
