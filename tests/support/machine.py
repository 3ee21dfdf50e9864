"""What every rule of the state machine works with: two queues, a model of each, and one step of both.

The rules are a class a family (rules_jobs, rules_lanes, rules_repeat, rules_flows, rules_admin); each works on the
queue that is at hand, and `turn_to` takes up the other one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine

from echomq.identity.minter import Minter
from echomq.protocol.call import Call
from echomq.protocol.errors import ServerError
from echomq.protocol.keys import Keys, keys
from echomq.protocol.replies import Claimed, Claims, Idle
from support.invariants import breaches, read
from support.model import LAST, Span
from support.model_admin import AdminModel
from support.runner import PAST, Runner
from support.shelf import differences, shelf

HOUR = 3_600_000
QUEUES = ("machine", "machine2")
GROUPS = ["LAN00000000001", "USR0KHTOWnGLuC"]
KEYS = ["k", "l"]
"""Deduplication keys."""
MINTER = Minter()

picks = st.integers(0, 11)
groups = st.sampled_from(GROUPS)
# A holder: of a job in hand mostly, else one of all that ever claimed, or anybody; with a token that is right or near.
holders = st.tuples(
    st.sampled_from(["in hand", "in hand", "in hand", "claimed once", "anybody"]),
    picks,
    st.sampled_from([0, 0, 0, 0, 0, -1, 1]),
)
Holder = tuple[str, int, int]
some = st.lists(picks, min_size=1, max_size=4)
delays = st.sampled_from([0, 0, HOUR, 2 * HOUR, 3 * HOUR])
instants = st.sampled_from([0, 5, 10**13, 10**13 + 5, LAST])
small = st.integers(1, 4)
payloads = st.sampled_from([b"", b"p", b"\0\xff"])
# What a completion leaves: a result for the parent, and for how long the job's own is kept.
legacies = st.tuples(payloads, st.sampled_from([0, 0, 0, 0, HOUR]))


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def plain(answer: object) -> object:
    """An answer as the model gives it: a refusal by its text."""
    return answer.reply if isinstance(answer, ServerError) else answer


class Bench(RuleBasedStateMachine):
    """Two queues, twelve ids that any of them may use, any number of holders."""

    runner: ClassVar[Runner]
    steps: ClassVar[int] = 0
    verbs: ClassVar[dict[str, int]] = {}

    def __init__(self) -> None:
        super().__init__()
        self.models = {queue: AdminModel() for queue in QUEUES}
        self.taken: dict[str, list[tuple[str, int]]] = {queue: [] for queue in QUEUES}
        self.ids = MINTER.mint_many(12)
        self.past = PAST
        self.take_up(QUEUES[0])

    def take_up(self, queue: str) -> None:
        """Work on this queue."""
        self.queue = queue
        self.keys: Keys = keys(queue)
        self.model = self.models[queue]
        self.held = self.taken[queue]

    def teardown(self) -> None:
        found = self.runner.execute("KEYS", "emq:*")
        if found:
            self.runner.execute("DEL", *found)

    # -- one step ---------------------------------------------------------------------------------------------------

    def step(self, call: Call[Any], foresee: Callable[[], Any], same: Callable[[Any, Any], bool] | None = None) -> Any:
        """Run a verb on both and compare everything."""
        claimable = self.model.claimable()
        low = now_ms()
        answer = self.runner.outcome(call)
        self.model.begin(Span(low, now_ms()))
        said, foreseen = plain(answer), foresee()
        agreed = same(said, foreseen) if same else said == foreseen
        assert agreed, f"{call.verb} {call.args}: answered {answer!r}, foreseen {foreseen!r}"
        Bench.steps += 1
        Bench.verbs[call.verb] = Bench.verbs.get(call.verb, 0) + 1
        self.compare(f"{call.verb} {call.args}", claimable)
        return answer

    def step_on(self, queue: str, call: Call[Any], foresee: Callable[[], Any]) -> Any:
        """A step of a queue that need not be the one at hand."""
        here = self.queue
        self.take_up(queue)
        try:
            return self.step(call, foresee)
        finally:
            self.take_up(here)

    def compare(self, what: str, claimable: int) -> None:
        client, k, model = self.runner.client, self.keys, self.model
        names = client.execute("KEYS", f"{k.base}*")
        shot = read(self.queue, names, client.execute_all)
        extras = (
            ("GET", k.base + "turn"),
            ("ZRANGE", k.repeat, 0, -1, "WITHSCORES"),
            ("HGET", k.metrics_completed, "count"),
            ("HGET", k.metrics_failed, "count"),
        )
        turn, scores, completed, failed = client.execute_all(extras)
        found = breaches(shot)
        found += model.settle(shot)
        found += model.settle_repeats({name.decode(): score for name, score in scores})
        found += model.settle_tokens(model.owed(claimable), len(shot.wake))
        found += differences(model, shelf(k.base, names, client.execute_all))
        theirs = int(turn or 0), int(completed or 0), int(failed or 0)
        ours = model.turn, model.completed, model.failed
        if theirs != ours:
            found.append(f"turn, completed, failed: {theirs}, the model has {ours}")
        assert not found, f"after {what} on {self.queue}:\n" + "\n".join(found)

    def by_hand(self, what: str, *words: str | bytes | int) -> None:
        """A plain command; the model was changed alike."""
        self.runner.execute(*words)
        self.compare_again(what)

    def compare_again(self, what: str) -> None:
        """Everything is still as the model has it, without a step."""
        self.model.begin(Span.at(now_ms()))
        self.model.tokens = self.runner.execute("LLEN", self.keys.wake)
        self.compare(what, self.model.claimable())

    # -- who ----------------------------------------------------------------------------------------------------------

    def holder(self, who: Holder) -> tuple[str, int]:
        """A job and a token for it, right or wrong."""
        how, index, offset = who
        if how == "claimed once" and self.held:
            return self.held[-1 - index % len(self.held)]
        in_hand = sorted(self.model.active)
        job_id = in_hand[index % len(in_hand)] if how == "in hand" and in_hand else self.ids[index]
        row = self.model.rows.get(job_id)
        return job_id, max((row.attempts if row else 1) + offset, 1)

    def among(self, members: set[str], pick: int) -> str:
        """One of the members, or anybody when there are none and now and then."""
        chosen = sorted(members)
        return chosen[pick % len(chosen)] if chosen and pick < 10 else self.ids[pick]

    def claimed(self, claims: Claims) -> None:
        self.held += [(job.id, job.attempts) for job in claims.jobs]

    def same_claims(self, claims: Claims, foreseen: tuple[list[Claimed], Idle | None]) -> bool:
        worth_at = self.model.worth_at(claims.idle, claims.now_ms)
        return (
            (list(claims.jobs), claims.idle) == foreseen
            and claims.now_ms in self.model.now
            and (claims.next_at_ms is None if worth_at is None else claims.next_at_ms in worth_at)
        )

    def an_instant_ago(self) -> int:
        """Later than every instant it gave before, and long past."""
        self.past += 1
        return self.past
