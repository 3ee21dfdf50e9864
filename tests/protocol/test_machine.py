"""Random sequences of every verb against a real server and a model in plain Python (tests/support/model.py).

After every step: the reply is the one foreseen, every row, place and further key is the model's, the wake tokens are as
many as are owed, the invariants of protocol §12.1 hold, and no key outside the two queues was touched. In CI the
sequences are the same each time. For a long run, with new sequences every time:

    ECHOMQ_THOROUGH=3000 python -m pytest -s tests/protocol/test_machine.py
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, run_state_machine_as_test

from echomq.protocol import admin, flows, jobs, lanes, repeat
from support.machine import GROUPS, QUEUES, Bench, picks
from support.rules_admin import AdminRules, keys_
from support.rules_dead import DeadRules
from support.rules_flows import FlowRules, Sprout, trees
from support.rules_lanes import LaneRules
from support.rules_repeat import RepeatRules
from support.rules_work import Fate, WorkRules, fates_
from support.runner import Runner
from support.servers import Server

THOROUGH = int(os.environ.get("ECHOMQ_THOROUGH", "0"))
EXAMPLES = THOROUGH or 30
STEPS = 100 if THOROUGH else 50


class Machine(WorkRules, LaneRules, FlowRules, AdminRules, DeadRules, RepeatRules):
    """Every verb, in any order."""

    @initialize(
        waiting=st.lists(st.tuples(picks, st.sampled_from([None, *GROUPS])), max_size=8),
        grown=st.lists(st.tuples(trees, st.booleans()), max_size=2),
        n=st.integers(0, 8),
    )
    def work_waits(self, waiting: list[tuple[int, str | None]], grown: list[tuple[list[Sprout], bool]], n: int) -> None:
        """Some jobs wait and some are in hand before the first step."""
        for sprouts, spread in grown:
            self.add_flow(sprouts, spread, 99)
        for pick, group in waiting:
            self.enqueue_lane(pick, group) if group else self.enqueue(pick, b"p")
        if n:
            self.claim_many(n)


class Families(WorkRules, FlowRules, DeadRules):
    """Flows, and little else: what it takes to bring a family far."""

    @initialize(grown=st.lists(st.tuples(trees, st.booleans()), min_size=1, max_size=3), fates=fates_)
    def families_live(self, grown: list[tuple[list[Sprout], bool]], fates: list[Fate]) -> None:
        """Some flows are on their way before the first step."""
        for sprouts, spread in grown:
            self.grow_flow(sprouts, spread, 99)
        self.shift(fates, elsewhere=False)


class Desk(WorkRules, AdminRules, DeadRules):
    """Settings, budgets and deduplication keys, and little else."""

    @initialize(waiting=st.lists(st.tuples(picks, keys_), min_size=3, max_size=6), n=st.integers(1, 3))
    def keys_are_taken(self, waiting: list[tuple[int, str]], n: int) -> None:
        """Jobs with deduplication keys wait and are in hand, and a keeper holds one of them."""
        for pick, key in waiting:
            self.admit(pick, b"p", None, None, key, False, False, True)
            self.bring(11 - pick, b"p")
        self.shift([("stays", (b"", 0))] * n, elsewhere=False)
        self.keep([("in hand", 0, 0)])


ELSEWHERE = {"add", "add_bulk", "obliterate", "update_progress", "add_log", "logs", "lane_id"}
"""Verbs that have their own tests, or that the steps name by what they send."""

SAID_AS = {
    "children_values": "flow_processed",
    "failures": "flow_failed",
    "ignored_failures": "flow_unsuccessful",
    "update_data": "update_payload",
    "enqueue_at": "schedule",
    "enqueue_in": "schedule",
    "claim_many": "claim",
    "claim_weighted": "weighted_claim",
}


def driven(family: str, verb: str, seen: set[str]) -> bool:
    """Whether a verb was run: its call names itself, often with its family's name."""
    spoken = {verb, SAID_AS.get(verb, verb), f"{family}_{verb}", f"{verb}_{family}", f"{verb}_group"}
    return bool(spoken & seen)


def missing() -> list[str]:
    """The verbs that no step has run yet."""
    seen = {verb.lower().replace(" ", "_") for verb in Bench.verbs}
    families = {"": jobs, "recurrence": repeat, "flow": flows, "queue": admin, "lane": lanes}
    return [
        f"{family} {verb}"
        for family, module in families.items()
        for verb in module.__all__
        if verb[0].islower() and verb not in ELSEWHERE and not driven(family, verb, seen)
    ]


def drive(machine: type[Bench]) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.deadline(600 if not THOROUGH else 86_400)
def test_every_verb_does_what_the_model_says(server: Server) -> None:
    Bench.steps, Bench.verbs = 0, {}
    with server.client() as root, server.client() as client:
        # Whatever a verb touches, it is a key of the two queues: the server sees to that.
        rights = [f"%RW~emq:{{{queue}}}:*" for queue in QUEUES] + [f"&emq:{{{queue}}}:*" for queue in QUEUES]
        root.execute(
            "ACL", "SETUSER", "machine", "reset", "on", ">secret", "+@all", "resetkeys", "resetchannels", *rights
        )
        client.execute("AUTH", "machine", "secret")
        Bench.runner = Runner(client)
        for _ in range(10):  # a rare step may be left out by a whole round of random ones
            for machine in (Machine, Families, Desk):
                drive(machine)
            if not missing():
                break
        root.execute("ACL", "DELUSER", "machine")
    print(f"{Bench.steps} steps: {dict(sorted(Bench.verbs.items()))}")
    assert Bench.steps >= 2_000
    assert not missing(), f"never driven: {missing()}"
