"""The suite can fail: with one rule of the contract broken, exactly the scenarios about that rule say so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from conformance.breaks import BREAKS, Break, damage
from echomq.conformance import Status, every, run
from echomq.conformance.bench import Bench
from echomq.identity import minter
from echomq.protocol import admission, flows
from echomq.protocol.admission import Admitted
from echomq.protocol.call import Call, Plan
from echomq.protocol.errors import WireError
from echomq.protocol.keys import keys
from echomq.protocol.replies import as_bytes
from echomq.runtime import intake
from echomq.runtime.ear import Ear
from echomq.runtime.settle import Settler
from echomq.runtime.turns import Turns
from echomq.wire import Connector, node
from support.registry import all_keys
from support.servers import Server


@dataclass(frozen=True)
class Client:
    """A step of a client done wrongly."""

    rule: str
    module: object
    name: str
    instead: Callable[..., object]
    fails: set[str]


def _settle_by_position(queue: str, entry: bytes) -> Call[int]:
    def decode(reply: object) -> int:
        return int(as_bytes(reply) == entry) if isinstance(reply, bytes) else 0

    return Call("flow settle", (keys(queue).outbox,), (), decode, command="LPOP", subject=queue)


def _deliver_cut(entry: bytes) -> Call[int]:
    fields = entry.split(b"\0")
    return _deliver(b"\0".join(fields[:4] if fields[0] else fields[:7]))


_deliver = flows.deliver


def _always_held(node: int, value: str, lease_ms: int) -> Call[bool]:
    return Call("ping", (), (), lambda _: True, command="PING", home="emq:{x}:")


def _turns(**changed: Any) -> Callable[..., Turns]:
    return lambda *args, **options: Turns(*args, **(options | changed))


def _by_attempts(self: Any, held: Any, delay: int, most: int, *rest: Any, **named: Any) -> Any:
    return _retry(self, held, delay, self._max_attempts, *rest, **named)


_retry = Settler._retry


def _minted_once(what: str, mint: Callable[[], str], admit: Callable[[str], Call[Any]]) -> Plan[Admitted]:
    job_id = mint()
    answer = yield admit(job_id)
    return answer if isinstance(answer, Admitted) else Admitted(answer, job_id)


def _minted_in_doubt(what: str, mint: Callable[[], str], admit: Callable[[str], Call[Any]]) -> Plan[Admitted]:
    try:
        return (yield from _admit_fresh(what, mint, admit))
    except WireError:
        return (yield from _admit_fresh(what, mint, admit))


_admit_fresh = admission.admit_fresh


def _asking_first(self: Connector, work: Any, **options: Any) -> Any:
    self.execute("PING")
    return _run(self, work, **options)


_run = Connector.run

CLIENTS = [
    Client("a taken id is minted anew", admission, "admit_fresh", _minted_once, {"mint_again"}),
    Client("an id that may have been sent is kept", admission, "admit_fresh", _minted_in_doubt, {"mint_again"}),
    Client("a node without a lease is random", minter, "_random_node", lambda: 7, {"node_random"}),
    Client("a verb asks once", Connector, "run", _asking_first, {"one_round_trip"}),
    Client("a pump removes by value", flows, "settle", _settle_by_position, {"outbox_by_value"}),
    Client(
        "the last field of a signal may hold any byte",
        flows,
        "deliver",
        _deliver_cut,
        {"flow_cross_queue", "flow_cross_death"},
    ),
    Client("a lost node is replaced", node, "_hold", _always_held, {"node_replaced"}),
    Client("a parked consumer listens", Ear, "arm", lambda _: None, {"parked_wakes"}),
    Client("a parked consumer beats", intake, "Turns", _turns(beat_ms=10**9), {"parked_beats"}),
    Client("the cap of lapses is the loop's own", intake, "Turns", _turns(max_stalled=9), {"loops_sweep"}),
    Client("attempts are not the budget", Settler, "_retry", _by_attempts, {"budget"}),
]


def results_of(server: Server) -> set[str]:
    with Bench(server.url) as bench:
        names = {result.name for result in run(bench, every()) if result.status is Status.FAIL}
    with server.client() as client:
        assert {key for key in all_keys(client) if key.startswith("emq:")} == set()
    return names


@pytest.mark.parametrize("broken", BREAKS, ids=lambda broken: broken.rule.replace(" ", "-"))
def test_a_broken_rule_fails_its_scenarios(server: Server, monkeypatch: pytest.MonkeyPatch, broken: Break) -> None:
    damage(monkeypatch, broken)
    assert results_of(server) == broken.fails


@pytest.mark.parametrize("broken", CLIENTS, ids=lambda broken: broken.rule.replace(" ", "-"))
def test_a_broken_client_fails_its_scenarios(server: Server, monkeypatch: pytest.MonkeyPatch, broken: Client) -> None:
    every()
    monkeypatch.setattr(broken.module, broken.name, broken.instead)
    assert results_of(server) == broken.fails


def test_a_broken_count_of_attempts_is_seen_nearly_everywhere(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    words = r"\(tonumber\(row\[2\] or nil\) or 0\) \+ 1"
    damage(monkeypatch, Break("", ("claim",), words, "(tonumber(row[2] or nil) or 0) + 2", set()))
    assert {"claim", "backoff", "retry", "token_never_falls"} <= results_of(server)


def test_a_script_that_is_no_longer_its_commands_twin_is_seen(
    start_server: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = start_server(module=True).url
    damage(monkeypatch, Break("", ("enqueue_many",), r"'payload'", "'body'", set()))
    with Bench(url, wire=6) as bench:
        assert {result.name for result in run(bench, every()) if result.status is Status.FAIL} == {"wires_agree"}
