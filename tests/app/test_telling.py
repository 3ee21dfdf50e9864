"""What a send tells: the observers of its process, and the queue's channel when the app publishes events."""

from __future__ import annotations

import subprocess
import sys

from echomq import EchoMQ, connect
from echomq.events import events
from echomq.protocol.replies import Admission
from echomq.telemetry import Added, Step, hub
from support.servers import Server


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
