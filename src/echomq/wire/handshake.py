"""What is said before the first call of a connection, without I/O (protocol §11).

A generator that yields a `Batch` (send these at once, send me their outcomes) or a `Wait`; either face drives
it. It returns the `Terms`. In order: RESP3 and a name, the database, the fence, the limits, the native commands, the
scripts that the server lacks, and, once a process and server, the preflight. Nothing is written before the fence has
been read.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from echomq.protocol.call import Arg, Call, Reply
from echomq.protocol.errors import (
    ConnectError,
    EmbeddedServerError,
    FenceError,
    InvalidInputError,
    NativeMissingError,
    ServerError,
)
from echomq.protocol.keys import VERSION
from echomq.protocol.scripts import Script, registered
from echomq.wire import dialect, limits, preflight
from echomq.wire.dialect import Wire
from echomq.wire.limits import Limits
from echomq.wire.resp import raw
from echomq.wire.url import Target

_log: Final = logging.getLogger("echomq")

_NEEDED: Final = "EchoMQ needs Valkey 7.2, Redis 7.0 or newer"
_NOT_NOW: Final = ("LOADING", "BUSY", "MASTERDOWN")
_POLL_S: Final = 0.05


class RefusedError(ConnectError):
    """The server answered, and would answer the same to another try: waiting does not help."""


FINAL: Final = (RefusedError, FenceError, EmbeddedServerError, InvalidInputError, NativeMissingError)
"""What another try would meet again: whoever waits is told at once."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Commands to send at once; the driver sends back their outcomes, errors as values."""

    calls: tuple[Call[Reply], ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """The server cannot answer yet: sleep so long, then go on. `reason` is the server's text."""

    seconds: float
    reason: str


@dataclass(frozen=True, slots=True)
class Terms:
    """How a connection may be used: what the server takes, which scripts it has, and which go as native commands.

    `yields`: a native command that turns out to be missing is given up for its script.
    """

    limits: Limits
    native: frozenset[Script] = frozenset()
    yields: bool = False
    loaded: Sequence[Script] = ()


Outcome: TypeAlias = "Reply | ServerError"
Steps: TypeAlias = Generator[Batch | Wait, "list[Outcome]", list[Outcome]]
Step: TypeAlias = Generator[Batch | Wait, "list[Outcome]", None]
Loading: TypeAlias = Generator[Batch | Wait, "list[Outcome]", Sequence[Script]]
Handshake: TypeAlias = Generator[Batch | Wait, "list[Outcome]", Terms]


def handshake(target: Target, *, name: str, fence: str, wire: Wire | None = None) -> Handshake:
    """Greet the server at `target` as client `name` and hold it to `fence`; no `wire` is the URL's, or else 4.

    Raises `RefusedError` for what stays as it is (password, version, rights), `FenceError` for another fence,
    `NativeMissingError` on wire 6 for a server without the native commands.
    """
    wire = wire or target.wire or dialect.DEFAULT
    greeted = yield from _ask(_greeting(target, name))
    server = _check_greeting(target, greeted[0])
    if isinstance(greeted[-1], ServerError):
        raise RefusedError(f"{target.address} refuses database {target.database}: {greeted[-1].reply}")
    scripts = registered()
    questions: list[tuple[Arg, ...]] = [("GET", VERSION), ("SCRIPT", "EXISTS", *(script.sha for script in scripts))]
    if wire != 4:
        questions.append(dialect.question())
    if limits.is_due(target):
        questions.append(limits.QUESTION)
    version, known, *others = yield from _ask(questions)
    if version is not None:
        yield from _pass_fence(target, fence, version)
    native = dialect.read(target.address, wire, others.pop(0)) if wire != 4 else frozenset[Script]()
    if version is None:  # who is refused for want of the module leaves no fence behind
        yield from _pass_fence(target, fence, version)
    loaded = yield from _load_missing(target, scripts, known)
    if preflight.is_due(target):
        facts = yield from _ask(preflight.QUESTIONS)
        preflight.warn(target, server.get(b"role"), facts)
    return Terms(limits.read(target, others[0]) if others else Limits(), native, wire == "auto", loaded)


def _ask(commands: Sequence[tuple[Arg, ...]]) -> Steps:
    """The outcomes of `commands`, asked again for as long as the server is loading."""
    batch = Batch(tuple(raw(*words) for words in commands))
    while True:
        outcomes = yield batch
        busy = next((o.reply for o in outcomes if isinstance(o, ServerError) and o.reply.startswith(_NOT_NOW)), "")
        if not busy:
            return outcomes
        yield Wait(_POLL_S, busy)


def _greeting(target: Target, name: str) -> list[tuple[Arg, ...]]:
    words: tuple[Arg, ...] = ("HELLO", 3)
    if target.user is not None or target.password is not None:
        words += ("AUTH", target.user or "default", target.password or "")
    commands: list[tuple[Arg, ...]] = [(*words, "SETNAME", f"echomq:{name}")]
    if target.database:
        commands.append(("SELECT", target.database))
    return commands


def _check_greeting(target: Target, hello: Outcome) -> dict[Reply, Reply]:
    if isinstance(hello, dict):
        return hello
    if not isinstance(hello, ServerError):
        raise RefusedError(f"{target.address} answers HELLO with {hello!r}: no server of ours. {_NEEDED}")
    text = hello.reply
    if text.startswith("NOAUTH"):
        advice = "it asks for a password: write it in the URL, as in valkey://user:password@host"
    elif text.startswith("WRONGPASS"):
        advice = f"the password for user {target.user or 'default'!r} is wrong, or the user is disabled"
    elif text.startswith(("NOPROTO", "ERR unknown command", "ERR Protocol")):
        advice = f"it does not speak RESP3. {_NEEDED}"
    elif text.startswith("ERR max number of clients"):
        # It is full now, not for good.
        raise ConnectError(f"{target.address} refuses the connection: {text} (its maxclients)")
    else:
        advice = "it does not take our greeting, HELLO 3"
    raise RefusedError(f"{target.address} refuses the connection: {advice} ({text})")


def _pass_fence(target: Target, ours: str, seen: Outcome) -> Step:
    if seen is None:
        claimed, seen = yield from _ask([("SET", VERSION, ours, "NX"), ("GET", VERSION)])
        if seen is None and isinstance(claimed, ServerError):
            seen = claimed
    if isinstance(seen, ServerError):
        raise RefusedError(_fence_refused(target, seen.reply))
    if seen != ours.encode():
        theirs = seen.decode("utf-8", "backslashreplace") if isinstance(seen, bytes) else repr(seen)
        raise FenceError(
            f"{target.address} belongs to another version: its fence {VERSION} says {theirs!r}, ours is {ours!r}. "
            f"Use another database or server; to share this one with its owner, connect with fence={theirs!r}",
            ours=ours,
            theirs=theirs,
        )


def _fence_refused(target: Target, text: str) -> str:
    if text.startswith("NOPERM"):
        advice = f"{text}{preflight.rights_advice(target)}"
    elif text.startswith("READONLY"):
        advice = f"this is a replica, which takes no writes: connect to its primary ({text})"
    else:
        advice = text
    return f"{target.address}: the fence {VERSION} cannot be read or set: {advice}"


def _load_missing(target: Target, scripts: Sequence[Script], known: Outcome) -> Loading:
    """Load what the server lacks, so that NOSCRIPT happens only after a SCRIPT FLUSH; gives what it has then."""
    if not isinstance(known, list):
        text = known.reply if isinstance(known, ServerError) else repr(known)
        _log.warning("%s: %s%s", target.address, text, preflight.rights_advice(target))
        return ()
    missing = [script for script, there in zip(scripts, known, strict=True) if not there]
    if not missing:
        return scripts
    loaded = yield from _ask([("SCRIPT", "LOAD", script.source) for script in missing])
    for script, answer in zip(missing, loaded, strict=True):
        if isinstance(answer, ServerError):
            if answer.reply.startswith("NOPERM"):
                _log.warning("%s: %s%s", target.address, answer.reply, preflight.rights_advice(target))
                return ()
            raise RefusedError(f"{target.address} does not take the script {script.name!r}: {answer.reply}")
    return scripts
