"""What a run of the suite works on: one server, its connections, and a prefix that no other run uses."""

from __future__ import annotations

import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from echomq.conformance.relay import Relay
from echomq.conformance.rights import allowed
from echomq.conformance.span import Span, within
from echomq.identity.minter import Minter
from echomq.protocol.call import Arg, Reply
from echomq.protocol.errors import EchoMQError, ServerError
from echomq.protocol.replies import as_bytes, as_list
from echomq.runtime import Dial
from echomq.wire import FENCE, Connector, Source, connect
from echomq.wire.options import TIMEOUT_S, OptionWords
from echomq.wire.preflight import rights_advice
from echomq.wire.resp import raw
from echomq.wire.source import resolve

T = TypeVar("T")

ANSWER_S = 10.0
"""How long a server may take to answer: a script that never ends is a finding, too."""


class Bench:
    """One server under test, on one wire. `where` is a URL or a source; None is the embedded server."""

    def __init__(self, where: str | Source | None = None, **options: Unpack[OptionWords]) -> None:
        self._where = where
        self._options = options
        self.fence = options.get("fence", FENCE)
        self.minter = Minter()
        self.prefix = "conformance-" + self.minter.mint("RUN")
        self._conn = self.open(lease_node=True)
        self._lost = False
        self._here = threading.local()

    @property
    def conn(self) -> Connector:
        """The connection; a scenario whose time is over gets an `OverError` in its place."""
        if (span := self._span) is not None:
            span.check()
        return self._conn

    @property
    def _span(self) -> Span | None:
        span: Span | None = getattr(self._here, "span", None)
        return span

    def time(self, seconds: float, act: Callable[[], None]) -> None:
        """Runs `act`, in a thread of its own, for at most so many seconds; see `span.within`."""
        span = Span()

        def go() -> None:
            self._here.span = span
            act()

        within(span, seconds, go)

    def loop(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` returns, in an event loop of its own that ends with the scenario's time."""
        return (self._span or Span()).loop(work)

    def advice(self) -> str:
        """The line that gives this user every right that a run needs."""
        return rights_advice(resolve(self._where).prepare())

    @property
    def wire(self) -> int:
        """The wire that is spoken here."""
        return self.conn.wire or 4

    def open(self, **options: Unpack[OptionWords]) -> Connector:
        """Another connection to the same server; the caller closes it."""
        return self._connect(self._where, **options)

    def relayed(self) -> tuple[Relay, Connector]:
        """A connection through a relay that counts its round trips; the caller closes it."""
        relay = Relay(self._where, self._options.get("tls"))
        return relay, self._connect(relay, tls=None)

    def _connect(self, where: str | Source | None, **options: Unpack[OptionWords]) -> Connector:
        words: OptionWords = {
            "name": self.prefix,
            "lease_node": False,
            "call_timeout": ANSWER_S,
            **self._options,
            **options,
        }
        return connect(where, **words)

    def dial(self) -> Dial:
        """How a consumer reaches the same server."""
        where, words = self._where, self._options
        return Dial(
            where if where is None or isinstance(where, str) else lambda: where,
            fence=self.fence,
            timeout=words.get("timeout", TIMEOUT_S),
            tls=words.get("tls"),
            wire=words.get("wire"),
        )

    def execute_all(self, commands: list[tuple[Arg, ...]]) -> list[Reply]:
        """The replies to plain commands, sent in one flight; raises the first error among them."""
        replies: list[Reply] = []
        with allowed():
            for outcome in self.conn.run_many([raw(*words) for words in commands]):
                if isinstance(outcome, Exception):
                    raise outcome
                replies.append(outcome)
        return replies

    def knows(self, command: str) -> bool:
        """Whether the server has that command."""
        (answer,) = as_list(self.conn.execute("COMMAND", "INFO", command))
        return bool(answer)

    def server(self) -> str:
        """What the server calls itself, with its version."""
        facts = dict(
            line.split(":", 1)
            for line in as_bytes(self.conn.execute("INFO", "server")).decode().splitlines()
            if ":" in line
        )
        name = facts.get("server_name", "redis")
        return f"{name} {facts.get(f'{name}_version', facts.get('redis_version', '?'))}"

    def scan(self, prefix: str) -> list[str]:
        """Every key that begins with `prefix`, which holds no glob characters."""
        found: dict[str, None] = {}
        cursor = b"0"
        while True:
            following, keys = as_list(self.conn.execute("SCAN", cursor, "MATCH", prefix + "*", "COUNT", 1_000))
            found.update((as_bytes(key).decode("utf-8", "surrogateescape"), None) for key in as_list(keys))
            cursor = as_bytes(following)
            if cursor == b"0":
                return list(found)

    def delete(self, keys: list[str]) -> None:
        """Takes keys away, in steps that hold nobody up, and queue by queue, as a cluster's server demands.

        A refusal is raised once everything else has been taken away.
        """
        by_tag: dict[str, list[bytes]] = {}
        for key in keys:
            by_tag.setdefault(key.partition("}")[0], []).append(key.encode("utf-8", "surrogateescape"))
        refusal: ServerError | None = None
        for of_queue in by_tag.values():
            for start in range(0, len(of_queue), 1_000):
                try:
                    self.conn.execute("UNLINK", *of_queue[start : start + 1_000])
                except ServerError as error:
                    refusal = refusal or error
        if refusal is not None:
            raise refusal

    def alive(self) -> bool:
        """Whether the server still answers; once it does not, nobody waits for it again."""
        if not self._lost:
            try:
                self._conn.execute("PING")
            except EchoMQError:
                self._lost = True
        return not self._lost

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._conn.close()
