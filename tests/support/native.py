"""Native commands beside the scripts that are their twins: the same call on both, on one server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from echomq.protocol.call import Call
from support.raw import RawClient, ReplyError
from support.runner import Runner, Scene


class NativeRunner(Runner):
    """Sends every call that has a twin as the command, and nothing again as its script."""

    def reply(self, call: Call[Any]) -> Any:
        self.client.send(*(call.native_words() if call.script and call.script.native else call.words()))
        reply = self.client.receive()
        return super().reply(call) if str(reply).startswith("NOSCRIPT") else reply


class ScriptRunner(Runner):
    """Sends every call as its script, whatever the server knows."""

    def reply(self, call: Call[Any]) -> Any:
        return super().reply(replace(call, script=Plain(call.script)) if call.script else call)


class Plain:
    """A script without a twin."""

    native = ""

    def __init__(self, script: Any) -> None:
        self.sha, self.source = script.sha, script.source


class Pair:
    """Two queues of one server, of the same ids: what is done in one by commands is done in the other by scripts."""

    def __init__(self, client: RawClient, queue: str) -> None:
        self.native = Scene(NativeRunner(client), f"{queue}n")
        self.script = Scene(ScriptRunner(client), f"{queue}s")
        self.mint = self.native.mint
        self.mint_many = self.native.minter.mint_many

    def arrange(self, act: Callable[[Scene], object]) -> None:
        """Does it in both queues."""
        act(self.native)
        act(self.script)

    def both(self, build: Callable[[Scene], Call[Any]], view: Callable[[Any], Any] = lambda reply: reply) -> Any:
        """The server's one answer to the call, seen through `view`, which leaves the same keys in both queues."""
        replies = [plain(scene.runner.reply(build(scene))) for scene in (self.native, self.script)]
        answers = [reply if isinstance(reply, ReplyError) else view(reply) for reply in replies]
        assert answers[0] == answers[1], "the command answers otherwise than its script"
        assert self.dump(self.native) == self.dump(self.script), "the command leaves other keys than its script"
        return answers[0]

    def refused(self, build: Callable[[Scene], Call[Any]]) -> str:
        """The text of the refusal that both give, having written nothing."""
        before = self.dump(self.native)
        answer = self.both(build)
        assert isinstance(answer, ReplyError), f"it answered {answer!r}"
        assert self.dump(self.native) == before, "it was refused and wrote"
        return str(answer)

    def left_to_script(self, build: Callable[[Scene], Call[Any]]) -> str:
        """The text with which the command leaves the call to its script, having written nothing."""
        before = self.dump(self.native)
        answer = self.native.runner.reply(build(self.native))
        assert isinstance(answer, ReplyError), f"it answered {answer!r}"
        assert self.dump(self.native) == before, "it left the call to its script and wrote"
        return str(answer)

    def dump(self, scene: Scene) -> dict[str, bytes]:
        """Every key of a queue as the server serialises it, and whether it has an end; what counts from now
        is the same within seconds."""
        keys = sorted(scene.execute("KEYS", f"{scene.keys.base}*"))
        out: dict[str, Any] = {}
        for key in keys:
            name = key.decode().removeprefix(scene.keys.base)
            kind = scene.execute("TYPE", key)
            if kind in (b"zset", "zset"):
                content: Any = [(m, _Score(s)) for m, s in scene.execute("ZRANGE", key, 0, -1, "WITHSCORES")]
            elif kind in (b"hash", "hash"):
                content = scene.execute("HGETALL", key)
            else:
                content = scene.execute("DUMP", key)
            out[name] = (content, scene.execute("PTTL", key) > 0)
        return out


def plain(reply: Any) -> Any:
    """A reply by its value; an error without what a server adds to one that a script has raised."""
    if isinstance(reply, ReplyError):
        return _Error(str(reply).split(" script: ")[0])
    return reply


class _Error(ReplyError):
    """A refusal that equals another of the same text."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Error) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


class _Score(float):
    """A score that equals another one, or one within five seconds when both are instants of our days."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Score):
            return NotImplemented
        near = min(self, other) > 1.7e12 and abs(self - other) < 5_000
        return near or float(self) == float(other)

    def __hash__(self) -> int:
        return 0
