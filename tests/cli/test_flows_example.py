"""The example of flows runs as it is."""

from __future__ import annotations

from support.examples import said
from support.servers import Server


def test_a_report_waits_for_its_pages(server: Server) -> None:
    assert said(server, "flows") == ["14 letters"]
