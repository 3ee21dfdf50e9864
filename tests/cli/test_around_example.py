"""The example of what stands around a job, as it is: orders, what is announced of them, and what follows them."""

from __future__ import annotations

from support.examples import run
from support.servers import Server


def test_orders_are_announced_stored_and_followed(server: Server) -> None:
    run(server, "examples/around.py")
    out = run(server, "-m", "echomq.cli", "worker", "examples.around:mq", "--burst", "--concurrency", "1").splitlines()
    assert out[:2] == ["order begins", "order begins"]
    assert sorted(out) == sorted(
        [
            *["order begins"] * 2,
            "order has failed: CHECK constraint failed: pieces > 0",
            "receipt begins",
            "apology begins",
            "a receipt for ['tea', 2]: order 1",
            "an apology for ['milk', 0]",
            "the database is closed",
        ]
    )
    assert out[-1] == "the database is closed"
