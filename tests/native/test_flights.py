"""A flight does the same on both wires: whatever a command leaves to its script, what follows waits for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from echomq.identity.errors import EchoMQError
from echomq.protocol.call import Call
from echomq.wire import Connector, connect
from support.frozen import FrozenClock
from support.grammar import NOW, THEMES, Speaker
from support.raw import RawClient
from support.servers import Kind
from support.twins import DUMP

FLIGHTS = 150


class Side:
    """One database of a server, spoken to on one wire and read by a client that shares nothing with it."""

    def __init__(self, conn: Connector, client: RawClient, database: int) -> None:
        self.conn = conn
        self.client = client
        client.execute("SELECT", database)

    def fly(self, calls: list[Call[Any]]) -> tuple[list[str], Any]:
        """What each call of a flight gave, and every key after it."""
        outcomes = [str(each) if isinstance(each, EchoMQError) else repr(each) for each in self.conn.run_many(calls)]
        keys = {key: (kind, ends_ms, _read(kind, held)) for key, kind, ends_ms, held in self.client.execute(*_DUMP)}
        return outcomes, keys


_DUMP = ("EVAL", DUMP, 0)


def _read(kind: bytes, held: Any) -> Any:
    if kind == b"hash":
        return dict(zip(held[::2], held[1::2], strict=True))
    return sorted(held) if kind == b"set" else held


@pytest.fixture
def sides(kind: Kind, tmp_path: Path) -> Iterator[tuple[Side, Side]]:
    clock = FrozenClock(tmp_path)
    clock.set(NOW)
    server = clock.server(kind, module=True, tcp=True).start()
    with ExitStack() as stack:
        stack.callback(server.stop)
        yield tuple(
            Side(
                stack.enter_context(connect(f"redis://127.0.0.1:{server.port}/{wire}", wire=wire, lease_node=False)),
                stack.enter_context(server.client()),
                wire,
            )
            for wire in (4, 6)
        )


def said(theme: str, number: int) -> Call[Any]:
    return Speaker(Random(number).choice, hostile=False, theme=theme).say()


flights = st.sampled_from(THEMES).flatmap(
    lambda theme: st.lists(
        st.lists(st.integers(0, 2**32).map(lambda number: said(theme, number)), min_size=1, max_size=12),
        min_size=3,
        max_size=8,
    )
)


@pytest.mark.chaos
@pytest.mark.deadline(180)
def test_random_flights_are_the_same_on_both_wires(sides: tuple[Side, Side]) -> None:
    scripts, commands = sides

    @seed(1)
    @settings(max_examples=FLIGHTS, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(flights)
    def fly(sequence: list[list[Call[Any]]]) -> None:
        for side in sides:
            side.client.execute("FLUSHDB")
        for flight in sequence:
            (given, held), (wanted, kept) = commands.fly(flight), scripts.fly(flight)
            assert given == wanted
            assert held == kept

    fly()
