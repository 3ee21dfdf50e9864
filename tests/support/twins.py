"""The same calls as native commands in one database of a server and as scripts in another, compared step by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from echomq.protocol.call import Call
from echomq.protocol.scripts import registered
from support.frozen import FrozenClock
from support.grammar import NOW
from support.raw import RawClient, ReplyError
from support.servers import Kind, wait_until

DUMP = """#!lua flags=no-writes
local read = {
  string = function(key) return redis.call('GET', key) end,
  list = function(key) return redis.call('LRANGE', key, 0, -1) end,
  hash = function(key) return redis.call('HGETALL', key) end,
  set = function(key) return redis.call('SMEMBERS', key) end,
  zset = function(key) return redis.call('ZRANGE', key, 0, -1, 'WITHSCORES') end,
}
local out = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  local kind = redis.call('TYPE', key).ok
  out[#out + 1] = { key, kind, redis.call('PEXPIRETIME', key), read[kind](key) }
end
return out
"""

END = 2**52
"""When the key ends by which the copy of the time that a server keeps is read."""


class DifferenceError(AssertionError):
    """A native command and its script were not the same."""


@dataclass(frozen=True, slots=True)
class Tick:
    """The server's clock moves by so many ms, back too."""

    ms: int


Step = Call[Any] | Tick
Answer = tuple[Any, dict[bytes, Any], tuple[Any, ...]]
"""A reply, every key with its content and its end, and what was published."""


class Twins:
    """A server with the module, and a replica without it that has to hold the same. The clock moves by ticks alone."""

    def __init__(self, kind: Kind, folder: Path, module: Path | bool = True) -> None:
        self._clock = FrozenClock(folder)
        self._clock.set(NOW)
        self.primary = self._clock.server(kind, module=module, tcp=True)
        self._kind = kind
        self.refused = self.left = self.steps = 0

    def __enter__(self) -> Self:
        self.primary.start()
        self.replica = self._clock.server(
            self._kind, module=False, options=("--replicaof", f"127.0.0.1 {self.primary.port}")
        ).start()
        self._native, self._script, self._ear = (self.primary.client() for _ in range(3))
        self._followers = tuple(self.replica.client() for _ in range(2))
        self._watches = self.primary.client(), self.replica.client()
        for client in (self._script, self._followers[1]):
            client.execute("SELECT", 1)
        for watch in self._watches:
            watch.execute("SELECT", 2)
        self._watches[0].execute("SET", "end", "", "PXAT", END)
        self._watches[0].execute("WAIT", 1, 10_000)
        for script in registered():
            self._native.execute("SCRIPT", "LOAD", script.source)
        self._dump = self._native.execute("SCRIPT", "LOAD", DUMP)
        for follower in self._followers:
            follower.execute("SCRIPT", "LOAD", DUMP)
        self._ear.execute("PSUBSCRIBE", "*")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in (self._native, self._script, self._ear, *self._followers, *self._watches):
            client.close()
        self.replica.stop()
        self.primary.stop()

    def play(self, sequence: Sequence[Step]) -> None:
        """Does it all on both; `DifferenceError` at the first step that is not the same."""
        self._set(NOW)
        self._native.execute("CONFIG", "SET", "maxmemory", 0)
        for client in (self._native, self._script):
            client.execute("FLUSHDB")
        self._before: dict[bytes, Any] = {}
        for place, step in enumerate(sequence):
            try:
                self._step(step)
            except DifferenceError as error:
                raise DifferenceError(f"step {place}, {_shown(step)}: {error}") from None
        self._follows()

    def _step(self, step: Step) -> None:
        if isinstance(step, Tick):
            self._set(self._now + step.ms)
            # What has ended is gone on both, should the clock go back: a server deletes it when it comes to it.
            ended = [key for key, (_, ends_ms, _) in self._before.items() if 0 < ends_ms <= self._now]
            for client in (self._native, self._script):
                if ended:
                    client.execute("EXISTS", *ended)
            self._before = _contents(self._native.execute("EVALSHA", self._dump, 0))
            return
        self.steps += 1
        native = self._send(self._native, step.native_words())
        left = isinstance(native[0], ReplyError) and str(native[0]).endswith(" not native") and step.script is not None
        if left:
            self.left += 1
            if native[1] != self._before or native[2]:
                raise DifferenceError(
                    f"left to its script, and wrote: {_compared(self._before, native[1])}, {native[2]}"
                )
            native = self._send(self._native, step.words())
        script = self._send(self._script, step.words())
        if not _same(native[0], script[0]):
            raise DifferenceError(f"the command answers {native[0]!r}, the script {script[0]!r}")
        if native[1] != script[1]:
            raise DifferenceError(f"the command leaves, the script leaves: {_compared(native[1], script[1])}")
        if native[2] != script[2]:
            raise DifferenceError(f"the command tells {native[2]!r}, the script {script[2]!r}")
        if isinstance(native[0], ReplyError):
            self.refused += 1
            commanded = not left and step.script and step.script.native
            if commanded and native[1] != self._before and not _drops(native[0]):
                raise DifferenceError(f"refused, and wrote: {_compared(self._before, native[1])}")
        self._before = native[1]

    def _set(self, now_ms: int) -> None:
        """Sets the clock, and waits until the server goes by it: it keeps a copy of the time for a while."""
        self._now = now_ms
        self._clock.set(now_ms)
        for watch in self._watches:
            wait_until(lambda watch=watch: END - watch.execute("PTTL", "end") == now_ms, what="the clock")

    def _send(self, client: RawClient, words: Sequence[Any]) -> Answer:
        reply, dump, _ = client.execute_all((words, ("EVALSHA", self._dump, 0), ("PUBLISH", "end", "")))
        told: list[Any] = []
        while (heard := self._ear.receive())[2] != b"end":
            told.append(tuple(heard[2:]))
        return reply, _contents(dump), tuple(told)

    def _follows(self) -> None:
        """The replica, which knows nothing of the module, holds what both databases hold."""
        if self._native.execute("WAIT", 1, 10_000) != 1:
            raise DifferenceError("the replica is gone")
        for client, follower in zip((self._native, self._script), self._followers, strict=True):
            mine, theirs = (_contents(c.execute("EVALSHA", self._dump, 0)) for c in (client, follower))
            if mine != theirs:
                raise DifferenceError(f"the server holds, its replica holds: {_compared(mine, theirs)}")


def _contents(reply: Any) -> dict[bytes, Any]:
    """A dump by key; the fields of a hash and the members of a set have no order."""
    if isinstance(reply, ReplyError):
        raise reply
    out: dict[bytes, Any] = {}
    for key, kind, ends_ms, content in reply:
        value: Any = content
        if kind == b"hash":
            value = dict(zip(content[::2], content[1::2], strict=True))
        elif kind == b"set":
            value = set(content)
        out[key] = (kind, ends_ms, value)
    return out


def _same(native: Any, script: Any) -> bool:
    """Whether two replies are one. A refusal goes by its text, without what a server adds to one that a script has
    raised. A full server has several texts for that, and may look at a command's arity before, not at a script's."""
    if not (isinstance(native, ReplyError) and isinstance(script, ReplyError)):
        return type(native) is type(script) and bool(native == script)
    texts = [str(reply).split(" script: ")[0] for reply in (native, script)]
    return texts[0] == texts[1] or any(text.startswith("OOM ") for text in texts)


def _drops(refusal: ReplyError) -> bool:
    """Whether a refusal may have dropped a ghost."""
    return str(refusal) == "EMQSTALE job gone"


def _compared(one: dict[bytes, Any], other: dict[bytes, Any]) -> str:
    differ = [key for key in sorted(one.keys() | other.keys()) if one.get(key) != other.get(key)]
    return "; ".join(f"{key!r}: {one.get(key)!r} and {other.get(key)!r}" for key in differ)


def _shown(step: Step) -> str:
    return str(step) if isinstance(step, Tick) else f"{step.native_words()!r:.500}"
