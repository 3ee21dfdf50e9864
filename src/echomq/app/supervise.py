"""The supervisor: keeps so many worker processes at work, and starts another one for each that ends.

Each worker is whole: it claims, retries, recurs and recovers, and no leader tells it to. The supervisor only starts
them, waits for them, and hands on what it is told. One that keeps dying is started ever more slowly, never given up,
and each time that is logged.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final, Unpack

from echomq.app.address import Address, address_of
from echomq.app.child import Line, LineClosedError, ended, start
from echomq.app.echomq import EchoMQ
from echomq.app.flag import flag
from echomq.app.reload import watch
from echomq.app.supervised import work
from echomq.app.text import check_words
from echomq.app.times import first_ms
from echomq.app.worker import GRACE, Worker, WorkerWords
from echomq.identity.errors import EchoMQError, InvalidInputError
from echomq.protocol.backoff import Exponential, delay_ms
from echomq.protocol.checks import integer

log: Final = logging.getLogger("echomq.supervisor")

MAX_PROCESSES: Final = 1_000
_AGAIN: Final = Exponential(base=500, cap=30_000)
_STEADY_S: Final = 60.0
"""A worker that has lived for so long has not died of its beginning."""
_MARGIN_S: Final = 10.0
"""How long a worker may take to end after its grace, before it is killed."""
_LAST_WORDS_S: Final = 1.0
_RELOAD_S: Final = 2.0
"""How long running jobs may go on when the code has changed."""
_HEARKEN_S: Final = 1.0
"""A signal that comes to another thread, or just before the main one begins to wait, is heard when that looks again."""
_WORDS: Final = ("processes", "reload", *WorkerWords.__annotations__)


class Supervisor:
    """`processes` workers for an app, one a processor unless given, each in a process of its own with `options` of
    `Worker`.

    `app` is an `EchoMQ` that is a global of a module, its `MODULE:OBJECT` as a text, or an `Address`. `reload`, for
    development: the workers are started anew when a Python file below the current folder changes; that needs
    `echomq[reload]`. `InvalidInputError` for an app that no other process can find, and for wrong options.
    """

    def __init__(
        self,
        app: EchoMQ | Address | str,
        *,
        processes: int | None = None,
        reload: bool = False,
        **options: Unpack[WorkerWords],
    ) -> None:
        check_words("Supervisor", options, _WORDS)
        self._address = _address(app)
        if isinstance(app, EchoMQ):
            Worker(app, **options)  # refuses here what each of them would be refused for
        self._reload = flag("reload", reload)
        if reload and options.get("burst"):
            raise InvalidInputError("a burst ends when nothing is left and `reload` never ends: leave one of them out")
        count = (os.cpu_count() or 1) if processes is None else processes
        self._seats = [_Seat(n) for n in range(1, integer("processes", count, least=1, most=MAX_PROCESSES) + 1)]
        self._options = options
        self._grace_s = first_ms("grace", options.get("grace", GRACE)) / 1_000
        self._events: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._stopping = False
        self._at_once = False
        self._served = False
        self._refusal: EchoMQError | None = None
        self._turn: deque[_Seat] = deque()
        self._killed = 0

    def run(self) -> None:
        """Supervises until SIGTERM or SIGINT, or until the bursts of all workers are over.

        A first signal gives running jobs their grace, a second hands them back at once; SIGHUP, where no terminal sends
        it, replaces the workers one after another. In a thread that is not the main one there are no signals, only
        `stop`. Raises `InvalidInputError` or another `EchoMQError` with what the first worker says when that can not
        begin at all, and an `EchoMQError` at the end when a worker had to be killed.
        """
        watcher = watch(Path.cwd(), self._have_changed) if self._reload else None
        try:
            with self._signals():
                self._launch(self._seats[0])
                while any(seat.child is not None or not seat.done for seat in self._seats):
                    self._next()
        finally:
            if watcher is not None:
                watcher()
            for seat in self._seats:
                if seat.child is not None:
                    seat.child.process.kill()
        if self._refusal is not None:
            raise self._refusal
        if self._killed:
            raise EchoMQError(f"{self._killed} workers did not end within their grace and were killed")

    def stop(self) -> None:
        """Stops the workers, with their grace; a second call at once. From any thread, and from a signal's handler."""
        self._events.put(self._stop)

    def pids(self) -> list[int]:
        """The processes that there are now."""
        return [child.process.pid for seat in self._seats if (child := seat.child) is not None]

    # What happens

    def _next(self) -> None:
        """One event, or what is due."""
        now = time.monotonic()
        due = [seat for seat in self._seats if seat.due_at is not None and seat.due_at <= now]
        for seat in due:
            seat.due_at = None
            self._due(seat)
        if due:
            return
        waits = [seat.due_at - now for seat in self._seats if seat.due_at is not None]
        with suppress(Empty):
            self._events.get(timeout=min(waits, default=_HEARKEN_S))()

    def _due(self, seat: _Seat) -> None:
        child = seat.child
        if child is None:
            self._launch(seat)
        elif child.told and not child.hurried and not self._stopping:
            self._tell(seat, "now", _MARGIN_S)
        else:
            log.error("worker %d (process %d) does not end: it is killed", seat.number, child.process.pid)
            self._killed += 1
            child.process.kill()

    def _launch(self, seat: _Seat) -> None:
        label = f"echomq worker {self._address.target} {seat.number}/{len(self._seats)}"
        try:
            process, end = start(partial(work, self._address, self._options), label, signal.SIGTERM)
        except OSError as error:
            self._again(seat, f"cannot be started: {error}")
            return
        child = seat.child = _Child(process, Line(end))
        log.info("worker %d is process %d", seat.number, process.pid)
        hearing = threading.Thread(target=self._hear, args=(child,), name="echomq line", daemon=True)
        hearing.start()
        threading.Thread(target=self._await, args=(seat, child, hearing), name="echomq child", daemon=True).start()

    def _hear(self, child: _Child) -> None:
        with suppress(LineClosedError):
            while True:
                words = child.line.receive()
                self._events.put(partial(self._said, child, *words))

    def _await(self, seat: _Seat, child: _Child, hearing: threading.Thread) -> None:
        code = child.process.wait()
        hearing.join(_LAST_WORDS_S)
        self._events.put(partial(self._ended, seat, child, code))

    def _said(self, child: _Child, word: str, *more: Any) -> None:
        match word:
            case "serving":
                child.served = True
                if not self._served:
                    self._served = True
                    for other in self._seats[1:]:
                        if not self._stopping:
                            self._launch(other)
                self._roll()
            case "worn":
                child.worn = int(more[0])
            case _:
                child.refusal = more

    def _ended(self, seat: _Seat, child: _Child, code: int) -> None:
        child.line.close()
        seat.child = seat.due_at = None
        lived_s = time.monotonic() - child.began
        how = f"ended with {ended(code)} after {lived_s:.1f} s"
        if self._stopping:
            log.info("worker %d (process %d) %s", seat.number, child.process.pid, how)
            seat.done = True
        elif child.worn == 0:
            self._again(seat, "has more memory than it may have, before its first job")
        elif child.told or child.worn:
            log.info("worker %d (process %d) %s, and is replaced", seat.number, child.process.pid, how)
            self._launch(seat)
        elif child.refusal is not None and not child.served:
            self._refused(seat, *child.refusal)
        elif code == 0 and self._options.get("burst"):
            seat.done = True
        else:
            if lived_s >= _STEADY_S:
                seat.streak = 0
            self._again(seat, how)

    def _refused(self, seat: _Seat, text: str, code: int) -> None:
        if self._reload:
            log.error("%s; waiting for a change", text)
        elif self._served:
            self._again(seat, f"cannot begin: {text}")
        else:
            self._refusal = InvalidInputError(text) if code == 2 else EchoMQError(text)
            self._stopping = True
            for each in self._seats:
                each.done = True

    def _again(self, seat: _Seat, why: str) -> None:
        seat.streak += 1
        wait_ms = delay_ms(_AGAIN, seat.streak)
        times = f", {seat.streak} times in a row" if seat.streak > 1 else ""
        log.error("worker %d %s%s; another one is started in %d ms", seat.number, why, times, wait_ms)
        seat.due_at = time.monotonic() + wait_ms / 1_000

    # What it is told

    def _stop(self) -> None:
        if self._stopping:
            log.warning("told again: the workers hand back what they have in hand")
        else:
            log.info("told to stop: the workers claim no more, and have %g s for what they have in hand", self._grace_s)
        word, within_s = ("now", _MARGIN_S) if self._stopping else ("stop", self._grace_s + _MARGIN_S)
        self._stopping = True
        for seat in self._seats:
            if seat.child is None:
                seat.done, seat.due_at = True, None
            else:
                self._tell(seat, word, within_s)

    def _tell(self, seat: _Seat, word: str, within_s: float) -> None:
        child = seat.child
        if child is not None:
            child.told, child.hurried = True, word == "now"
            seat.due_at = time.monotonic() + within_s
            with suppress(LineClosedError):
                child.line.send(word)

    def _have_changed(self, names: list[str]) -> None:
        self._events.put(partial(self._changed, names))

    def _changed(self, names: list[str]) -> None:
        if self._stopping:
            return
        log.info("%s changed: the workers are started anew", ", ".join(names))
        for seat in self._seats if self._served else self._seats[:1]:
            seat.streak = 0
            if seat.child is None:
                seat.due_at = time.monotonic()
            elif not seat.child.told:
                self._tell(seat, "stop", min(_RELOAD_S, self._grace_s))

    def _replace(self) -> None:
        if not self._stopping:
            log.info("SIGHUP: the workers are replaced, one after another")
            self._turn = deque(seat for seat in self._seats if seat.child is not None)
            self._roll()

    def _roll(self) -> None:
        """The next one to be replaced, once the others serve."""
        if all(seat.child is not None and seat.child.served and not seat.child.told for seat in self._seats):
            while self._turn and not self._stopping:
                seat = self._turn.popleft()
                self._tell(seat, "stop", self._grace_s)
                return

    def _handler(self, do: Callable[[], None]) -> Callable[[int, object], None]:
        def handler(number: int, frame: object) -> None:  # noqa: ARG001  (what `signal` calls it with)
            self._events.put(do)

        return handler

    @contextmanager
    def _signals(self) -> Generator[None, None, None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        wanted: dict[int, Callable[[], None]] = {signal.SIGTERM: self._stop, signal.SIGINT: self._stop}
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            wanted[signal.SIGHUP] = self._stop if _on_a_terminal() else self._replace
        # Put into the queue only: a handler may run at any point of anything.
        before = {number: signal.signal(number, self._handler(do)) for number, do in wanted.items()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class _Child:
    def __init__(self, process: subprocess.Popen[bytes], line: Line) -> None:
        self.process = process
        self.line = line
        self.began = time.monotonic()
        self.served = self.told = self.hurried = False
        self.worn: int | None = None
        """How many jobs it has claimed before it was worn out."""
        self.refusal: tuple[Any, ...] | None = None


class _Seat:
    """A place for a worker, and when something is to be done about it, by the monotonic clock."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.child: _Child | None = None
        self.streak = 0
        self.due_at: float | None = None
        self.done = False


def _address(app: EchoMQ | Address | str) -> Address:
    if isinstance(app, Address):
        return app
    if isinstance(app, str):
        return Address(app)
    if not isinstance(app, EchoMQ):
        raise InvalidInputError(f"a supervisor takes an EchoMQ, MODULE:OBJECT as text, or an Address, not {app!r:.200}")
    if (address := address_of(app)) is not None:
        return address
    raise InvalidInputError(
        "the workers of a supervisor find an EchoMQ only as a global of a module: give this one a name there"
    )


def _on_a_terminal() -> bool:
    try:
        return sys.stdin.isatty()
    except (AttributeError, ValueError):
        return False
