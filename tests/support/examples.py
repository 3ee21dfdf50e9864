"""Runs a program of `examples/` as it is, on the test's server."""

from __future__ import annotations

from pathlib import Path

from support.program import python
from support.servers import Server

ROOT = Path(__file__).parents[2]


def run(server: Server, *words: str) -> str:
    """What `python WORDS` prints beside `examples`; any warning is an error."""
    done = python("-X", "dev", "-W", "error", *words, folder=ROOT, ECHOMQ_URL=server.url)
    assert done.returncode == 0, done.stderr
    assert "ResourceWarning" not in done.stderr  # what it opened is closed at its end
    return done.stdout


def said(server: Server, program: str) -> list[str]:
    """The lines that `examples/<program>.py` prints."""
    return run(server, f"examples/{program}.py").splitlines()
