"""Which queues are on a server: by the names of keys, without the keys of other programs, in bounded steps."""

from __future__ import annotations

from typing import Any

import pytest

from echomq.identity.minter import mint
from echomq.protocol import discover, jobs
from echomq.protocol.discover import queue_of
from echomq.wire import connect
from support.servers import Server


@pytest.mark.parametrize(
    ("key", "queue"),
    [
        (b"emq:{mail}:pending", "mail"),
        (b"emq:{mail}:de:}:x", "mail"),
        ("emq:{ü*?[}:meta".encode(), "ü*?["),
        (b"emq:{}:pending", None),
        (b"emq:{two words}:pending", None),
        (b"emq:{\xff}:pending", None),
        (b"emq:{mail}", None),
        (b"{emq}:version", None),
        (b"xemq:{mail}:pending", None),
        (b"emq:{a{b}:pending", None),
    ],
)
def test_a_key_names_its_queue(key: bytes, queue: str | None) -> None:
    assert queue_of(key) == queue


@pytest.mark.strays("keys of other programs")
def test_every_queue_is_found_once_whatever_else_is_there(server: Server) -> None:
    names = {f"q{n}" for n in range(30)} | {"glob*", "[a-z]", "ü", "back\\"}
    with connect(server.url) as conn, server.client() as raw:
        for name in names:
            conn.run(jobs.enqueue(name, mint(), b"x"))
        for n in range(3_000):
            raw.send("SET", f"other:{n}", "x")
        for _ in range(3_000):
            raw.receive()
        raw.execute("SET", "emq:{}:pending", "x")
        raw.execute("SET", "emq:{a b}:pending", "x")
        raw.execute("CONFIG", "RESETSTAT")
        assert conn.run(discover.queues()) == tuple(sorted(names))
        stats: Any = raw.execute("INFO", "commandstats")
        assert b"cmdstat_keys" not in stats
        assert conn.run(discover.exists("q3"))
        assert not conn.run(discover.exists("q99"))
        assert abs(conn.run(discover.clock()) - raw.now_ms()) < 10_000


def test_a_queue_knows_a_job_by_its_row_or_by_the_result_it_left(server: Server, queue: str) -> None:
    there, done, never = mint(), mint(), mint()
    with connect(server.url) as conn, server.client() as raw:
        conn.run(jobs.enqueue(queue, there, b"x"))
        raw.execute("SET", f"emq:{{{queue}}}:job:{done}:result", "x", "PX", 60_000)
        assert [conn.run(discover.holds(queue, job_id)) for job_id in (there, done, never)] == [True, True, False]
