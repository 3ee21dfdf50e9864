"""Every test of the runtime has a desk: a queue of its own on the shared server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.desk import Desk
from support.servers import Server


@pytest.fixture
def desk(server: Server, queue: str) -> Iterator[Desk]:
    with Desk(server, queue) as each:
        yield each
