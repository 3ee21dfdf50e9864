"""A real server for tests, in a temporary folder: started when it is asked for, gone at its end with all it had."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import quote
from weakref import WeakKeyDictionary, finalize

from echomq.identity.errors import InvalidInputError
from echomq.protocol.trials import unfence, wipe
from echomq.wire.options import FENCE

if TYPE_CHECKING:
    from echomq.app.connections import Connections
    from echomq.app.echomq import EchoMQ
    from echomq.wire.embedded import EmbeddedSource

_STOP_S: Final = 10.0
_LOOK_S: Final = 0.002


class Throwaway:
    """An embedded server of its own: `with Throwaway() as server: ... server.url`.

    It is the server that comes with the package, as `EchoMQ()` starts it, with nothing in it. When this process is
    killed the server goes by itself, within ten seconds; its folder, in the system's one for temporary files, stays
    then. `EmbeddedServerError` when it cannot be started.
    """

    __test__ = False

    def __init__(self) -> None:
        self._url = ""
        self._end: finalize[..., Throwaway] | None = None
        self._known: WeakKeyDictionary[EchoMQ, Connections] = WeakKeyDictionary()
        self._tests = set[object]()

    def __repr__(self) -> str:
        return f"<throwaway server at {self._url or 'no address: it does not run'}>"

    @property
    def url(self) -> str:
        """Where clients find it. `InvalidInputError` while it does not run."""
        if not self._url:
            raise InvalidInputError("the throwaway server does not run: use it in `with Throwaway() as server:`")
        return self._url

    def start(self) -> Self:
        """Starts it, and returns once it answers. Without a `stop` it ends with this process."""
        from echomq.wire.embedded import EmbeddedSource

        if self._url:
            raise InvalidInputError(f"{self!r} was started already")
        home = Path(tempfile.mkdtemp(prefix="echomq-test-"))
        source = EmbeddedSource(home)
        try:
            path = source.prepare().path
        except BaseException:
            _gone(source, home, os.getpid())
            raise
        self._url = f"unix://{quote(path or '')}"
        self._end = finalize(self, _gone, source, home, os.getpid())
        return self

    def stop(self) -> None:
        """Stops it, and removes its folder. A second call does nothing, nor does one in a forked child."""
        self._url = ""
        if self._end is not None:
            for connections in self._known.values():
                connections.let_go()
            self._known.clear()
            self._end()

    def empty(self, *, fence: str = FENCE) -> None:
        """Removes every queue, with all that is in it, and the fence, so that an app with another one may follow."""
        from echomq.wire import connect

        with connect(self.url, fence=fence) as conn:
            conn.run(wipe())
            conn.run(unfence())

    def enter(self, test: object) -> bool:
        """Takes a test in; whether it is the only one, so that all queues are its own."""
        self._tests.add(test)
        return len(self._tests) == 1

    def leave(self, test: object, *, fence: str) -> None:
        """Lets a test out. The last one leaves an empty server."""
        self._tests.discard(test)
        if not self._tests:
            self.empty(fence=fence)

    def connections(self, mq: EchoMQ) -> Connections:
        """An app's connections to it; the same ones each time, so that a long-lived loop opens one."""
        if (known := self._known.get(mq)) is None:
            known = self._known[mq] = mq.ground.connections.moved(self.url, None)
        return known

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _gone(source: EmbeddedSource, home: Path, pid: int) -> None:
    """Ends the server in a folder, and the folder."""
    from echomq.wire.embedded import status

    if os.getpid() != pid:
        return  # a forked child has the object, and not the server
    source.release()
    deadline = time.monotonic() + _STOP_S
    told = False
    while (seen := status(home)).supervised and time.monotonic() < deadline:
        if not told and seen.supervisor_pid is not None:
            told = True
            with suppress(OSError):
                os.kill(seen.supervisor_pid, signal.SIGTERM)
        time.sleep(_LOOK_S)
    shutil.rmtree(home, ignore_errors=True)
