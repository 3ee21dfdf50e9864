"""The native module is held to protocol §5 on every server there is here, whichever the run is about."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from echomq.wire.module import find_module
from support.native import NativeRunner, Pair
from support.runner import Scene
from support.servers import Kind, Server, available


@pytest.fixture(scope="session", params=available(), ids=str)
def kind(request: pytest.FixtureRequest) -> Kind:
    """Each kind of server in turn."""
    if find_module() is None:
        pytest.skip("the native module is not built here: make native")
    chosen: Kind = request.param
    return chosen


@pytest.fixture(scope="session")
def server(kind: Kind) -> Iterator[Server]:
    """A server with the module, shared; each test finds it empty."""
    with Server(kind, module=True) as running:
        yield running


@pytest.fixture
def scene(server: Server, queue: str) -> Iterator[Scene]:
    """A queue of the test's own, in which calls are commands."""
    with server.client() as client:
        yield Scene(NativeRunner(client), queue)


@pytest.fixture
def pair(server: Server, queue: str) -> Iterator[Pair]:
    """Two queues of the test's own: one for commands, one for scripts."""
    with server.client() as client:
        yield Pair(client, queue)
