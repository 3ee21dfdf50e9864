"""What a send tells: the observers of its process, and the queue's channel when the app publishes events."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from echomq import EchoMQ, connect, flows, jobs
from echomq.errors import StateError
from echomq.events import events
from echomq.flows import Node
from echomq.protocol.admin import Cancellation
from echomq.protocol.replies import Admission
from echomq.telemetry import Added, Cancelled, Dead, Step, hub
from support.servers import Server


@pytest.fixture
def seen() -> Iterator[list[Step]]:
    """What an observer is told."""
    steps: list[Step] = []
    end = hub.observe(steps.append)
    yield steps
    end()


def flow(mq: EchoMQ, queue: str) -> Node:
    mint = mq.connection().mint
    return Node(queue, mint(), "p", (Node(queue, mint(), "c"), Node(queue + "2", mint(), "c")))


def nodes(root: Node) -> list[tuple[str, str]]:
    return [(each.queue, each.id) for each in (root, *root.children)]


def test_an_observer_is_told_of_each_node_of_a_flow(server: Server, queue: str, seen: list[Step]) -> None:
    with EchoMQ(server.url) as mq:
        root = flow(mq, queue)
        mq.run(flows.add(root))
        assert seen == [Added(*node, Admission.ADMITTED) for node in nodes(root)]
        seen.clear()
        mint = mq.connection().mint
        alone = Node(queue, mint(), "p", (Node(queue, mint(), "c"),))
        mq.run(flows.add(alone))
        mq.run(next(flows.add(alone)))
    first, second = Admission.ADMITTED, Admission.DUPLICATE
    assert seen == [Added(*node, verdict) for verdict in (first, second) for node in nodes(alone)]


def test_what_a_refused_flow_has_added_is_told(server: Server, queue: str, seen: list[Step]) -> None:
    with EchoMQ(server.url) as mq:
        root = flow(mq, queue)
        taken = root.children[1].id
        plan = flows.add(root)

        def meddled() -> Any:
            """The flow, one of whose ids is taken while it is added."""
            answer = None
            while True:
                try:
                    call = plan.send(answer)
                except StopIteration as stop:
                    return stop.value
                if call.verb == "flow add" and call.subject == taken:
                    yield jobs.enqueue(queue + "2", taken, b"another")
                try:
                    answer = yield call
                except StateError as error:
                    plan.throw(error)

        with pytest.raises(StateError, match="held"):
            mq.run(meddled())
    assert seen == [Added(*node, Admission.ADMITTED) for node in nodes(root)[:2]]


async def test_an_awaited_flow_is_published_and_told(server: Server, queue: str, seen: list[Step]) -> None:
    async with EchoMQ(server.url, events=True) as mq:
        with connect(server.url) as conn, events(conn, queue) as heard:
            root = flow(mq, queue)
            await mq.arun(flows.add(root))
            told = [next(iter(heard)) for _ in range(2)]
    assert seen == [Added(*node, Admission.ADMITTED) for node in nodes(root)]
    assert [(event.event, event.job) for event in told] == [("enqueued", job_id) for _, job_id in nodes(root)[:2]]


def test_an_occurrence_beside_the_timetable_is_told(server: Server, queue: str, seen: list[Step]) -> None:
    with EchoMQ(server.url, default_queue=queue) as mq:
        send = mq.job(name="send")(lambda: None)
        send.every(hours=1, name="n").register()
        job = mq.schedule("n").run_now()
    assert seen == [Added(queue, job.id, Admission.ADMITTED)]


def test_a_cancel_of_a_job_that_waits_is_told_once(server: Server, queue: str, seen: list[Step]) -> None:
    with (
        connect(server.url) as conn,
        EchoMQ(server.url, default_queue=queue, events=True) as mq,
    ):
        send = mq.job(name="send")(lambda: None)
        job, later, other = send.enqueue(), send.after(hours=1).enqueue(), send.enqueue()
        seen.clear()
        with events(conn, queue) as heard:
            assert job.cancel("why") is Cancellation.DEAD
            assert job.cancel("again") is Cancellation.DEAD  # it was dead already
            assert mq.cancel(later.id) is Cancellation.DEAD
            assert mq.cancel(mq.connection().mint()) is Cancellation.GONE
            assert mq.run(jobs.claim(queue)).id == other.id
            assert other.cancel() is Cancellation.REQUESTED  # its worker is to say what becomes of it
            told = [next(iter(heard)) for _ in range(3)]
    assert seen == [Cancelled(queue, job.id, "cancelled: why"), Cancelled(queue, later.id, "cancelled")]
    assert [(event.event, event.job) for event in told] == [("cancelled", each.id) for each in (job, later, other)]


async def test_an_awaited_cancel_is_told(server: Server, queue: str, seen: list[Step]) -> None:
    async with EchoMQ(server.url, default_queue=queue) as mq:
        job = await mq.job(name="send")(lambda: None).aenqueue()
        seen.clear()
        await job.acancel()
    assert seen == [Cancelled(queue, job.id, "cancelled")]


def family(mq: EchoMQ, queue: str) -> Node:
    """A job that waits, its parent and theirs."""
    mint = mq.connection().mint
    root = Node(queue, mint(), "top", (Node(queue, mint(), "middle", (Node(queue, mint(), "leaf"),)),))
    mq.run(flows.add(root))
    return root


def deaths(root: Node) -> list[Step]:
    """What the cancel of its leaf is to tell, from below."""
    (middle,) = root.children
    (leaf,) = middle.children
    first = f"child {leaf.id} failed: cancelled: why"
    return [
        Cancelled(root.queue, leaf.id, "cancelled: why"),
        Dead(root.queue, middle.id, first),
        Dead(root.queue, root.id, f"child {middle.id} failed: {first}"),
    ]


def test_a_cancel_tells_of_the_parents_that_die_with_the_job(server: Server, queue: str, seen: list[Step]) -> None:
    with connect(server.url) as conn, EchoMQ(server.url, default_queue=queue, events=True) as mq:
        root = family(mq, queue)
        leaf = root.children[0].children[0]
        seen.clear()
        with events(conn, queue) as heard:
            assert mq.cancel(leaf.id, reason="why") is Cancellation.DEAD
            assert mq.cancel(leaf.id, reason="why") is Cancellation.DEAD  # it was dead already
            told = [next(iter(heard)) for _ in range(3)]
    assert seen == deaths(root)
    assert [(event.event, event.job) for event in told] == [
        ("cancelled", leaf.id),
        ("dead", root.children[0].id),
        ("dead", root.id),
    ]


async def test_an_awaited_cancel_tells_of_the_parents(server: Server, queue: str, seen: list[Step]) -> None:
    with EchoMQ(server.url) as sync:
        root = family(sync, queue)
    seen.clear()
    async with EchoMQ(server.url, default_queue=queue) as mq:
        await mq.acancel(root.children[0].children[0].id, reason="why")
    assert seen == deaths(root)


def test_when_nobody_listens_the_verbs_run_as_they_are(server: Server, queue: str) -> None:
    with EchoMQ(server.url) as mq:
        call = jobs.enqueue(queue, mq.connection().mint(), b"p")
        decoded: list[object] = []
        conn = mq.connection()
        run = conn.run
        conn.run = lambda work: (decoded.append(work), run(work))[1]  # type: ignore[method-assign, assignment]
        mq.run(call)
    assert decoded == [call]


def test_an_observer_is_told_of_each_send(server: Server, queue: str) -> None:
    seen: list[Step] = []
    end = hub.observe(seen.append)
    try:
        with EchoMQ(server.url, default_queue=queue) as mq:
            send = mq.job(name="send")(lambda: None)
            now, later = send.enqueue(), send.after(hours=1).enqueue()
    finally:
        end()
    assert seen == [Added(queue, now.id, Admission.ADMITTED), Added(queue, later.id, Admission.SCHEDULED)]


def test_an_app_with_events_publishes_each_send(server: Server, queue: str) -> None:
    with (
        connect(server.url) as conn,
        events(conn, queue) as heard,
        EchoMQ(server.url, default_queue=queue, events=True) as mq,
    ):
        send = mq.job(name="send")(lambda: None)
        jobs = [send.enqueue(), send.after(hours=1).enqueue()]
        told = [event for _, event in zip(jobs, heard, strict=False)]
    assert [(event.event, event.job) for event in told] == [("enqueued", jobs[0].id), ("scheduled", jobs[1].id)]


async def test_an_awaited_send_is_told_too(server: Server, queue: str) -> None:
    seen: list[Step] = []
    end = hub.observe(seen.append)
    try:
        async with EchoMQ(server.url, default_queue=queue) as mq:
            job = await mq.job(name="send")(lambda: None).aenqueue()
    finally:
        end()
    assert seen == [Added(queue, job.id, Admission.ADMITTED)]


def test_a_program_that_only_sends_does_not_import_the_runtime(server: Server, queue: str) -> None:
    program = f"""
import sys
from echomq import EchoMQ
with EchoMQ({server.url!r}, default_queue={queue!r}) as mq:
    mq.job(name="send")(lambda: None).enqueue()
sys.exit(any(name.startswith("echomq.runtime") for name in sys.modules))
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=50)
