"""Flows of jobs (protocol §8): `flow(parent.s(...), [child.s(...), ...])`, `chain`, `chord`, `group` and `may_fail`.

All of them are values: nothing is sent before `enqueue`. A parent is held until its children are done, and takes what
they have returned by `previous()`, `results()` or `current_job().children()`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, cast, overload

from echomq.app.bound import Bound, said, said_argument
from echomq.app.flow_jobs import FlowJobs
from echomq.app.handles import Job
from echomq.app.holes import Takes, word_of
from echomq.identity.errors import InvalidInputError
from echomq.identity.minter import minter
from echomq.protocol import flows
from echomq.protocol.call import Plan
from echomq.protocol.errors import DisconnectedError, WireError
from echomq.protocol.flows import MAX_LEVELS, Node, OnDeath
from echomq.protocol.replies import Admission

if TYPE_CHECKING:
    from echomq.app.echomq import EchoMQ

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")

_TRIES = 3
"""How often a flow is added whose answer was lost: adding it again is safe (protocol §8)."""


@dataclass(frozen=True, slots=True)
class Flow(Generic[R_co]):
    """A job and the jobs it waits for; `R_co` is what its function returns. It may be a child itself, 8 levels deep."""

    parent: Bound[R_co]
    children: tuple[Flow[Any], ...]
    on_death: OnDeath = OnDeath.FAIL_PARENT
    """What its death means to the job that waits for it."""

    def __repr__(self) -> str:
        return f"<flow of {self.parent.job.name} and {len(list(self.nodes())) - 1} jobs before it>"

    def enqueue(self) -> FlowJobs[R_co]:
        """Sends all its jobs, in one atomic step when they are of one queue, and gives a handle of each.

        Raises as a job's `enqueue` does. A flow across queues that is cut short is sent again, which is safe; if that
        fails, too, the error has a note with the id of the job that is held.
        """
        self.mq.warn_on_a_loop("enqueue")
        node = self._node()
        return self._jobs(node, self.mq.run(_added(node)))

    async def aenqueue(self) -> FlowJobs[R_co]:
        """`enqueue`, awaited."""
        node = self._node()
        return self._jobs(node, await self.mq.arun(_added(node)))

    @property
    def mq(self) -> EchoMQ:
        """The app that its jobs are of."""
        return self.parent.job.mq

    def nodes(self) -> Iterator[Flow[Any]]:
        """Itself and all below it, a parent before its children."""
        yield self
        for child in self.children:
            yield from child.nodes()

    def check(self, mq: EchoMQ) -> None:
        """`InvalidInputError` for a job in it that is of another app than `mq`, or takes results that there are not."""
        for each in self.nodes():
            if each.mq is not mq:
                raise InvalidInputError(
                    f"{said(each.parent)} belongs to another EchoMQ than the others: jobs that are sent together are "
                    "of one; send it by itself"
                )
            if each.parent.takes and not each.children:
                place, takes = each.parent.takes[0]
                raise InvalidInputError(
                    f"{said_argument(each.parent, place)} is {word_of(takes)}, and no job is before it: give it "
                    "children by flow(...), a step before it by chain(...), or a value"
                )

    def _node(self) -> Node:
        if not self.children:
            raise InvalidInputError(f"{said(self.parent)} waits for nothing: a flow has one child or more; use enqueue")
        self.check(self.mq)
        ids = iter(minter.mint_many(len(list(self.nodes()))))
        return self._placed(next(ids), ids)

    def _placed(self, own: str, ids: Iterator[str]) -> Node:
        # Brothers get their ids in order: that is the order in which their results are given.
        children = [next(ids) for _ in self.children]
        nodes = [child._placed(job_id, ids) for child, job_id in zip(self.children, children, strict=True)]  # noqa: SLF001  (of its own class)
        return Node(self.parent.queue, own, self.parent.payload, tuple(nodes), self.on_death)

    def _jobs(self, node: Node, verdicts: dict[str, Admission]) -> FlowJobs[R_co]:
        bound, duplicate = self.parent, verdicts[node.id] is Admission.DUPLICATE
        job: Job[R_co] = Job(node.id, bound.job.name, node.queue, duplicate, self.mq, bound.job.keeps(bound.options))
        below = zip(self.children, node.children, strict=True)
        return FlowJobs(job, tuple(child._jobs(part, verdicts) for child, part in below))  # noqa: SLF001  (of its own class)


Step: TypeAlias = Bound[R] | Flow[R]
"""A call, or a flow, which is a call with others before it."""


@dataclass(frozen=True, slots=True)
class Group(Generic[R_co]):
    """Calls that have nothing to do with each other but that they are sent together."""

    members: tuple[Flow[R_co], ...]

    def enqueue(self) -> list[Job[R_co]]:
        """Sends all of them, and gives a handle of each, in order; of a flow, that of the job at its end.

        Raises as `EchoMQ.enqueue_many` does, and as `Flow.enqueue` for its flows, which are sent first.
        """
        mq = self._mq()
        mq.warn_on_a_loop("enqueue")
        handles: dict[int, Job[R_co]] = {place: each.enqueue().job for place, each in self._flows()}
        handles.update(
            zip(self._alone(), mq.enqueue_many(self.members[at].parent for at in self._alone()), strict=True)
        )
        return [handles[place] for place in range(len(self.members))]

    async def aenqueue(self) -> list[Job[R_co]]:
        """`enqueue`, awaited."""
        mq = self._mq()
        handles: dict[int, Job[R_co]] = {place: (await each.aenqueue()).job for place, each in self._flows()}
        alone = await mq.aenqueue_many(self.members[at].parent for at in self._alone())
        handles.update(zip(self._alone(), alone, strict=True))
        return [handles[place] for place in range(len(self.members))]

    def _flows(self) -> list[tuple[int, Flow[R_co]]]:
        return [(place, each) for place, each in enumerate(self.members) if each.children]

    def _alone(self) -> list[int]:
        return [place for place, each in enumerate(self.members) if not each.children]

    def _mq(self) -> EchoMQ:
        if not self.members:
            raise InvalidInputError("a group has one call or more")
        mq = self.members[0].mq
        for each in self.members:
            # Before the first is sent.
            each.check(mq)
        return mq


def flow(parent: Bound[R], children: Iterable[Step[Any]]) -> Flow[R]:
    """A job that is held until others are done: `flow(report.s(results()), [fetch.s(url) for url in urls])`.

    `children` are calls, or flows themselves; the queues may differ. When one dies the parent dies, too, unless that
    child was allowed to: `may_fail(fetch.s(url))`. `InvalidInputError` for no child, for more than 8 levels, and for
    a call with a time, a lane or a deduplication key, which no job of a flow can have (protocol §8).
    """
    below = tuple(_part(child) for child in _listed("children", children))
    if not below:
        raise InvalidInputError(
            f"{said(_bound(parent))} waits for nothing: give its flow one child or more, or enqueue it"
        )
    return _checked(Flow(_bound(parent), below))


def chord(children: Iterable[Step[Any]] | Group[Any], then: Bound[R]) -> Flow[R]:
    """The same as `flow`, in the order in which it happens: `chord([fetch.s(a), fetch.s(b)], total.s(results()))`."""
    return flow(then, children.members if isinstance(children, Group) else children)


def group(*calls: Step[R] | Iterable[Step[R]]) -> Group[R]:
    """Calls that are sent together: `group(fetch.s(a), fetch.s(b)).enqueue()` gives a handle of each.

    As the first step of a `chain` it is what the second one waits for.
    """
    flat: list[Step[R]] = []
    for each in calls:
        if isinstance(each, Bound | Flow):
            flat.append(each)
        else:
            flat += _listed("a group", each)
    if not flat:
        raise InvalidInputError("a group has one call or more")
    return Group(tuple(_part(each) for each in flat))


def may_fail(child: Step[R]) -> Flow[R]:
    """A child whose death counts as done: `None` stands for its result, and its parent lives."""
    return replace(_part(child), on_death=OnDeath.IGNORE)


First: TypeAlias = Bound[Any] | Flow[Any] | Group[Any]


@overload
def chain(first: First, last: Bound[R], /) -> Flow[R]: ...
@overload
def chain(first: First, second: Bound[Any], last: Bound[R], /) -> Flow[R]: ...
@overload
def chain(first: First, second: Bound[Any], third: Bound[Any], last: Bound[R], /) -> Flow[R]: ...
@overload
def chain(
    first: First, second: Bound[Any], third: Bound[Any], fourth: Bound[Any], /, *more: Bound[Any]
) -> Flow[Any]: ...


def chain(first: First, /, *steps: Bound[Any]) -> Flow[Any]:
    """Jobs one after the other: `chain(fetch.s(url), parse.s(previous()), store.s(previous(), table="pages"))`.

    Each is held until the one before it is done; when one dies, so do all after it. The first may be a flow or a group.
    At most 8 steps; `InvalidInputError` for more, and for a group that is not the first.
    """
    if not steps:
        raise InvalidInputError("a chain has two steps or more: enqueue a call that is alone")
    before: tuple[Flow[Any], ...] = first.members if isinstance(first, Group) else (_part(first),)
    for step in steps:
        if isinstance(step, Group):
            raise InvalidInputError("a group can only begin a chain: no two jobs can wait for the same one")
        if isinstance(step, Flow):
            last = said(cast("Flow[Any]", step).parent)
            raise InvalidInputError(
                f"the flow of {last} can only begin a chain, for it waits for jobs of its own already: make "
                "it the first step"
            )
        before = (_checked(Flow(_bound(step), before)),)
    return before[0]


def _added(root: Node) -> Plan[dict[str, Admission]]:
    """The flow, added again where an answer was lost: what is there already is left alone."""
    for left in reversed(range(_TRIES)):
        try:
            given = yield from cast("Plan[dict[str, Admission]]", flows.add(root))
        except WireError as error:
            if left and isinstance(error, DisconnectedError):
                continue
            error.add_note(f"the flow's last job is {root.id} in {root.queue}: its state tells whether it is held")
            raise
        else:
            return given
    raise AssertionError("unreachable")


def _listed(what: str, given: Iterable[T]) -> list[T]:
    if isinstance(given, Bound | Flow) or not isinstance(given, Iterable):
        raise InvalidInputError(f"{what} must be a list of calls such as send.s(...), not {given!r:.200}")
    return list(given)


def _part(step: Step[R]) -> Flow[R]:
    return step if isinstance(step, Flow) else _checked(Flow(_bound(step), ()))


def _bound(call: Bound[R]) -> Bound[R]:
    if not isinstance(call, Bound):
        raise InvalidInputError(
            f"a flow is made of calls such as send.s(...), not {type(call).__name__}: {call!r:.200}"
        )
    options = call.options
    for what, given, instead in (
        ("a time", options.when.at_ms is not None or options.when.delay_ms is not None, "at(...) and after(...)"),
        ("a lane", options.lane is not None, "lane=... in options(...) and in @mq.job(...)"),
        ("a deduplication key", options.dedup is not None, "dedup=... in options(...)"),
    ):
        if given:
            raise InvalidInputError(
                f"{said(call)} has {what}, which no job of a flow can have, for it runs once those before it are done: "
                f"leave out {instead}"
            )
    return call


def _checked(each: Flow[R]) -> Flow[R]:
    for place, takes in each.parent.takes:
        # A call that is alone yet may get its children later.
        if each.children and takes == Takes.ONE.value and len(each.children) != 1:
            raise InvalidInputError(
                f"{said_argument(each.parent, place)} is previous(), the result of the one job before it, and "
                f"{len(each.children)} jobs are before it: take results(), the list of theirs"
            )
    if (deep := _levels(each)) > MAX_LEVELS:
        raise InvalidInputError(
            f"the flow of {said(each.parent)} is {deep} levels deep; at most {MAX_LEVELS} are allowed: let one of its "
            "jobs enqueue the rest"
        )
    return each


def _levels(each: Flow[Any]) -> int:
    return 1 + max((_levels(child) for child in each.children), default=0)
