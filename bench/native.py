"""Every native command beside its script, in one run on one server, with an append-only file (everysec).

    python bench/native.py [JOBS] [ROUNDS]

The same calls, packed beforehand, go to a bare socket: as scripts and as commands turn about, each time on an empty
server. The ratio is how many times as fast the command is, the median of the rounds with its range; beside it the
same of the server's own processor time, which knows nothing of the client and of who else is on the machine. Exits 1
when a ratio of the clock on the wall is below what is asked of that command.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hiredis
from _server import Client, Server

from echomq import admin, jobs, lanes
from echomq.identity.minter import Minter
from echomq.protocol.call import Call
from echomq.protocol.scripts import registered
from echomq.wire.module import module_path

PAYLOAD = b"x" * 200
FAR = 2**52
QUEUE = "bench"

LEAST = {"promote 1,000": 1.6, "schedule": 1.3}
"""What is asked of a ratio; of the others, that no command is slower than its script."""


@dataclass(frozen=True, slots=True)
class Leg:
    """Calls that are measured together: how many jobs they are about, how many travel at once."""

    name: str
    jobs: int
    calls: Sequence[Call[Any]]
    depth: int


def legs(ids: Sequence[str]) -> Iterator[Leg | None]:
    """The life of the jobs, every command in turn; at None the server is emptied."""
    count = len(ids)

    def by(size: int) -> list[Sequence[str]]:
        return [ids[i : i + size] for i in range(0, count, size)]

    yield Leg("schedule", count, [jobs.enqueue_in(QUEUE, i, PAYLOAD, delay_ms=60_000) for i in ids], 100)
    yield Leg("reschedule", count, [jobs.reschedule(QUEUE, i, at_ms=1_000 + n) for n, i in enumerate(ids)], 100)
    yield Leg("promote 1,000", count, [jobs.promote(QUEUE, batch=1_000)] * (count // 1_000), 1)
    yield Leg("claim 100", count, [jobs.claim_many(QUEUE, 100)] * (count // 100), 10)
    yield Leg("delay", count, [jobs.delay(QUEUE, i, 1, at_ms=FAR) for i in ids], 100)
    yield None
    yield Leg("enqueue", count, [jobs.enqueue(QUEUE, i, PAYLOAD) for i in ids], 100)
    yield Leg("claim 1", count // 2, [jobs.claim_many(QUEUE, 1)] * (count // 2), 100)
    yield Leg("claim 10", count // 2, [jobs.claim_many(QUEUE, 10)] * (count // 20), 10)
    yield Leg("complete 1", count // 2, [jobs.complete_many(QUEUE, [(i, 1)]) for i in ids[: count // 2]], 100)
    tens = by(10)[count // 20 :]
    yield Leg("complete 10", count // 2, [jobs.complete_many(QUEUE, [(i, 1) for i in part]) for part in tens], 10)
    yield None
    hundreds = by(100)
    yield Leg("enqueue 100", count, [jobs.enqueue_many(QUEUE, [(i, PAYLOAD) for i in p]) for p in hundreds], 10)
    yield Leg("claim 1,000", count, [jobs.claim_many(QUEUE, 1_000)] * (count // 1_000), 1)
    yield Leg("complete 100", count, [jobs.complete_many(QUEUE, [(i, 1) for i in p]) for p in hundreds], 10)
    yield None


def worked(pid: int) -> float:
    """The seconds that a process has been on a processor."""
    return sum(int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir()) / 1e9


Times = dict[str, tuple[float, float]]
"""Seconds by leg: of the clock on the wall, and of the server's processor."""


def life(client: Client, pid: int, ids: Sequence[str], words: Callable[[Call[Any]], tuple[Any, ...]]) -> Times:
    times: Times = {}
    for leg in legs(ids):
        if leg is None:
            client.execute("FLUSHALL")
            continue
        packed = [hiredis.pack_command(words(call)) for call in leg.calls]
        client.execute("DEL", f"emq:{{{QUEUE}}}:wake")
        at, on = time.perf_counter(), worked(pid)
        client.flight(packed, leg.depth)
        times[leg.name] = time.perf_counter() - at, worked(pid) - on
    return times


