"""A payload that no worker can read, or a job that it does not know, ends in the morgue with the reason."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from difflib import get_close_matches
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from echomq import EchoMQ, Worker, jobs, metrics, mint
from echomq.app import text
from echomq.app.patience import Patience
from echomq.app.text import nearest
from echomq.protocol.replies import State
from support.apps import id_is, state_is
from support.servers import Server


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "payload is not an envelope"),
        (b"hello", "payload is not an envelope"),
        (b"\xff\x00\xfe", "payload is not an envelope"),
        (b'{"v":3,"job":"work"}', "payload is an envelope of version 3; this worker reads version 1"),
        (b'{"v":1,"job":"work","args":[1,2]}', "the arguments do not fit: work(): too many positional arguments"),
        (b'{"v":1,"job":"work","args":["x"]}', "argument 'number' does not fit its annotation"),
        (b'{"v":1,"job":"work","kwargs":{"self":1}}', "the arguments do not fit"),
        (b'{"v":%s,"job":"work"}' % (b"9" * 400), f"payload is an envelope of version {'9' * 20}...; this worker"),
        (b'{"v":1,"job":"work","kwargs":{"%s":1}}' % (b"k" * 10**6), "the arguments do not fit: work(): got an un"),
    ],
)
def test_what_cannot_be_read_is_buried_at_once(mq: EchoMQ, queue: str, dead_rows, payload, reason) -> None:
    ran: list[int] = []

    @mq.job(name="work")
    def work(number: int = 0) -> None:
        ran.append(number)

    mq.run(jobs.enqueue(queue, mint(), payload))
    Worker(mq, burst=True).run()
    (row,) = dead_rows()
    assert row["last_error"].decode().startswith(reason)
    assert row["payload"] == payload
    assert row["attempts"] == b"1"
    assert len(row["last_error"]) < 500
    assert ran == []


WRONG = (0, 1, True, False, "", "x", {}, {"0": 1}, 1.5)
TYPES: dict[str, tuple[type, ...]] = {
    "args": (list,),
    "kwargs": (dict,),
    "max_attempts": (int,),
    "timeout_ms": (int,),
    "expires_ms": (int,),
    "result_ttl_ms": (int,),
    "slot_ms": (int,),
    "codec": (str,),
    "body": (str,),
    "meta": (dict,),
    "takes": (list,),
}


@pytest.mark.parametrize("member", TYPES)
def test_a_member_of_a_wrong_type_buries_the_job_whatever_the_type_is(
    mq: EchoMQ, queue: str, dead_rows, member: str
) -> None:
    ran: list[int] = []

    @mq.job(name="work")
    def work() -> None:
        ran.append(1)

    values = [value for value in WRONG if type(value) not in TYPES[member]]
    values += [] if list in TYPES[member] else [[], ["x"]]
    values += [[{"0": 1, "one": 2}], ["0one"], [["0", "one", 2]], [[]]] if member == "takes" else []
    for value in values:
        mq.run(jobs.enqueue(queue, mint(), json.dumps({"v": 1, "job": "work", member: value})))
    Worker(mq, burst=True).run()
    assert ran == []
    assert len(dead_rows()) == len(values)


@settings(max_examples=15)
@given(payloads=st.lists(st.binary(max_size=60) | st.text(max_size=20).map(str.encode), min_size=20, max_size=40))
def test_whatever_the_bytes_are_the_worker_goes_on(server: Server, payloads: list[bytes]) -> None:
    with EchoMQ(server.url, default_queue="bytes") as mq:
        mq.job(name="work")(lambda: None)
        before = mq.run(metrics.counts("bytes"))
        mq.run(jobs.enqueue_many("bytes", [(mint(), payload) for payload in payloads]))
        mq.jobs["work"].enqueue()
        Worker(mq, burst=True).run()
        after = mq.run(metrics.counts("bytes"))
    assert (after.pending, after.active, after.schedule) == (0, 0, 0)
    assert after.dead - before.dead == len(payloads)
    assert after.completed - before.completed == 1


async def test_a_job_that_another_worker_knows_waits_for_it(server: Server, mq: EchoMQ, queue: str) -> None:
    ran = asyncio.Event()
    newer = EchoMQ(server.url, default_queue=queue)

    @newer.job(name="fresh")
    async def fresh() -> None:
        ran.set()

    mq.job(name="known")(lambda: None)
    job = await fresh.aenqueue()
    old = Worker(mq)
    serving = asyncio.ensure_future(old.serve())
    await state_is(job, State.SCHEDULED)
    row = await newer.arun(metrics.row(queue, job.id))
    assert row.get("failures", b"0") == b"0"
    assert "last_error" not in row
    old.stop()
    await serving
    new = Worker(newer)
    serving = asyncio.ensure_future(new.serve())
    await ran.wait()
    new.stop()
    await serving


async def test_a_job_that_nobody_knows_is_buried_when_it_has_waited(mq: EchoMQ, working, queue: str) -> None:
    mq.job(name="mail.send")(lambda: None)
    job_id = mint()
    await mq.arun(jobs.enqueue(queue, job_id, json.dumps({"v": 1, "job": "mail.sent"})))
    async with working(unknown_patience=timedelta(milliseconds=300)):
        await id_is(mq, queue, job_id, State.DEAD)
    row = await mq.arun(metrics.row(queue, job_id))
    assert row["last_error"] == b"unknown job 'mail.sent'; this worker knows: 'mail.send'"
    assert int(row["attempts"]) >= 2
    await mq.aclose()


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_it_waits_longer_each_time_and_no_longer_than_its_patience() -> None:
    clock = Clock()
    patient = Patience(300, clock)
    waits = []
    while (wait_ms := patient.wait_ms("JOB1", len(waits) + 1)) is not None:
        waits.append(wait_ms)
        clock.now += wait_ms / 1_000
    assert waits[:7] == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000]
    assert max(waits) == 60_000
    assert sum(waits) == 300_000


def test_too_many_claims_end_the_patience_of_a_worker_that_forgets() -> None:
    assert Patience(300).wait_ms("JOB1", 999) is not None
    assert Patience(300).wait_ms("JOB1", 1_000) is None


def test_it_remembers_no_more_than_it_must() -> None:
    patient = Patience(300, clock := Clock())
    for number in range(20_000):
        patient.wait_ms(f"JOB{number}", 1)
    clock.now = 299.5
    assert patient.wait_ms("JOB19999", 1) == 500
    assert patient.wait_ms("JOB0", 1) == 1_000


def test_the_nearest_names_are_named() -> None:
    assert nearest("sned", ["send", "count"]) == "'send'"
    assert nearest("zzz", ["b", "a"]) == "'a', 'b'"
    assert nearest("zzz", []) == "none at all"


async def test_a_name_of_a_million_letters_is_cut_before_anything_is_done_with_it(
    mq: EchoMQ, working, queue: str, dead_rows, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    compared: list[int] = []

    def matches(name: str, *rest: Any, **more: Any) -> list[str]:
        compared.append(len(name))
        return get_close_matches(name, *rest, **more)

    monkeypatch.setattr(text, "get_close_matches", matches)
    mq.job(name="known")(lambda: None)
    job_id = mint()
    await mq.arun(jobs.enqueue(queue, job_id, json.dumps({"v": 1, "job": "known" * 200_000})))
    async with working(unknown_patience=timedelta(milliseconds=300)):
        await id_is(mq, queue, job_id, State.DEAD)
    row = await mq.arun(metrics.row(queue, job_id))
    assert row["last_error"].decode() == f"unknown job '{'known' * 40}...'; this worker knows: 'known'"
    assert set(compared) == {200}
    assert max(len(record.getMessage()) for record in caplog.records) < 1_000
    await mq.aclose()
