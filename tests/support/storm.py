"""A storm of random commands at a live server with the native module, which has to stay up and sound.

    python -m support.storm [COMMANDS] [--server valkey|valkey81|redis] [--seed N] [--seconds S] [--folder FOLDER]

First calls that a client could make, of every verb, in flights over several connections, natively and as scripts, in
transactions and inside scripts; the invariants of protocol §12.1 are checked again and again, by plain commands and by
`audit`. Then garbage: arguments, keys and shapes of calls that are wrong, and states that no verb leaves. Then an empty
server, and sound calls again. With --folder the module is the one with the sanitizers that native/fuzz/build has put
there.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Self

from echomq.identity.branded import encode
from echomq.protocol import admin, jobs
from echomq.protocol.audit import Breach, audit
from echomq.protocol.call import Arg, Call
from echomq.protocol.scripts import registered, script, twins
from support.grammar import THEMES, Speaker
from support.invariants import check_queue_invariants, queues_on
from support.lies import BAD_IDS, BAD_NUMBERS, BAD_TEXTS, bad_keys
from support.native import Plain
from support.raw import RawClient, ReplyError
from support.runner import Runner
from support.servers import Kind, Server

FLIGHT = 100
LOOK_EVERY = 10_000
REFUSALS = ("EMQKIND", "EMQSTALE", "EMQLOCK", "EMQSTATE", "EMQRATE")
INSIDE = "return redis.pcall(unpack(ARGV))"


class StormError(AssertionError):
    """The server is gone, or is not sound."""


@dataclass(slots=True)
class Tally:
    """What was sent and what came of it."""

    sent: int = 0
    native: int = 0
    left: int = 0
    looks: int = 0
    done: int = 0
    refused: Counter[str] = field(default_factory=Counter)


class Storm:
    """One server, several connections, and random calls over two queues."""

    def __init__(self, server: Server, seed: int) -> None:
        self.server = server
        self.tally = Tally()
        self._random = Random(seed)
        self._clients = [server.client(timeout=60) for _ in range(4)]
        self._clients[0].execute("HELLO", 3)
        self._eye = server.client(timeout=60)
        self._runner = Runner(server.client(timeout=60))
        self._again: list[Call[Any]] = []
        self._pid = server.pid
        self._first = self._random.randrange(2**40)
        self._empty()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in (*self._clients, self._eye, self._runner.client):
            client.close()

    def _empty(self) -> None:
        self._eye.execute("CONFIG", "SET", "maxmemory", 0)
        self._eye.execute("FLUSHALL")
        for each in registered():
            self._eye.execute("SCRIPT", "LOAD", each.source)

    def sound(self, count: int, going: Callable[[], bool] = lambda: True) -> None:
        """So many calls that a client could make; every invariant holds all the while."""
        self._empty()
        end = self.tally.sent + count
        look = self.tally.sent + LOOK_EVERY
        while self.tally.sent < end and going():
            speaker = self._speaker(hostile=False)
            calls = [*self._again, *self._opened(speaker.queue), *(speaker.say() for _ in range(FLIGHT))]
            self._again = []
            for call, reply in zip(calls, self._fly([self._words(call) for call in calls]), strict=True):
                self._take(call, reply)
            if self.tally.sent >= look:
                look += LOOK_EVERY
                self.look()
                self._empty()
        self.look()

    def garbage(self, count: int, going: Callable[[], bool] = lambda: True) -> None:
        """So many calls and writes that nobody should make; the server answers each."""
        end = self.tally.sent + count
        while self.tally.sent < end and going():
            speaker = self._speaker(hostile=True)
            words = [self._noise() if i % 4 == 0 else self._words(speaker.say()) for i in range(FLIGHT)]
            for reply in self._fly(words):
                if isinstance(reply, ReplyError):
                    self.tally.refused[str(reply).split(" ", 1)[0]] += 1
            if self._random.random() < 0.02:
                self._empty()
        if self._eye.execute("PING") != b"PONG" or self.server.pid != self._pid:
            raise StormError("it is another server than it was")

    def look(self) -> None:
        """Every invariant of every queue, by plain commands and by the audit."""
        self.tally.looks += 1
        self.tally.done += sum(
            int(self._eye.execute("HGET", f"emq:{{{queue}}}:metrics:completed", "count") or 0)
            for queue in queues_on(self._eye.execute)
        )
        found = [
            f"{queue}: {breach}"
            for queue in sorted(queues_on(self._eye.execute))
            for breach in (
                *check_queue_invariants(self._eye.execute, queue),
                *(f"audit: {b.subject} {b.what}" for b in self._runner.finish(audit(queue)) if not _waits(b)),
            )
        ]
        if found:
            raise StormError("the server is not sound:\n" + "\n".join(found[:20]))

    def _settle(self, queue: str, reply: list[Any]) -> None:
        """What was claimed is settled in the next flight, one way or another, but for a few."""
        held = [(job_id.decode(), token) for job_id, token in zip(reply[3::6], reply[5::6], strict=True)]
        settled = [pair for pair in held if self._random.random() < 0.8]
        way = self._random.randrange(6)
        if way == 0:
            self._again += [jobs.delay(queue, *pair, delay_ms=self._random.choice((0, 5, 1_000))) for pair in settled]
        elif way == 1:
            self._again += [jobs.retry(queue, *pair, delay_ms=0, max_attempts=2, error="boom") for pair in settled]
        elif settled:
            self._again.append(jobs.complete_many(queue, settled, result=b"r", result_ttl_ms=way % 2 * 1_000))

    def _speaker(self, *, hostile: bool) -> Speaker:
        theme = self._random.choice(THEMES)
        queue = self._random.choice(("q", "q", "elsewhere"))
        now_ms = time.time_ns() // 1_000_000
        # New jobs all the while: the kept results of those that have ended shut their ids.
        self._first += 10
        ids = [encode("JOB", self._first + i) for i in range(self._random.choice((8, 30, 60)))]
        return Speaker(self._random.choice, hostile=hostile, ids=ids, queue=queue, theme=theme, now_ms=now_ms)

    def _words(self, call: Call[Any]) -> tuple[Arg, ...]:
        """As a command mostly, else as its script, or as a command that a script calls."""
        how = self._random.randrange(20)
        if call.script is None or not call.script.native or how == 0:
            return call.words()
        self.tally.native += 1
        words = call.native_words()
        return ("EVAL", INSIDE, 0, *words) if how == 1 and len(words) < 1_000 else words

    def _noise(self) -> tuple[Arg, ...]:
        """A command with any words at all."""
        choose = self._random.choice
        speaker = self._speaker(hostile=True)
        pool: Sequence[Arg] = (*BAD_NUMBERS, *BAD_TEXTS, *BAD_IDS, *bad_keys(speaker.keys), 1, 2, 3)
        return (choose(twins()).native, *(choose(pool) for _ in range(self._random.randrange(14))))

    def _fly(self, commands: list[tuple[Arg, ...]]) -> list[Any]:
        client: RawClient = self._random.choice(self._clients)
        together = self._random.random() < 0.1
        self.tally.sent += len(commands)
        try:
            client.send_all([("MULTI",), *commands, ("EXEC",)] if together else commands)
            replies = [client.receive() for _ in range(len(commands) + 2 * together)]
        except (OSError, ConnectionError) as error:
            log = "\n".join(self.server.log.splitlines()[-60:])
            raise StormError(f"the server is gone: {error!r}\n{log}\nthe last flight: {commands!r:.4000}") from None
        if not together:
            return replies
        done = replies[-1]
        return done if isinstance(done, list) else [r for r in replies[1:-1] if isinstance(r, ReplyError)]

    def _opened(self, queue: str) -> list[Call[Any]]:
        """Mostly the queue is open for what follows, whatever was set before."""
        if self._random.random() < 0.3:
            return []
        return [admin.resume_queue(queue), admin.set_ceiling(queue, None), admin.set_rate(queue, None)]

    def _take(self, call: Call[Any], reply: Any) -> None:
        if not isinstance(reply, ReplyError):
            if call.script is script("claim"):
                self._settle(call.keys[0].split("}")[0][5:], reply)
            return
        text = str(reply)
        if text.endswith(" not native"):
            self.tally.left += 1
            self._again.append(Call(call.verb, call.keys, call.args, call.decode, Plain(call.script)))
            return
        self.tally.refused[text.split(" ", 1)[0]] += 1
        if not text.startswith(REFUSALS):
            raise StormError(f"a sound call was refused: {call.native_words()!r:.500}: {text}")


def _waits(breach: Breach) -> bool:
    """Whether it is a parent that died of a child and was given another life alone: the protocol says so, and the audit
    tells of it; no invariant is broken."""
    return breach.what.startswith("held for good: ")


def _sanitized(folder: Path) -> dict[str, Any]:
    common = f"abort_on_error=1:print_stacktrace=1:log_path={folder}/report"
    environment = {
        "LD_PRELOAD": (folder / "preload").read_text().strip(),
        "ASAN_OPTIONS": f"{common}:detect_leaks=0:disable_coredump=1:verify_asan_link_order=0",
        "UBSAN_OPTIONS": common,
    }
    # The server's own report of a crash would go over the sanitizers' memory.
    options = ("--crash-log-enabled", "no", "--crash-memcheck-enabled", "no")
    return {"module": folder / "echomq.so", "environment": environment, "options": options}


def main() -> None:
    parser = argparse.ArgumentParser(prog="support.storm", description=__doc__)
    parser.add_argument("commands", nargs="?", type=int, default=1_000_000)
    parser.add_argument("--server", type=Kind, default=Kind.VALKEY)
    parser.add_argument("--seed", type=int, default=time.time_ns())
    parser.add_argument("--seconds", type=float, default=0, help="stop after so long, whatever was sent")
    parser.add_argument("--folder", type=Path, help="what native/fuzz/build has made")
    chosen = parser.parse_args()
    settings = _sanitized(chosen.folder) if chosen.folder else {"module": True}
    print(f"storm: seed {chosen.seed}", flush=True)
    with Server(chosen.server, **settings) as server, Storm(server, chosen.seed) as storm:
        try:
            run(storm, chosen.commands, chosen.seconds)
        except StormError as error:
            reports = sorted(chosen.folder.glob("report*")) if chosen.folder else []
            raise SystemExit(
                "\n".join([f"storm: seed {chosen.seed}: {error}", *(r.read_text() for r in reports)])
            ) from None


def run(storm: Storm, commands: int, seconds: float = 0) -> None:
    """The three parts of a storm, which is said when it is over."""
    began = time.monotonic()
    for part, act, share in (
        ("sound calls", storm.sound, 0.45),
        ("garbage", storm.garbage, 0.45),
        ("sound calls again", storm.sound, 0.1),
    ):
        until = time.monotonic() + seconds * share if seconds else float("inf")
        before = storm.tally.sent
        act(int(commands * share), lambda until=until: time.monotonic() < until)
        print(f"{storm.tally.sent - before:,} {part}, {time.monotonic() - began:.0f} s so far", flush=True)
    tally = storm.tally
    print(
        f"{tally.sent:,} commands on {storm.server.kind}, {tally.native:,} of them native, {tally.left:,} left to the "
        f"script; {tally.done:,} jobs completed; refused {dict(tally.refused.most_common(12))}; "
        f"every invariant held at {tally.looks:,} looks"
    )


if __name__ == "__main__":
    main()
