"""The pytest plugin `echomq`: fixtures that put an app on a throwaway server for a test (docs/testing.md).

It comes with the package, and costs nothing until a fixture of it is asked for. The fixtures are plain ones, so tests
may be plain or coroutines, under any plugin that runs those, and under xdist, where each worker has its own server.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from echomq.app.echomq import EchoMQ
    from echomq.app.throwaway import Throwaway

__all__ = ["echomq", "echomq_app", "echomq_eager", "echomq_server"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """The settings: which app, and which server if not a throwaway one."""
    parser.addini("echomq_app", "the EchoMQ under test, MODULE:OBJECT as in tasks:mq")
    parser.addini(
        "echomq_url", "a server for the tests, where each has queues of its own; a throwaway one unless given"
    )
    group = parser.getgroup("echomq", "EchoMQ")
    group.addoption("--echomq-url", metavar="URL", help="a server for the tests, in the place of a throwaway one")


@pytest.fixture(scope="session")
def echomq_server(pytestconfig: pytest.Config) -> Iterator[Throwaway | str]:
    """The server of this run: a throwaway one, with its `url`; or the URL of `--echomq-url`, or else `echomq_url`."""
    url: str | None = pytestconfig.getoption("echomq_url") or pytestconfig.getini("echomq_url")
    if url:
        yield url
        return
    from echomq.app.throwaway import Throwaway

    with Throwaway() as server:
        yield server


@pytest.fixture
def echomq_app(pytestconfig: pytest.Config) -> EchoMQ:
    """The app under test, as `echomq_app` in the settings names it; to be overridden by a fixture that gives it."""
    from echomq.app.target import load
    from echomq.identity.errors import InvalidInputError

    target: str = pytestconfig.getini("echomq_app")
    if not target:
        pytest.fail(
            "which EchoMQ is under test? set echomq_app = tasks:mq in pytest's settings, or define a fixture "
            "echomq_app in conftest.py that returns it",
            pytrace=False,
        )
    try:
        return load(target)
    except InvalidInputError as error:
        pytest.fail(f"echomq_app = {target}: {error}", pytrace=False)


@pytest.fixture
def echomq(echomq_app: EchoMQ, echomq_server: Throwaway | str) -> Iterator[EchoMQ]:
    """The app under test, on the run's server, with nothing in its queues; gives the app.

    `mq.drain()`, `mq.clock`, `mq.assert_enqueued(...)` and so on work for as long as the test runs.
    """
    with echomq_app.testing(echomq_server):
        yield echomq_app


@pytest.fixture
def echomq_eager(echomq_app: EchoMQ) -> Iterator[EchoMQ]:
    """The app under test without a server: each job runs where it is sent; gives the app."""
    with echomq_app.eager():
        yield echomq_app
