"""A prefix before the name of every queue: two environments on one server never meet."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta

import pytest

from echomq import EchoMQ, InvalidInputError, State, Worker, current_job, metrics
from echomq.errors import QueueNameError
from support.apps import burst
from support.servers import Server


@pytest.fixture
def pair(server: Server, queue: str) -> Iterator[tuple[EchoMQ, EchoMQ, list[str]]]:
    """The same app in two environments, and where its jobs have run."""
    seen: list[str] = []
    with (
        EchoMQ(server.url, default_queue=queue, prefix="staging") as one,
        EchoMQ(server.url, default_queue=queue, prefix="production") as other,
    ):
        for mq in (one, other):

            @mq.job(name="work")
            async def work() -> None:
                seen.append(current_job().queue)

            @mq.job(name="mail", queue=f"{queue}-mail")
            async def mail() -> None:
                seen.append(current_job().queue)

        yield one, other, seen


def keys(mq: EchoMQ, queue: str) -> set[str]:
    """The queues that have a key."""
    found = mq.connection().execute("KEYS", f"*{queue}*")
    return {key.decode().split("{")[1].split("}")[0] for key in found}


def test_every_queue_that_the_app_touches_has_the_prefix(pair, queue: str) -> None:
    mq, _, seen = pair
    work, mail = mq.jobs["work"], mq.jobs["mail"]
    here, there = f"staging:{queue}", f"staging:{queue}-mail"
    assert (mq.default_queue, mq.queues, Worker(mq).queues) == (here, (here, there), (here, there))
    sent = [
        work.enqueue(),
        mail.enqueue(),
        asyncio.run(work.options(lane="acme").aenqueue()),
        work.after(hours=1).enqueue(),
        work.options(queue=f"{queue}-mail").enqueue(),
        *mq.enqueue_many([work.s(), mail.options(dedup="k").s()]),
    ]
    assert [job.queue for job in sent] == [here, there, here, here, there, here, there]
    assert all(job.state() in (State.PENDING, State.SCHEDULED) for job in sent)
    work.every(hours=1, name="hourly", first_in=timedelta(hours=1)).register()
    mq.lane("acme").pause()
    mq.lane("acme", queue=f"{queue}-mail").limit(5)
    assert mq.lane("acme").queue == here
    assert keys(mq, queue) == {here, there}
    mq.lane("acme").resume()
    burst(mq)
    assert sorted(seen) == sorted([here] * 3 + [there] * 3)


def test_two_environments_on_one_server_never_meet(pair, queue: str) -> None:
    staging, production, seen = pair
    staging.jobs["work"].enqueue()
    job = production.jobs["work"].enqueue()
    assert staging.cancel(job.id, queue=queue).name == "GONE"
    burst(staging)
    assert seen == [f"staging:{queue}"]
    assert job.state() is State.PENDING
    burst(production, queues=[queue])
    assert seen == [f"staging:{queue}", f"production:{queue}"]


def test_a_name_is_taken_with_its_prefix_and_without(pair, queue: str) -> None:
    mq, _, _ = pair
    whole = f"staging:{queue}"
    assert mq.queue_name(queue) == mq.queue_name(whole) == whole
    job = mq.jobs["work"].enqueue()
    assert mq.run(metrics.counts(mq.queue_name(queue))).pending == 1
    assert mq.cancel(job.id, queue=job.queue).name == "DEAD"
    assert Worker(mq, queues=[whole]).queues == Worker(mq, queues=[queue, whole]).queues == (whole,)
    assert mq.jobs["work"].options(queue=whole).enqueue().queue == whole


def test_declared_queues_have_it_too(server: Server) -> None:
    mq = EchoMQ(server.url, prefix="staging", queues=["ops"])
    mq.job(name="work")(lambda: None)
    assert mq.queues == ("staging:default", "staging:ops")


@pytest.mark.parametrize(
    ("prefix", "why"),
    [
        ("", "prefix '' makes no queue name: queue name is empty"),
        ("a b", "prefix 'a b' makes no queue name"),
        ("{x}", "prefix '{x}' makes no queue name"),
        (5, "prefix 5 makes no queue name"),
        (
            "team:staging",
            "prefix 'team:staging' holds ':', which ends a prefix: use another sign, as in 'team-staging'",
        ),
    ],
)
def test_a_prefix_that_makes_no_queue_name_is_refused(prefix, why) -> None:
    with pytest.raises(QueueNameError, match=why):
        EchoMQ(prefix=prefix)
    assert issubclass(QueueNameError, InvalidInputError)
