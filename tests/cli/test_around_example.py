"""The example of what stands around a job, as it is: orders, what is announced of them, and what follows them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import echomq
from support.servers import Server

ROOT = Path(__file__).parents[2]


def test_orders_are_announced_stored_and_followed(server: Server) -> None:
    env = os.environ | {"PYTHONPATH": str(Path(echomq.__file__).parents[1]), "ECHOMQ_URL": server.url}

    def run(*words: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, *words], cwd=ROOT, env=env, capture_output=True, text=True, timeout=50, check=True
        )
        return done.stdout.splitlines()

    run("examples/around.py")
    out = run("-m", "echomq.cli", "worker", "examples.around:mq", "--burst", "--concurrency", "1")
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
