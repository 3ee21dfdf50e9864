"""Flows of jobs: parents wait, take what their children returned, and share their deaths."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from echomq import (
    EchoMQ,
    Fixed,
    FlowJobs,
    State,
    chain,
    chord,
    current_job,
    flow,
    group,
    may_fail,
    metrics,
    previous,
    results,
)
from echomq.errors import InvalidInputError, JobFailed
from echomq.protocol.flows import OnDeath
from support.apps import state_is
from support.program import Process

SOON = timedelta(seconds=40)


@dataclass
class Page:
    number: int
    at: datetime


def jobs_of(mq: EchoMQ):
    @mq.job(name="page")
    async def page(number: int) -> Page:
        return Page(number, datetime(2026, 1, number, tzinfo=UTC))

    @mq.job(name="bind")
    async def bind(pages: list[Page], title: str = "book") -> str:
        return f"{title}: {[(each.number, each.at.day) for each in pages]}"

    return page, bind


async def test_a_parent_runs_once_its_children_are_done_and_takes_their_results_as_annotated(mq, working) -> None:
    page, bind = jobs_of(mq)
    sent = await flow(bind.s(results(), title="atlas"), [page.s(3), page.s(1), page.s(2)]).aenqueue()
    assert await sent.job.astate() is State.AWAITING_CHILDREN
    assert len(list(sent)) == 4
    async with working():
        assert await sent.result(SOON) == "atlas: [(3, 3), (1, 1), (2, 2)]"
        assert await sent.children[0].result(SOON) == Page(3, datetime(2026, 1, 3, tzinfo=UTC))


def test_a_blocking_enqueue_gives_the_same_handles(mq) -> None:
    page, bind = jobs_of(mq)
    sent = chord([page.s(1)], bind.s(results())).enqueue()
    assert isinstance(sent, FlowJobs)
    assert sent.job.state() is State.AWAITING_CHILDREN
    assert [job.name for job in sent] == ["bind", "page"]


async def test_plain_functions_take_results_in_their_threads(mq, working) -> None:
    @mq.job(name="double")
    def double(value: int) -> int:
        return 2 * value

    @mq.job(name="add")
    def add(values: list[int], *, plus: int) -> int:
        return sum(values) + plus

    async with working():
        first = await chord([double.s(1), double.s(2)], add.s(results(), plus=4)).aenqueue()
        assert await first.result(SOON) == 10
        last = chain(double.s(1), double.s(previous()), double.s(previous()), double.s(previous()))
        assert await (await last.aenqueue()).result(SOON) == 16


async def test_a_chain_may_begin_with_a_group_or_a_flow_and_may_itself_be_a_child(mq, working) -> None:
    @mq.job(name="one")
    async def one(value: int = 1) -> int:
        return value

    @mq.job(name="total")
    async def total(values: list[int]) -> int:
        return sum(values)

    inner = chain(group(one.s(), one.s(2)), total.s(results()))
    outer = chain(flow(total.s(results()), [inner, one.s(10)]), one.s(value=previous()))
    async with working():
        sent = await outer.aenqueue()
        assert await sent.result(SOON) == 13
    assert [job.name for job in sent] == ["one", "total", "total", "one", "one", "one"]


@pytest.mark.parametrize("where", ["", "-other"])
async def test_a_child_that_is_cancelled_tells_a_parent_in_another_queue_once_a_worker_serves_its_own(
    mq, queue: str, working, where: str
) -> None:
    page, bind = jobs_of(mq)
    sent = await flow(bind.s(results()), [page.options(queue=f"{queue}{where}").s(1), page.s(2)]).aenqueue()
    await sent.children[0].job.acancel("by hand")
    if where:
        async with working(queues=[queue]):
            assert await sent.children[1].result(SOON) == Page(2, datetime(2026, 1, 2, tzinfo=UTC))
        assert await sent.job.astate() is State.AWAITING_CHILDREN
        async with working(queues=[f"{queue}{where}"]):
            await state_is(sent.job, State.DEAD)
    assert await sent.job.astate() is State.DEAD


async def test_across_queues(mq, queue, working) -> None:
    page, bind = jobs_of(mq)
    other = f"{queue}-other"
    sent = await flow(bind.s(results()), [page.options(queue=other).s(1), page.s(2)]).aenqueue()
    assert sent.children[0].job.queue == other
    async with working(queues=[queue, other]):
        assert await sent.result(SOON) == "book: [(1, 1), (2, 2)]"


async def test_a_death_is_the_parents_unless_it_was_allowed(mq, working) -> None:
    @mq.job(name="fail", max_attempts=1)
    async def fail() -> int:
        raise ValueError("no paper")

    @mq.job(name="ok")
    async def ok() -> int:
        return 5

    @mq.job(name="after")
    async def after(values: list[int | None]) -> str:
        errors = [child.error for child in await current_job().achildren()]
        return f"{values} {[error and 'no paper' in error for error in errors]}"

    async with working():
        dies = await chain(flow(after.s(results()), [fail.s(), ok.s()]), after.s([])).aenqueue()
        with pytest.raises(JobFailed, match="no paper"):
            await dies.result(SOON)
        lives = await flow(after.s(results()), [may_fail(fail.s()), ok.s()]).aenqueue()
        assert await lives.result(SOON) == "[None, 5] [True, None]"


async def test_the_children_can_be_read_by_a_job_in_a_thread(mq, working) -> None:
    @mq.job(name="one")
    def one() -> dict[str, int]:
        return {"n": 1}

    @mq.job(name="reader")
    def reader() -> list[object]:
        return [child.result for child in current_job().children()]

    async with working():
        assert await (await flow(reader.s(), [one.s(), one.s()]).aenqueue()).result(SOON) == [{"n": 1}, {"n": 1}]
        assert await (await reader.aenqueue()).result(SOON) == []


async def test_a_result_that_does_not_fit_the_parent_buries_it_and_says_why(mq, working) -> None:
    @mq.job(name="text")
    async def text() -> str:
        return "seven"

    @mq.job(name="needs")
    async def needs(value: int) -> int:
        return value

    @mq.job(name="odd")
    async def odd() -> object:
        return object()

    async with working():
        with pytest.raises(JobFailed, match=r"argument 'value' does not fit.*Expected `int`, got `str`"):
            await (await chain(text.s(), needs.s(previous())).aenqueue()).result(SOON)
        with pytest.raises(JobFailed, match=r"child JOB\w+: .*could not be kept"):
            await (await chain(odd.s(), needs.s(previous())).aenqueue()).result(SOON)


async def test_a_parent_that_fails_takes_the_same_results_again(mq, working) -> None:
    seen: list[int] = []

    @mq.job(name="one")
    async def one() -> int:
        return 1

    @mq.job(name="flaky", backoff=Fixed(1))
    async def flaky(value: int) -> int:
        seen.append(value)
        if len(seen) == 1:
            raise ValueError("once")
        return value

    async with working():
        assert await (await chain(one.s(), flaky.s(previous())).aenqueue()).result(SOON) == 1
    assert seen == [1, 1]


PROCESSES = """
import os
from echomq import EchoMQ

