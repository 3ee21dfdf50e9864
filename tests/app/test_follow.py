"""Jobs that follow jobs: with the verdict or not at all, with what they have to know, in the queue of the other one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from echomq import Discard, EchoMQ, Failure, Snooze, Success, Worker, jobs
from echomq.errors import JobDefinitionError
from support.apps import burst
from support.desk import until
from support.servers import Server, wait_until


@pytest.fixture
def heard(mq: EchoMQ) -> list[Success | Failure]:
    """What the followers `success` and `failure` of the app were given, in order."""
    out: list[Success | Failure] = []

    @mq.job(name="success")
    def success(told: Success) -> None:
        out.append(told)

    @mq.job(name="failure")
    async def failure(told: Failure) -> None:
        out.append(told)

    return out


def followed(mq: EchoMQ, body: Callable[..., Any], **options: Any) -> Any:
    return mq.job(name="work", on_success="success", on_failure="failure", on_dead="failure", **options)(body)


def test_a_completion_is_followed_by_a_success(mq: EchoMQ, queue: str, heard: list[Any]) -> None:
    def work(n: int, *, word: str = "") -> dict[str, int]:
        return {"n": n}

    job = followed(mq, work).options(meta={"tenant": 1}).enqueue(5, word="x")
    burst(mq)
    assert heard == [Success(job.id, "work", queue, 1, {"n": 5}, [5], {"word": "x"}, {"tenant": 1})]


def test_each_failure_is_followed_and_the_death_once_more(mq: EchoMQ, queue: str, heard: list[Any]) -> None:
    def work(n: int) -> None:
        raise ValueError(n)

    job = followed(mq, work, max_attempts=2, backoff=lambda failures: 1).enqueue(5)
    burst(mq)
    wait_until(lambda: len(heard) == 3 or burst(mq))
    first, *last = heard
    assert (first.id, first.name, first.queue, first.args, first.kwargs) == (job.id, "work", queue, [5], {})
    assert (first.attempt, first.dead, first.retry_in_ms) == (1, False, 1)
    assert [(each.attempt, each.dead, each.retry_in_ms) for each in last] == [(2, True, None)] * 2
    assert all(each.error.startswith("ValueError: 5\n") and "raise ValueError(n)" in each.error for each in heard)


@pytest.mark.parametrize("instruction", ["snooze", "discard"])
def test_an_instruction_is_no_failure(mq: EchoMQ, heard: list[Any], instruction: str) -> None:
    def work() -> None:
        raise Snooze(hours=1) if instruction == "snooze" else Discard("of no use")

    followed(mq, work).enqueue()
    burst(mq)
    assert [each.error for each in heard] == ([] if instruction == "snooze" else ["discarded: of no use"])


@pytest.mark.parametrize("raised", [ValueError("caf\udce9"), Discard("caf\udce9")])
def test_an_error_that_quotes_what_is_no_unicode_is_followed(mq: EchoMQ, heard: list[Any], raised: Exception) -> None:
    def work() -> None:
        raise raised

    followed(mq, work, max_attempts=1).enqueue()
    burst(mq)
    assert len(heard) == (1 if isinstance(raised, Discard) else 2)
    assert all("caf\\udce9" in each.error and each.dead for each in heard)


def test_a_death_in_nobodys_hands_is_followed(mq: EchoMQ, heard: list[Any]) -> None:
    work = followed(mq, lambda n: None)
    waits = work.after(hours=1).enqueue(1)
    waits.cancel("not wanted")
    late = work.options(expires=timedelta(milliseconds=1)).enqueue(2)
    wait_until(lambda: mq.run(jobs.pending_size(mq.default_queue)) == 1)
    burst(mq)
    assert {(each.id, each.attempt, each.error.split(":")[0], tuple(each.args)) for each in heard} == {
        (waits.id, 0, "cancelled", (1,)),
        (late.id, 1 if heard[-1].attempt else 0, "expired", (2,)),
    }
    assert all(each.dead for each in heard)


def test_a_job_that_lapses_too_often_is_followed(mq: EchoMQ, server: Server, queue: str, heard: list[Any]) -> None:
    job = followed(mq, lambda n: None).enqueue(1)
    with server.client() as client:
        for lapse in range(1, 4):
            mq.run(jobs.claim(queue))
            client.execute("ZADD", f"emq:{{{queue}}}:active", 1, job.id)
            mq.run(jobs.sweep(queue, max_stalled=3))
            assert (client.execute("LLEN", f"emq:{{{queue}}}:owed") == 1) == (lapse == 3)
    burst(mq)
    (told,) = heard
    assert (told.id, told.error, told.dead, told.attempt, told.args) == (job.id, "stalled", True, 1, [1])


async def test_a_worker_that_is_there_follows_a_cancellation_at_once(mq: EchoMQ, heard: list[Any], working) -> None:
    work = followed(mq, lambda n: None)
    async with working() as worker:
        await until(lambda: worker.consumers and worker.consumers[0].parked.count)
        job = await work.after(hours=1).aenqueue(1)
        await job.acancel()
        await until(lambda: heard)
    assert heard[0].id == job.id


def test_what_follows_goes_to_the_queue_of_the_job(mq: EchoMQ, queue: str) -> None:
    seen: list[str] = []

    @mq.job(name="elsewhere", queue=f"{queue}-other")
    def elsewhere(told: Success) -> None:
        seen.append(told.queue)

    mq.job(name="work", on_success=elsewhere)(lambda: None).enqueue()
    burst(mq, queues=[queue])
    assert seen == [queue]


def test_a_follower_without_an_annotation_gets_what_json_has(mq: EchoMQ, queue: str) -> None:
    seen: list[dict[str, Any]] = []

    @mq.job(name="loose")
    def loose(told):  # type: ignore[no-untyped-def]
        seen.append(told)

    job = mq.job(name="work", on_success=loose)(lambda: {"a": 1}).enqueue()
    burst(mq)
    assert (seen[0]["type"], seen[0]["id"]) == ("success", job.id)
    assert seen[0]["result"] == {"a": 1}


def test_what_is_too_much_for_one_job_is_left_out(server: Server, queue: str) -> None:
    seen: list[Success] = []
    with EchoMQ(server.url, default_queue=queue, max_payload=2_000) as mq:

        @mq.job(name="success")
        def success(told: Success) -> None:
            seen.append(told)

        job = mq.job(name="work", on_success=success)(lambda text: text).enqueue("x" * 1_500)
        burst(mq)
    assert seen == [Success(job.id, "work", queue, 1)]


def test_a_follower_may_be_followed(mq: EchoMQ) -> None:
    seen: list[str] = []

    @mq.job(name="last")
    def last(told: Success) -> None:
        seen.append(told.name)

    @mq.job(name="first", on_success=last)
    def first(told: Success) -> None:
        seen.append(told.name)

    mq.job(name="work", on_success=first)(lambda: None).enqueue()
    burst(mq)
    assert seen == ["work", "first"]


def test_jobs_that_nothing_follows_share_one_call_with_each_other_still(mq: EchoMQ, heard: list[Any]) -> None:
    plain = mq.job(name="plain")(lambda: None)
    work = followed(mq, lambda: None)
    mq.enqueue_many([each.s() for each in (plain, work) for _ in range(20)])
    burst(mq)
    assert len(heard) == 20


def test_what_cannot_follow_is_logged_and_costs_no_verdict(
    mq: EchoMQ, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    mq.job(name="success")(lambda told: None)
    mq.job(name="work", on_success="success")(lambda: None).enqueue()
    monkeypatch.setattr("echomq.app.succession.mint", lambda: 1 // 0)
    worker = Worker(mq, burst=True)
    worker.run()
    assert worker.consumers[0].tally.completed == 1
    assert [record.getMessage() for record in caplog.records if "cannot follow it" in record.getMessage()]
    assert logging.ERROR in {record.levelno for record in caplog.records}


# Written wrongly


def refusal(mq: EchoMQ) -> str:
    with pytest.raises(JobDefinitionError) as caught:
        burst(mq)
    return str(caught.value)


def test_a_follower_is_a_job_of_the_app(mq: EchoMQ) -> None:
    mq.job(name="success")(lambda told: None)
    mq.job(name="work", on_dead="sucess")(lambda: None)
    assert refusal(mq).startswith(
        "on_dead of job 'work' names 'sucess', which is no job of this app; there are: 'success'"
    )


def test_a_follower_takes_one_argument(mq: EchoMQ) -> None:
    @mq.job(name="success")
    def success(told: Success, more: int) -> None: ...

    mq.job(name="work", on_success=success)(lambda: None)
    assert "must take one argument, a Success: " in refusal(mq)


def test_a_follower_takes_the_record_that_it_is_given(mq: EchoMQ) -> None:
    @mq.job(name="failure")
    def failure(told: Success) -> None: ...

    mq.job(name="work", on_dead=failure)(lambda: None)
    assert "must take one argument, a Failure: " in refusal(mq)


def test_one_follower_may_serve_both(mq: EchoMQ) -> None:
    seen: list[str] = []

    @mq.job(name="both")
    def both(told: Success | Failure) -> None:
        seen.append(type(told).__name__)

    work = mq.job(name="work", on_success=both, on_dead=both, max_attempts=1)(lambda n: 1 // n)
    work.enqueue(0)
    work.enqueue(1)
    burst(mq)
    assert sorted(seen) == ["Failure", "Success"]


def test_no_job_follows_itself_and_nothing_else_does() -> None:
    mq = EchoMQ("valkey://localhost")
    for word in ("on_success", "on_failure", "on_dead"):
        itself: Any = {word: "work"}
        with pytest.raises(JobDefinitionError, match="job 'work' follows itself"):
            mq.job(name="work", **itself)(lambda told: None)
    wrong: Any = 5
    with pytest.raises(JobDefinitionError, match="on_failure must be a job or the name of one, not 5"):
        mq.job(name="work", on_failure=wrong)(lambda: None)
