"""The suite's tests run it in this process, on the server of this run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from echomq.conformance.bench import Bench
from support.servers import Server


@pytest.fixture
def bench(server: Server) -> Iterator[Bench]:
    """The shared server under test."""
    with Bench(server.url) as opened:
        yield opened
