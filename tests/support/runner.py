"""Runs the protocol's calls on a raw client, without any connector, and sets scenes up with plain commands.

With `$ECHOMQ_TEST_WIRE=6` as native commands, and as the scripts to which these leave a call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from echomq.identity.minter import Minter
from echomq.protocol.call import Arg, Call, Plan
from echomq.protocol.errors import ServerError, from_reply
from echomq.protocol.keys import Keys, keys
from support.invariants import Snapshot, snapshot
from support.raw import RawClient, ReplyError
from support.servers import wire_6

T = TypeVar("T")

PAST = 1_000
"""A score long ago: what a test gives to a lease or a run-at that is to have passed."""


def with_args(call: Call[T], changes: Mapping[int, Arg]) -> Call[T]:
    """The call with some of its arguments put in by hand, past what its builder would refuse."""
    args = list(call.args)
    for index, value in changes.items():
        args[index] = value
    return replace(call, args=tuple(args))


class Runner:
    """One connection; each call is one round trip, and its script is loaded when the server lacks it."""

    def __init__(self, client: RawClient) -> None:
        self.client = client
        client.execute("HELLO", 3)

    def execute(self, *words: str | bytes | int | float) -> Any:
        """A plain command; raises `ReplyError`."""
        return self.client.execute(*words)

    def reply(self, call: Call[Any]) -> Any:
        """What the server answers to a call, undecoded; an error is returned, not raised."""
        words = call.native_words() if wire_6() else call.words()
        self.client.send(*words)
        reply = self.client.receive()
        if words[0] != "EVALSHA" and isinstance(reply, ReplyError) and str(reply).endswith(" not native"):
            self.client.send(*call.words())
            reply = self.client.receive()
        if isinstance(reply, ReplyError) and str(reply).startswith("NOSCRIPT") and call.script:
            self.client.execute("SCRIPT", "LOAD", call.script.source)
            self.client.send(*call.words())
            reply = self.client.receive()
        return reply

    def run(self, call: Call[T]) -> T:
        """The decoded answer; a refusal is raised."""
        outcome = self.outcome(call)
        if isinstance(outcome, ServerError):
            raise outcome
        return outcome

    def outcome(self, call: Call[T]) -> T | ServerError:
        """The decoded answer; a refusal is returned."""
        reply = self.reply(call)
        if isinstance(reply, ReplyError):
            return from_reply(str(reply), verb=call.verb, subject=call.subject, token=call.token)
        return call.decode(reply)

    def finish(self, plan: Plan[T]) -> T:
        """The result of a plan, call by call; a refusal is thrown into it."""
        try:
            call = next(plan)
            while True:
                outcome = self.outcome(call)
                call = plan.throw(outcome) if isinstance(outcome, ServerError) else plan.send(outcome)
        except StopIteration as end:
            result: T = end.value
            return result

    def now_ms(self) -> int:
        """The server's clock."""
        return self.client.now_ms()


class Scene:
    """One queue of a server, looked at and arranged with plain commands."""

    def __init__(self, runner: Runner, queue: str) -> None:
        self.queue = queue
        self.runner = runner
        self.run = runner.run
        self.outcome = runner.outcome
        self.finish = runner.finish
        self.execute = runner.execute
        self.now_ms = runner.now_ms
        self.keys: Keys = keys(queue)
        self.minter = Minter()
        self.mint = self.minter.mint

    def refusal(self, call: Call[Any]) -> ServerError:
        """The refusal that a call meets, having written nothing."""
        before = self.dump()
        outcome = self.outcome(call)
        assert isinstance(outcome, ServerError), f"{call.verb} answered {outcome!r}"
        assert self.dump() == before, f"{call.verb} was refused and wrote"
        return outcome

    def snapshot(self) -> Snapshot:
        """Every row and place of the queue."""
        return snapshot(self.execute, self.queue)

    def dump(self) -> dict[bytes, Any]:
        """Every key of the queue with its content."""
        readers = {
            b"hash": lambda key: sorted(self.execute("HGETALL", key).items()),
            b"zset": lambda key: self.execute("ZRANGE", key, 0, -1, "WITHSCORES"),
            b"list": lambda key: self.execute("LRANGE", key, 0, -1),
            b"set": lambda key: sorted(self.execute("SMEMBERS", key)),
            b"string": lambda key: self.execute("GET", key),
        }
        out: dict[bytes, Any] = {}
        for key in self.execute("KEYS", "emq:*"):
            kind = self.execute("TYPE", key)
            out[key] = readers[kind if isinstance(kind, bytes) else kind.encode()](key)
        return out

    def row(self, job_id: str) -> dict[bytes, bytes]:
        """The fields of a row; empty when there is none."""
        return dict(self.execute("HGETALL", self.keys.job(job_id)))

    def places(self, job_id: str) -> list[str]:
        """The sets that hold an id, lanes by their key's name."""
        shot = self.snapshot()
        found = [name for name, members in shot.places.items() if job_id in members]
        return found + [f"g:{group}:pending" for group, members in shot.lanes.items() if job_id in members]

    def score(self, place: str, job_id: str) -> int | None:
        """The score of an id in pending, active, schedule, dead or repeat."""
        score = self.execute("ZSCORE", self.keys.base + place, job_id)
        return None if score is None else int(score)

    def tokens(self) -> int:
        """How many wake tokens lie there."""
        count: int = self.execute("LLEN", self.keys.wake)
        return count

    def drop_tokens(self) -> None:
        """No wake token is left."""
        self.execute("DEL", self.keys.wake)

    def lapse(self, *job_ids: str) -> None:
        """The leases of these jobs have ended, in this order."""
        for i, job_id in enumerate(job_ids):
            assert self.execute("ZADD", self.keys.active, "XX", "CH", PAST + i, job_id) == 1

    def fall_due(self, *job_ids: str) -> None:
        """These scheduled jobs are due, in this order."""
        for i, job_id in enumerate(job_ids):
            assert self.execute("ZADD", self.keys.schedule, "XX", "CH", PAST + i, job_id) == 1

    def ghost(self, place: str, score: int = 0) -> str:
        """A member of a set without a row."""
        job_id = self.mint()
        self.execute("ZADD", self.keys.base + place, score, job_id)
        return job_id

    def into_lane(self, group: str, *job_ids: str, payload: str = "p") -> None:
        """Jobs that wait in a lane, as an admission to it leaves them."""
        for job_id in job_ids:
            fields = ("state", "pending", "attempts", 0, "payload", payload, "group", group)
            self.execute("HSET", self.keys.job(job_id), *fields)
            self.execute("ZADD", self.keys.lane(group), 0, job_id)
        if group.encode() not in self.execute("LRANGE", self.keys.ring, 0, -1):
            self.execute("RPUSH", self.keys.ring, group)
