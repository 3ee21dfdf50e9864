"""Calls with scripts of the tests' own, so that the wire is tested without the verbs."""

from __future__ import annotations

from echomq.protocol.call import Call, Reply
from echomq.protocol.replies import as_int
from echomq.protocol.scripts import Script


class TextScript(Script):
    """A script whose text is given; the registry of scripts does not know it, so no connect loads it."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(name)
        self.__dict__["source"] = text


NOSCRIPT = b"-NOSCRIPT No matching script.\r\n"
"""What a server answers that does not have a script."""


class Waiter:
    """Whoever waits for the reply of a call on a pipe without a socket."""

    def __init__(self) -> None:
        self.left = False

    def done(self) -> bool:
        return self.left


COUNT = TextScript("count", "return redis.call('INCRBY', KEYS[1], ARGV[1])")
NOTE = TextScript("note", "return redis.call('APPEND', KEYS[1], ARGV[1])")
REFUSE = TextScript("refuse", "return redis.error_reply('EMQSTALE complete token mismatch')")


def key(queue: str, name: str = "n") -> str:
    """A string key that the registry of protocol §2 allows without a TTL."""
    return f"emq:{{{queue}}}:de:{name}"


def count(queue: str, name: str = "n", by: int = 1) -> Call[int]:
    """A script call that counts its executions under `name`."""
    return Call("count", (key(queue, name),), (by,), as_int, script=COUNT, subject=name)


def note(queue: str, text: str, script: Script = NOTE) -> Call[int]:
    """A script call that appends `text` to a key, so that the order of execution can be read."""
    return Call("note", (key(queue, "notes"),), (text,), as_int, script=script)


def refuse(queue: str) -> Call[int]:
    """A script call that is refused."""
    return Call("complete", (key(queue),), (), as_int, script=REFUSE, subject="JOB", token="3")


def append(queue: str, text: str) -> Call[int]:
    """The same as `note` by a plain command."""
    return Call("append", (key(queue, "notes"),), (text,), as_int, command="APPEND")


def flush_scripts() -> Call[Reply]:
    """SCRIPT FLUSH, as a call of a flight."""
    return Call("flush", (), ("FLUSH",), lambda reply: reply, command="SCRIPT")
