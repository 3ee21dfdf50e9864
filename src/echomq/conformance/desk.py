"""Where a scenario works: a queue of its own, verbs to run, scenes to set, and what it expects to see."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, Unpack

from echomq.conformance.bench import Bench
from echomq.conformance.look import Look
from echomq.conformance.rights import allowed
from echomq.conformance.scenario import BreachError, LackError
from echomq.protocol import jobs, lanes
from echomq.protocol.call import Call, Plan
from echomq.protocol.errors import ServerError
from echomq.protocol.jobs import LEASE_MS
from echomq.protocol.replies import Claimed
from echomq.wire import Connector
from echomq.wire.options import OptionWords
from echomq.wire.plans import drive_blocking

T = TypeVar("T")

PAST = 1_000
"""A score long ago: what a lease or a run-at gets that is to have passed."""

FAR_MS = 3_600_000
"""A time that a scenario does not live to see."""

WAIT_S = 5.0
"""How long a scenario waits for what must happen."""

PLAN_S = 20.0
"""How long a plan of several calls may go on; an audit walks every key of the server."""


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 300 else f"{text[:300]}... ({len(text):,} characters)"


class Desk(Look):
    """One queue, and its neighbours where a scenario needs them."""

    def __init__(self, bench: Bench, queue: str) -> None:
        super().__init__(bench, queue)
        self._neighbours: list[Desk] = []
        self._connectors: list[Connector] = []

    # What is run

    def run(self, work: Call[T] | Plan[T]) -> T:
        """The answer; a refusal is raised, and a plan that does not come to its end is a breach."""
        if isinstance(work, Call):
            return self._one(work)
        end = time.monotonic() + PLAN_S

        def within(call: Call[Any]) -> Any:
            if time.monotonic() > end:
                raise BreachError(f"{call.verb} was not done after {PLAN_S:g} s of calls")
            return self._one(call)

        return drive_blocking(work, within)

    def outcome(self, call: Call[T]) -> T | ServerError:
        """The answer, or the refusal as a value."""
        try:
            return self._one(call)
        except ServerError as error:
            return error

    def _one(self, call: Call[T]) -> T:
        with allowed():
            return self.bench.conn.run(call)

    def mint(self) -> str:
        """A new job id, known to the desk."""
        return self.mint_many(1)[0]

    def mint_many(self, n: int) -> list[str]:
        """New job ids in mint order, known to the desk."""
        ids = self.bench.minter.mint_many(n)
        self.ids.update(dict.fromkeys(ids))
        return ids

    def lane(self, text: str) -> str:
        """The lane that a text names, known to the desk."""
        group = lanes.lane_id(text)
        self.groups[group] = None
        return group

    def neighbour(self) -> Desk:
        """A desk at another queue."""
        desk = Desk(self.bench, f"{self.queue}-{len(self._neighbours) + 2}")
        self._neighbours.append(desk)
        return desk

    def connector(self, **options: Unpack[OptionWords]) -> Connector:
        """Another client of the same server, closed with the desk."""
        connector = self.bench.open(**options)
        self._connectors.append(connector)
        return connector

    # Scenes

    def job(self, payload: bytes | str = b"p", *, group: str = "") -> str:
        """A job that can be claimed, flat or in a lane."""
        (job_id,) = self.jobs(1, payload, group=group)
        return job_id

    def jobs(self, n: int, payload: bytes | str = b"p", *, group: str = "") -> list[str]:
        """Jobs that can be claimed, in mint order."""
        ids = self.mint_many(n)
        if group:
            self.groups[group] = None
            for job_id in ids:
                self.run(lanes.enqueue(self.queue, job_id, payload, group))
        else:
            self.run(jobs.enqueue_many(self.queue, [(job_id, payload) for job_id in ids]))
        return ids

    def later(self, *, delay_ms: int = FAR_MS) -> str:
        """A job on the schedule."""
        job_id = self.mint()
        self.run(jobs.enqueue_in(self.queue, job_id, b"p", delay_ms=delay_ms))
        return job_id

    def claim(self, *, lease_ms: int = LEASE_MS) -> Claimed:
        """The next job in hand; a breach when there is none."""
        claimed = self.run(jobs.claim(self.queue, lease_ms=lease_ms))
        if claimed is None:
            raise BreachError("a claim brought nothing although a job was waiting")
        return claimed

    def in_hand(self, payload: bytes | str = b"p", *, group: str = "") -> Claimed:
        """A new job, claimed."""
        job_id = self.job(payload, group=group)
        claimed = self.claim()
        self.expect("the claimed job", claimed.id, job_id)
        return claimed

    def lapse(self, *job_ids: str) -> None:
        """The leases of these jobs have ended, in this order."""
        self._rescore(self.keys.active, job_ids)

    def fall_due(self, *job_ids: str) -> None:
        """These scheduled jobs are due, in this order."""
        self._rescore(self.keys.schedule, job_ids)

    def _rescore(self, key: str, job_ids: Iterable[str]) -> None:
        for i, job_id in enumerate(job_ids):
            if self.raw("ZADD", key, "XX", "CH", PAST + i, job_id) != 1:
                raise BreachError(f"{job_id} is not in {key}, where it has to be")

    def drop_tokens(self) -> None:
        """No wake token is left."""
        self.raw("DEL", self.keys.wake)

    # What is expected

    def expect(self, what: str, seen: T, wanted: T) -> None:
        """`BreachError` unless `seen` is what the contract wants."""
        if seen != wanted:
            raise BreachError(f"{what}: {_shown(seen)} instead of {_shown(wanted)}")

    def between(self, what: str, seen: int | None, least: int, most: int) -> None:
        """`BreachError` unless `seen` lies in the range, its ends included."""
        if seen is None or not least <= seen <= most:
            raise BreachError(f"{what}: {seen} instead of {least} to {most}")

    def refused(self, call: Call[Any], wanted: str) -> None:
        """`BreachError` unless the server refuses the call in these words and writes nothing."""
        before = self.dump()
        outcome = self.outcome(call)
        if not isinstance(outcome, ServerError):
            raise BreachError(f"{call.verb} answered {_shown(outcome)} instead of {wanted!r}")
        self.expect(f"the refusal of {call.verb}", outcome.reply, wanted)
        self.unwritten(f"{call.verb}, refused", before)

    def refused_plan(self, plan: Plan[Any], wanted: str) -> None:
        """`BreachError` unless the plan is refused in these words, having written nothing in this queue."""
        before = self.dump()
        try:
            answer = self.run(plan)
        except ServerError as error:
            self.expect("the refusal", error.reply, wanted)
        else:
            raise BreachError(f"a plan answered {_shown(answer)} instead of {wanted!r}")
        self.unwritten("a plan, refused", before)

    def unwritten(self, what: str, before: dict[str, bytes]) -> None:
        """`BreachError` when any key of the queue is not as it was."""
        after = self.dump()
        if changed := sorted(key for key in {*before, *after} if before.get(key) != after.get(key)):
            raise BreachError(f"{what}: it wrote {', '.join(changed)}, and had to write nothing")

    def stands(self, job_id: str, state: str, place: str) -> None:
        """`BreachError` unless the job's row has this state and it lies in this place alone; "" is none."""
        self.expect(f"the state of {job_id}", self.field(job_id, "state"), state.encode())
        self.expect(f"the places of {job_id}", self.places(job_id), [place] if place else [])

    def until(self, what: str, condition: Callable[[], object]) -> None:
        """Waits until `condition()` is true, at most `WAIT_S`."""
        end = time.monotonic() + WAIT_S
        while not condition():
            if time.monotonic() > end:
                raise BreachError(f"{what}: not within {WAIT_S:g} s")
            time.sleep(0.002)

    def needs(self, command: str, what: str) -> None:
        """`LackError` unless the server knows a command."""
        if not self.bench.knows(command):
            raise LackError(f"this server has no {what} ({command})")

    # The end

    def desks(self) -> list[Desk]:
        """This desk and its neighbours."""
        return [self, *self._neighbours]

    def clear(self) -> None:
        """Closes what was opened, and takes away every key of these queues that the registry knows.

        A refusal is raised once everything else has been taken away.
        """
        for connector in self._connectors:
            connector.close()
        self.bench.delete([key for desk in self.desks() for key in desk.every_key()])
