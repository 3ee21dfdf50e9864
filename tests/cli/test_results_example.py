"""The example of results runs as it is, and says what its jobs returned."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import echomq
from support.servers import Server

ROOT = Path(__file__).parents[2]


def test_the_example_prints_what_its_jobs_returned(server: Server) -> None:
    env = os.environ | {"PYTHONPATH": str(Path(echomq.__file__).parents[1]), "ECHOMQ_URL": server.url}
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "examples/results.py"],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=50,
        check=True,
    )
    assert done.stdout.splitlines() == [
        "a has 1",
        "bird has 4",
        "in has 2",
        "the has 3",
        "hand has 4",
        "not a word: ValueError: '42' is no word",
    ]
    assert "ResourceWarning" not in done.stderr
