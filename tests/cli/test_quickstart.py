"""The first program of the documentation, as it is: the script sends, the worker runs."""

from __future__ import annotations

from support.examples import run
from support.servers import Server


def test_the_quickstart_sends_and_a_burst_runs_it(server: Server) -> None:
    assert "echomq worker examples.quickstart:mq" in run(server, "examples/quickstart.py")
    out = run(server, "-m", "echomq.cli", "worker", "examples.quickstart:mq", "--burst")
    # Two threads print at once: a line end of one may follow the other's text.
    assert (out.count("Hello, world!"), out.count("Hello, you!")) == (1, 1)
