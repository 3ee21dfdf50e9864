"""The first program of the documentation, as it is: the script sends, the worker runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import echomq
from support.servers import Server

ROOT = Path(__file__).parents[2]


def test_the_quickstart_sends_and_a_burst_runs_it(server: Server) -> None:
    env = os.environ | {"PYTHONPATH": str(Path(echomq.__file__).parents[1]), "ECHOMQ_URL": server.url}

    def run(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-X", "dev", "-W", "error", *words],
            cwd=ROOT,
            env=env,
            capture_output=True,
            text=True,
            timeout=50,
            check=True,
        )
        assert "ResourceWarning" not in done.stderr  # what it opened is closed at its end
        return done.stdout

    assert "echomq worker examples.quickstart:mq" in run("examples/quickstart.py")
    out = run("-m", "echomq.cli", "worker", "examples.quickstart:mq", "--burst")
    # Two threads print at once: a line end of one may follow the other's text.
    assert (out.count("Hello, world!"), out.count("Hello, you!")) == (1, 1)
