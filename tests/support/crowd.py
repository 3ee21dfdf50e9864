"""Several clients at once: each runs random verbs of the same jobs on a connection of its own and keeps a ledger.

Nobody can foresee a reply here. What must hold is in the ledger: who was admitted, claimed, completed and removed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

from echomq.identity.minter import Minter
from echomq.protocol import admin, admission, flows, jobs, lanes, morgue, repeat, workers
from echomq.protocol.admission import Dedup
from echomq.protocol.call import Call, Plan
from echomq.protocol.errors import LockedError, RateError, ServerError, StaleTokenError, StateError
from echomq.protocol.flows import Node, OnDeath
from echomq.protocol.keys import keys
from echomq.protocol.repeat import Firing
from echomq.protocol.replies import Admission, Claimed, Completion
from support.runner import PAST, Runner

T = TypeVar("T")

HOUR = 3_600_000
GROUPS = ["LAN00000000001", "USR0KHTOWnGLuC"]
REFUSALS = (StaleTokenError, StateError, LockedError, RateError)


@dataclass
class Pool:
    """What the clients share: queues, jobs by queue, flows, jobs in anybody's hand, letters that were read."""

    queues: tuple[str, str]
    minter: Minter = field(default_factory=Minter)
    jobs: dict[str, list[str]] = field(default_factory=dict)
    trees: list[Node] = field(default_factory=list)
    hands: list[tuple[str, Claimed]] = field(default_factory=list)
    letters: list[bytes] = field(default_factory=list)


@dataclass
class Ledger:
    """What happened, as the answers say it."""

    admitted: Counter[tuple[str, str]] = field(default_factory=Counter)
    claimed: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    completed: Counter[tuple[str, str]] = field(default_factory=Counter)
    removed: Counter[str] = field(default_factory=Counter)
    verbs: Counter[str] = field(default_factory=Counter)

    def add(self, other: Ledger) -> None:
        """Another client's ledger too."""
        for mine, theirs in zip(self.books(), other.books(), strict=True):
            mine.update(theirs)

    def books(self) -> tuple[Counter[Any], ...]:
        return self.admitted, self.claimed, self.completed, self.removed, self.verbs


