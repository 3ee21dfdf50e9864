"""Runs a program of `examples/` as it is, on the test's server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import echomq
from support.servers import Server

ROOT = Path(__file__).parents[2]


def said(server: Server, program: str) -> list[str]:
    """The lines that `examples/<program>.py` prints; any warning is an error."""
    env = os.environ | {"PYTHONPATH": str(Path(echomq.__file__).parents[1]), "ECHOMQ_URL": server.url}
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", f"examples/{program}.py"],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "ResourceWarning" not in done.stderr
    return done.stdout.splitlines()
