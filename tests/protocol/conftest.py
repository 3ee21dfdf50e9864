"""The protocol's tests run calls on a raw connection: no connector of ours stands between."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from support.flowing import beside
from support.runner import Runner, Scene
from support.servers import Server


@pytest.fixture
def runner(server: Server) -> Iterator[Runner]:
    """A connection to the shared server."""
    with server.client() as client:
        yield Runner(client)


@pytest.fixture
def scene(runner: Runner, queue: str) -> Scene:
    """A queue of the test's own."""
    return Scene(runner, queue)


@pytest.fixture
def other(scene: Scene) -> Scene:
    """The queue of a flow's children."""
    return beside(scene, "-children")


@pytest.fixture
def third(scene: Scene) -> Scene:
    """A queue with a difficult name."""
    return beside(scene, ":+ü")


@pytest.fixture
def confined(start_server: Callable[..., Server]) -> Iterator[Scene]:
    """A client that may touch the keys and channels of its own queue and of the one its flows reach, no others."""
    server = start_server()
    with server.client() as root, server.client() as client:
        root.execute(
            *("ACL", "SETUSER", "confined", "on", ">secret", "+@all"),
            *("resetkeys", "%RW~emq:{confined}:*", "%RW~emq:{elsewhere}:*", "resetchannels", "&emq:{confined}:*"),
        )
        client.execute("AUTH", "confined", "secret")
        yield Scene(Runner(client), "confined")