mq = EchoMQ(default_queue=os.environ["QUEUE"])

@mq.job(process=True)
def square(value: int) -> int:
    return value * value

@mq.job(process=True)
def total(values: list[int]) -> int:
    return sum(values)
"""


def test_a_job_in_a_process_of_its_own_takes_results_too(tmp_path, server, queue, mq) -> None:
    worker = Process(tmp_path, PROCESSES, server, queue)
    try:
        square = mq.job(name="tasks.square")(lambda value: value)
        total = mq.job(name="tasks.total")(lambda values: values)
        assert flow(total.s(results()), [square.s(2), square.s(3)]).enqueue().get(SOON) == 13
    finally:
        worker.close()


async def test_a_group_gives_a_handle_of_each(mq, working) -> None:
    page, bind = jobs_of(mq)
    async with working():
        sent = await group(page.s(1), flow(bind.s(results()), [page.s(2)]), page.s(3)).aenqueue()
        first, middle, last = await asyncio.gather(*[job.result(SOON) for job in sent])
    assert (first.number, middle, last.number) == (1, "book: [(2, 2)]", 3)
    with pytest.warns(RuntimeWarning):
        assert [job.name for job in group([page.s(4)]).enqueue()] == ["page"]


async def test_a_lost_answer_does_not_leave_half_a_flow(mq, queue, server, working) -> None:
    """The flow is added again under the same ids: nothing is there twice."""
    page, bind = jobs_of(mq)
    connector = await mq.aconnection()
    adding = asyncio.ensure_future(flow(bind.s(results()), [page.s(1)] * 3).aenqueue())
    await asyncio.sleep(0)
    with server.client() as client:
        client.execute("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    sent = await adding
    assert connector is await mq.aconnection()
    counts = mq.run(metrics.counts(queue))
    assert counts.pending == 3
    async with working():
        assert await sent.result(SOON) == "book: [(1, 1), (1, 1), (1, 1)]"


def bad(mq: EchoMQ):
    page, bind = jobs_of(mq)
    stranger = EchoMQ("valkey://localhost:1").job(name="page")(page.function)
    deep, whole = page.s(1), flow(bind.s(results()), [page.s(1)])
    for _ in range(7):
        deep = flow(bind.s(results()), [deep])
    assert flow(bind.s([]), [page.s(1)]).on_death is OnDeath.FAIL_PARENT
    return {
        "no child": (lambda: flow(bind.s([]), []), "^job .bind. of queue .* waits for nothing: give"),
        "one call for many": (lambda: flow(bind.s([]), page.s(1)), "must be a list of calls"),
        "no call": (lambda: flow(bind.s([]), [page]), "made of calls such as send.s"),
        "a time": (
            lambda: flow(bind.s([]), [page.after(minutes=1).s(1)]),
            "^job .page. of queue .* has a time, .* leave out at",
        ),
        "a lane": (
            lambda: flow(bind.s([]), [page.options(lane="a").s(1)]),
            "job .page. .* has a lane, .* leave out lane=...",
        ),
        "a key": (
            lambda: flow(bind.options(dedup="k").s([]), [page.s(1)]),
            "job .bind. .* has a deduplication key, .* leave out dedup=...",
        ),
        "too deep": (lambda: flow(bind.s([]), [deep]), "^the flow of job .bind. .* 9 levels deep; at most 8"),
        "previous of two": (
            lambda: flow(bind.s(previous()), [page.s(1), page.s(2)]),
            r"^argument .pages. of job .bind. .* is previous\(\), .* 2 jobs .* take results\(\)",
        ),
        "one step": (lambda: chain(page.s(1)), "two steps or more"),
        "a group at the end": (lambda: chain(page.s(1), group(page.s(2))), "a group can only begin"),
        "a flow at the end": (
            lambda: chain(page.s(1), flow(bind.s([]), [page.s(2)])),
            "^the flow of job .bind. .* can only begin a chain",
        ),
        "no member": (lambda: group([]), "one call or more"),
        "nothing before it": (
            lambda: flow(bind.s([]), [page.s(previous())]).enqueue(),
            r"^argument .number. of job .page. .* is previous\(\), and no job",
        ),
        "alone": (
            lambda: mq.enqueue_many([page.s(previous())]),
            r"^argument .number. of job .page. .* previous\(\), .*: put it into",
        ),
        "no flow": (lambda: page.enqueue(previous()), r"previous\(\) is known only in a flow"),
        "inside a value": (lambda: bind.s([previous()]), r"previous\(\) is known only in a flow"),
        "another app": (
            lambda: flow(bind.s([]), [stranger.s(1)]).enqueue(),
            "^job .page. of queue .default. belongs to another EchoMQ",
        ),
        "another app in a group": (lambda: group(whole, stranger.s(1)).enqueue(), "belongs to another EchoMQ"),
        "nothing before one of a group": (
            lambda: group(whole, page.s(previous())).enqueue(),
            r"^argument .number. .* and no job is before it",
        ),
        "two many": (lambda: page.s(1, previous()), "too many positional arguments"),
    }


@pytest.mark.parametrize(
    "case",
    [
        "no child", "one call for many", "no call", "a time", "a lane", "a key", "too deep", "previous of two",
        "one step", "a group at the end", "a flow at the end", "no member", "nothing before it", "alone", "no flow",
        "inside a value", "another app", "another app in a group", "nothing before one of a group", "two many",
    ],
)  # fmt: skip
def test_bad_input_is_refused_before_anything_is_sent(mq: EchoMQ, queue: str, case: str) -> None:
    cases = bad(mq)
    assert len(cases) == 20
    call, match = cases[case]
    with pytest.raises((InvalidInputError, TypeError), match=match):
        call()
    assert mq.run(metrics.counts(queue)).pending == 0
