"""Flows that a type checker must accept, and what it must understand of them."""

from __future__ import annotations

from typing import Any, assert_type

from echomq import (
    Child,
    EchoMQ,
    Flow,
    FlowJobs,
    Job,
    chain,
    chord,
    current_job,
    flow,
    group,
    may_fail,
    previous,
    results,
)

mq = EchoMQ("valkey://localhost:6379/0")


@mq.job
async def fetch(url: str) -> bytes:
    return url.encode()


@mq.job
def total(parts: list[bytes], *, least: int = 0) -> int:
    return max(least, len(parts))


assert_type(flow(total.s(results(), least=1), [fetch.s("a"), may_fail(fetch.s("b"))]), Flow[int])
assert_type(chord(group(fetch.s("a"), fetch.s("b")), total.s(results())), Flow[int])
assert_type(chain(fetch.s("a"), total.s([], least=previous()), fetch.s(previous())), Flow[bytes])
assert_type(chain(group(fetch.s("a")), total.s(results())).enqueue(), FlowJobs[int])
assert_type(group(fetch.s("a"), fetch.s("b")).enqueue(), list[Job[bytes]])


async def main() -> None:
    sent = await flow(total.s(results()), [fetch.s("a")]).aenqueue()
    assert_type(await sent.result(), int)
    assert_type(sent.get(), int)
    assert_type(sent.job, Job[int])
    assert_type(sent.children, tuple[FlowJobs[Any], ...])
    assert_type(await current_job().achildren(), tuple[Child, ...])