class Clerk:
    """One client."""

    def __init__(self, runner: Runner, pool: Pool, seed: str) -> None:
        self.runner = runner
        self.pool = pool
        self.random = Random(seed)
        self.ledger = Ledger()
        self.verbs: list[Callable[[str], None]] = [
            *(self.enqueue, self.enqueue, self.enqueue_many, self.schedule, self.enqueue_lane, self.admit, self.fire),
            *(self.add_flow, self.add_flow, self.add_flow_again, self.pump, self.pump, self.late_letter),
            *(self.claim, self.claim, self.claim_many, self.claim_lane, self.claim_weighted),
            *(self.complete, self.complete, self.complete, self.complete_many, self.retry, self.retry, self.delay),
            *(self.release, self.extend, self.keep, self.lapse, self.lapse, self.fall_due, self.promote, self.promote),
            *(self.reap, self.sweep, self.sweep, self.remove, self.remove_locked, self.reprocess, self.reprocess),
            *(self.cancel, self.update, self.pause, self.ceiling, self.rate, self.limiter, self.lane_setting),
            *(self.reassign, self.drain, self.drain_lane, self.reap_lane, self.purge, self.retain),
        ]

    def work(self, verbs: int) -> None:
        """So many random verbs."""
        first, second = self.pool.queues
        for _ in range(verbs):
            self.random.choice(self.verbs)(first if self.random.random() < 0.75 else second)

    def run(self, call: Call[T]) -> T | None:
        """The answer, or None for a refusal that the protocol knows."""
        self.ledger.verbs[call.verb] += 1
        answer = self.runner.outcome(call)
        if isinstance(answer, ServerError):
            if isinstance(answer, REFUSALS):
                return None
            raise answer
        return answer

    def finish(self, plan: Plan[T]) -> T:
        """The result of a plan."""
        self.ledger.verbs["plan"] += 1
        return self.runner.finish(plan)

    def chance(self, part: float) -> bool:
        return self.random.random() < part

    # -- admission --------------------------------------------------------------------------------------------------

    def fresh(self, queue: str) -> str:
        """A job's id: mostly a new one, else one that was sent before."""
        known = self.pool.jobs.setdefault(queue, [])
        if known and self.chance(0.3):
            return self.random.choice(known[-30:])
        known.append(self.pool.minter.mint())
        return known[-1]

    def noted(self, queue: str, job_id: str, verdict: Admission | None) -> None:
        if verdict in (Admission.ADMITTED, Admission.SCHEDULED):
            self.ledger.admitted[queue, job_id] += 1

    def enqueue(self, queue: str) -> None:
        job_id = self.fresh(queue)
        self.noted(queue, job_id, self.run(jobs.enqueue(queue, job_id, b"p")))

    def enqueue_many(self, queue: str) -> None:
        batch = [(self.fresh(queue), b"p") for _ in range(self.random.randint(1, 4))]
        verdicts = self.run(jobs.enqueue_many(queue, batch)) or ()
        for (job_id, _), verdict in zip(batch, verdicts, strict=True):
            self.noted(queue, job_id, verdict)

    def schedule(self, queue: str) -> None:
        job_id = self.fresh(queue)
        self.noted(queue, job_id, self.run(jobs.enqueue_in(queue, job_id, b"p", delay_ms=self.delay_ms())))

    def delay_ms(self) -> int:
        return self.random.choice([0, 0, HOUR])

    def enqueue_lane(self, queue: str) -> None:
        job_id = self.fresh(queue)
        self.noted(queue, job_id, self.run(lanes.enqueue(queue, job_id, b"p", self.random.choice(GROUPS))))

    def admit(self, queue: str) -> None:
        job_id = self.fresh(queue)
        call = admission.admit(
            queue,
            job_id,
            b"p",
            delay_ms=self.delay_ms() if self.chance(0.3) else None,
            group=self.random.choice([None, None, *GROUPS]),
            dedup=Dedup(
                self.random.choice("kl"), window_ms=HOUR if self.chance(0.5) else None, replace=self.chance(0.5)
            ),
        )
        admitted = self.run(call)
        if admitted:
            self.noted(queue, admitted.id, admitted.verdict)
        if self.chance(0.2):
            self.runner.execute("DEL", f"{keys(queue).base}de:{self.random.choice('kl')}")

    def fire(self, queue: str) -> None:
        self.run(repeat.register(queue, "r", every_ms=1, template=b"t", first_run_ms=0))
        for due in self.run(repeat.due(queue, now_ms=self.runner.now_ms())) or ():
            job_id = self.pool.minter.mint()
            fired = self.run(repeat.fire(queue, due.name, score=due.score, job_id=job_id))
            if fired and fired.verdict is Firing.FIRED:
                self.ledger.admitted[queue, job_id] += 1

    # -- flows ------------------------------------------------------------------------------------------------------

    def tree(self, queue: str, levels: int) -> Node:
        """A flow of fresh jobs, some of them in the other queue."""
        children: list[Node] = []
        for _ in range(self.random.randint(1, 3) if levels > 1 else 0):
            place = self.random.choice(self.pool.queues) if self.chance(0.4) else queue
            children.append(self.tree(place, levels - (1 if self.chance(0.7) else 2)))
        return Node(queue, self.pool.minter.mint(), b"f", tuple(children), self.random.choice(list(OnDeath)))

    def plant(self, root: Node) -> None:
        where: dict[str, str] = {}
        todo = [root]
        while todo:
            node = todo.pop()
            where[node.id] = node.queue
            todo += node.children
        for job_id, verdict in self.finish(flows.add(root)).items():
            self.noted(where[job_id], job_id, verdict)

    def add_flow(self, queue: str) -> None:
        root = self.tree(queue, self.random.randint(2, 3))
        self.pool.trees.append(root)
        self.plant(root)

    def add_flow_again(self, queue: str) -> None:
        if self.pool.trees:
            self.plant(self.random.choice(self.pool.trees[-8:]))

    def pump(self, queue: str) -> None:
        for entry in self.run(flows.outbox(queue, limit=5)) or ():
            self.run(flows.deliver(entry))
            self.pool.letters.append(entry)
            if self.chance(0.7):
                self.run(flows.settle(queue, entry))

    def late_letter(self, queue: str) -> None:
        if self.pool.letters:
            self.run(flows.deliver(self.random.choice(self.pool.letters)))

    # -- claims -----------------------------------------------------------------------------------------------------

    def took(self, queue: str, claimed: tuple[Claimed, ...]) -> None:
        for job in claimed:
            self.ledger.claimed[queue, job.id, job.attempts] += 1
            self.pool.hands.append((queue, job))

    def claim(self, queue: str) -> None:
        job = self.run(jobs.claim(queue, lease_ms=HOUR))
        self.took(queue, (job,) if job else ())

    def claim_many(self, queue: str) -> None:
        claims = self.run(jobs.claim_many(queue, self.random.randint(1, 9), lease_ms=HOUR))
        self.took(queue, claims.jobs if claims else ())

    def claim_lane(self, queue: str) -> None:
        job = self.run(lanes.claim(queue, lease_ms=HOUR))
        self.took(queue, (job,) if job else ())

    def claim_weighted(self, queue: str) -> None:
        claims = self.run(lanes.claim_weighted(queue, lease_ms=HOUR))
        self.took(queue, claims.jobs if claims else ())

    def hand(self) -> tuple[str, Claimed] | None:
        """A job that somebody has claimed lately."""
        return self.random.choice(self.pool.hands[-25:]) if self.pool.hands else None

    # -- settling ---------------------------------------------------------------------------------------------------

    def complete(self, queue: str) -> None:
        if hand := self.hand():
            queue, job = hand
            if self.run(jobs.complete(queue, job.id, job.token, result=b"r")) is Completion.RETIRED:
                self.ledger.completed[queue, job.id] += 1

    def complete_many(self, queue: str) -> None:
        batch = [job for there, job in self.pool.hands[-25:] if there == queue]
        if batch:
            batch = self.random.choices(batch, k=4)
            answers = self.run(jobs.complete_many(queue, [(job.id, job.token) for job in batch])) or ()
            for job, answer in zip(batch, answers, strict=True):
                if answer in (Completion.RETIRED, Completion.SIGNALLED):
                    self.ledger.completed[queue, job.id] += 1

    def retry(self, queue: str) -> None:
        if hand := self.hand():
            queue, job = hand
            most = job.attempts + self.random.choice([0, 0, 1])
            self.run(jobs.retry(queue, job.id, job.token, delay_ms=self.delay_ms(), max_attempts=most, error="e"))

    def delay(self, queue: str) -> None:
        if hand := self.hand():
            self.run(jobs.delay(hand[0], hand[1].id, hand[1].token, delay_ms=self.delay_ms()))

    def release(self, queue: str) -> None:
        if hand := self.hand():
            self.run(jobs.release(hand[0], hand[1].id, hand[1].token))

    def extend(self, queue: str) -> None:
        if hand := self.hand():
            self.run(jobs.extend(hand[0], hand[1].id, hand[1].token, lease_ms=HOUR))

    def keep(self, queue: str) -> None:
        if hand := self.hand():
            self.run(workers.keep(hand[0], [(hand[1].id, hand[1].token)], lease_ms=HOUR, field=self.chance(0.5)))

    # -- time -------------------------------------------------------------------------------------------------------

    def lapse(self, queue: str) -> None:
        if hand := self.hand():
            self.runner.execute("ZADD", keys(hand[0]).active, "XX", PAST, hand[1].id)

    def fall_due(self, queue: str) -> None:
        for job_id in self.runner.execute("ZRANGE", keys(queue).schedule, 0, 4):
            self.runner.execute("ZADD", keys(queue).schedule, "XX", PAST, job_id)

    def promote(self, queue: str) -> None:
        self.run(jobs.promote(queue, 5))

    def reap(self, queue: str) -> None:
        self.run(jobs.reap(queue))

    def sweep(self, queue: str) -> None:
        self.run(jobs.sweep(queue, max_stalled=self.random.randint(1, 3)))

    # -- operators --------------------------------------------------------------------------------------------------

    def anybody(self, queue: str) -> str | None:
        """A job that is or was in the queue: one of a flow, or one of the others."""
        nodes = [n for root in self.pool.trees[-8:] for n in (root, *root.children) if n.queue == queue]
        known = [node.id for node in nodes] + self.pool.jobs.get(queue, [])[-20:]
        return self.random.choice(known) if known else None

    def remove(self, queue: str) -> None:
        if (job_id := self.anybody(queue)) and self.run(admin.remove_job(queue, job_id)):
            self.ledger.removed[queue] += 1

    def remove_locked(self, queue: str) -> None:
        if hand := self.hand():
            queue, job = hand
            self.run(workers.keep(queue, [(job.id, job.token)], lease_ms=HOUR))
            self.ledger.removed[queue] += bool(self.run(admin.remove_job(queue, job.id)))

    def reprocess(self, queue: str) -> None:
        for job_id in self.run(jobs.browse_dead(queue, limit=2)) or ():
            self.run(admin.reprocess_job(queue, job_id))

    def cancel(self, queue: str) -> None:
        if job_id := self.anybody(queue):
            self.run(admin.cancel_job(queue, job_id))

    def update(self, queue: str) -> None:
        if job_id := self.anybody(queue):
            self.run(admin.update_data(queue, job_id, b"other"))

    def pause(self, queue: str) -> None:
        self.run(admin.pause_queue(queue) if self.chance(0.2) else admin.resume_queue(queue))

    def ceiling(self, queue: str) -> None:
        self.run(admin.set_ceiling(queue, self.random.choice([None, None, 3, 8])))

    def rate(self, queue: str) -> None:
        self.run(admin.set_rate(queue, self.random.choice([None, None, 2, 9]), period_ms=HOUR))

    def limiter(self, queue: str) -> None:
        self.runner.execute("DEL", keys(queue).limiter)

    def lane_setting(self, queue: str) -> None:
        group = self.random.choice(GROUPS)
        call = self.random.choice(
            [
                lanes.pause(queue, group),
                lanes.resume(queue, group),
                lanes.resume(queue, group),
                lanes.limit(queue, group, self.random.choice([None, 1, 2])),
                lanes.weight(queue, group, self.random.randint(1, 3)),
            ]
        )
        self.run(call)

    def reassign(self, queue: str) -> None:
        if job_id := self.anybody(queue):
            self.run(lanes.reassign(queue, job_id, self.random.choice(GROUPS)))

    def drain(self, queue: str) -> None:
        if self.chance(0.3):
            self.ledger.removed[queue] += self.finish(admin.drain(queue, scheduled=self.chance(0.5), budget=3))

    def drain_lane(self, queue: str) -> None:
        if self.chance(0.3):
            self.ledger.removed[queue] += self.finish(lanes.drain(queue, self.random.choice(GROUPS), budget=3))

    def reap_lane(self, queue: str) -> None:
        self.run(lanes.reap(queue, self.random.choice(GROUPS)))

    def purge(self, queue: str) -> None:
        dead = self.run(jobs.browse_dead(queue, limit=4))
        if dead and self.chance(0.3):
            self.ledger.removed[queue] += self.run(morgue.purge(queue, dead)) or 0

    def retain(self, queue: str) -> None:
        self.run(admin.set_retention(queue, dead_max=self.random.choice([None, 10]), dead_age_ms=None))
        purged, _ = self.run(admin.retain(queue, budget=3)) or (0, "")
        self.ledger.removed[queue] += purged