def shown(name: str, count: int, scripts: list[tuple[float, float]], natives: list[tuple[float, float]]) -> bool:
    """Prints a line; whether it is as fast as is asked."""
    wall, processor = (sorted(s[i] / n[i] for s, n in zip(scripts, natives, strict=True)) for i in (0, 1))
    rate = [count / statistics.median(t[0] for t in times) for times in (scripts, natives)]
    ratio, least = statistics.median(wall), LEAST.get(name, 1.0)
    print(
        f"  {name:14} {rate[0]:>10,.0f} {rate[1]:>10,.0f}   {ratio:5.2f} ({wall[0]:.2f} to {wall[-1]:.2f})"
        f"   {statistics.median(processor):5.2f}   asked {least:.1f}{'' if ratio >= least else '   MISSED'}"
    )
    return ratio >= least


def left(client: Client) -> None:
    """What the commands leave to the script, as they say it."""
    flat, grouped = Minter().mint_many(2)
    claim = jobs.claim_many(QUEUE, 2)
    steps: list[tuple[str, list[tuple[Any, ...]], Call[Any]]] = [
        ("a claim under a rate", [admin.set_rate(QUEUE, 5, period_ms=60_000).words()], claim),
        (
            "a claim with lanes to serve",
            [
                admin.set_rate(QUEUE, None).words(),
                jobs.enqueue(QUEUE, flat, b"p").words(),
                lanes.enqueue(QUEUE, grouped, b"p", "LAN00000000001").words(),
            ],
            claim,
        ),
        ("a delay of a job of a lane", [claim.words()], jobs.delay(QUEUE, grouped, 1, at_ms=FAR)),
        ("a completion of a job of a lane", [], jobs.complete_many(QUEUE, [(flat, 1), (grouped, 1)])),
        ("a promote of a job of a lane", [jobs.delay(QUEUE, grouped, 1, at_ms=1).words()], jobs.promote(QUEUE)),
    ]
    print("left to the script, at the cost of a refusal:")
    for what, before, call in steps:
        for words in before:
            client.execute(*words)
        try:
            answer = client.execute(*call.native_words())
        except hiredis.ReplyError as error:
            print(f"  {what:34} {error}")
        else:
            raise SystemExit(f"{what} was to be left to the script, and is answered {answer!r}")


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 4_000
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 9
    if count % 1_000:
        raise SystemExit(f"{count} jobs: a multiple of 1,000, please")
    options = ("--appendonly", "yes", "--appendfsync", "everysec", "--loadmodule", str(module_path()))
    with Server(*options) as server:
        client = server.client()
        for script in registered():
            client.execute("SCRIPT", "LOAD", script.source)
        ids = Minter().mint_many(count)
        times: dict[str, list[Times]] = {"script": [], "native": []}
        for number in range(-1, rounds):
            ways = [("script", Call.words), ("native", Call.native_words)]
            for way, words in ways if number % 2 else reversed(ways):
                done = life(client, server.pid, ids, words)
                if number >= 0:  # the first round warms up
                    times[way].append(done)
        print(f"{count:,} jobs of {len(PAYLOAD)} bytes, {rounds} rounds, append-only file, fsync every second")
        print(f"  {'':14} {'script':>10} {'command':>10}   {'ratio of the wall':22}  of the processor")
        named = {leg.name: leg.jobs for leg in legs(ids) if leg}
        kept = [
            shown(name, n, [t[name] for t in times["script"]], [t[name] for t in times["native"]])
            for name, n in named.items()
        ]
        left(client)
    if not all(kept):
        raise SystemExit("a command is not as fast as is asked of it")


if __name__ == "__main__":
    main()
