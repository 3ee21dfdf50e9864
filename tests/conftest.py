"""What every test shares: a real server, a queue of its own, a deadline, and the check that it left
nothing behind that the protocol does not allow."""

from __future__ import annotations

import asyncio
import faulthandler
import inspect
import itertools
import logging
import os
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from types import FrameType
from typing import Any

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key
from hypothesis import HealthCheck, settings

from support.invariants import check_queue_invariants, queues_on
from support.registry import databases, strays
from support.servers import Server

DEADLINE_S = 60.0
"""How long a test may take, its fixtures included, unless it carries a `deadline` marker."""

# No deadline an example: these machines are shared, and every test has one of its own. In CI the same
# examples every time, so that a red run is about the change; by hand, new ones each run.
settings.register_profile(
    "echomq",
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("echomq")

_names = itertools.count(1)


def pytest_configure() -> None:
    """What `nohup` and `&` make of these signals is not for the processes that tests start."""
    for number, usual in ((signal.SIGHUP, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)


class DeadlineExceeded(BaseException):  # not an Exception: code under test must not swallow it
    """A test did not end within its deadline."""


def _deadline_of(item: pytest.Item) -> float:
    marker = item.get_closest_marker("deadline")
    return float(marker.args[0]) if marker else DEADLINE_S


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Give every test a deadline: an alarm first, then a traceback of every thread and the end."""
    seconds = _deadline_of(item)

    def ring(number: int, frame: FrameType | None) -> None:
        raise DeadlineExceeded(f"{item.nodeid} is not done after {seconds:g} s")

    as_it_was = _process_state()
    before = signal.signal(signal.SIGALRM, ring)
    # A little later than a coroutine's own deadline, and again, should the first one be lost in a task.
    signal.setitimer(signal.ITIMER_REAL, seconds + 2, 5)
    # To the real stderr: that of a test is captured, and lost with the process.
    stderr = item.config.stash.get(fault_handler_stderr_fd_key, sys.__stderr__)
    faulthandler.dump_traceback_later(seconds + 30, exit=True, file=stderr)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        as_it_was()


def _process_state() -> Callable[[], None]:
    """What a test may leave behind in its process, and the next one would meet: gives what puts it right again."""
    ours, mask = logging.getLogger("echomq"), signal.pthread_sigmask(signal.SIG_BLOCK, ())
    level, off = ours.level, logging.root.manager.disable
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)}

    def restore() -> None:
        ours.setLevel(level)
        logging.disable(off)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    return restore


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if os.environ.get("ECHOMQ_TEST_LOOP") == "uvloop":
        import uvloop

        return uvloop.new_event_loop
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine test on a fresh loop, under its deadline."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    arguments: dict[str, Any] = {name: pyfuncitem.funcargs[name] for name in names}

    async def run() -> None:
        async with asyncio.timeout(_deadline_of(pyfuncitem)):
            await pyfuncitem.obj(**arguments)

    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(run())
    return True


def breaches(server: Server) -> list[str]:
    """What on a server breaks protocol §2 or §12.1."""
    out: list[str] = []
    with server.client() as client:
        for number in databases(client):
            client.execute("SELECT", number)
            out += strays(client)
        client.execute("SELECT", 0)
        for queue in queues_on(client.execute):
            out += [f"queue {queue}: {breach}" for breach in check_queue_invariants(client.execute, queue)]
    return out


def _check(server: Server, item: pytest.Item) -> None:
    if item.get_closest_marker("strays") is None and (found := breaches(server)):
        pytest.fail("the server was left in a state the protocol forbids:\n" + "\n".join(found), pytrace=False)


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """The server of this run, shared; each test finds it empty."""
    with Server() as running:
        yield running


@pytest.fixture(autouse=True)
def leaves_the_server_sound(request: pytest.FixtureRequest) -> Iterator[None]:
    """After every test: nothing outside the registry, every invariant kept; then an empty server."""
    if "server" not in request.fixturenames:
        yield
        return
    running: Server = request.getfixturevalue("server")
    yield
    if not running.running:
        running.start()
    try:
        _check(running, request.node)
    finally:
        with running.client() as client:
            client.execute("FLUSHALL")
            client.execute("SCRIPT", "FLUSH")


@pytest.fixture
def start_server(request: pytest.FixtureRequest) -> Iterator[Callable[..., Server]]:
    """Starts servers of the test's own (arguments of `Server`), checked and stopped after it."""
    started: list[Server] = []

    def start(*args: Any, **kwargs: Any) -> Server:
        each = Server(*args, **kwargs)
        started.append(each)
        return each.start()

    try:
        yield start
        for each in started:
            if each.running:
                each.thaw()
                _check(each, request.node)
    finally:
        for each in started:
            each.stop()


@pytest.fixture
def queue() -> str:
    """A queue name that no other test uses."""
    return f"q{os.getpid()}-{next(_names)}"
