"""Random sequences of every verb against a real server and a model in plain Python (tests/support/model.py).

After every step: the reply is the one foreseen, every row and place is the model's, the wake tokens are as many as
are owed, the invariants of protocol §12.1 hold, and no key outside the queue was touched. In CI 200 sequences of up
to 50 steps, the same each time. For a long run, with new sequences every time:

    ECHOMQ_THOROUGH=3000 python -m pytest -s tests/protocol/test_machine.py
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from echomq.identity.minter import Minter
from echomq.protocol import jobs, lanes, metrics, repeat
from echomq.protocol.call import Call
from echomq.protocol.errors import ServerError
from echomq.protocol.keys import keys
from echomq.protocol.replies import Claimed, Claims, Idle
from support.invariants import breaches, read
from support.model import LAST, Span
from support.model_lanes import LaneModel
from support.model_repeat import agrees
from support.runner import PAST, Runner
from support.servers import Server

HOUR = 3_600_000
GROUPS = ["LAN00000000001", "USR0KHTOWnGLuC"]
NAMES = ["a", "b"]
MINTER = Minter()

THOROUGH = int(os.environ.get("ECHOMQ_THOROUGH", "0"))
EXAMPLES = THOROUGH or 200
STEPS = 100 if THOROUGH else 50

picks = st.integers(0, 11)
groups = st.sampled_from(GROUPS)
names = st.sampled_from(NAMES)
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


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Machine(RuleBasedStateMachine):
    """One queue, twelve jobs, two lanes, two recurrences, any number of holders."""

    runner: Runner
    steps = 0
    verbs: dict[str, int]
    queue = "machine"

    def __init__(self) -> None:
        super().__init__()
        self.keys = keys(self.queue)
        self.model = LaneModel()
        self.ids = MINTER.mint_many(12)
        self.held: list[tuple[str, int]] = []
        self.past = PAST

    def teardown(self) -> None:
        found = self.runner.execute("KEYS", f"{self.keys.base}*")
        if found:
            self.runner.execute("DEL", *found)

    # -- one step ---------------------------------------------------------------------------------------------------

    def step(self, call: Call[Any], foresee: Callable[[], Any], same: Callable[[Any, Any], bool] | None = None) -> Any:
        """Run a verb on both and compare everything."""
        claimable = self.model.claimable()
        low = now_ms()
        answer = self.runner.outcome(call)
        self.model.begin(Span(low, now_ms()))
        if isinstance(answer, ServerError):
            answer = answer.reply
        foreseen = foresee()
        agreed = same(answer, foreseen) if same else answer == foreseen
        assert agreed, f"{call.verb} {call.args}: answered {answer!r}, foreseen {foreseen!r}"
        Machine.steps += 1
        Machine.verbs[call.verb] = Machine.verbs.get(call.verb, 0) + 1
        self.compare(call.verb, claimable)
        return answer

    def compare(self, what: str, claimable: int) -> None:
        client, k, model = self.runner.client, self.keys, self.model
        shot = read(self.queue, client.execute("KEYS", f"{k.base}*"), client.execute_all)
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
        if (int(turn or 0), int(completed or 0), int(failed or 0)) != (model.turn, model.completed, model.failed):
            found.append(f"turn, completed, failed: {turn, completed, failed}, the model has {model.turn}")
        assert not found, f"after {what}:\n" + "\n".join(found)

    def by_hand(self, what: str, *words: str | int) -> None:
        """A plain command; the model was changed alike."""
        self.runner.execute(*words)
        self.model.begin(Span.at(now_ms()))
        self.model.tokens = self.runner.execute("LLEN", self.keys.wake)
        self.compare(what, self.model.claimable())

    def holder(self, who: Holder) -> tuple[str, int]:
        """A job and a token for it, right or wrong."""
        how, index, offset = who
        if how == "claimed once" and self.held:
            return self.held[-1 - index % len(self.held)]
        in_hand = sorted(self.model.active)
        job_id = in_hand[index % len(in_hand)] if how == "in hand" and in_hand else self.ids[index]
        row = self.model.rows.get(job_id)
        return job_id, max((row.attempts if row else 1) + offset, 1)

    # -- admission --------------------------------------------------------------------------------------------------

    @initialize(
        waiting=st.lists(st.tuples(picks, st.sampled_from([None, *GROUPS])), min_size=4, max_size=12),
        n=st.integers(0, 8),
    )
    def work_waits(self, waiting: list[tuple[int, str | None]], n: int) -> None:
        """Some jobs wait and some are in hand before the first step."""
        for pick, group in waiting:
            self.enqueue_lane(pick, group) if group else self.enqueue(pick, b"p")
        if n:
            self.claim_many(n)

    @rule(pick=picks, payload=payloads)
    def enqueue(self, pick: int, payload: bytes) -> None:
        job_id = self.ids[pick]
        self.step(jobs.enqueue(self.queue, job_id, payload), lambda: self.model.enqueue(job_id, payload))

    @rule(chosen=st.lists(picks, min_size=1, max_size=6), payload=payloads)
    def enqueue_many(self, chosen: list[int], payload: bytes) -> None:
        batch = [(self.ids[pick], payload) for pick in chosen]
        self.step(jobs.enqueue_many(self.queue, batch), lambda: self.model.enqueue_many(batch))

    @rule(pick=picks, delay_ms=delays)
    def enqueue_in(self, pick: int, delay_ms: int) -> None:
        job_id = self.ids[pick]
        self.step(
            jobs.enqueue_in(self.queue, job_id, b"p", delay_ms=delay_ms),
            lambda: self.model.schedule_one(job_id, b"p", self.model.now + delay_ms),
        )

    @rule(pick=picks, at_ms=instants)
    def enqueue_at(self, pick: int, at_ms: int) -> None:
        job_id = self.ids[pick]
        self.step(
            jobs.enqueue_at(self.queue, job_id, b"p", at_ms=at_ms),
            lambda: self.model.schedule_one(job_id, b"p", Span.at(at_ms)),
        )

    @rule(pick=picks, delay_ms=delays)
    def reschedule_in(self, pick: int, delay_ms: int) -> None:
        job_id = self.ids[pick]
        self.step(
            jobs.reschedule(self.queue, job_id, delay_ms=delay_ms),
            lambda: self.model.reschedule(job_id, self.model.now + delay_ms),
        )

    @rule(pick=picks, at_ms=instants)
    def reschedule_at(self, pick: int, at_ms: int) -> None:
        job_id = self.ids[pick]
        self.step(
            jobs.reschedule(self.queue, job_id, at_ms=at_ms),
            lambda: self.model.reschedule(job_id, Span.at(at_ms)),
        )

    # -- claims -------------------------------------------------------------------------------------------------------

    def claimed(self, claims: Claims) -> None:
        self.held += [(job.id, job.attempts) for job in claims.jobs]

    def same_claims(self, claims: Claims, foreseen: tuple[list[Claimed], Idle | None]) -> bool:
        return (
            (list(claims.jobs), claims.idle) == foreseen
            and claims.now_ms in self.model.now
            and claims.next_at_ms == self.model.next_at()
        )

    @rule()
    def claim(self) -> None:
        job = self.step(
            jobs.claim(self.queue, lease_ms=HOUR),
            lambda: self.model.claim(1, HOUR),
            lambda job, foreseen: [job] * (job is not None) == foreseen[0],
        )
        if job:
            self.held.append((job.id, job.attempts))

    @rule(n=st.integers(1, 9))
    def claim_many(self, n: int) -> None:
        call = jobs.claim_many(self.queue, n, lease_ms=HOUR)
        self.claimed(self.step(call, lambda: self.model.claim(n, HOUR), self.same_claims))

    @rule()
    def claim_weighted(self) -> None:
        call = lanes.claim_weighted(self.queue, lease_ms=HOUR)
        self.claimed(self.step(call, lambda: self.model.claim_lane(HOUR, weighted=True), self.same_claims))

    @rule()
    def claim_lane(self) -> None:
        job = self.step(
            lanes.claim(self.queue, lease_ms=HOUR),
            lambda: self.model.claim_lane(HOUR, weighted=False),
            lambda job, foreseen: [job] * (job is not None) == foreseen[0],
        )
        if job:
            self.held.append((job.id, job.attempts))

    # -- settling -----------------------------------------------------------------------------------------------------

    @rule(who=holders)
    def complete(self, who: Holder) -> None:
        job_id, token = self.holder(who)
        self.step(jobs.complete(self.queue, job_id, token), lambda: self.model.complete(job_id, token))

    @rule(who=st.lists(holders, min_size=1, max_size=5))
    def complete_many(self, who: list[Holder]) -> None:
        batch = [self.holder(each) for each in who]
        self.step(
            jobs.complete_many(self.queue, batch),
            lambda: self.model.complete_many(batch),
            lambda answers, foreseen: tuple(a.reply if isinstance(a, ServerError) else a for a in answers) == foreseen,
        )

    @rule(who=holders, delay_ms=delays, lives=st.sampled_from([-1, 0, 1, 1, 1]))
    def retry(self, who: Holder, delay_ms: int, lives: int) -> None:
        job_id, token = self.holder(who)
        most = token + lives
        self.step(
            jobs.retry(self.queue, job_id, token, delay_ms=delay_ms, max_attempts=most, error=f"e{token}"),
            lambda: self.model.retry(job_id, token, delay_ms, most, f"e{token}".encode()),
        )

    @rule(who=holders, delay_ms=delays)
    def delay(self, who: Holder, delay_ms: int) -> None:
        job_id, token = self.holder(who)
        self.step(
            jobs.delay(self.queue, job_id, token, delay_ms=delay_ms),
            lambda: self.model.delay(job_id, token, self.model.now + delay_ms),
        )

    @rule(who=holders, at_ms=instants)
    def delay_until(self, who: Holder, at_ms: int) -> None:
        job_id, token = self.holder(who)
        self.step(
            jobs.delay(self.queue, job_id, token, at_ms=at_ms),
            lambda: self.model.delay(job_id, token, Span.at(at_ms)),
        )

    @rule(who=holders)
    def release(self, who: Holder) -> None:
        job_id, token = self.holder(who)
        self.step(jobs.release(self.queue, job_id, token), lambda: self.model.release(job_id, token))

    @rule(who=holders, lease_ms=st.sampled_from([HOUR, 2 * HOUR]))
    def extend(self, who: Holder, lease_ms: int) -> None:
        job_id, token = self.holder(who)
        self.step(
            jobs.extend(self.queue, job_id, token, lease_ms=lease_ms),
            lambda: self.model.extend(job_id, token, lease_ms),
        )

    @rule(who=st.lists(holders, min_size=1, max_size=5))
    def extend_many(self, who: list[Holder]) -> None:
        batch = [self.holder(each) for each in who]
        self.step(jobs.extend_many(self.queue, batch, lease_ms=HOUR), lambda: self.model.extend_many(batch, HOUR))

    # -- time ---------------------------------------------------------------------------------------------------------

    def an_instant_ago(self) -> int:
        """Later than every instant it gave before, and long past."""
        self.past += 1
        return self.past

    def come(self, members: dict[str, Span], key: str, chosen: list[int]) -> None:
        for pick in chosen:
            if members:
                job_id = sorted(members)[pick % len(members)]
                members[job_id] = Span.at(self.an_instant_ago())
                self.by_hand(key, "ZADD", key, "XX", self.past, job_id)

    @rule(chosen=some)
    def lapse(self, chosen: list[int]) -> None:
        """Leases have ended."""
        self.come(self.model.active, self.keys.active, chosen)

    @rule(chosen=some)
    def fall_due(self, chosen: list[int]) -> None:
        """Run-ats have come."""
        self.come(self.model.schedule, self.keys.schedule, chosen)

    @rule(pick=picks)
    def lose_payload(self, pick: int) -> None:
        """Another client has spoilt a row."""
        row = self.model.rows.get(self.ids[pick])
        if row and row.payload is not None:
            row.payload = None
            self.by_hand("lose payload", "HDEL", self.keys.job(self.ids[pick]), "payload")

    @rule(batch=small)
    def promote(self, batch: int) -> None:
        self.step(jobs.promote(self.queue, batch), lambda: self.model.promote(batch))

    @rule()
    def reap(self) -> None:
        self.step(jobs.reap(self.queue), lambda: self.model.reap())

    @rule(most=small, limit=small)
    def sweep(self, most: int, limit: int) -> None:
        self.step(jobs.sweep(self.queue, max_stalled=most, limit=limit), lambda: self.model.sweep(most, limit))

    # -- the queue and its lanes --------------------------------------------------------------------------------------

    @rule(pick=picks, group=groups)
    def enqueue_lane(self, pick: int, group: str) -> None:
        job_id = self.ids[pick]
        self.step(lanes.enqueue(self.queue, job_id, b"p", group), lambda: self.model.enqueue(job_id, b"p", group))

    @rule(group=groups)
    def pause_lane(self, group: str) -> None:
        self.step(lanes.pause(self.queue, group), lambda: self.model.pause_lane(group))

    @rule(group=groups)
    def resume_lane(self, group: str) -> None:
        self.step(lanes.resume(self.queue, group), lambda: self.model.resume_lane(group))

    @rule(group=groups, most=st.sampled_from([None, None, 1, 1, 2]))
    def limit_lane(self, group: str, most: int | None) -> None:
        self.step(lanes.limit(self.queue, group, most), lambda: self.model.limit_lane(group, most))

    @rule(group=groups, weight=small)
    def weigh_lane(self, group: str, weight: int) -> None:
        def foresee() -> None:
            self.model.weights[group] = weight

        self.step(lanes.weight(self.queue, group, weight), foresee)

    @rule(pick=picks, group=groups)
    def reassign(self, pick: int, group: str) -> None:
        job_id = self.ids[pick]
        self.step(lanes.reassign(self.queue, job_id, group), lambda: self.model.reassign(job_id, group))

    @rule(group=groups, budget=small)
    def drain_lane(self, group: str, budget: int) -> None:
        self.step(next(lanes.drain(self.queue, group, budget=budget)), lambda: self.model.drain_lane(group, budget))

    @rule(group=groups, scan=small)
    def reap_lane(self, group: str, scan: int) -> None:
        self.step(lanes.reap(self.queue, group, scan=scan), lambda: self.model.reap(scan, group))

    @rule(paused=st.sampled_from([False, False, True]))
    def pause_queue(self, paused: bool) -> None:
        self.model.paused = paused
        words = ("HSET", self.keys.meta, "paused", 1) if paused else ("HDEL", self.keys.meta, "paused")
        self.by_hand("pause", *words)

    @rule(ceiling=st.sampled_from([0, 0, 0, 1, 2, 4]))
    def set_ceiling(self, ceiling: int) -> None:
        self.model.ceiling = ceiling
        self.by_hand("ceiling", "HSET", self.keys.meta, "concurrency", ceiling)

    # -- recurrences --------------------------------------------------------------------------------------------------

    @rule(name=names, every_ms=st.sampled_from([1_000, HOUR]), template=payloads, first_ms=instants)
    def register(self, name: str, every_ms: int, template: bytes, first_ms: int) -> None:
        self.step(
            repeat.register(self.queue, name, every_ms=every_ms, template=template, first_run_ms=first_ms),
            lambda: self.model.register(name, every_ms, template, first_ms),
        )

    @rule(name=names, every_ms=st.sampled_from([1_000, HOUR]), template=payloads, first_ms=instants)
    def upsert(self, name: str, every_ms: int, template: bytes, first_ms: int) -> None:
        self.step(
            repeat.upsert(self.queue, name, every_ms=every_ms, template=template, first_run_ms=first_ms),
            lambda: self.model.upsert(name, every_ms, template, first_ms),
        )

    @rule(name=names)
    def cancel(self, name: str) -> None:
        self.step(repeat.cancel(self.queue, name), lambda: self.model.cancel(name))

    @rule(at_ms=instants, limit=small)
    def due(self, at_ms: int, limit: int) -> None:
        self.step(
            repeat.due(self.queue, now_ms=at_ms, limit=limit),
            lambda: self.model.due(at_ms, limit),
            lambda due, foreseen: [(d.name, d.every_ms, d.template) for d in due] == foreseen,
        )

    @rule(name=names, next_ms=instants)
    def advance(self, name: str, next_ms: int) -> None:
        self.step(repeat.advance(self.queue, name, next_run_ms=next_ms), lambda: self.model.advance(name, next_ms))

    @rule(name=names, pick=picks, off=st.sampled_from([0, 0, 0, 1]))
    def fire(self, name: str, pick: int, off: int) -> None:
        known, job_id = self.model.repeats.get(name), self.ids[pick]
        score = (known.at.low if known else 5) + off
        self.step(
            repeat.fire(self.queue, name, score=str(score), job_id=job_id),
            lambda: self.model.fire(name, score, job_id),
            lambda fired, foreseen: agrees(fired, *foreseen),
        )

    # -- looking ------------------------------------------------------------------------------------------------------

    @rule(pick=picks)
    def look(self, pick: int) -> None:
        job_id, model = self.ids[pick], self.model
        self.step(metrics.counts(self.queue), model.counts)
        self.step(metrics.state(self.queue, job_id), lambda: model.state(job_id))
        self.step(jobs.pending_size(self.queue), lambda: len(model.pending))
        self.step(repeat.count(self.queue), lambda: len(model.repeats))
        self.step(jobs.browse(self.queue, limit=3), lambda: tuple(sorted(model.pending, reverse=True)[:3]))
        self.step(jobs.browse_dead(self.queue, limit=3), lambda: tuple(sorted(model.dead, reverse=True)[:3]))
        self.step(lanes.depth(self.queue, GROUPS[0]), lambda: len(model.lanes.get(GROUPS[0], ())))


@pytest.mark.deadline(600 if not THOROUGH else 86_400)
def test_every_verb_does_what_the_model_says(server: Server) -> None:
    Machine.steps, Machine.verbs = 0, {}
    with server.client() as root, server.client() as client:
        # Whatever a verb touches, it is a key of its own queue: the server sees to that.
        rights = ("+@all", "resetkeys", "%RW~emq:{machine}:*", "resetchannels", "&emq:{machine}:*")
        root.execute("ACL", "SETUSER", "machine", "reset", "on", ">secret", *rights)
        client.execute("AUTH", "machine", "secret")
        Machine.runner = Runner(client)
        run_state_machine_as_test(
            Machine,
            settings=settings(
                max_examples=EXAMPLES,
                stateful_step_count=STEPS,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
        root.execute("ACL", "DELUSER", "machine")
    print(f"{Machine.steps} steps: {dict(sorted(Machine.verbs.items()))}")
    assert Machine.steps >= 2_000
    named = {verb for family in (jobs, repeat) for verb in family.__all__ if verb[0].islower()}
    seen = {verb.replace(" ", "_") for verb in Machine.verbs} | {"enqueue_at", "enqueue_in", "claim_many"}
    assert named <= seen, f"never driven: {named - seen}"
