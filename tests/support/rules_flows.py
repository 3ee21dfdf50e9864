"""Rules of the state machine: flows in one queue and across both (protocol §8)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from echomq.identity.errors import InvalidInputError
from echomq.protocol import admin, flows
from echomq.protocol.call import Call, Plan
from echomq.protocol.errors import ServerError, StateError
from echomq.protocol.flows import Node, OnDeath
from echomq.protocol.replies import Admission
from support.machine import MINTER, QUEUES, Bench, picks
from support.model_admin import AdminModel
from support.model_flows import Placed

# Nodes of a tree: who, what its death means, whether it lies in the other queue, which of those before is its parent.
Sprout = tuple[int, OnDeath, bool, int]
trees = st.lists(
    st.tuples(picks, st.sampled_from(OnDeath), st.sampled_from([False, False, True]), st.sampled_from([0, 0, 1, 2])),
    min_size=2,
    max_size=6,
    unique_by=lambda sprout: sprout[0],
)
# How many calls of an addition are made before its caller dies.
cuts = st.sampled_from([1, 2, 99, 99, 99])


def queue_of(call: Call[Any]) -> str:
    """The queue whose keys a call names."""
    return call.keys[0].split("{")[1].split("}")[0]


def placed(args: tuple[Any, ...]) -> list[Placed]:
    """The nodes as a call names them."""
    out: list[Placed] = []
    for i in range(0, len(args), 5):
        job_id, payload, parent, link, children = args[i : i + 5]
        out.append(Placed(job_id, payload, parent, link[:2], link[2:], children))
    return out


class FlowRules(Bench):
    """Trees of two levels and more, added again at any time; signals delivered late, twice, out of order."""

    def __init__(self) -> None:
        super().__init__()
        self.trees: list[Node] = []
        self.letters: list[bytes] = []
        self.deaths: list[tuple[str, bytes]] = []

    def tree(self, sprouts: list[Sprout], *, spread: bool) -> Node:
        """The flow that the sprouts stand for, its root in the queue at hand."""
        other = QUEUES[self.queue == QUEUES[0]]
        children: dict[int, list[int]] = {}
        for i, (_, _, _, above) in enumerate(sprouts[1:], 1):
            children.setdefault(above % i, []).append(i)

        def node(i: int) -> Node:
            pick, on_death, elsewhere, _ = sprouts[i]
            queue = other if elsewhere and spread and i else self.queue
            return Node(queue, self.ids[pick], b"f", tuple(node(child) for child in children.get(i, ())), on_death)

        return node(0)

    def renew(self, sprouts: list[Sprout]) -> None:
        """Ids that no queue has seen for the nodes of a tree to come."""
        for pick, *_ in sprouts:
            if any(model.there(self.ids[pick]) for model in self.models.values()):
                self.ids[pick] = MINTER.mint()

    def foreseen(self, call: Call[Any], model: AdminModel) -> Callable[[], Any]:
        """What the model says of one call of an addition."""
        args: tuple[Any, ...] = call.args
        if call.verb == "flow there":
            return lambda: model.flow_there([args[i : i + 3] for i in range(0, len(args), 3)])
        if call.verb == "flow strangers":
            return lambda: model.strangers([args[i : i + 4] for i in range(0, len(args), 4)])
        if call.verb == "flow recorded":
            return lambda: tuple(flows.Need(one) for one in model.recorded(call.subject, args))
        verdicts = (Admission.DUPLICATE, Admission.ADMITTED)

        def added() -> tuple[Admission, ...] | str:
            answers = model.flow_add(placed(args))
            return answers if isinstance(answers, str) else tuple(verdicts[one] for one in answers)

        return added

    def plant(self, root: Node, calls: int) -> None:
        """Adds a flow, as many calls of it as its caller lives to make; a job of another's ends it."""
        plan: Plan[Any] = flows.add(root)
        answer: Any = None
        with suppress(StopIteration, StateError):
            for _ in range(calls):
                call = plan.throw(answer) if isinstance(answer, ServerError) else plan.send(answer)
                queue = queue_of(call)
                answer = self.step_on(queue, call, self.foreseen(call, self.models[queue]))

    @rule(sprouts=trees, spread=st.booleans(), calls=cuts)
    def grow_flow(self, sprouts: list[Sprout], spread: bool, calls: int) -> None:
        """A flow of jobs that nobody knows yet."""
        self.renew(sprouts)
        self.add_flow(sprouts, spread, calls)

    @rule(sprouts=trees, spread=st.booleans(), calls=cuts)
    def add_flow(self, sprouts: list[Sprout], spread: bool, calls: int) -> None:
        """A flow of which some jobs may be there, in this family, in another, or alone."""
        self.trees.append(self.tree(sprouts, spread=spread))
        self.plant(self.trees[-1], calls)

    @rule(index=picks, calls=cuts)
    def add_flow_again(self, index: int, calls: int) -> None:
        if self.trees:
            self.plant(self.trees[-1 - index % len(self.trees)], calls)

    # -- the outbox ---------------------------------------------------------------------------------------------------

    def deliver(self, entry: bytes, *, asks: bool = False) -> bool:
        """Brings a signal to its queue, where a pump that asks offers it first; False when it cannot be read."""
        try:
            call = flows.offer(entry) if asks else flows.deliver(entry)
        except InvalidInputError:
            return False
        queue = queue_of(call)
        child = self.models[queue].doubts(entry) if asks else None

        def brought() -> flows.Relayed | flows.Doubted | None:
            if child is not None:
                return flows.Doubted(child)
            relayed = self.models[queue].deliver(entry)
            return None if relayed is None else flows.Relayed(queue, relayed)

        self.step_on(queue, call, brought)
        if child is not None:
            past = self.model.withdraw
            withdrawn = self.step(flows.withdraw(self.queue, entry, child), lambda: past(entry, child))
            if not withdrawn:
                self.deliver(entry)
        return True

    @rule(
        limit=st.integers(1, 3),
        times=st.integers(1, 2),
        dies=st.sampled_from([False, False, True]),
        asks=st.booleans(),
    )
    def pump_outbox(self, limit: int, times: int, dies: bool, asks: bool) -> None:
        """Some signals are delivered, once or twice, and removed unless the pump dies before it could."""
        model = self.model
        entries = self.step(flows.outbox(self.queue, limit=limit), lambda: tuple(model.outbox[:limit]))
        for entry in entries:
            readable = [self.deliver(entry, asks=asks) for _ in range(times)]
            if not all(readable):
                self.step(flows.reject(self.queue, entry), lambda entry=entry: self.set_aside(entry))
            elif not dies:
                self.letters.append(entry)
                if entry.startswith(b"\0fail\0"):
                    self.deaths.append((self.queue, entry))
                self.step(flows.settle(self.queue, entry), lambda entry=entry: model.settle_entry(entry))

    def set_aside(self, entry: bytes) -> int:
        self.model.rejected.insert(0, entry)
        return self.model.settle_entry(entry)

    @rule(index=picks, asks=st.booleans())
    def late_letter(self, index: int, asks: bool) -> None:
        """A pump that was frozen delivers what another has long delivered and removed."""
        if self.letters:
            entry = self.letters[-1 - index % len(self.letters)]
            self.deliver(entry, asks=asks)
            self.step(flows.settle(self.queue, entry), lambda: self.model.settle_entry(entry))

    @rule(index=picks, child_too=st.booleans(), settled=st.booleans())
    def hear_of_a_death_again(self, index: int, child_too: bool, settled: bool) -> None:
        """The parent has another life, and its child may have, when a frozen pump offers the death once more."""
        if not self.deaths:
            return
        here, (queue, entry) = self.queue, self.deaths[-1 - index % len(self.deaths)]
        above, parent, child = (word.decode() for word in entry.split(b"\0", 6)[2:5])
        self.take_up(queue)
        if not settled:
            self.model.outbox.append(entry)
            self.by_hand("a pump has died before it could settle", "RPUSH", self.keys.outbox, entry)
        if child_too:
            self.step(admin.reprocess_job(queue, child), lambda: self.model.reprocess_job(child))
        self.step_on(above, admin.reprocess_job(above, parent), lambda: self.models[above].reprocess_job(parent))
        self.deliver(entry, asks=True)
        self.take_up(here)

    @rule(pick=picks)
    def ask_about_a_death(self, pick: int) -> None:
        """A pump asks whether a death still stands, be it one that has gone from the outbox."""
        deaths = [entry for queue, entry in self.deaths if queue == self.queue] + self.model.outbox
        readable = [entry for entry in deaths if entry.startswith(b"\0fail\0") and entry.split(b"\0", 6)[5] != b"zz"]
        job_id = self.among(set(self.model.rows), pick)
        entry = readable[pick % len(readable)] if readable else f"\0fail\0q\0{job_id}\0{job_id}\0fp\0e".encode()
        child = entry.split(b"\0", 6)[4].decode()
        self.step(flows.withdraw(self.queue, entry, child), lambda: self.model.withdraw(entry, child))

    @rule(second=st.booleans(), times=st.integers(1, 3))
    def pump_all(self, second: bool, times: int) -> None:
        """Every signal of a queue arrives, some more than once."""
        here = self.queue
        self.take_up(QUEUES[second])
        self.pump_outbox(9, times, False, True)
        self.take_up(here)

    @rule(garbage=st.sampled_from([b"", b"q\0JOB\0", b"\0fail\0q\0x\0y\0zz\0e"]))
    def spoil_outbox(self, garbage: bytes) -> None:
        """Another client has left what nobody can read."""
        self.model.outbox.append(garbage)
        self.by_hand("spoil outbox", "RPUSH", self.keys.outbox, garbage)

    # -- looking ------------------------------------------------------------------------------------------------------

    @rule(pick=picks)
    def look_at_family(self, pick: int) -> None:
        parent = self.among(set(self.model.books), pick)
        books = self.model.books.get(parent)
        self.step(flows.children_values(self.queue, parent), lambda: books.processed if books else {})
        self.step(flows.failures(self.queue, parent), lambda: books.failed if books else {})
        self.step(flows.ignored_failures(self.queue, parent), lambda: books.unsuccessful if books else {})
        self.step(flows.outstanding(self.queue, parent), lambda: books.left if books else 0)
        self.step(flows.rejected(self.queue, limit=2), lambda: tuple(self.model.rejected[:2]))
