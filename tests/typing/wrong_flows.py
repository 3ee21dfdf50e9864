"""Uses of flows that a type checker must reject: every line that ends in `# wrong`, and no other."""

from __future__ import annotations

from echomq import EchoMQ, Flow, FlowJobs, Job, chain, chord, flow, group, may_fail, previous, results

mq = EchoMQ("valkey://localhost:6379/0")


@mq.job
async def fetch(url: str) -> bytes:
    return url.encode()


@mq.job
def total(parts: list[bytes]) -> int:
    return len(parts)


flow(total, [fetch.s("a")])  # wrong
flow(total.s(results()), fetch.s("a"))  # wrong
flow(total.s(results()), [fetch])  # wrong
flow(total.s(results()), ["a"])  # wrong
flow(total.s(results()), [fetch.s(1)])  # wrong
flow(total.s(results(), 2), [fetch.s("a")])  # wrong
chain(fetch.s("a"))  # wrong
chain(fetch.s("a"), group(total.s(results())))  # wrong
chord([fetch.s("a")])  # wrong
may_fail(fetch)  # wrong
group("a")  # wrong
wrong: Flow[str] = chain(fetch.s("a"), total.s(previous()))  # wrong
sent: FlowJobs[str] = flow(total.s(results()), [fetch.s("a")]).enqueue()  # wrong
handles: list[Job[str]] = group(fetch.s("a")).enqueue()  # wrong
