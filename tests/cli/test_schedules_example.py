"""The example of schedules, as it is: what it registers is listed, declared and fired."""

from __future__ import annotations

import re

from support.examples import run
from support.servers import Server


def test_the_example_registers_lists_and_runs(server: Server) -> None:
    said = run(server, "examples/schedules.py")
    assert "seconds: registered\nmornings: registered\n" in said
    assert re.search(r"^seconds +0:00:01 +next at ", said, re.MULTILINE)
    assert re.search(r"^mornings +0 9 \* \* MON-FRI +next at \d{4}-\d\d-\d\d 0[78]:00:00 UTC$", said, re.MULTILINE)
    assert "mornings: unchanged" in run(server, "examples/schedules.py")

    worked = run(server, "-m", "echomq.cli", "worker", "examples.schedules:mq", "--burst")
    reports = re.findall(r"report for ada, slot [\d:]+\.(\d+)", worked)
    assert len(reports) >= 2, "one for each run on demand"
    assert reports.count("000000") == len(reports) - 2, "the slots of the grid are whole seconds"
    names = run(server, "-m", "echomq.cli", "repeats", "default")
    for name in ("seconds", "mornings", "examples.schedules.tidy", "examples.schedules.ping"):
        assert name in names
